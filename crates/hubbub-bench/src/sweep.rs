//! `hubbub bench sweep`: what the size of a batch is worth on PostgreSQL, from single-row commits to thousands, each with
//! and without a linger.
//!
//! Every measurement is a server of its own on a database of its own, with `pipeline.batch_max` and `pipeline.linger` as
//! said, and publishers that always have more under way than two batches hold. Rounds take turns.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use crate::engine::Findings;
use crate::limits::postgres::{Database, check_durable};
use crate::machine::Machine;
use crate::options::duration;
use crate::others::{NOT_KNOWN, OthersMeter, largest, marks};
use crate::persist;
use crate::persist::outcome::Outcome;
use crate::report::grouped;
use crate::spawn::Server;
use crate::statistics::median;

/// Connections that publish. A request of each has a tenth of a batch, of which the server may submit a part first, so that
/// batches are full but for the last tenth.
const PUBLISHERS: u64 = 64;
const REQUESTS_OF_A_BATCH: u64 = 10;
/// Messages sent before each measurement, which give rooms and users their numbers.
const WARM_UP: u64 = 20_000;

#[derive(Debug, Clone, Args)]
pub(crate) struct SweepArgs {
    /// PostgreSQL to measure with, postgres://…: a server where databases may be made
    #[arg(long, value_name = "URL")]
    postgres: String,
    /// Most operations of a batch
    #[arg(long, default_value = "1,100,500,1000,5000", value_delimiter = ',', value_name = "N")]
    batches: Vec<u64>,
    /// How long a batch lingers for more operations where it does, in whole milliseconds
    #[arg(long, default_value = "5ms", value_parser = duration, value_name = "TIME")]
    linger: Duration,
    /// Length of each measurement
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    time: Duration,
    /// Repeat each measurement this often
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// The program to start servers with; by default this one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print the table as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads of the load generator
    #[arg(long, default_value_t = crate::machine::cores().min(2), value_name = "N")]
    pub(crate) threads: usize,
}

/// Medians over the rounds of one size.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    batch_max: u64,
    linger_ms: f64,
    operations_mean: f64,
    per_second: f64,
    per_second_range: [f64; 2],
    batch_p95_ms: f64,
    confirm_p95_ms: f64,
    /// Microseconds of processor time for each message.
    database_cpu_us: f64,
    server_cpu_us: f64,
    round_trips: f64,
    statements: f64,
    /// Share of the machine that others took, in the round that has most; `None` where it is not known.
    others: Option<f64>,
    faults: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Sweep {
    machine: Machine,
    started: String,
    rounds: usize,
    time_s: f64,
    rows: Vec<Row>,
}

pub(crate) async fn measure(args: &SweepArgs) -> anyhow::Result<Sweep> {
    check_durable(&args.postgres).await?;
    let started = crate::machine::now().to_string();
    let lingers = [Duration::ZERO, args.linger];
    let steps =
        args.batches.iter().flat_map(|batch| lingers.map(|linger| (*batch, linger, Some(0.0), Vec::new())));
    let mut steps: Vec<(u64, Duration, Option<f64>, Vec<Outcome>)> = steps.collect();
    for _ in 0..args.rounds.max(1) {
        for (batch, linger, others, outcomes) in &mut steps {
            let meter = OthersMeter::start([args.postgres.as_str()]);
            outcomes.push(step(args, *batch, *linger).await?);
            *others = largest([meter.share(), *others]);
        }
    }
    let rows = steps.iter().map(|(batch, linger, others, outcomes)| row(*batch, *linger, *others, outcomes));
    Ok(Sweep {
        machine: Machine::look(),
        started,
        rounds: args.rounds.max(1),
        time_s: args.time.as_secs_f64(),
        rows: rows.collect(),
    })
}

async fn step(args: &SweepArgs, batch: u64, linger: Duration) -> anyhow::Result<Outcome> {
    ensure!(batch > 0, "a batch holds at least one operation");
    let database = Database::fresh(&args.postgres).await?;
    let outcome = persisted(args, &database.url, batch, linger).await;
    database.drop().await?;
    outcome
}

