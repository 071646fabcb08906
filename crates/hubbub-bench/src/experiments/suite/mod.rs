//! The whole table of speed and memory, on this machine: each row alternates the bare limit and the real server in
//! the same run, and the medians count.

#[cfg(all(feature = "postgres", feature = "amqp"))]
mod database_keys;
#[cfg(all(feature = "postgres", feature = "amqp"))]
mod databases;
mod floods;
mod generator;
mod keys;
mod loaded;
mod paired;
mod people;
mod queues;
mod rooms;
mod secured;
#[cfg(all(feature = "kafka", feature = "scylla"))]
mod streams;
mod together;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::host::background_load::{BackgroundLoadMeter, NOT_KNOWN, largest, marks};
use crate::host::machine::scratch;
use crate::host::spawn::Server;
use crate::options::duration;
use crate::report::{Origin, Report, write_files};
use crate::workloads::engine::{Findings, Workload};

#[derive(Debug, Clone, Args)]
pub(crate) struct SuiteArgs {
    /// Write the table into this directory: suite.md, and suite.json
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write into the directory of --out even if it is not empty
    #[arg(long, requires = "out")]
    pub(crate) overwrite: bool,
    /// Only these rows: chat, chat-64, http, fanout-100, fanout-1000, slow-disk, delivery, hot-room, floods, idle, members, loaded,
    /// kv-get, kv-put, kv-miss, line, taken, broadcast, generator; with --postgres pg-rows, pg-kv-get, pg-kv-put and pg-kv-miss, and with
    /// --rabbitmq, too, pg-drain and pg-live; with --kafka and --cassandra kafka-live, kafka-drain, bystander
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    only: Vec<String>,
    /// The rows chat, chat-64, http and kv-get with HS256 tokens and with TLS, too, in turn with the same without, and idle with
    /// TLS; needs openssl
    #[arg(long)]
    secured: bool,
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
    /// Kafka to measure with, kafka://…: topics are made and removed there
    #[arg(long, value_name = "URL")]
    kafka: Option<String>,
    /// Cassandra or ScyllaDB to measure with, scylla://HOST:PORT/NAME: keyspaces are made and removed there
    #[arg(long, value_name = "URL")]
    cassandra: Option<String>,
    /// Process of Cassandra on this machine: `kafka-drain` then tells its processor time for a message, which says more than
    /// rates where others are at work
    #[arg(long, value_name = "PID")]
    cassandra_pid: Option<u32>,
    /// Messages of each measurement of the rows that need them
    #[arg(long, default_value_t = 300_000, value_name = "N")]
    persisted: u64,
    /// A quick look: one round, short, 200,000 messages and keys, 50,000 messages waiting
    #[arg(long)]
    quick: bool,
    /// The program to start servers with; by default this one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Directory for the data, on the disk to measure
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Threads of the load generator
    #[arg(long, default_value_t = crate::host::machine::cores().min(2), value_name = "N")]
    pub(crate) threads: usize,
}

#[derive(Debug, Serialize)]
struct Row {
    what: String,
    measured: String,
    limit: String,
    share: String,
    target: &'static str,
    ok: bool,
    /// What else a reader should know.
    note: String,
    /// Share of the machine that others took meanwhile; of several sides the largest. `None` where it is not known.
    others: Option<f64>,
    /// Why the ledger of a measurement did not balance.
    faults: Vec<String>,
    /// In what way it is not what the row is about.
    differs: Option<String>,
}

impl Row {
    fn new(what: impl Into<String>, measured: String, target: &'static str, ok: bool) -> Self {
        let (limit, share, note, others, faults, differs) = Default::default();
        Self { what: what.into(), measured, limit, share, target, ok, note, others, faults, differs }
    }

    /// A row that could not be measured, and why.
    fn failed(name: &str, error: &anyhow::Error) -> Self {
        // It stands in a cell of a table.
        let reason = format!("{error:#}").replace('|', "/").lines().collect::<Vec<_>>().join(" ");
        Self::new(name, format!("**not measured**: {reason}"), "", false)
    }

    fn against(self, limit: String, share: String) -> Self {
        Self { limit, share, ..self }
    }

    /// Parts of the note stand apart by semicolons.
    fn noting(mut self, note: impl AsRef<str>) -> Self {
        if !self.note.is_empty() && !note.as_ref().is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note.as_ref());
        self
    }

    /// What others took of the machine during each of its sides; nothing where that is not known of all of them.
    fn beside(mut self, others: &[Option<f64>]) -> Self {
        self.others = largest(others.iter().copied());
        let Some(known) = others.iter().copied().collect::<Option<Vec<f64>>>() else { return self };
        let shares: Vec<String> = known.iter().map(|share| format!("{:.0} %", 100.0 * share)).collect();
        self.noting(format!("{} of the machine taken by others", shares.join(" and ")))
    }

    /// What others took from the first preparation to the end, where that is all that is known.
    fn beside_all_the_time(self, others: Option<f64>) -> Self {
        if self.others.is_some() {
            return self;
        }
        let note = others.map_or_else(
            || NOT_KNOWN.to_owned(),
            |share| format!("{:.0} % of the machine taken by others, preparations included", 100.0 * share),
        );
        Self { others, ..self.noting(note) }
    }

    /// Faults in the ledger of what was measured.
    fn with_faults(mut self, faults: Vec<String>) -> Self {
        self.faults.extend(faults.iter().cloned());
        self.noting(faults.join("; "))
    }

    /// What makes the figure worth less than it seems, for the table itself.
    fn marks(&self) -> String {
        let marks = marks(self.faults.is_empty(), self.others);
        marks.iter().chain(&self.differs).map(|mark| format!("; **{mark}**")).collect()
    }
}

