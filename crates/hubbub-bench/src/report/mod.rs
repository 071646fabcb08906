//! The results of a run: collected here, shown on the terminal, as JSON, as CSV and as a page.

mod csv;
mod html;
mod svg;
mod terminal;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) use html::document as page;
pub(crate) use svg::{Axes, escape, line as line_chart};
pub(crate) use terminal::grouped;

use anyhow::Context;
use hubbub_core::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::ledger::{Ledger, Little};
use crate::machine::{CpuUse, Machine};
use crate::record::{Bucket, Dist, STEP_US, Sample, Stats, buckets};
use crate::run::Run;

/// Everything one run found out. What a workload does not have is left out.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// Name of the workload.
    pub workload: &'static str,
    /// What is counted: messages, or operations.
    pub unit: &'static str,
    /// Version of this program.
    pub version: &'static str,
    /// Commit it was built from, if the build said so.
    pub commit: Option<&'static str>,
    /// When the run began, RFC 3339.
    pub started: String,
    /// How to repeat it.
    pub command: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Every option's value.
    pub parameters: Value,
    /// Length of the measured phase in seconds.
    pub elapsed_s: f64,
    /// Messages accepted per second of it.
    pub per_second: f64,
    /// Time from the (intended) send to the answer.
    pub latency: Stats,
    /// The same for each type of message.
    pub latency_by_type: BTreeMap<&'static str, Stats>,
    /// Connections opened in the measured phase.
    pub connections_opened: u64,
    /// Connections lost in it, by cause.
    pub reconnects: BTreeMap<&'static str, u64>,
    /// Messages sent again.
    pub retries: u64,
    /// Answers whose `seq` did not grow.
    pub order_faults: u64,
    /// What subscribers received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// Sent against answered against stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
    /// The closed loop, audited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub little: Option<Little>,
    /// Processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuUse>,
    /// What a reader of these figures should know.
    pub notes: Vec<String>,
    /// Rates over time.
    pub throughput: Vec<Bucket>,
    #[serde(skip)]
    steps: Vec<u64>,
    #[serde(skip)]
    dist: Dist,
    #[serde(skip)]
    samples: Vec<Sample>,
    #[serde(skip)]
    kinds: Vec<&'static str>,
    #[serde(skip)]
    room_prefix: String,
    #[serde(skip)]
    phase_started: Timestamp,
}

/// What subscribers received.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delivery {
    /// Subscribers.
    pub subscribers: usize,
    /// Messages received by all of them together.
    pub delivered: u64,
    /// Deliveries per second.
    pub per_second: f64,
    /// Messages that did not arrive, over all subscribers.
    pub missing: u64,
    /// Messages that came again or out of order.
    pub misordered: u64,
    /// Connections of subscribers that broke.
    pub lost_connections: u64,
    /// Time from the (intended) send to the arrival.
    pub latency: Stats,
}

