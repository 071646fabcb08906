//! The results of a run: collected here, shown on the terminal, as JSON, as CSV and as a page.

mod analysis;
mod bar_rows;
mod csv;
mod headroom;
mod html;
mod origin;
mod rooms;
mod svg;
mod table;
mod terminal;
mod trends;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) use analysis::Analysis;
pub(crate) use bar_rows::bar_rows;
pub(crate) use headroom::{ASSUMED, Headroom, headroom_table};
pub(crate) use html::{chart, document as page, preformatted, repeat};
pub(crate) use origin::Origin;
pub(crate) use svg::{Axes, Measured, bars, escape, measured, picture};
pub(crate) use table::{Table, figure};
pub(crate) use terminal::{flags, grouped};
pub(crate) use trends::{SLOPE_SAMPLES, Trends};

use anyhow::Context;
use rooms::Rooms;
use serde::Serialize;
use serde_json::Value;

use crate::agents::Agents;
use crate::analysis::backlog::Settling;
use crate::analysis::verdict::Verdict;
use crate::host::background_load::Taken;
use crate::host::machine::CpuUse;
use crate::host::sample::series::SeriesSummary;
use crate::host::sample::{CPU, SystemSample, samples_csv};
use crate::load::punctuality::GeneratorTiming;
use crate::load::run::{Run, TIMES};
use crate::results::ledger::Ledger;
use crate::results::record::{Bucket, Stats, buckets};
use crate::results::steps::StepRecord;
use crate::statistics::models::little::Little;
use crate::workloads::engine::Findings;
use crate::workloads::persist::persisted::Persisted;

/// The unit of what goes to rooms.
pub(crate) const MESSAGES: &str = "messages";

/// Everything one run found out. What a workload does not have is left out. A member that is renamed, removed or changes its
/// meaning makes another [`origin::SCHEMA_VERSION`].
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub workload: &'static str,
    /// What is counted: messages, or operations.
    pub unit: &'static str,
    #[serde(flatten)]
    pub origin: Origin,
    pub parameters: Value,
    /// Length of the main phase in seconds: until the last answer to what began in it, or where its cool-down began.
    pub elapsed_s: f64,
    /// What began in the main phase, or was answered in it where a cool-down came after it: a load that the server cannot follow
    /// is answered in the cool-down still.
    pub per_second: f64,
    /// Coefficient of variation of the rates of single seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second_variation: Option<f64>,
    pub latency: Stats,
    /// The same from the actual send: what it hides is what messages waited before. Of open loops only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_from_send: Option<Stats>,
    pub latency_by_type: BTreeMap<&'static str, Stats>,
    /// Of messages that go to rooms, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rooms: Option<Rooms>,
    /// Connections opened in all phases.
    pub connections_opened: u64,
    pub reconnects: BTreeMap<&'static str, u64>,
    pub retries: u64,
    pub retries_by_cause: BTreeMap<&'static str, u64>,
    /// Answers whose `seq` did not grow.
    pub order_faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
    /// The closed loop, audited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub little: Option<Little>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuUse>,
    /// Microseconds of processor time for each message or operation, by who used it: `server`, `generator`, what is watched.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu_us: BTreeMap<String, f64>,
    /// Who sent the load, if that was not this process: `cpu.generator` is their sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Agents>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator: Option<GeneratorTiming>,
    /// What others took of the machine in the measured phase; `None` where it is not known.
    #[serde(skip)]
    pub taken: Option<Taken>,
    /// In what way the load generator was the limit, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator_limit: Option<String>,
    /// What limited the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    #[serde(flatten)]
    pub analysis: Analysis,
    /// What a reader of these figures should know.
    pub notes: Vec<String>,
    /// Why it is not clean, once all is known.
    pub faults: Vec<String>,
    pub throughput: Vec<Bucket>,
    /// What became of messages behind the answers, where that is waited for.
    #[serde(flatten)]
    pub persisted: Option<Persisted>,
    /// How far the store was behind in the end, where answers are those of a broker.
    #[serde(flatten)]
    pub settling: Option<Settling>,
    /// What server, database and machine did in the measured phase.
    #[serde(rename = "timeSeries", skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesSummary>,
    /// The same, once a second.
    #[serde(skip)]
    pub samples: Vec<SystemSample>,
    /// The phase, whose record the files show beside the fields above.
    #[serde(skip)]
    run: Option<Arc<Run>>,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delivery {
    pub subscribers: usize,
    /// Messages received by all of them together.
    pub delivered: u64,
    pub per_second: f64,
    /// Messages that did not arrive, over all subscribers.
    pub missing: u64,
    /// Rooms in which other messages arrived than were accepted, though not fewer.
    pub unlike: usize,
    /// Messages that came again or out of order.
    pub misordered: u64,
    /// Connections of subscribers that broke.
    pub lost_connections: u64,
    pub latency: Stats,
    /// Of those to be timed the ones that came when it was not known any more when they were sent.
    pub untimed: u64,
    /// Messages that the slowest subscriber had less than half of all, on average; where all follow one room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_behind: Option<f64>,
    /// Messages that senders may be ahead of the slowest subscriber.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<f64>,
}

