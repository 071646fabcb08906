//! Rows about Kafka and Cassandra, each against what one of the two does alone in the same run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::paired::Pair;
use super::{Bench, Row, rounds};
use crate::client::Target;
use crate::experiments::bare::Kind;
use crate::experiments::limits::cassandra::{Keyspace, REPLICATION, ROOMS, TEXT_BYTES, rows_rate};
use crate::experiments::limits::kafka::{Brokers, Load, Topics};
use crate::host::machine::{process_seconds, seed};
use crate::host::spawn::Server;
use crate::host::temporary::Temporary;
use crate::load::message_plan::Shape;
use crate::load::run::Run;
use crate::load::subscribers::Listeners;
use crate::options::{Rules, arguments};
use crate::report::{Report, grouped};
use crate::statistics::median;
use crate::workloads::http::HttpArgs;
use crate::workloads::persist::PersistArgs;

/// Messages a second, as k6 would send them to one room with ten listeners: slow, as a usual day has it, then a rush.
const RAMP: &str = "1000..10000..26000";
const LISTENERS: &str = "10";
/// Longest time that the last message may be delivered after the last answer.
const LAG_MAX_S: f64 = 2.0;
/// Messages a second beside which the bystander stands, their rooms, and the longest share of the work it may have.
const BYSTANDER_RATE: f64 = 3_000.0;
const BYSTANDER_SHARE: f64 = 0.10;
const QUIET: &str = "quiet-";
/// How long a node gets to be done with its start, and how long it is seen idle.
const SETTLING: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(10);
/// What a node does unless it is told otherwise.
const BOTH: &str = "gateway,committer";

/// Topics and a keyspace of their own.
struct Stream {
    kafka: String,
    prefix: String,
    topics: Temporary<Topics>,
    keyspace: Temporary<Keyspace>,
}

impl Stream {
    fn env<'s>(&'s self, role: &'s str) -> [(&'s str, &'s str); 5] {
        [
            ("HUBBUB_STORE", &self.keyspace.url),
            ("HUBBUB_STORE_SCYLLA_REPLICATION", REPLICATION),
            ("HUBBUB_LOG", &self.kafka),
            ("HUBBUB_KAFKA_TOPIC_PREFIX", &self.prefix),
            ("HUBBUB_ROLE", role),
        ]
    }

    /// That of the messages.
    fn topic(&self) -> String {
        format!("{}messages", self.prefix)
    }

    async fn remove(self) -> anyhow::Result<()> {
        self.topics.remove().await?;
        self.keyspace.remove().await
    }
}

impl Bench {
    pub(super) async fn streams(&self, name: &str) -> anyhow::Result<Vec<Row>> {
        match name {
            "kafka-live" => self.kafka_live().await,
            "kafka-drain" => Ok(vec![self.kafka_drain().await?]),
            _ => Ok(vec![self.bystander().await?]),
        }
    }

    async fn stream(&self) -> anyhow::Result<Stream> {
        let kafka = self.args.kafka.clone().context("--kafka URL is missing")?;
        let cassandra = self.args.cassandra.as_deref().context("--cassandra URL is missing")?;
        let prefix = format!("hubbub-bench-{:012x}.", seed() & 0xffff_ffff_ffff);
        let names = ["messages", "live", "dead"].map(|name| format!("{prefix}{name}"));
        let topics = Brokers::of(&kafka)?.topics(names);
        Ok(Stream { kafka, prefix, topics, keyspace: Keyspace::fresh(cassandra).await? })
    }

    /// What the producer alone reaches with messages of so many bytes in one partition.
    async fn producer_rate(&self, text_bytes: usize) -> anyhow::Result<f64> {
        let brokers = Brokers::of(self.args.kafka.as_deref().context("--kafka URL is missing")?)?;
        let topic = format!("hubbub-bench-{:012x}", seed() & 0xffff_ffff_ffff);
        let made = brokers.create(&topic).await?;
        let load = Load { messages: self.args.persisted, rooms: 1, text_bytes };
        let rate = brokers.write(&topic, load).await?;
        made.remove().await?;
        Ok(rate)
    }

    async fn chatting(&self, server: &Server, rate: &str, own: &[&str]) -> anyhow::Result<Report> {
        // A ramp needs time for its slow part, and a percentile its messages.
        let time = self.args.time.max(Duration::from_secs(20));
        let bytes = TEXT_BYTES.to_string();
        let line = ["--rate", rate, "--connections", "256", "--text-bytes", &bytes, "--users", "1000"];
        server.load::<HttpArgs>(Some(time), &[&line[..], own].concat()).await
    }

