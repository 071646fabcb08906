//! Marks before and after the measured phase, and the figures of the time between them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::seen::{Commit, Database, Disk, Hot, Pool, Processors, Seen, Subscribers};
use super::stall::Stall;
use crate::caller::Caller;
use crate::client::{Target, Targets};
use crate::engine::Setup;
use crate::ledger::exact_sum;
use crate::machine::{ThreadTimes, all_cores, may_use, thread_times};
use crate::report::Report;
use crate::sample::buckets::Buckets;
use crate::sample::series::average;
use crate::sample::{DATABASE_CORES, DISK_BUSY, DISK_FLUSH, LOCK_WAITS, SystemSample};
use crate::stages::ServerStages;

/// Requests with nothing to do, of which the shortest counts.
const PROBES: usize = 5;
const PROBE: &str = "/health/live";
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Watch {
    empty_ms: Option<f64>,
    before: Mark,
    stall: Stall,
}

/// What stands at one time.
struct Mark {
    at: Instant,
    own: BTreeMap<u32, ThreadTimes>,
    servers: Vec<BTreeMap<u32, ThreadTimes>>,
    metrics: String,
}

impl Mark {
    async fn take(server_pids: &[u32], targets: &Targets) -> Self {
        let metrics = targets.metrics().await.unwrap_or_default();
        let servers = server_pids.iter().map(|pid| thread_times(*pid)).collect();
        Self { at: Instant::now(), own: thread_times(std::process::id()), servers, metrics }
    }
}

impl Watch {
    /// Just before the measured phase.
    pub(crate) async fn begin(setup: &Setup) -> Self {
        let empty_ms = probe(setup.target()).await;
        let before = Mark::take(&setup.common.server_pid, &setup.targets).await;
        Self { empty_ms, before, stall: Stall::start() }
    }

    /// Just after it: what the report does not know, and the stages that servers counted.
    pub(crate) async fn end(self, setup: &Setup) -> (Seen, ServerStages) {
        let generator_stopped = self.stall.stop();
        let pids = &setup.common.server_pid;
        let after = Mark::take(pids, &setup.targets).await;
        let between = Between { before: &self.before, after: &after };
        let servers = pids.iter().zip(&self.before.servers).zip(&after.servers);
        let servers = servers.map(|((pid, before), after)| between.processors(*pid, before, after));
        let wanted = |one: &Processors| (one.run + one.waited) / one.may_use.max(0.01);
        let seen = Seen {
            cores: all_cores(),
            server: servers.max_by(|one, other| wanted(one).total_cmp(&wanted(other))),
            generator: Some(between.processors(std::process::id(), &self.before.own, &after.own)),
            generator_threads: setup.common.threads,
            generator_stopped,
            empty_ms: self.empty_ms,
            server_ms: between.mean_ms("hubbub_pipeline_total_seconds"),
            commit: between.commit(),
            pool: between.pool(),
            confirm_ms: between.mean_ms("hubbub_log_confirm_seconds"),
            subscribers: between.grown("hubbub_slow_subscribers_total").map(|cut| Subscribers {
                slowest_behind: None,
                window: None,
                cut,
            }),
            ..Seen::default()
        };
        (seen, ServerStages::between(&self.before.metrics, &after.metrics))
    }
}

impl Seen {
    /// Adds what the report and the samples have.
    pub(crate) fn with(
        mut self,
        report: &Report,
        samples: &[SystemSample],
        asked_per_second: Option<f64>,
    ) -> Self {
        self.latency_ms = report.latency.mean_ms;
        self.others = report.taken.map(|taken| taken.processes * all_cores() as f64);
        self.under_way = report.little.as_ref().map(|little| little.efficiency);
        self.reached = asked_per_second.filter(|asked| *asked > 0.0).map(|asked| report.per_second / asked);
        if let Some(delivery) = &report.delivery
            && delivery.slowest_behind.is_some()
        {
            let cut = self.subscribers.map_or(0.0, |subscribers| subscribers.cut);
            let (slowest_behind, window) = (delivery.slowest_behind, delivery.window);
            self.subscribers = Some(Subscribers { slowest_behind, window, cut });
        }
        // Without a connection to the database, it is not known whose processes are seen.
        if let Some(lock_waiting) = average(samples, LOCK_WAITS) {
            let may_use = average(samples, DATABASE_CORES).unwrap_or_else(|| all_cores() as f64);
            let processors = average(samples, "postgres CPU").unwrap_or(0.0);
            self.database = Some(Database { processors, may_use, lock_waiting: Some(lock_waiting) });
        }
        self.disk = average(samples, DISK_BUSY)
            .map(|busy| Disk { busy: busy / 100.0, flush_ms: average(samples, DISK_FLUSH) });
        self
    }
}

/// Milliseconds of the shortest round trip; `None` where nobody answers HTTP.
async fn probe(target: &Target) -> Option<f64> {
    let mut caller = Caller::open(target, PROBE_TIMEOUT).await.ok()?;
    let mut shortest = f64::INFINITY;
    for _ in 0..PROBES {
        let asked = Instant::now();
        caller.request("GET", PROBE, b"", |_| ()).await.ok()?;
        shortest = shortest.min(1e3 * asked.elapsed().as_secs_f64());
    }
    Some(shortest)
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

    fn grown(&self, name: &str) -> Option<f64> {
        Some(exact_sum(&self.after.metrics, name)? - exact_sum(&self.before.metrics, name).unwrap_or(0.0))
    }

    fn added(&self, name: &str) -> Option<Buckets> {
        let added =
            Buckets::parse(&self.after.metrics, name).since(&Buckets::parse(&self.before.metrics, name));
        (added.count() > 0.0).then_some(added)
    }

    fn mean_ms(&self, name: &str) -> Option<f64> {
        self.added(name).map(|added| 1e3 * added.mean())
    }

    fn commit(&self) -> Option<Commit> {
        let store = self.added("hubbub_pipeline_store_seconds")?;
        let (mut run, mut waited, mut threads) = (0.0, 0.0, 0_u32);
        for (before, after) in self.before.servers.iter().zip(&self.after.servers) {
            for (id, now) in after.iter().filter(|(_, now)| now.name == "commit") {
                let Hot { run: ran, waited: delayed, .. } = now.since(before.get(id), self.seconds());
                (run, waited, threads) = (run + ran, waited + delayed, threads + 1);
            }
        }
        // Servers on other machines show no threads.
        let threads = f64::from(threads.max(1));
        Some(Commit {
            syncs: exact_sum(&self.after.metrics, "hubbub_store_sync_max_seconds")
                .is_some_and(|max| max > 0.0),
            busy: store.sum / self.seconds() / threads,
            run: run / threads,
            waited: waited / threads,
            batch_ms: 1e3 * store.mean(),
            operations: self.added("hubbub_pipeline_batch_operations").map_or(0.0, |added| added.mean()),
            wait_ms: self.mean_ms("hubbub_pipeline_wait_seconds").unwrap_or(0.0),
        })
    }

    fn pool(&self) -> Option<Pool> {
        let acquired = self.grown("hubbub_store_pool_acquired_total").filter(|count| *count > 0.0)?;
        let waited = self.grown("hubbub_store_pool_acquire_seconds_total")?;
        Some(Pool {
            waiting: waited / self.seconds(),
            connections: exact_sum(&self.after.metrics, "hubbub_store_pool_connections").unwrap_or(0.0),
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