impl Report {
    pub(crate) fn new(workload: &'static str, unit: &'static str, parameters: Value) -> Self {
        Self { workload, unit, origin: Origin::here(), parameters, ..Self::default() }
    }

    /// Takes over what a phase recorded. It ends with its last answer, or where its cool-down begins.
    pub(crate) fn add_run(&mut self, run: &Arc<Run>, bucket: Duration) {
        self.run = Some(Arc::clone(run));
        let record = run.record.lock();
        let elapsed = Duration::from_micros(record.last_us.max(1));
        self.latency = record.all.stats();
        let (time, count) = match run.main_time(&record) {
            Some(main) => (main, record.answered_in_main),
            None => (elapsed, self.latency.count),
        };
        self.elapsed_s = time.as_secs_f64();
        self.per_second = count as f64 / self.elapsed_s;
        self.latency_by_type = record.by_kind.iter().map(|(kind, dist)| (*kind, dist.stats())).collect();
        self.throughput = buckets(&record.steps, elapsed, bucket);
        self.analysis.minutes = record.seconds.minutes(record.last_begun_us);
        self.analysis.trends = Trends::of(record.seconds.slopes(record.last_begun_us));
        self.per_second_variation = record.seconds.rate_variation(record.last_begun_us);
        self.rooms = Rooms::of(&record.by_room, &run.shape).filter(|_| self.unit == MESSAGES);
        self.analysis.steps = record.by_span.iter().map(StepRecord::result).collect();
        if let Some(open) = &record.open {
            self.latency_from_send = Some(open.from_send.stats());
            if let Some(timing) = &mut self.generator {
                timing.send_delay = Some(open.send_delay.stats());
            }
        }
        drop(record);
        self.connections_opened = run.counts.opened.load(Ordering::Relaxed);
        self.reconnects = run.counts.reconnects.all();
        self.retries_by_cause = run.counts.retries.all();
        self.retries = self.retries_by_cause.values().sum();
        self.order_faults = run.counts.order_faults.load(Ordering::Relaxed);
    }

    /// Holds a closed loop against Little's law; connections thought for so long together.
    pub(crate) fn audit(&mut self, concurrency: f64, thought_us: u64) {
        let think_ms = thought_us as f64 / 1e3 / self.latency.count.max(1) as f64;
        let mean_ms = self.latency.mean_ms;
        self.little = Some(Little::audit(concurrency, self.per_second, mean_ms, think_ms));
    }

    /// Notes what makes the figures less than they seem.
    pub(crate) fn add_notes(&mut self, threads: usize) {
        if let Some(cpu) = &self.cpu {
            self.generator_limit = self.agents.as_ref().map_or_else(|| cpu.verdict(threads), Agents::limit);
            self.notes.extend(self.generator_limit.clone());
            if let Some(taken) = self.taken.filter(|taken| taken.processes > 0.1) {
                let share = 100.0 * taken.processes;
                self.notes.push(format!("other processes used {share:.0} % of the machine meanwhile"));
            }
            if cpu.stolen > 0.05 * cpu.cores as f64 {
                let share = 100.0 * cpu.stolen / cpu.cores as f64;
                self.notes.push(format!("the hypervisor took {share:.0} % of the machine away meanwhile"));
            }
        }
        self.notes.extend(self.settling.iter().filter_map(|settling| settling.store_behind.clone()));
        if let Some(untimed) = self.delivery.as_ref().map(|it| it.untimed).filter(|count| *count > 0) {
            let untimed = grouped(untimed as f64);
            self.notes.push(format!(
                "{untimed} deliveries came too late to be timed, more than {} messages behind: delivery took longer than it says",
                grouped(TIMES as f64)
            ));
        }
        if self.order_faults > 0 {
            self.notes.push(format!("{} answers came with a seq that did not grow", self.order_faults));
        }
        if self.elapsed_s < 5.0 {
            self.notes.push(format!("the measured phase was short: {:.1} s", self.elapsed_s));
        }
        if let Some(little) = self.little.as_ref().filter(|little| little.marked) {
            self.notes.push(format!(
                "Little's law leaves {:.1} % of the concurrency unaccounted for",
                100.0 * little.unaccounted
            ));
        }
        self.notes.extend(self.analysis.marks());
        if let Some(ledger) = &self.ledger {
            if ledger.server.is_some_and(|server| server.restarted) {
                self.notes
                    .push("the server restarted meanwhile; stored is what its store holds more".to_owned());
            }
            self.notes
                .extend(ledger.faults.iter().map(|fault| format!("the ledger does not balance: {fault}")));
        }
        self.notes.extend(self.persisted.iter().filter_map(|persisted| persisted.fault.clone()));
    }

