//! Rows that compare the real server with a bare one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Bench, Row, rounds};
use crate::experiments::limits::{Bare, engine};
use crate::host::background_load::median_share;
use crate::host::spawn::Server;
use crate::report::{Report, grouped};
use crate::statistics::median;
use crate::workloads::chat::ChatArgs;

const CHAT: &str = "`/chat/{room}`, 128 connections, closed loop";
const HTTP: &str = "`POST /v1/rooms/{room}/messages`, 64 connections";
const FEW: &str = "fan-out, 100 subscribers";
const MANY: &str = "fan-out, 1,000 subscribers";

/// One of the servers that are compared.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) rates: Vec<f64>,
    pub(super) faults: Vec<String>,
    /// Share of the machine that others used or the hypervisor took, in each round, where it is known.
    pub(super) noise: Vec<Option<f64>>,
    /// Most anonymous memory of the server, in KiB.
    memory_kib: u64,
}

impl Side {
    pub(super) fn add(&mut self, report: &Report) {
        self.add_beside_database(report);
        self.noise.push(report.noise());
    }

    /// The same where databases of the measurement would count as others.
    pub(super) fn add_beside_database(&mut self, report: &Report) {
        self.add_rate(report.rate());
        self.faults.extend(report.faults());
    }

    /// The same where only a rate is known.
    pub(super) fn add_rate(&mut self, rate: f64) {
        self.rates.push(rate);
    }

    pub(super) fn median(&self) -> f64 {
        median(&self.rates)
    }
}

/// The median of each round's share: steadier than the share of medians where the machine is not.
pub(super) fn paired(real: &[f64], limit: &[f64]) -> f64 {
    let shares = real.iter().zip(limit).map(|(real, limit)| real / limit.max(1e-9));
    median(&shares.collect::<Vec<_>>())
}

#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) bare: Side,
    /// A bare server whose answers wait for a group commit; nothing where the row is not about that.
    pub(super) durable: Side,
    pub(super) real: Side,
}

impl Pair {
    /// What the real server is to be measured against: what the disk allows, where that is known.
    fn limit(&self) -> &Side {
        if self.durable.rates.is_empty() { &self.bare } else { &self.durable }
    }

    pub(super) fn row(&self, what: &str, unit: &str, least: f64, target: &'static str) -> Row {
        let (Self { bare, real, .. }, limit) = (self, self.limit());
        let share = real.median() / limit.median().max(1.0);
        let faults = real.faults.iter().cloned();
        let of_limits = [bare, &self.durable].into_iter().flat_map(|side| &side.faults);
        let of_limits = of_limits.map(|fault| format!("the limit: {fault}"));
        let rates = |side: &Side| rounds(&side.rates, |rate| grouped(*rate));
        let met = share >= least && real.faults.is_empty();
        let (mut shown_limit, mut shown_share) =
            (format!("{} {unit}", grouped(limit.median())), format!("{:.0} %", 100.0 * share));
        let mut against = rates(limit);
        if !self.durable.rates.is_empty() {
            let of_bare = 100.0 * real.median() / bare.median().max(1.0);
            shown_limit += &format!(" durable, {} bare", grouped(bare.median()));
            shown_share += &format!(", {of_bare:.0} % of bare");
            against += &format!(" durable and {} bare", rates(bare));
        }
        let row = Row::new(what, format!("{} {unit}", grouped(real.median())), target, met)
            .against(shown_limit, shown_share)
            .noting(format!(
                "rounds {} against {against}; paired {:.0} %",
                rates(real),
                100.0 * paired(&real.rates, &limit.rates)
            ));
        let noise: Vec<Option<f64>> = [real, limit]
            .iter()
            .filter(|side| !side.noise.is_empty())
            .map(|side| median_share(&side.noise))
            .collect();
        let row = if noise.is_empty() { row } else { row.beside(&noise) };
        row.with_faults(faults.chain(of_limits).collect())
    }
}

impl Bench {
    async fn pair(&self, bare: Bare, is_durable: bool) -> anyhow::Result<Pair> {
        let mut pair = Pair::default();
        for _ in 0..self.args.rounds {
            pair.bare.add(&bare.measure(self.args.time).await?);
            if is_durable {
                pair.durable.add(&bare.measure_durable(self.dir.path(), self.args.time).await?);
            }
            let measuring = async |server: &Server| {
                let memory = Watched::start(server.pid);
                Ok((bare.load(server, self.args.time).await?, memory.stop()))
            };
            let (report, memory_kib) = self.fresh(&[]).await?.during(measuring).await?;
            pair.real.add(&report);
            pair.real.memory_kib = pair.real.memory_kib.max(memory_kib);
        }
        Ok(pair)
    }

