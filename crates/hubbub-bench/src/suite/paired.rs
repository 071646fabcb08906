//! Rows that compare the real server with a bare one.

use super::{Bench, Fresh, Row};
use crate::chat::{self, ChatArgs};
use crate::limits::{Bare, engine_rate, median};
use crate::options::arguments;
use crate::report::{Report, grouped};
use crate::spawn::Server;

/// The figures of one side.
#[derive(Debug, Default)]
pub(super) struct Side {
    rates: Vec<f64>,
    faults: Vec<String>,
    /// Share of the machine that others used or the hypervisor took, in each round.
    noise: Vec<f64>,
    /// Most anonymous memory of the server, in KiB.
    memory_kib: u64,
}

impl Side {
    pub(super) fn add(&mut self, bare: Bare, report: &Report) {
        self.add_report(report);
        if let Some(rate) = self.rates.last_mut() {
            *rate = bare.rate(report);
        }
    }

    /// The same for a workload that is no [`Bare`].
    pub(super) fn add_report(&mut self, report: &Report) {
        self.rates.push(report.per_second);
        self.noise.push(report.noise());
        self.faults.extend(report.faults());
    }

    /// The same where only a rate is known.
    #[cfg(all(feature = "postgres", feature = "amqp"))]
    pub(super) fn add_rate(&mut self, rate: f64) {
        self.rates.push(rate);
    }

    #[cfg(all(feature = "postgres", feature = "amqp"))]
    pub(super) fn add_faults(&mut self, faults: &[String]) {
        self.faults.extend(faults.iter().cloned());
    }

    fn median(&self) -> f64 {
        median(&self.rates)
    }
}

/// Bare and real in turn.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) bare: Side,
    pub(super) real: Side,
}

impl Pair {
    fn share(&self) -> f64 {
        self.real.median() / self.bare.median().max(1.0)
    }

    /// The median of each round's share: steadier than the share of medians where the machine is not.
    fn paired(&self) -> f64 {
        let rounds = self.real.rates.iter().zip(&self.bare.rates);
        median(&rounds.map(|(real, bare)| real / bare.max(1.0)).collect::<Vec<_>>())
    }

    pub(super) fn row(&self, what: &str, unit: &str, least: f64, target: &'static str) -> Row {
        let rounds =
            |side: &Side| side.rates.iter().map(|rate| grouped(*rate)).collect::<Vec<_>>().join("; ");
        let faults: String = self.real.faults.iter().map(|fault| format!("; {fault}")).collect();
        Row {
            what: what.to_owned(),
            measured: format!("{} {unit}", grouped(self.real.median())),
            limit: format!("{} {unit}", grouped(self.bare.median())),
            share: format!("{:.0} %", 100.0 * self.share()),
            target,
            ok: self.share() >= least && self.real.faults.is_empty(),
            note: format!(
                "rounds {} against {}; paired {:.0} %; {:.0} % and {:.0} % of the machine taken by others{faults}",
                rounds(&self.real),
                rounds(&self.bare),
                100.0 * self.paired(),
                100.0 * median(&self.real.noise),
                100.0 * median(&self.bare.noise)
            ),
        }
    }
}

impl Bench {
    async fn pair(&self, bare: Bare) -> anyhow::Result<Pair> {
        let mut pair = Pair::default();
        for _ in 0..self.rounds {
            pair.bare.add(bare, &bare.measure(self.time).await?);
            let Fresh { server, _data } = self.fresh(&[]).await?;
            let memory = Watched::start(&server);
            pair.real.add(bare, &bare.load(&server, self.time).await?);
            pair.real.memory_kib = pair.real.memory_kib.max(memory.stop());
            server.kill().await?;
        }
        Ok(pair)
    }

    pub(super) async fn chat(&self) -> anyhow::Result<Row> {
        let pair = self.pair(Bare::Ack { in_flight: 1 }).await?;
        Ok(pair.row("`/chat/{room}`, 128 connections, closed loop", "messages/s", 0.60, "≥ 60 % of bare"))
    }