/// Of servers that ask for tokens.
const SECRET: &str = "only for measuring, and longer than 32 bytes";

struct Bench {
    /// The options, within the bounds of `--quick`.
    args: SuiteArgs,
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Bench {
    /// A server on an empty directory of its own.
    async fn fresh(&self, env: &[(&str, &str)]) -> anyhow::Result<Server> {
        let data = scratch("data-", self.dir.path())?;
        let mut server = Server::real(&self.program, data.path(), env).await?;
        server.data = Some(data);
        Ok(server)
    }

    async fn load<W: Workload>(&self, server: &Server, own: &[&str]) -> anyhow::Result<Report> {
        server.load::<W>(Some(self.args.time), own).await
    }

    /// The same at a server of its own.
    async fn load_fresh<W: Workload>(&self, own: &[&str]) -> anyhow::Result<Report> {
        self.fresh(&[]).await?.during(async |server: &Server| self.load::<W>(server, own).await).await
    }
}

/// The names of all rows, in the order of the table.
const ROWS: &str = "chat chat-64 http fanout-100 fanout-1000 slow-disk delivery hot-room floods idle members loaded \
     kv-get kv-put kv-miss line taken broadcast generator pg-rows pg-kv-get pg-kv-put pg-kv-miss pg-drain pg-live \
     kafka-live kafka-drain bystander chat-secured chat-64-secured http-secured kv-get-secured idle-secured";

#[derive(Serialize)]
pub(crate) struct Table {
    rows: Vec<Row>,
    rounds: usize,
    time: Duration,
}

/// Measures the rows asked for.
pub(crate) async fn measure(args: &SuiteArgs) -> anyhow::Result<Table> {
    let names: Vec<&str> = ROWS.split_whitespace().collect();
    if let Some(unknown) = args.only.iter().find(|name| !names.contains(&name.as_str())) {
        anyhow::bail!("there is no row '{unknown}'; rows are {}", names.join(", "));
    }
    let mut args = args.clone();
    args.rounds = args.rounds.max(1);
    if args.quick {
        args.rounds = 1;
        args.time = args.time.min(Duration::from_secs(2));
        args.messages = args.messages.min(200_000);
        args.keys = args.keys.min(200_000);
        args.waiting = args.waiting.min(50_000);
        args.persisted = args.persisted.min(30_000);
    }
    let dir = scratch("hubbub-suite-", &args.dir)?;
    let program = args.program.clone().map_or_else(std::env::current_exe, Ok)?;
    let bench = Bench { args, program, dir };
    let mut rows = Vec::new();
    for name in names.into_iter().filter(|name| bench.args.wants(name)) {
        let meter = BackgroundLoadMeter::start(bench.args.engines());
        // A row that cannot be measured is a row that failed; the others still count.
        let measured = bench.measure(name).await.unwrap_or_else(|error| vec![Row::failed(name, &error)]);
        let others = meter.share();
        let measured: Vec<Row> = measured.into_iter().map(|row| row.beside_all_the_time(others)).collect();
        measured.iter().for_each(progress);
        rows.extend(measured);
    }
    Ok(Table { rows, rounds: bench.args.rounds, time: bench.args.time })
}

impl SuiteArgs {
    /// The URLs of databases and brokers.
    fn engines(&self) -> impl Iterator<Item = &str> {
        let urls = [&self.postgres, &self.rabbitmq, &self.kafka, &self.cassandra];
        urls.into_iter().flatten().map(String::as_str)
    }

    fn wants(&self, name: &str) -> bool {
        let is_named = |name| self.only.iter().any(|only| only == name);
        match name.strip_suffix(secured::SUFFIX) {
            Some(plain) if self.secured && (self.only.is_empty() || is_named(plain)) => return true,
            Some(_) => return is_named(name),
            None => {}
        }
        match name {
            _ if !self.only.is_empty() => is_named(name),
            "pg-rows" | "pg-kv-get" | "pg-kv-put" | "pg-kv-miss" => self.postgres.is_some(),
            "pg-drain" | "pg-live" => self.postgres.is_some() && self.rabbitmq.is_some(),
            "kafka-live" | "kafka-drain" | "bystander" => self.kafka.is_some() && self.cassandra.is_some(),
            _ => true,
        }
    }
}

impl Bench {
    async fn measure(&self, name: &str) -> anyhow::Result<Vec<Row>> {
        if let Some(plain) = name.strip_suffix(secured::SUFFIX) {
            return self.secured(plain).await;
        }
        Ok(match name {
            "chat" | "http" | "fanout-100" | "fanout-1000" => vec![self.against_bare(name).await?],
            "chat-64" => self.chat_64().await?,
            "slow-disk" => vec![self.slow_disk().await?],
            "delivery" => vec![self.delivery().await?],
            "hot-room" => vec![self.hot_room().await?],
            "floods" => self.floods().await?,
            "idle" => vec![self.idle().await?],
            "members" => vec![self.members().await?],
            "kv-get" => vec![self.kv_get().await?],
            "kv-put" => vec![self.kv_put().await?],
            "kv-miss" => self.kv_miss().await?,
            "line" => self.line().await?,
            "taken" => vec![self.taken().await?],
            "broadcast" => vec![self.broadcast().await?],
            "generator" => self.generator().await?,
            name if name.starts_with("pg-") => self.databases(name).await?,
            "kafka-live" | "kafka-drain" | "bystander" => self.streams(name).await?,
            _ => self.loaded().await?,
        })
    }