async fn persisted(args: &SweepArgs, url: &str, batch: u64, linger: Duration) -> anyhow::Result<Outcome> {
    let program = args.program.clone().map_or_else(std::env::current_exe, Ok)?;
    let dir = tempfile::Builder::new().prefix("hubbub-sweep-").tempdir()?;
    let data = dir.path().join("data");
    let (max, linger) = (batch.to_string(), format!("{}ms", linger.as_millis()));
    // Without a broker, whatever the environment says.
    let env = [
        ("HUBBUB_STORE", url),
        ("HUBBUB_LOG", "direct"),
        ("HUBBUB_PIPELINE_BATCH_MAX", &max),
        ("HUBBUB_PIPELINE_LINGER", &linger),
    ];
    let server = Server::real(&program, &data, &env).await?;
    let persist = async |own: &[&str]| {
        let line = [&["--database", url, "--listen", "0", "--log", "direct"], own].concat();
        persist::measure_at(&server, &line).await
    };
    persist(&["-n", &WARM_UP.to_string(), "--publishers", "8", "--around", "0s"]).await?;
    let (publishers, window) = (PUBLISHERS.to_string(), batch.div_ceil(REQUESTS_OF_A_BATCH).to_string());
    let time = format!("{}s", args.time.as_secs_f64());
    let outcome = persist(&["--duration", &time, "--publishers", &publishers, "--window", &window]).await?;
    server.kill().await?;
    Ok(outcome)
}

fn row(batch: u64, linger: Duration, others: Option<f64>, outcomes: &[Outcome]) -> Row {
    let of = |figure: &dyn Fn(&Outcome) -> f64| median(&outcomes.iter().map(figure).collect::<Vec<_>>());
    let cpu_us = |outcome: &Outcome, name| outcome.persisted.cpu_us.get(name).copied().unwrap_or(0.0);
    let rates: Vec<f64> = outcomes.iter().map(|outcome| outcome.persisted.stored_per_second).collect();
    let p95 = |outcome: &Outcome| {
        let quantile = outcome.persisted.batches.quantiles.iter().find(|quantile| quantile.quantile == 0.95);
        quantile.map_or(0.0, |quantile| quantile.ms)
    };
    Row {
        batch_max: batch,
        linger_ms: 1e3 * linger.as_secs_f64(),
        operations_mean: of(&|outcome| outcome.persisted.batches.operations_mean),
        per_second: median(&rates),
        per_second_range: [
            rates.iter().copied().fold(f64::INFINITY, f64::min),
            rates.iter().copied().fold(0.0, f64::max),
        ],
        batch_p95_ms: of(&p95),
        confirm_p95_ms: of(&|outcome| outcome.confirm_latency.p95_ms),
        database_cpu_us: of(&|outcome| cpu_us(outcome, "postgres")),
        server_cpu_us: of(&|outcome| cpu_us(outcome, "server")),
        round_trips: of(&|outcome| outcome.persisted.asked.map_or(0.0, |asked| asked.round_trips)),
        statements: of(&|outcome| outcome.persisted.asked.map_or(0.0, |asked| asked.statements)),
        others,
        faults: outcomes.iter().flat_map(|outcome| outcome.faults.iter().cloned()).collect(),
    }
}

impl Findings for Sweep {
    fn is_clean(&self) -> bool {
        self.rows.iter().all(|row| row.faults.is_empty() && row.per_second > 0.0)
    }

    fn terminal(&self) -> String {
        let mut out = format!(
            "{}. {}. Medians of {} rounds of {:.0} s; direct log, a server and a database for each measurement.\n\n\
             | batch_max | linger | operations of a batch | messages/s (rounds) | batch p95 | confirm p95 | \
             CPU per message: database, hubbub | round trips, statements per message |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |\n",
            self.machine, self.started, self.rounds, self.time_s
        );
        for row in &self.rows {
            let [low, high] = row.per_second_range.map(grouped);
            let marks = marks(row.faults.is_empty(), row.others);
            let marks: String = marks.iter().map(|mark| format!("; **{mark}**")).collect();
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "| {} | {} ms | {:.1} | {} ({low} to {high}){marks} | {:.1} ms | {:.1} ms | {:.1} µs, {:.1} µs | {:.4}, {:.4} |",
                grouped(row.batch_max as f64),
                row.linger_ms,
                row.operations_mean,
                grouped(row.per_second),
                row.batch_p95_ms,
                row.confirm_p95_ms,
                row.database_cpu_us,
                row.server_cpu_us,
                row.round_trips,
                row.statements
            );
        }
        out.push_str(
            "\nThe p95 of batches is the server's, interpolated within buckets that double; that of confirms is the \
             client's, from sending a request, a tenth of a batch, to its last receipt. Round trips and statements are \
             all that the server had with the database meanwhile, statistics included.\n",
        );
        for row in self.rows.iter().filter(|row| row.others.is_none()) {
            let _ = writeln!(out, "note: batch_max {}, {} ms: {NOT_KNOWN}", row.batch_max, row.linger_ms);
        }
        for fault in self.rows.iter().flat_map(|row| &row.faults) {
            let _ = writeln!(out, "fault: {fault}");
        }
        out
    }
}