impl Report {
    /// A report that begins now.
    pub(crate) fn new(workload: &'static str, parameters: Value) -> Self {
        Self {
            workload,
            unit: "messages",
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("HUBBUB_COMMIT"),
            started: crate::machine::now().to_string(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            machine: Machine::look(),
            parameters,
            elapsed_s: 0.0,
            per_second: 0.0,
            latency: Stats::default(),
            latency_by_type: BTreeMap::new(),
            connections_opened: 0,
            reconnects: BTreeMap::new(),
            retries: 0,
            order_faults: 0,
            delivery: None,
            ledger: None,
            little: None,
            cpu: None,
            notes: Vec::new(),
            throughput: Vec::new(),
            steps: Vec::new(),
            dist: Dist::default(),
            samples: Vec::new(),
            kinds: Vec::new(),
            room_prefix: String::new(),
            phase_started: Timestamp::default(),
        }
    }

    /// Takes over what a phase recorded. It ends with its last answer.
    pub(crate) fn add_run(&mut self, run: &Run, bucket: Duration) {
        let mut record = run.record.lock();
        let elapsed = Duration::from_micros(record.last_us().max(1));
        self.elapsed_s = elapsed.as_secs_f64();
        self.dist = record.latency().clone();
        self.latency = self.dist.stats();
        self.per_second = self.latency.count as f64 / self.elapsed_s;
        self.kinds = record.by_kind().iter().map(|(kind, _)| *kind).collect();
        self.latency_by_type = record.by_kind().iter().map(|(kind, dist)| (*kind, dist.stats())).collect();
        self.throughput = buckets(&record.steps, elapsed, bucket);
        self.steps = std::mem::take(&mut record.steps);
        self.samples = std::mem::take(&mut record.samples);
        if record.samples_left_out > 0 && !self.samples.is_empty() {
            self.notes
                .push(format!("metrics.csv leaves out {} messages (--rows-max)", record.samples_left_out));
        }
        drop(record);
        self.phase_started = run.started;
        self.room_prefix = run.shape.room_prefix().to_owned();
        self.connections_opened = run.counts.opened.load(Ordering::Relaxed);
        self.reconnects = run.counts.reconnects().into_iter().filter(|(_, count)| *count > 0).collect();
        self.retries = run.counts.retries.load(Ordering::Relaxed);
        self.order_faults = run.counts.order_faults.load(Ordering::Relaxed);
    }

    /// Applies Little's law to a closed loop.
    pub(crate) fn audit(&mut self, concurrency: f64) {
        self.little = Some(Little::audit(concurrency, self.per_second, self.latency.mean_ms));
    }

    /// Notes what makes the figures less than they seem.
    pub(crate) fn judge(&mut self, threads: usize) {
        if let Some(cpu) = &self.cpu {
            self.notes.extend(cpu.verdict(threads));
            if let Some(others) = cpu.others().filter(|others| *others > 0.1 * cpu.cores as f64) {
                let share = 100.0 * others / cpu.cores as f64;
                self.notes.push(format!("other processes used {share:.0} % of the machine meanwhile"));
            }
            if cpu.stolen > 0.05 * cpu.cores as f64 {
                let share = 100.0 * cpu.stolen / cpu.cores as f64;
                self.notes.push(format!("the hypervisor took {share:.0} % of the machine away meanwhile"));
            }
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
        if let Some(ledger) = &self.ledger {
            if ledger.server.is_some_and(|server| server.restarted) {
                self.notes
                    .push("the server restarted meanwhile; stored is what its store holds more".to_owned());
            }
            self.notes
                .extend(ledger.faults.iter().map(|fault| format!("the ledger does not close: {fault}")));
        }
    }

    /// Share of the machine that was taken away meanwhile, by other processes or the hypervisor.
    pub(crate) fn noise(&self) -> f64 {
        let cpu = self.cpu.as_ref();
        cpu.map_or(0.0, |cpu| (cpu.others().unwrap_or(0.0) + cpu.stolen) / cpu.cores as f64)
    }

    /// Whether everything sent was accepted and the ledger balances.
    pub(crate) fn is_clean(&self) -> bool {
        self.faults().is_empty()
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
        }
        count(self.order_faults, "answered with a seq that did not grow");
        faults.extend(self.ledger.iter().flat_map(|ledger| ledger.faults.iter().cloned()));
        if !faults.is_empty() {
            let lost = self.reconnects.iter().filter(|(_, count)| **count > 0);
            faults.extend(lost.map(|(cause, count)| format!("{count} connections lost ({cause})")));
        }
        faults
    }

    /// Fails with what `what` was and why, unless it is clean.
    pub(crate) fn must_be_clean(&self, what: &str) -> anyhow::Result<()> {
        let faults = self.faults();
        anyhow::ensure!(faults.is_empty(), "{what} went wrong: {}", faults.join("; "));
        Ok(())
    }

    /// Writes all files into `dir`.
    pub(crate) fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
        };
        write("summary.json", &serde_json::to_vec_pretty(self)?)?;
        write("throughput.csv", &csv::throughput(self))?;
        write("report.html", html::page(self).as_bytes())?;
        csv::write_metrics(self, &dir.join("metrics.csv"))
    }

    /// The summary for people.
    pub(crate) fn terminal(&self) -> String {
        terminal::summary(self)
    }

    /// Accepted messages per second at each step, with the step's end in seconds. The last step ends with the run,
    /// somewhere in its middle, and is left out.
    fn rates(&self) -> Vec<(f64, f64)> {
        let step_s = STEP_US as f64 / 1e6;
        // About 200 points make a readable line.
        let merged = (self.steps.len() / 200).max(1);
        let whole = self.steps.get(..self.steps.len().saturating_sub(1)).unwrap_or_default();
        let width_s = merged as f64 * step_s;
        let rate = |(index, steps): (usize, &[u64])| {
            ((index + 1) as f64 * width_s, steps.iter().sum::<u64>() as f64 / width_s)
        };
        whole.chunks_exact(merged).enumerate().map(rate).collect()
    }
}
