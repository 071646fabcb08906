//! Marks before and after the measured phase, and the figures of the time between them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::figures::{Commit, Database, Disk, Figures, Hot, OnProcessor, Pool, Processors, Subscribers};
use super::stall::{Lateness, Stall};
use crate::analysis::stages::ServerStages;
use crate::client::Targets;
use crate::client::caller::Caller;
use crate::host::machine::{ThreadTimes, all_cores, may_use, thread_times};
use crate::host::sample::buckets::Buckets;
use crate::host::sample::series::average;
use crate::host::sample::{DATABASE_CORES, DATABASE_CPU, DISK_BUSY, DISK_FLUSH, LOCK_WAITS, SystemSample};
use crate::load::punctuality::{ClockMark, GeneratorTiming};
use crate::report::Report;
use crate::results::ledger::{exact_sum, values_of};
use crate::results::record::Record;
use crate::workloads::engine::Setup;

/// Requests with nothing to do, of which the shortest counts.
const PROBES: usize = 5;
const PROBE: &str = "/health/live";
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The name of the server's threads that commit.
const COMMIT_THREAD: &str = "commit";

pub(crate) struct Watch {
    empty_ms: Option<f64>,
    before: Mark,
    clocks: ClockMark,
    stall: Stall,
}

/// What stands at one time.
pub(crate) struct Mark {
    at: Instant,
    own: BTreeMap<u32, ThreadTimes>,
    servers: Vec<BTreeMap<u32, ThreadTimes>>,
    /// What the servers said of themselves; `None` where one of them did not answer.
    metrics: Option<String>,
    /// When the servers counted what they say: one after another, so this is the middle.
    counted: Instant,
}

impl Mark {
    async fn take(server_pids: &[u32], targets: &Targets) -> Self {
        let asked = Instant::now();
        let metrics = targets.metrics().await.ok();
        let counted = asked + asked.elapsed() / 2;
        Self { counted, ..Self::with(server_pids, metrics) }
    }

    /// The same with what the servers just said of themselves.
    pub(crate) fn with(server_pids: &[u32], metrics: Option<String>) -> Self {
        let servers = server_pids.iter().map(|pid| thread_times(*pid)).collect();
        let at = Instant::now();
        Self { at, own: thread_times(std::process::id()), servers, metrics, counted: at }
    }
}

/// What servers counted of stages, and between which two moments.
pub(crate) struct Counted {
    pub(crate) stages: ServerStages,
    pub(crate) between: Range<Instant>,
    /// What is to be known where servers answered at one of them only.
    pub(crate) note: Option<&'static str>,
}

/// What one reading says alone is what was counted since the servers began.
const ONE_READING: &str = "the servers' figures could be read only once, before or after the measured phase: what they counted in \
                           it is not known";

impl Watch {
    /// Milliseconds of the shortest round trip before there is any load; `None` where nobody answers HTTP.
    pub(crate) async fn probe(setup: &Setup) -> Option<f64> {
        let mut caller = Caller::open(setup.target(), PROBE_TIMEOUT).await.ok()?;
        let mut shortest = f64::INFINITY;
        for _ in 0..PROBES {
            let asked = Instant::now();
            caller.request("GET", PROBE, b"", |_| ()).await.ok()?;
            shortest = shortest.min(1e3 * asked.elapsed().as_secs_f64());
        }
        Some(shortest)
    }

    /// At the start of the measured phase.
    pub(crate) async fn begin(setup: &Setup, empty_ms: Option<f64>) -> Self {
        let before = Mark::take(&setup.common.server_pid, &setup.targets).await;
        Self { empty_ms, before, clocks: ClockMark::now(), stall: Stall::start() }
    }

    /// Just after it, or at a mark that stands for its end: what the report does not know, the stages that servers counted, and
    /// how punctual the generator was.
    pub(crate) async fn end(
        self,
        setup: &Setup,
        early: Option<&Mark>,
    ) -> (Figures, Counted, GeneratorTiming) {
        let Lateness { stopped_share, delays } = self.stall.stop();
        let timing = GeneratorTiming {
            scheduling_delay: delays.stats(),
            send_delay: None,
            stopped_share,
            clock_drift_ms: self.clocks.drift_ms(&ClockMark::now()),
        };
        let pids = &setup.common.server_pid;
        let taken;
        let after = match early {
            Some(mark) => mark,
            None => {
                taken = Mark::take(pids, &setup.targets).await;
                &taken
            }
        };
        let between = Between { before: &self.before, after };
        let servers = pids.iter().zip(&self.before.servers).zip(&after.servers);
        // A process that is not there, or ended meanwhile, did not do nothing.
        let servers = servers.filter(|((_, before), after)| !before.is_empty() && !after.is_empty());
        let servers = servers.map(|((pid, before), after)| between.processors(*pid, before, after));
        let wanted = |one: &Processors| (one.run + one.waited) / one.may_use.max(0.01);
        let seen = Figures {
            cores: all_cores(),
            server: servers.max_by(|one, other| wanted(one).total_cmp(&wanted(other))),
            generator: Some(between.processors(std::process::id(), &self.before.own, &after.own)),
            generator_threads: setup.common.threads,
            generator_stopped: stopped_share,
            empty_ms: self.empty_ms,
            in_pipeline: between
                .added("hubbub_pipeline_client_seconds")
                .map(|added| added.sum / between.seconds()),
            commit: between.commit(),
            pool: between.pool(),
            confirm_ms: between.mean_ms("hubbub_log_confirm_seconds"),
            subscribers: between.grown("hubbub_slow_subscribers_total").map(|cut| Subscribers {
                slowest_behind: None,
                window: None,
                cut,
            }),
            ..Figures::default()
        };
        (seen, between.counted(), timing)
    }
}