    pub(super) async fn chat_64(&self) -> anyhow::Result<Vec<Row>> {
        let pair = self.pair(Bare::Ack { in_flight: 64 }).await?;
        let mib = pair.real.memory_kib as f64 / 1024.0;
        let memory = Row {
            what: "memory at that rate".to_owned(),
            measured: format!("{mib:.0} MiB anonymous"),
            limit: String::new(),
            share: String::new(),
            target: "≤ 500 MiB at any rate",
            ok: mib > 0.0 && mib <= 500.0,
            note: String::new(),
        };
        let mut engine = Vec::new();
        for _ in 0..self.rounds {
            engine.push(engine_rate(self.dir.path(), self.time).await?);
        }
        let share = pair.real.median() / median(&engine).max(1.0);
        let of_engine = Row {
            what: "the same against the engine alone".to_owned(),
            measured: format!("{} messages/s", grouped(pair.real.median())),
            limit: format!("{} messages/s", grouped(median(&engine))),
            share: format!("{:.0} %", 100.0 * share),
            target: "≥ 50 % of the engine",
            ok: share >= 0.50,
            note: String::new(),
        };
        let of_bare = pair.row("the same, 64 in flight", "messages/s", 0.25, "≥ 25 % of bare");
        Ok(vec![of_bare, of_engine, memory])
    }

    pub(super) async fn http(&self) -> anyhow::Result<Row> {
        let pair = self.pair(Bare::Http).await?;
        Ok(pair.row("`POST /v1/rooms/{room}/messages`, 64 connections", "messages/s", 0.60, "≥ 60 % of bare"))
    }

    pub(super) async fn fanout(&self, subscribers: usize) -> anyhow::Result<Row> {
        let pair = self.pair(Bare::Fanout { subscribers }).await?;
        let what = format!("fan-out, {} subscribers", grouped(subscribers as f64));
        Ok(pair.row(&what, "deliveries/s", 0.70, "≥ 70 % of bare"))
    }

    /// Here the "limit" is the server itself without the delay.
    pub(super) async fn slow_disk(&self) -> anyhow::Result<Row> {
        let load = Bare::Ack { in_flight: 64 };
        let mut pair = Pair::default();
        for _ in 0..self.rounds {
            let delayed: &[(&str, &str)] = &[("HUBBUB_SYNC_DELAY", "2ms")];
            for (env, side) in [(&[][..], &mut pair.bare), (delayed, &mut pair.real)] {
                let Fresh { server, _data } = self.fresh(env).await?;
                anyhow::ensure!(
                    env.is_empty() || self.is_slow(&server).await?,
                    "the server does not delay its syncs: it does not know HUBBUB_SYNC_DELAY"
                );
                side.add(load, &load.load(&server, self.time).await?);
                server.kill().await?;
            }
        }
        Ok(pair.row("64 in flight, each sync delayed by 2 ms", "messages/s", 0.60, "≥ 60 % of undelayed"))
    }
}

impl Bench {
    /// Whether a single message waits for a delayed sync.
    async fn is_slow(&self, server: &Server) -> anyhow::Result<bool> {
        let line = ["--quiet", "--target", &server.url, "-n", "100", "-c", "1", "--warmup-connections", "0"];
        let report = chat::measure(&arguments::<ChatArgs>("chat", &line)?).await?;
        Ok(report.latency.min_ms >= 2.0)
    }
}

/// Looks at a server's memory from time to time.
pub(super) struct Watched {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    watcher: std::thread::JoinHandle<u64>,
}

impl Watched {
    pub(super) fn start(server: &Server) -> Self {
        let stop = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
        let (stopped, pid) = (std::sync::Arc::clone(&stop), server.pid);
        let watcher = std::thread::spawn(move || {
            let mut most = 0;
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                most = most.max(crate::machine::rss_anon_kib(pid).unwrap_or(0));
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            most
        });
        Self { stop, watcher }
    }

    /// The most that was seen, in KiB.
    pub(super) fn stop(self) -> u64 {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        self.watcher.join().unwrap_or(0)
    }
}