    /// Messages to one room at a rate, stored and delivered by a server with topics and a keyspace of its own.
    async fn live(&self, rate: &str) -> anyhow::Result<Report> {
        let stream = self.stream().await?;
        let server = self.fresh(&stream.env(BOTH)).await?;
        let report = self.chatting(&server, rate, &["--rooms", "1", "--listeners", LISTENERS]).await?;
        server.kill().await?;
        stream.remove().await?;
        Ok(report)
    }

    async fn kafka_live(&self) -> anyhow::Result<Vec<Row>> {
        let (mut alone, mut generator, mut real) = (Vec::new(), Vec::new(), Vec::new());
        let (mut lags, mut of_limit, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        // After a start, Kafka and Cassandra compile their code while they run: a batch takes 150 ms then, and 4 ms later.
        self.live(RAMP).await?;
        for _ in 0..self.args.rounds {
            alone.push(self.producer_rate(TEXT_BYTES).await?);
            let bare = Server::bare(Kind::Http, self.dir.path(), &[]).await?;
            let ramp = async |server: &Server| self.chatting(server, RAMP, &["--rooms", "1"]).await;
            let stored_nowhere = bare.during(ramp).await?;
            generator.push(stored_nowhere.per_second);
            of_limit.extend(stored_nowhere.faults().iter().map(|fault| format!("the limit: {fault}")));
            let report = self.live(RAMP).await?;
            real.push(report.per_second);
            lags.push(lag_s(&report));
            faults.extend(report.faults());
        }
        let (rate, lag) = (median(&real), median(&lags));
        let limit = median(&alone).min(median(&generator));
        let share = rate / limit.max(1.0);
        let met = share >= 0.60 && lag <= LAG_MAX_S && faults.is_empty();
        let what = format!("HTTP → Kafka → Cassandra → WebSocket, one room, {RAMP}/s");
        let target = "≥ 60 % of the producer alone, or of the generator; all delivered within 2 s";
        let row = Row::new(
            what,
            format!("{} messages/s, last delivered after {lag:.2} s", grouped(rate)),
            target,
            met,
        )
        .against(format!("{} messages/s", grouped(limit)), format!("{:.0} %", 100.0 * share));
        let text = |rates: &[f64]| rounds(rates, |rate| grouped(*rate));
        let note = format!(
            "rounds {} against {} of the same ramp at a server that stores nothing, and {} of the producer alone; lag {lags:.2?} s",
            text(&real),
            text(&generator),
            text(&alone),
        );
        let row = row.noting(note).with_faults([faults, of_limit].concat());
        Ok(vec![row, self.kafka_latency(rate / 3.0).await?])
    }

    async fn kafka_latency(&self, rate: f64) -> anyhow::Result<Row> {
        let (mut p99, mut p50, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.args.rounds {
            let report = self.live(&rate.to_string()).await?;
            faults.extend(report.faults());
            let delivery = report.delivery.context("nobody listened")?;
            p99.push(delivery.latency.p99_ms);
            p50.push(delivery.latency.median_ms);
        }
        let middle = median(&p99);
        let met = middle > 0.0 && middle <= 100.0 && faults.is_empty();
        let what = format!("the same, send → delivered at {}/s, p99", grouped(rate));
        let row = Row::new(what, format!("{middle:.1} ms"), "≤ 100 ms", met);
        Ok(row.noting(format!("rounds {p99:.1?}, p50 {p50:.1?}")).with_faults(faults))
    }

    /// Everything is in Kafka before the server that is measured starts.
    async fn kafka_drain(&self) -> anyhow::Result<Row> {
        let cassandra = self.args.cassandra.as_deref().context("--cassandra URL is missing")?;
        let (mut pair, mut cpu, mut batches) = (Pair::default(), Vec::new(), Vec::new());
        // Of Cassandra, by plain batches and by the store.
        let (mut plain, mut stored) = (Vec::new(), Vec::new());
        let database_seconds = || self.args.cassandra_pid.and_then(process_seconds).unwrap_or_default();
        for _ in 0..self.args.rounds {
            let before = database_seconds();
            let (rate, rows) = rows_rate(cassandra, self.args.time).await?;
            pair.bare.add_rate(rate);
            plain.push(1e6 * (database_seconds() - before) / rows.max(1) as f64);
            let stream = self.stream().await?;
            // It makes the topics.
            self.fresh(&stream.env(BOTH)).await?.kill().await?;
            let load = Load { messages: self.args.persisted, rooms: ROOMS, text_bytes: TEXT_BYTES };
            Brokers::of(&stream.kafka)?.write(&stream.topic(), load).await?;
            let messages = self.args.persisted.to_string();
            let server = self.fresh(&stream.env(BOTH)).await?;
            let before = process_seconds(server.pid).unwrap_or_default();
            let database_before = database_seconds();
            let own = ["--drain", "-n", &messages, "--around", "0s", "--log", "kafka"];
            let report = server.load::<PersistArgs>(None, &own).await?;
            let used = process_seconds(server.pid).unwrap_or_default() - before;
            stored.push(1e6 * (database_seconds() - database_before) / self.args.persisted as f64);
            server.kill().await?;
            stream.remove().await?;
            pair.real.add_beside_database(&report);
            cpu.push(1e6 * used / self.args.persisted as f64);
            batches.push(report.persisted.context("nothing was stored")?.batches.operations_mean);
        }
        let what = format!("Kafka to Cassandra, filled before, {ROOMS} rooms");
        let row = pair.row(&what, "messages/s", 0.60, "≥ 60 % of plain batches");
        let of_database = match self.args.cassandra_pid {
            Some(_) => format!(
                "; of Cassandra {:.0} µs, and {:.0} µs by plain batches",
                median(&stored),
                median(&plain)
            ),
            None => String::new(),
        };
        Ok(row.noting(format!(
            "; batches of {:.0} operations; processor time of the server per message {:.0} µs{of_database}",
            median(&batches),
            median(&cpu)
        )))
    }

    /// Three nodes: one takes and delivers everything and stores it, the other one, which stores nothing, has a follower of a room
    /// where nothing happens.
    async fn bystander(&self) -> anyhow::Result<Row> {
        let (mut shares, mut costs, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        let mut idle_shares = Vec::new();
        for _ in 0..self.args.rounds {
            let stream = self.stream().await?;
            let committer = self.fresh(&stream.env(BOTH)).await?;
            let busy = self.fresh(&stream.env("gateway")).await?;
            let quiet = self.fresh(&stream.env("gateway")).await?;
            let rules: Rules = arguments("rules", &[])?;
            let run = Run::new(Target::parse(&quiet.url)?, Shape::new(seed(), 1, None, QUIET), rules);
            let follower = Listeners::gather(&Arc::new(run), 1, 1, seed()).await?;
            let seconds = || [busy.pid, quiet.pid].map(|pid| process_seconds(pid).unwrap_or_default());
            // What a node uses without any message is no work for one.
            tokio::time::sleep(SETTLING).await;
            let (idle_from, begun) = (seconds(), Instant::now());
            tokio::time::sleep(IDLE).await;
            let (before, idle_s, begun) = (seconds(), begun.elapsed().as_secs_f64(), Instant::now());
            let rooms = ["--rooms", "20", "--listeners", "20"];
            let report = self.chatting(&busy, &BYSTANDER_RATE.to_string(), &rooms).await?;
            let (after, loaded_s) = (seconds(), begun.elapsed().as_secs_f64());
            follower.finish().await;
            for server in [committer, busy, quiet] {
                server.kill().await?;
            }
            stream.remove().await?;
            anyhow::ensure!(report.delivery.is_some(), "nobody listened");
            faults.extend(report.faults());
            let messages = report.ledger.context("no ledger")?.accepted.max(1) as f64;
            let [busy, quiet] = [0, 1].map(|node: usize| {
                let of = |all: [f64; 2]| all.get(node).copied().unwrap_or_default();
                let idle = (of(before) - of(idle_from)) / idle_s.max(1e-3);
                1e6 * (of(after) - of(before) - idle * loaded_s).max(0.0) / messages
            });
            shares.push(quiet / busy.max(1e-3));
            costs.push((busy, quiet));
            let ([_, idle_from], [_, idle_to]) = (idle_from, before);
            idle_shares.push((idle_to - idle_from) / idle_s.max(1e-3));
        }
        let share = median(&shares);
        let text = |pick: fn(&(f64, f64)) -> f64| {
            format!("{:.1} µs", median(&costs.iter().map(pick).collect::<Vec<_>>()))
        };
        let what = format!("processor time of a node for a message of others, {}/s", grouped(BYSTANDER_RATE));
        let met = share <= BYSTANDER_SHARE && faults.is_empty();
        let row = Row::new(what, text(|(_, quiet)| *quiet), "≤ 10 % of one it takes and delivers", met)
            .against(text(|(busy, _)| *busy), format!("{:.1} %", 100.0 * share));
        let note = format!(
            "rounds {costs:.1?}; what an idle node uses, {:.1} % of a core, is taken off both",
            100.0 * median(&idle_shares)
        );
        Ok(row.noting(note).with_faults(faults))
    }
}

/// From the last answer to the last delivery.
fn lag_s(report: &Report) -> f64 {
    let Some(delivery) = &report.delivery else { return f64::INFINITY };
    delivery.delivered as f64 / delivery.per_second.max(1e-6) - report.elapsed_s
}