    /// The figure that counts: messages stored where a workload waits for that, deliveries where there are subscribers, else
    /// messages, those that were stored where the store fell behind a broker, or operations.
    pub(crate) fn rate(&self) -> f64 {
        let stored = self.persisted.as_ref().map(|persisted| persisted.stored_per_second);
        let delivered = self.delivery.as_ref().map(|delivery| delivery.per_second);
        let settled = self.settling.as_ref().and_then(|settling| settling.stored_per_second);
        stored.or(delivered).or(settled).unwrap_or(self.per_second)
    }

    /// Share of the machine that was taken away meanwhile, by other processes or the hypervisor; `None` where it is not known.
    pub(crate) fn noise(&self) -> Option<f64> {
        self.taken.map(|taken| taken.share())
    }

    /// Why it is not clean: one reason at least, unless it is.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut count = |count: u64, what: &str| {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        };
        if let Some(ledger) = &self.ledger {
            count(ledger.rejected, "refused");
            count(ledger.unconfirmed, "without an answer");
        }
        if let Some(delivery) = &self.delivery {
            count(delivery.missing, "not delivered");
            count(delivery.misordered, "delivered out of order");
            count(delivery.unlike as u64, "rooms in which other messages were delivered than were accepted");
        }
        count(self.order_faults, "answered with a seq that did not grow");
        faults.extend(self.ledger.iter().flat_map(|ledger| ledger.faults.iter().cloned()));
        if let Some(persisted) = &self.persisted {
            faults.extend(persisted.fault.clone());
            let lost = self.delivery.as_ref().map_or(0, |delivery| delivery.lost_connections);
            let said = || format!("listeners lost {lost} connections, and took them up again");
            faults.extend((lost > 0).then(said));
        }
        if !faults.is_empty() {
            faults.extend(
                self.reconnects.iter().map(|(cause, count)| format!("{count} connections lost ({cause})")),
            );
        }
        faults
    }

    /// Fails with what `what` was and why, unless it is clean.
    pub(crate) fn must_be_clean(&self, what: &str) -> anyhow::Result<()> {
        let faults = self.faults();
        anyhow::ensure!(faults.is_empty(), "{what} went wrong: {}", faults.join("; "));
        Ok(())
    }
}

impl Findings for Report {
    fn terminal(&self) -> String {
        terminal::summary(self)
    }

    /// Whether everything sent was accepted and the ledger balances.
    fn is_clean(&self) -> bool {
        self.faults().is_empty()
    }

    fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        let Some(run) = &self.run else { return Ok(()) };
        let summary = serde_json::to_string_pretty(self)?;
        let files = [
            ("summary.json", summary),
            ("throughput.csv", csv::throughput(self, run)),
            ("samples.csv", samples_csv(&self.samples)),
            ("report.html", html::page(self, run)),
        ];
        write_files(dir, files)?;
        self.analysis.write_files(dir)?;
        Rooms::write_files(self.rooms.as_ref(), dir)
    }
}

/// Microseconds of processor time for each of `per_second`, by who used it; empty where nothing was done.
pub(crate) fn cpu_us(series: &[SeriesSummary], per_second: f64) -> BTreeMap<String, f64> {
    if per_second <= 0.0 {
        return BTreeMap::new();
    }
    let of = |one: &SeriesSummary| {
        let name = one.name.strip_suffix(CPU)?.strip_suffix(' ')?;
        Some((name.to_owned(), 1e6 * one.average / per_second))
    };
    series.iter().filter_map(of).collect()
}

/// Writes files into a directory, which is made if it is not there.
pub(crate) fn write_files<const N: usize>(dir: &Path, files: [(&str, String); N]) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