    #[cfg(not(all(feature = "postgres", feature = "amqp")))]
    async fn databases(&self, _name: &str) -> anyhow::Result<Vec<Row>> {
        anyhow::bail!("this program was built without the features postgres and amqp")
    }

    #[cfg(not(all(feature = "kafka", feature = "scylla")))]
    async fn streams(&self, _name: &str) -> anyhow::Result<Vec<Row>> {
        anyhow::bail!("this program was built without the features kafka and scylla")
    }
}

fn progress(row: &Row) {
    use std::io::Write as _;
    // Nobody can be told that the terminal is gone.
    let Row { what, measured, share, .. } = row;
    let _ = writeln!(std::io::stderr(), "{what}: {measured}{} {share}", row.marks());
    for fault in &row.faults {
        let _ = writeln!(std::io::stderr(), "  {fault}");
    }
}

fn rounds(all: &[f64], text: impl Fn(&f64) -> String) -> String {
    all.iter().map(text).collect::<Vec<_>>().join("; ")
}

impl Findings for Table {
    fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        write_files(dir, [("suite.md", self.terminal()), ("suite.json", json)])
    }

    fn terminal(&self) -> String {
        let mut out = String::new();
        let Origin { machine, started, version, commit, .. } = Origin::here();
        let (commit, rounds) = (commit.unwrap_or("not recorded"), self.rounds);
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{machine}. {started}. hubbub {version}, commit {commit}. Medians of {rounds} rounds of {} s, bare and real in turn.\n",
            self.time.as_secs_f64()
        );
        out.push_str(
            "| what | measured | limit | share | target | met |\n| --- | --- | --- | --- | --- | --- |\n",
        );
        for row in &self.rows {
            let Row { what, measured, limit, share, target, ok, .. } = row;
            let (met, marks) = (if *ok { "yes" } else { "**no**" }, row.marks());
            let _ = writeln!(out, "| {what} | {measured}{marks} | {limit} | {share} | {target} | {met} |");
        }
        for row in self.rows.iter().filter(|row| !row.note.is_empty()) {
            let _ = write!(out, "\n- {}: {}", row.what, row.note);
        }
        out.push('\n');
        out
    }

    fn is_clean(&self) -> bool {
        self.rows.iter().all(|row| row.ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_a_row_worth_less_stands_in_the_table() {
        let row = |what: &str| Row::new(what, "5 messages/s".to_owned(), "≥ 4", true);
        let rows = vec![
            row("quiet").beside(&[Some(0.02), Some(0.05)]),
            row("noisy").beside(&[Some(0.01), Some(0.09)]),
            row("open").with_faults(vec!["3 refused".to_owned()]).noting("a note"),
            row("both").beside(&[Some(0.5)]).with_faults(vec!["1 lost".to_owned(), "2 late".to_owned()]),
            row("all").beside_all_the_time(Some(0.2)),
            row("dark").beside(&[None, Some(0.01)]).beside_all_the_time(None),
            row("parts").beside(&[Some(0.01)]).beside_all_the_time(Some(0.2)),
            Row::failed("line", &anyhow::anyhow!("gone | away\nat once").context("filling the queues")),
        ];
        let table = Table { rows, rounds: 1, time: Duration::from_secs(1) }.terminal();
        for line in [
            "| quiet | 5 messages/s |  |  | ≥ 4 | yes |",
            "| noisy | 5 messages/s; **9 % of the machine taken by others** |",
            "| open | 5 messages/s; **ledger does not balance** |",
            "| both | 5 messages/s; **ledger does not balance**; **50 % of the machine taken by others** |",
            "| all | 5 messages/s; **20 % of the machine taken by others** |",
            "| parts | 5 messages/s |",
            "| line | **not measured**: filling the queues: gone / away at once |",
            "- quiet: 2 % and 5 % of the machine taken by others",
            "- open: 3 refused; a note",
            "- all: 20 % of the machine taken by others, preparations included",
            "| dark | 5 messages/s |  |  | ≥ 4 | yes |",
            "- dark: what others took of the machine is not known",
            "- both: 50 % of the machine taken by others; 1 lost; 2 late",
        ] {
            assert!(table.contains(line), "{line}: {table}");
        }
    }
}
