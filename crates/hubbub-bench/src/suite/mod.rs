//! The whole table of speed and memory, on this machine: each row alternates the bare limit and the real server in
//! the same run, and the medians count.

mod broadcast;
#[cfg(all(feature = "postgres", feature = "amqp"))]
mod databases;
mod keys;
mod loaded;
mod operating;
mod paired;
mod people;
mod queues;
mod rooms;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::machine::Machine;
use crate::options::duration;
use crate::spawn::Server;

/// Options of `bench suite`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SuiteArgs {
    /// Write the table to this file, too
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Only these rows: chat, chat-64, http, fanout-100, fanout-1000, slow-disk, delivery, hot-room, idle, members, loaded,
    /// kv-get, kv-put, kv-miss, line, taken, broadcast; with --postgres pg-rows and pg-kv-put, and with --rabbitmq, too, pg-drain and
    /// pg-live
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    only: Vec<String>,
    /// Repeat each measurement this often
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// Length of each measurement
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "TIME")]
    time: Duration,
    /// Messages stored in the row `loaded`
    #[arg(long, default_value_t = 5_000_000, value_name = "N")]
    messages: u64,
    /// Keys in the row `kv-miss`
    #[arg(long, default_value_t = 5_000_000, value_name = "N")]
    keys: u64,
    /// Messages that wait in the rows `line` and `taken`; five times as many were taken before in the latter
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    waiting: u64,
    /// PostgreSQL to measure with, postgres://…: a server where databases may be made
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// RabbitMQ to measure with, amqp://…: its queue hubbub.room.0 is emptied
    #[arg(long, value_name = "URL")]
    rabbitmq: Option<String>,
    /// Messages of each measurement of the rows that need them
    #[arg(long, default_value_t = 300_000, value_name = "N")]
    persisted: u64,
    /// A quick look: one round, short, 200,000 messages and keys, 50,000 messages waiting
    #[arg(long)]
    quick: bool,
    /// The server to measure; by default this program
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Directory for the data, on the disk to measure
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Threads of the load generator
    #[arg(long, default_value_t = crate::machine::cores().min(2), value_name = "N")]
    pub(crate) threads: usize,
}

/// One line of the table.
#[derive(Debug)]
struct Row {
    what: String,
    measured: String,
    limit: String,
    share: String,
    target: &'static str,
    ok: bool,
    /// What else a reader should know.
    note: String,
}

/// What the rows share.
struct Bench {
    program: PathBuf,
    dir: tempfile::TempDir,
    rounds: usize,
    is_quick: bool,
    time: Duration,
    messages: u64,
    keys: u64,
    waiting: u64,
    #[cfg_attr(not(all(feature = "postgres", feature = "amqp")), allow(dead_code))]
    postgres: Option<String>,
    #[cfg_attr(not(all(feature = "postgres", feature = "amqp")), allow(dead_code))]
    rabbitmq: Option<String>,
    #[cfg_attr(not(all(feature = "postgres", feature = "amqp")), allow(dead_code))]
    persisted: u64,
}

impl Bench {
    /// A server on an empty directory of its own.
    async fn fresh(&self, env: &[(&str, &str)]) -> anyhow::Result<Fresh> {
        let data = tempfile::Builder::new().prefix("data-").tempdir_in(self.dir.path())?;
        let server = self.start(data.path(), env).await?;
        Ok(Fresh { server, _data: data })
    }

    async fn start(&self, data: &Path, env: &[(&str, &str)]) -> anyhow::Result<Server> {
        Server::real(&self.program, data, env).await
    }
}

/// A server and its data, gone together.
struct Fresh {
    server: Server,
    _data: tempfile::TempDir,
}

const ROWS: [&str; 21] = [
    "chat",
    "chat-64",
    "http",
    "fanout-100",
    "fanout-1000",
    "slow-disk",
    "delivery",
    "hot-room",
    "idle",
    "members",
    "loaded",
    "kv-get",
    "kv-put",
    "kv-miss",
    "line",
    "taken",
    "broadcast",
    "pg-rows",
    "pg-kv-put",
    "pg-drain",
    "pg-live",
];