/// What the verdict must know of an open loop; of a closed one it is without meaning.
pub(crate) struct OpenLoop {
    pub(crate) asked_per_second: Option<f64>,
    /// How long it was to send, in seconds.
    pub(crate) sending_s: f64,
    /// Messages that may be under way at most.
    pub(crate) window: Option<f64>,
    /// From the intended send until messages were sent, the mean.
    pub(crate) waited_ms: f64,
}

impl Figures {
    /// Adds what the record, the report and the samples have.
    pub(crate) fn with(
        mut self,
        record: &Record,
        report: &Report,
        samples: &[SystemSample],
        open: OpenLoop,
    ) -> Self {
        self.latency_ms = report.latency.mean_ms;
        self.per_second = report.per_second;
        self.others = report.taken.map(|taken| taken.processes * all_cores() as f64);
        self.under_way = report.little.as_ref().map(|little| little.efficiency);
        self.waited_ms = open.waited_ms;
        // Answers come as long after their messages as they take: a short run is not late for that. Those that come later do not
        // count, so that one of them takes nothing from all others. How long they take, the quickest tenth says: of a backlog that
        // grows in the server, these are the first, and the mean would count half of it as answered in time.
        let quick_ms = record.open.as_ref().map_or(0.0, |open| open.from_send.percentile_ms(10.0));
        let in_time = record.answered_by(open.sending_s + quick_ms / 1e3);
        let due = open.asked_per_second.map(|asked| asked * open.sending_s);
        self.reached = due.filter(|due| *due > 0.0).map(|due| in_time / due);
        self.window = open.window.filter(|_| self.reached.is_some());
        let behind = report.settling.as_ref().filter(|settling| settling.store_behind.is_some());
        self.store_lag_s = behind.map(|settling| settling.lag_s);
        if let Some(delivery) = &report.delivery
            && delivery.slowest_behind.is_some()
        {
            let cut = self.subscribers.map_or(0.0, |subscribers| subscribers.cut);
            let (slowest_behind, window) = (delivery.slowest_behind, delivery.window);
            self.subscribers = Some(Subscribers { slowest_behind, window, cut });
        }
        let may_use = || average(samples, DATABASE_CORES).unwrap_or_else(|| all_cores() as f64);
        if let Some(processors) = average(samples, DATABASE_CPU) {
            self.database = Some(Database { processors, may_use: may_use(), lock_waiting: None });
        }
        // Without a connection to PostgreSQL, it is not known whose processes are seen.
        if let Some(lock_waiting) = average(samples, LOCK_WAITS) {
            let may_use = may_use();
            let processors = average(samples, "postgres CPU").unwrap_or(0.0);
            self.database = Some(Database { processors, may_use, lock_waiting: Some(lock_waiting) });
        }
        self.disk = average(samples, DISK_BUSY)
            .map(|busy| Disk { busy: busy / 100.0, flush_ms: average(samples, DISK_FLUSH) });
        self
    }
}

struct Between<'m> {
    before: &'m Mark,
    after: &'m Mark,
}

