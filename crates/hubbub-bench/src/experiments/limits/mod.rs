//! What this machine can do when nothing is stored: bare servers, with and without a group commit of what they are sent,
//! and the disk alone. Other results are read as a share of these.

#[cfg(all(feature = "kafka", feature = "scylla"))]
pub(crate) mod cassandra;
pub(crate) mod disk;
pub(crate) mod engine;
#[cfg(all(feature = "kafka", feature = "scylla"))]
pub(crate) mod kafka;
#[cfg(all(feature = "postgres", feature = "amqp"))]
pub(crate) mod plain_rows;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::experiments::bare::Kind;
use crate::host::background_load::{BackgroundLoadMeter, NOT_KNOWN, marks};
use crate::host::machine::Machine;
use crate::host::spawn::Server;
use crate::options::duration;
use crate::report::{Report, flags, grouped};
use crate::results::record::Stats;
use crate::statistics::median;
use crate::workloads::chat::ChatArgs;
use crate::workloads::engine::Findings;
use crate::workloads::fanout::FanoutArgs;
use crate::workloads::http::HttpArgs;

#[derive(Debug, Clone, Args)]
pub(crate) struct LimitsArgs {
    /// How long to measure each limit
    #[arg(long, short, default_value = "5s", value_parser = duration, value_name = "TIME")]
    duration: Duration,
    /// Repeat each this often; the median counts
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// Directory on the disk to measure
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads of the load generator
    #[arg(long, default_value_t = crate::host::machine::cores().min(2), value_name = "N")]
    pub(crate) threads: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Limits {
    machine: Machine,
    limits: Vec<Limit>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Limit {
    name: &'static str,
    unit: &'static str,
    /// The median of `rounds`.
    per_second: f64,
    rounds: Vec<f64>,
    /// Of the round that this is the rate of, or is next to it.
    latency: Stats,
    /// Share of the machine that others took meanwhile, where it is known.
    others: Option<f64>,
    /// Why the ledger of a round did not balance.
    faults: Vec<String>,
}

/// What one round of a limit found.
struct Round {
    per_second: f64,
    latency: Stats,
    faults: Vec<String>,
}

impl From<Report> for Round {
    fn from(report: Report) -> Self {
        Self { per_second: report.rate(), faults: report.faults(), latency: report.latency }
    }
}

/// What a store did without a server.
#[derive(Debug)]
pub(crate) struct Alone {
    pub(crate) per_second: f64,
    /// Of its batches.
    pub(crate) latency: Stats,
}

/// More messages than are sent before the time is over.
pub(crate) const ENDLESS: &str = "1000000000";

#[derive(Debug, Clone, Copy)]
pub(crate) enum Bare {
    Echo,
    Ack { in_flight: u64 },
    Http,
    Fanout { subscribers: usize },
}

/// Name, workload, and whether answers wait for a group commit.
const SERVERS: [(&str, Bare, bool); 8] = [
    ("WebSocket echo, 128 connections", Bare::Echo, false),
    ("WebSocket ack, 128 connections", Bare::Ack { in_flight: 1 }, false),
    ("the same, durable (durable-ws)", Bare::Ack { in_flight: 1 }, true),
    ("WebSocket ack, 128 × 64 in flight", Bare::Ack { in_flight: 64 }, false),
    ("HTTP POST, 64 connections", Bare::Http, false),
    ("the same, durable (durable-http)", Bare::Http, true),
    ("fan-out to 100 subscribers", Bare::Fanout { subscribers: 100 }, false),
    ("fan-out to 1,000 subscribers", Bare::Fanout { subscribers: 1_000 }, false),
];

impl Bare {
    fn kind(self) -> Kind {
        match self {
            Self::Echo => Kind::WsEcho,
            Self::Ack { .. } => Kind::WsAck,
            Self::Http => Kind::Http,
            Self::Fanout { .. } => Kind::Fanout,
        }
    }

    pub(crate) async fn load(self, server: &Server, time: Duration) -> anyhow::Result<Report> {
        match self {
            Self::Echo => server.load::<ChatArgs>(Some(time), &["--echo", "-n", ENDLESS]).await,
            Self::Ack { in_flight } => {
                let own = ["--in-flight", &in_flight.to_string(), "-n", ENDLESS];
                server.load::<ChatArgs>(Some(time), &own).await
            }
            Self::Http => server.load::<HttpArgs>(Some(time), &["--closed"]).await,
            Self::Fanout { subscribers } => {
                server.load::<FanoutArgs>(Some(time), &["--subscribers", &subscribers.to_string()]).await
            }
        }
    }

    /// Runs the workload against a bare server of its own.
    pub(crate) async fn measure(self, time: Duration) -> anyhow::Result<Report> {
        self.measure_at(self.kind(), Path::new("."), time).await
    }

    /// The same where each answer waits for a group commit of what was sent, in a file below `dir`.
    pub(crate) async fn measure_durable(self, dir: &Path, time: Duration) -> anyhow::Result<Report> {
        let kind = self.kind().durable().context("there is no such durable server")?;
        self.measure_at(kind, dir, time).await
    }

    async fn measure_at(self, kind: Kind, dir: &Path, time: Duration) -> anyhow::Result<Report> {
        let server = Server::bare(kind, dir, &[]).await?;
        server.during(async |server: &Server| self.load(server, time).await).await
    }
}

pub(crate) async fn measure(args: &LimitsArgs) -> anyhow::Result<Limits> {
    let mut limits = Vec::new();
    for (name, bare, is_durable) in SERVERS {
        let unit = if matches!(bare, Bare::Fanout { .. }) { "deliveries/s" } else { "messages/s" };
        let round = async || {
            let report = match is_durable {
                true => bare.measure_durable(&args.dir, args.duration).await?,
                false => bare.measure(args.duration).await?,
            };
            Ok(Round::from(report))
        };
        limits.push(limit(name, unit, args.rounds, round).await?);
    }
    let file = disk::ZeroFilled::make(&args.dir)?;
    for (name, unit, block_bytes, factor) in [
        ("fdatasync of 4 KiB, zero-filled file", "syncs/s", 4_096, 1.0),
        ("journal, batches of 1,000 × 200 bytes", "messages/s", 200_000, 1_000.0),
    ] {
        let round = async || {
            let (per_second, latency) = file.sync_blocks(block_bytes, args.duration / 2)?;
            Ok(Round { per_second: per_second * factor, latency, faults: Vec::new() })
        };
        limits.push(limit(name, unit, args.rounds, round).await?);
    }
    let round = async || {
        let Alone { per_second, latency } = engine::store(&args.dir, args.duration, None).await?;
        Ok(Round { per_second, latency, faults: Vec::new() })
    };
    limits.push(limit("embedded engine alone, fsync", "messages/s", args.rounds, round).await?);
    Ok(Limits { machine: Machine::look(), limits })
}

async fn limit(
    name: &'static str,
    unit: &'static str,
    count: usize,
    round: impl AsyncFn() -> anyhow::Result<Round>,
) -> anyhow::Result<Limit> {
    let (mut rounds, mut latencies, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    let meter = BackgroundLoadMeter::start([]);
    for _ in 0..count.max(1) {
        let found = round().await?;
        rounds.push(found.per_second);
        faults.extend(found.faults);
        latencies.push(found.latency);
    }
    let per_second = median(&rounds);
    let distance = |(rate, _): &(&f64, Stats)| (**rate - per_second).abs();
    let middle = rounds.iter().zip(latencies).min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let latency = middle.map(|(_, latency)| latency).unwrap_or_default();
    Ok(Limit { name, unit, per_second, rounds, latency, others: meter.share(), faults })
}

impl Findings for Limits {
    fn terminal(&self) -> String {
        let mut out = format!("limits of {}\n", self.machine);
        for limit in &self.limits {
            let rate = format!("{} {}", grouped(limit.per_second), limit.unit);
            let rounds: Vec<_> = limit.rounds.iter().map(|rate| grouped(*rate)).collect();
            let latency = match &limit.latency {
                Stats { count: 0, .. } => String::new(),
                Stats { median_ms, p99_ms, .. } => format!("p50 {median_ms:.3} ms, p99 {p99_ms:.3} ms   "),
            };
            let marks = flags(&marks(limit.faults.is_empty(), limit.others));
            // Writing to a String cannot fail.
            let _ =
                writeln!(out, "  {:<38} {rate:>24}   {latency}[{}]{marks}", limit.name, rounds.join("; "));
        }
        for limit in self.limits.iter().filter(|limit| limit.others.is_none()) {
            out.push_str(&format!("  note: {}: {NOT_KNOWN}\n", limit.name));
        }
        for limit in &self.limits {
            limit
                .faults
                .iter()
                .for_each(|fault| out.push_str(&format!("  fault: {}: {fault}\n", limit.name)));
        }
        out
    }

    fn is_clean(&self) -> bool {
        self.limits.iter().all(|limit| limit.faults.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn rate_and_latency_are_of_the_same_round() {
        let turn = AtomicUsize::new(0);
        let round = async || {
            let turn = turn.fetch_add(1, Ordering::Relaxed);
            let (per_second, median_ms) = [(30.0, 3.0), (20.0, 2.0), (10.0, 1.0)][turn];
            Ok(Round { per_second, latency: Stats { median_ms, ..Stats::default() }, faults: Vec::new() })
        };
        let found = limit("x", "messages/s", 3, round).await.unwrap();
        assert_eq!((found.per_second, found.latency.median_ms), (20.0, 2.0), "not of the last one");
    }
}