/// Measures the rows asked for; the answer is the table and whether all targets were met.
pub(crate) async fn measure(args: &SuiteArgs) -> anyhow::Result<(String, bool)> {
    if let Some(unknown) = args.only.iter().find(|name| !ROWS.contains(&name.as_str())) {
        anyhow::bail!("there is no row '{unknown}'; rows are {}", ROWS.join(", "));
    }
    let dir = tempfile::Builder::new().prefix("hubbub-suite-").tempdir_in(&args.dir);
    let bench = Bench {
        program: args.server.clone().map_or_else(std::env::current_exe, Ok)?,
        dir: dir.with_context(|| format!("cannot make a directory in {}", args.dir.display()))?,
        rounds: if args.quick { 1 } else { args.rounds.max(1) },
        is_quick: args.quick,
        time: if args.quick { args.time.min(Duration::from_secs(2)) } else { args.time },
        messages: if args.quick { args.messages.min(200_000) } else { args.messages },
        keys: if args.quick { args.keys.min(200_000) } else { args.keys },
        waiting: if args.quick { args.waiting.min(50_000) } else { args.waiting },
        postgres: args.postgres.clone(),
        rabbitmq: args.rabbitmq.clone(),
        persisted: if args.quick { args.persisted.min(30_000) } else { args.persisted },
    };
    let mut rows = Vec::new();
    let is_wanted = |name: &str| match name {
        _ if !args.only.is_empty() => args.only.iter().any(|only| only == name),
        "pg-rows" | "pg-kv-put" => args.postgres.is_some(),
        "pg-drain" | "pg-live" => args.postgres.is_some() && args.rabbitmq.is_some(),
        _ => true,
    };
    for name in ROWS.into_iter().filter(|name| is_wanted(name)) {
        // A row that cannot be measured is a row that failed; the others still count.
        match bench.measure(name).await {
            Ok(measured) => rows.extend(measured),
            Err(error) => rows.push(Row::failed(name, &error)),
        }
        if let Some(row) = rows.last() {
            progress(row);
        }
    }
    let ok = rows.iter().all(|row| row.ok);
    Ok((table(&rows, &bench), ok))
}

impl Bench {
    async fn measure(&self, name: &str) -> anyhow::Result<Vec<Row>> {
        Ok(match name {
            "chat" => vec![self.chat().await?],
            "chat-64" => self.chat_64().await?,
            "http" => vec![self.http().await?],
            "fanout-100" => vec![self.fanout(100).await?],
            "fanout-1000" => vec![self.fanout(1_000).await?],
            "slow-disk" => vec![self.slow_disk().await?],
            "delivery" => vec![self.delivery().await?],
            "hot-room" => vec![self.hot_room().await?],
            "idle" => vec![self.idle().await?],
            "members" => vec![self.members().await?],
            "kv-get" => vec![self.kv_get().await?],
            "kv-put" => vec![self.kv_put().await?],
            "kv-miss" => self.kv_miss().await?,
            "line" => self.line().await?,
            "taken" => vec![self.taken().await?],
            "broadcast" => vec![self.broadcast().await?],
            "pg-rows" | "pg-kv-put" | "pg-drain" | "pg-live" => self.databases(name).await?,
            _ => self.loaded().await?,
        })
    }
}

impl Bench {
    #[cfg(all(feature = "postgres", feature = "amqp"))]
    async fn databases(&self, name: &str) -> anyhow::Result<Vec<Row>> {
        self.check_databases().await?;
        Ok(match name {
            "pg-rows" => self.pg_rows().await?,
            "pg-kv-put" => vec![self.pg_kv_put().await?],
            _ => self.pg_broker(name == "pg-drain").await?,
        })
    }

    #[cfg(not(all(feature = "postgres", feature = "amqp")))]
    async fn databases(&self, _name: &str) -> anyhow::Result<Vec<Row>> {
        anyhow::bail!("this program was built without the features postgres and amqp")
    }
}

impl Row {
    fn failed(name: &str, error: &anyhow::Error) -> Self {
        Self {
            what: name.to_owned(),
            measured: "not measured".to_owned(),
            limit: String::new(),
            share: String::new(),
            target: "",
            ok: false,
            note: format!("{error:#}"),
        }
    }
}

/// What to say about a machine that had other things to do.
fn noise_note(share: f64) -> String {
    format!("{:.0} % of the machine taken by others", 100.0 * share)
}

fn progress(row: &Row) {
    use std::io::Write as _;
    // Nobody can be told that the terminal is gone.
    let _ = writeln!(std::io::stderr(), "{}: {} {}", row.what, row.measured, row.share);
}

/// The table in Markdown.
fn table(rows: &[Row], bench: &Bench) -> String {
    let mut out = String::new();
    let commit = option_env!("HUBBUB_COMMIT").unwrap_or("not recorded");
    let (version, rounds, seconds) = (env!("CARGO_PKG_VERSION"), bench.rounds, bench.time.as_secs_f64());
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{}. {}. hubbub {version}, commit {commit}. Medians of {rounds} rounds of {seconds} s, bare and real in turn.\n",
        Machine::look(),
        crate::machine::now()
    );
    out.push_str(
        "| what | measured | limit | share | target | met |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for Row { what, measured, limit, share, target, ok, .. } in rows {
        let met = if *ok { "yes" } else { "**no**" };
        let _ = writeln!(out, "| {what} | {measured} | {limit} | {share} | {target} | {met} |");
    }
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        let _ = write!(out, "\n- {}: {}", row.what, row.note);
    }
    out.push('\n');
    out
}