    /// A row with nothing but the two rates.
    pub(super) async fn against_bare(&self, name: &str) -> anyhow::Result<Row> {
        let durable = |bare, what| (bare, true, what, "messages/s", 0.85, "≥ 85 % of durable");
        let fanout = |subscribers, what, least, target| {
            (Bare::Fanout { subscribers }, false, what, "deliveries/s", least, target)
        };
        let (bare, is_durable, what, unit, least, target) = match name {
            "chat" => durable(Bare::Ack { in_flight: 1 }, CHAT),
            "http" => durable(Bare::Http, HTTP),
            "fanout-100" => fanout(100, FEW, 0.75, "≥ 75 % of bare"),
            _ => fanout(1_000, MANY, 0.70, "≥ 70 % of bare"),
        };
        Ok(self.pair(bare, is_durable).await?.row(what, unit, least, target))
    }

    pub(super) async fn chat_64(&self) -> anyhow::Result<Vec<Row>> {
        let pair = self.pair(Bare::Ack { in_flight: 64 }, false).await?;
        let mib = pair.real.memory_kib as f64 / 1024.0;
        let met = mib > 0.0 && mib <= 500.0;
        let measured = format!("{mib:.0} MiB anonymous");
        let memory = Row::new("memory at that rate", measured, "≤ 500 MiB at any rate", met);
        let mut engine = Vec::new();
        for _ in 0..self.args.rounds {
            engine.push(engine::store(self.dir.path(), self.args.time, None).await?.per_second);
        }
        let [real, engine] = [pair.real.median(), median(&engine)];
        let share = real / engine.max(1.0);
        let [measured, limit] = [real, engine].map(|rate| format!("{} messages/s", grouped(rate)));
        let what = "the same against the engine alone";
        let of_engine = Row::new(what, measured, "≥ 50 % of the engine", share >= 0.50)
            .against(limit, format!("{:.0} %", 100.0 * share))
            .with_faults(pair.real.faults.clone());
        let memory = memory.with_faults(pair.real.faults.clone());
        let of_bare = pair.row("the same, 64 in flight", "messages/s", 0.25, "≥ 25 % of bare");
        Ok(vec![of_bare, of_engine, memory])
    }

    /// Here the "limit" is the server itself without the delay.
    pub(super) async fn slow_disk(&self) -> anyhow::Result<Row> {
        let mut pair = Pair::default();
        for _ in 0..self.args.rounds {
            let delayed: &[(&str, &str)] = &[("HUBBUB_SYNC_DELAY", "2ms")];
            for (env, side) in [(&[][..], &mut pair.bare), (delayed, &mut pair.real)] {
                let measuring = async |server: &Server| {
                    anyhow::ensure!(
                        env.is_empty() || is_slow(server).await?,
                        "the server does not delay its syncs: it does not know HUBBUB_SYNC_DELAY"
                    );
                    Bare::Ack { in_flight: 64 }.load(server, self.args.time).await
                };
                side.add(&self.fresh(env).await?.during(measuring).await?);
            }
        }
        Ok(pair.row("64 in flight, each sync delayed by 2 ms", "messages/s", 0.60, "≥ 60 % of undelayed"))
    }
}

async fn is_slow(server: &Server) -> anyhow::Result<bool> {
    let own = ["-n", "100", "-c", "1", "--warmup-connections", "0"];
    Ok(server.load::<ChatArgs>(None, &own).await?.latency.min_ms >= 2.0)
}

/// Looks at the memory of a process.
pub(super) struct Watched {
    stop: Arc<AtomicBool>,
    watcher: std::thread::JoinHandle<u64>,
}

impl Watched {
    pub(super) fn start(pid: u32) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let watcher = std::thread::spawn(move || {
            let mut most = 0;
            while !stopped.load(Ordering::Relaxed) {
                most = most.max(crate::host::machine::rss_anon_kib(pid).unwrap_or(0));
                std::thread::sleep(Duration::from_millis(100));
            }
            most
        });
        Self { stop, watcher }
    }

    /// The most that was seen of its anonymous memory, in KiB.
    pub(super) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.watcher.join().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_the_disk_is_measured_against_what_the_disk_allows() {
        let mut pair = Pair::default();
        pair.bare.add_rate(200.0);
        pair.real.add_rate(90.0);
        let row = pair.row("row", "puts/s", 0.75, "≥ 75 %");
        assert!(!row.ok && row.share == "45 %" && row.limit == "200 puts/s", "{row:?}");
        pair.durable.add_rate(100.0);
        let row = pair.row("row", "puts/s", 0.75, "≥ 75 %");
        assert!(row.ok && row.share == "90 %, 45 % of bare", "{row:?}");
        assert_eq!(row.limit, "100 puts/s durable, 200 bare");
        assert!(row.note.contains("rounds 90 against 100 durable and 200 bare; paired 90 %"), "{row:?}");
        pair.durable.faults.push("one refused".to_owned());
        let row = pair.row("row", "puts/s", 0.75, "≥ 75 %");
        assert!(row.marks().contains("ledger does not balance"), "{row:?}");
    }
}