impl Between<'_> {
    fn seconds(&self) -> f64 {
        self.after.at.duration_since(self.before.at).as_secs_f64().max(1e-9)
    }

    /// Processor time of a process between two marks; threads that ended meanwhile are missing.
    fn processors(
        &self,
        pid: u32,
        before: &BTreeMap<u32, ThreadTimes>,
        after: &BTreeMap<u32, ThreadTimes>,
    ) -> Processors {
        let seconds = self.seconds();
        let threads: Vec<Hot> = after.iter().map(|(id, now)| now.since(before.get(id), seconds)).collect();
        let sum = |of: fn(&Hot) -> f64| threads.iter().map(of).sum();
        let wanted = |one: &Hot| one.run + one.waited;
        Processors {
            run: sum(|one| one.run),
            waited: sum(|one| one.waited),
            may_use: may_use(pid),
            hottest: threads.iter().max_by(|one, other| wanted(one).total_cmp(&wanted(other))).cloned(),
        }
    }

    /// What the servers said before and after; without one of both nothing is known of the time between them.
    fn metrics(&self) -> Option<(&str, &str)> {
        self.before.metrics.as_deref().zip(self.after.metrics.as_deref())
    }

    fn counted(&self) -> Counted {
        let metrics = self.metrics();
        let is_one = self.before.metrics.is_some() || self.after.metrics.is_some();
        Counted {
            stages: metrics.map(|(before, after)| ServerStages::between(before, after)).unwrap_or_default(),
            between: self.before.counted..self.after.counted,
            note: (metrics.is_none() && is_one).then_some(ONE_READING),
        }
    }

    fn grown(&self, name: &str) -> Option<f64> {
        let (before, after) = self.metrics()?;
        Some(exact_sum(after, name)? - exact_sum(before, name).unwrap_or(0.0))
    }

    fn added(&self, name: &str) -> Option<Buckets> {
        let (before, after) = self.metrics()?;
        let added = Buckets::parse(after, name).since(&Buckets::parse(before, name));
        (added.count() > 0.0).then_some(added)
    }

    /// What the servers said in the end.
    fn last(&self, name: &str) -> Option<f64> {
        exact_sum(self.after.metrics.as_deref()?, name)
    }

    fn mean_ms(&self, name: &str) -> Option<f64> {
        self.added(name).map(|added| 1e3 * added.mean())
    }

    fn commit(&self) -> Option<Commit> {
        let store = self.added("hubbub_pipeline_store_seconds")?;
        let threads = self.commit_threads();
        let on_processor = (!threads.is_empty()).then(|| {
            let mean = |of: fn(&Hot) -> f64| threads.iter().map(of).sum::<f64>() / threads.len() as f64;
            OnProcessor { run: mean(|one| one.run), waited: mean(|one| one.waited) }
        });
        Some(Commit {
            syncs: self.last("hubbub_store_sync_max_seconds").is_some_and(|max| max > 0.0),
            busy: self.threads_of_all(&threads).map(|count| store.sum / self.seconds() / count),
            on_processor,
            batch_ms: 1e3 * store.mean(),
            operations: self.added("hubbub_pipeline_batch_operations").map_or(0.0, |added| added.mean()),
            wait_ms: self.mean_ms("hubbub_pipeline_wait_seconds").unwrap_or(0.0),
        })
    }

    /// The threads that commit, of servers whose processes are known.
    fn commit_threads(&self) -> Vec<Hot> {
        let servers = self.before.servers.iter().zip(&self.after.servers);
        let of_server = |(before, after): (&BTreeMap<u32, ThreadTimes>, &BTreeMap<u32, ThreadTimes>)| {
            let commit = after.iter().filter(|(_, now)| now.name == COMMIT_THREAD);
            commit.map(|(id, now)| now.since(before.get(id), self.seconds())).collect::<Vec<_>>()
        };
        servers.flat_map(of_server).collect()
    }

    /// How many threads commit in all servers that told their figures: each has as many as those that are `seen`. Where none is
    /// seen, each has one, unless its requests to a database go many at a time: then it is not known.
    fn threads_of_all(&self, seen: &[Hot]) -> Option<f64> {
        let metrics = self.after.metrics.as_deref()?;
        let servers = values_of(metrics, "hubbub_pipeline_store_seconds_sum").count().max(1) as f64;
        let is_commit =
            |threads: &&BTreeMap<u32, ThreadTimes>| threads.values().any(|it| it.name == COMMIT_THREAD);
        match self.after.servers.iter().filter(is_commit).count() {
            0 => self.last("hubbub_store_requests_total").is_none().then_some(servers),
            shown => Some(servers * seen.len() as f64 / shown as f64),
        }
    }

    fn pool(&self) -> Option<Pool> {
        let acquired = self.grown("hubbub_store_pool_acquired_total").filter(|count| *count > 0.0)?;
        let waited = self.grown("hubbub_store_pool_acquire_seconds_total")?;
        Some(Pool {
            waiting: waited / self.seconds(),
            connections: self.last("hubbub_store_pool_connections").unwrap_or(0.0),
            wait_ms: 1e3 * waited / acquired,
        })
    }
}

impl ThreadTimes {
    /// As shares of `seconds` since an earlier sample, or since the thread began.
    fn since(&self, before: Option<&Self>, seconds: f64) -> Hot {
        let grown = |now: f64, before: Option<f64>| (now - before.unwrap_or(0.0)).max(0.0) / seconds;
        Hot {
            name: self.name.clone(),
            run: grown(self.run_s, before.map(|one| one.run_s)),
            waited: grown(self.waited_s, before.map(|one| one.waited_s)),
        }
    }
}

#[cfg(test)]
mod tests;
