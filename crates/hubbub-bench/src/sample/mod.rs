//! What server, broker, database and machine do while a run is under way, sampled once a second, and how that goes over
//! the run ([`series`]). [`processes`] reads /proc. Histograms of the server are read by [`buckets`].

pub(crate) mod buckets;
mod processes;
pub(crate) mod series;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[cfg(feature = "postgres")]
use anyhow::Context as _;
use serde::Serialize;

use crate::client::Targets;
use crate::engine::Setup;
use crate::ledger::{exact_sum, sum};
use crate::options::Common;
use crate::persist::PersistArgs;
use crate::run::Run;
use buckets::Buckets;
pub(crate) use processes::{COMMIT, CPU, GENERATOR, LOG, SERVER, USUAL, WORKERS};
#[cfg(feature = "postgres")]
use processes::{POSTGRES, is_of};
use processes::{disk, pids_named, processes};
use series::Span;

const EVERY: Duration = Duration::from_secs(1);
/// What the mean time of the server's batches is called in samples, from the first statement to the commit.
pub(crate) const BATCH_MS: &str = "batch ms";

/// What the sessions of the database that wait for a lock are called in samples.
pub(crate) const LOCK_WAITS: &str = "lock waits";
/// The same of the processors that it may use.
pub(crate) const DATABASE_CORES: &str = "database cores";

/// What all disks of this machine write.
pub(crate) const DISK: &str = "disk MB/s";

/// Figures of server, database and machine at one time; rates are those since the sample before.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SystemSample {
    pub(crate) at_s: f64,
    pub(crate) values: BTreeMap<String, f64>,
}

/// Counters and figures of one moment.
#[derive(Debug, Default)]
struct Raw {
    at_s: f64,
    /// What only grows; shown as rates.
    counters: BTreeMap<String, f64>,
    /// What stands as it is.
    figures: BTreeMap<String, f64>,
    /// Pairs of what only grows; shown is how much the first grew for each one of the second.
    ratios: BTreeMap<String, (f64, f64)>,
    /// Processor time of processes that come and go, in seconds, by process id; shown as the rate of all together. What
    /// one that is gone has used since the last sample is not known.
    seconds: BTreeMap<String, BTreeMap<u32, f64>>,
}

pub(crate) struct Sampler {
    task: tokio::task::JoinHandle<Vec<SystemSample>>,
    stop: Arc<tokio::sync::Notify>,
    begun: Instant,
}

impl Sampler {
    pub(crate) fn start(source: Source) -> Self {
        let stop = Arc::new(tokio::sync::Notify::new());
        let stopped = stop.clone();
        let begun = Instant::now();
        let task = tokio::spawn(async move {
            let (mut samples, mut before) = (Vec::new(), None);
            let mut is_over = false;
            loop {
                let raw = source.sample(begun).await;
                samples.extend(before.map(|before| raw.since(&before)));
                before = Some(raw);
                if is_over {
                    return samples;
                }
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = stopped.notified() => is_over = true,
                }
                // What was over so soon is seen at its end.
                if is_over && !samples.is_empty() {
                    return samples;
                }
            }
        });
        Self { task, stop, begun }
    }

    /// A part of the time, as samples count it.
    pub(crate) fn span(&self, from: Instant, to: Instant) -> Span {
        let at_s = |at: Instant| at.saturating_duration_since(self.begun).as_secs_f64();
        Span { from_s: at_s(from), to_s: at_s(to) }
    }

    pub(crate) async fn stop(self) -> Vec<SystemSample> {
        self.stop.notify_one();
        self.task.await.unwrap_or_default()
    }
}

/// Counters of the server: how each is shown, and what the server calls it.
const COUNTERS: [(&str, &str); 5] = [
    ("stored/s", "hubbub_messages_stored_total"),
    ("batches/s", "hubbub_pipeline_batch_operations_count"),
    ("statements/s", "hubbub_store_pool_statements_total"),
    ("round trips/s", "hubbub_store_pool_round_trips_total"),
    ("pool timeouts/s", "hubbub_store_pool_timeouts_total"),
];
/// Its figures that stand as they are.
const FIGURES: [(&str, &str); 4] = [
    ("pool active", "hubbub_store_pool_active"),
    ("pool connections", "hubbub_store_pool_connections"),
    ("pool waiting", "hubbub_store_pool_waiting"),
    ("waiting for the store", "hubbub_pipeline_waiting_operations"),
];

impl Raw {
    fn take(&mut self, metrics: &str) {
        let value = |(shown, name): (&str, &str)| Some((shown.to_owned(), sum(metrics, name)? as f64));
        self.counters.extend(COUNTERS.into_iter().filter_map(value));
        self.figures.extend(FIGURES.into_iter().filter_map(value));
        let batches = Buckets::parse(metrics, "hubbub_pipeline_store_seconds");
        self.ratios.insert(BATCH_MS.into(), (1e3 * batches.sum, batches.count()));
        if let Some(seconds) = exact_sum(metrics, "hubbub_store_pool_acquire_seconds_total")
            && let Some(acquired) = exact_sum(metrics, "hubbub_store_pool_acquired_total")
        {
            self.ratios.insert("pool wait ms".into(), (1e3 * seconds, acquired));
        }
    }

    fn since(&self, before: &Self) -> SystemSample {
        let seconds = (self.at_s - before.at_s).max(1e-3);
        let mut values = self.figures.clone();
        for (name, value) in &self.counters {
            if let Some(earlier) = before.counters.get(name) {
                values.insert(name.clone(), ((value - earlier) / seconds).max(0.0));
            }
        }
        for (name, (part, whole)) in &self.ratios {
            if let Some((part_before, whole_before)) = before.ratios.get(name)
                && whole > whole_before
            {
                values.insert(name.clone(), (part - part_before) / (whole - whole_before));
            }
        }
        for (name, now) in &self.seconds {
            let earlier = before.seconds.get(name);
            let used = now.iter().map(|(pid, used)| {
                let earlier = earlier.and_then(|earlier| earlier.get(pid)).copied().unwrap_or(0.0);
                (used - earlier).max(0.0)
            });
            values.insert(name.clone(), used.sum::<f64>() / seconds);
        }
        SystemSample { at_s: self.at_s, values }
    }
}

/// A row for each sample, a column for each figure, by their names.
pub(crate) fn samples_csv(samples: &[SystemSample]) -> String {
    let names: BTreeSet<&String> = samples.iter().flat_map(|sample| sample.values.keys()).collect();
    let heads: String = names.iter().map(|name| format!(",{name}")).collect();
    let row = |sample: &SystemSample| {
        let value =
            |name: &&String| sample.values.get(*name).map_or(",".to_owned(), |value| format!(",{value}"));
        format!("{:.3}{}\n", sample.at_s, names.iter().map(value).collect::<String>())
    };
    format!("seconds{heads}\n{}", samples.iter().map(row).collect::<String>())
}

/// Where to ask; nothing is asked where nothing is known.
pub(crate) struct Source {
    targets: Option<Targets>,
    server_pids: Vec<u32>,
    /// The broker's process, if it runs here.
    broker_pid: Option<u32>,
    /// Names of processes to sample besides the server and this one.
    names: Vec<String>,
    /// The process that started those of the database, if it runs here.
    database_pid: Option<u32>,
    /// Whose messages are counted as published.
    run: Option<Arc<Run>>,
    /// A channel, and the queues whose messages are counted.
    #[cfg(feature = "amqp")]
    broker: Option<(lapin::Channel, Vec<String>)>,
    #[cfg(feature = "postgres")]
    database: Option<tokio_postgres::Client>,
}

#[cfg(feature = "postgres")]
const DATABASE: &str = "select d.xact_commit, d.blks_hit, d.blks_read, d.numbackends, \
     pg_database_size(d.datname), w.wal_bytes::float8, w.wal_sync, \
     (select count(*) from pg_stat_activity a where a.datname = d.datname and a.wait_event_type = 'Lock') \
     from pg_stat_database d, pg_stat_wal w where d.datname = current_database()";

/// The process of a database that started all others, if it runs here.
#[cfg(feature = "postgres")]
async fn main_process(client: &tokio_postgres::Client) -> anyhow::Result<Option<u32>> {
    let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
    let pid = u32::try_from(pid).ok().filter(|pid| pids_named(POSTGRES).contains(pid));
    Ok(pid.and_then(crate::machine::parent))
}

/// The processes of a database; none if it runs elsewhere.
#[cfg(feature = "postgres")]
pub(crate) async fn database_pids(url: &str) -> anyhow::Result<Vec<u32>> {
    let client = crate::limits::postgres::connect(url).await?;
    let Some(main) = main_process(&client).await? else { return Ok(Vec::new()) };
    Ok(pids_named(POSTGRES).into_iter().filter(|pid| is_of(*pid, main)).collect())
}

/// The processes that are watched, without those that are known as servers or broker: nothing counts twice.
fn watched(common: &Common) -> Vec<String> {
    let known: Vec<u32> = common.server_pid.iter().copied().chain(common.broker_pid).collect();
    let is_known = |name: &str| !known.is_empty() && pids_named(name).iter().any(|pid| known.contains(pid));
    common.watch.iter().filter(|name| !is_known(name)).cloned().collect()
}

impl Source {
    /// Servers, database and processes of a run.
    pub(crate) async fn open(setup: &Setup) -> anyhow::Result<Self> {
        let common = &setup.common;
        #[cfg(feature = "postgres")]
        let database = match common.database.as_deref().filter(|url| url.starts_with("postgres")) {
            Some(url) => {
                let connecting = crate::limits::postgres::connect(url).await;
                Some(connecting.context("the database given by --database cannot be reached")?)
            }
            None => None,
        };
        Ok(Self {
            targets: Some(setup.targets.clone()),
            server_pids: common.server_pid.clone(),
            broker_pid: common.broker_pid,
            names: match common.database.as_deref() {
                Some(url) if url.starts_with("postgres") => watched(common),
                // To search for them among all processes takes time from what is measured.
                _ => watched(common).into_iter().filter(|name| !USUAL.contains(&name.as_str())).collect(),
            },
            #[cfg(feature = "postgres")]
            database_pid: match &database {
                Some(client) => main_process(client).await?,
                None => None,
            },
            #[cfg(not(feature = "postgres"))]
            database_pid: None,
            run: None,
            #[cfg(feature = "amqp")]
            broker: None,
            #[cfg(feature = "postgres")]
            database,
        })
    }

    /// The same for messages that are persisted, with what is published and what waits in the broker.
    pub(crate) async fn of_persisting(
        args: &PersistArgs,
        setup: &Setup,
        run: Arc<Run>,
    ) -> anyhow::Result<Self> {
        let all = Self::open(setup).await?;
        Ok(Self {
            targets: all.targets.filter(|_| !args.fill),
            names: watched(&setup.common),
            run: Some(run),
            #[cfg(feature = "amqp")]
            broker: match args.broker() {
                Some(url) => Some((
                    crate::persist::amqp::connect(url).await?.create_channel().await?,
                    args.queues.clone(),
                )),
                None => None,
            },
            ..all
        })
    }

    async fn sample(&self, begun: Instant) -> Raw {
        let mut raw = Raw::default();
        if let Some(run) = &self.run {
            let published = run.counts.accepted.load(Ordering::Relaxed);
            raw.counters.insert("published/s".into(), published as f64);
        }
        if let Some(targets) = &self.targets
            && let Ok(metrics) = targets.metrics().await
        {
            raw.take(&metrics);
        }
        #[cfg(feature = "amqp")]
        if let Some((channel, queues)) = &self.broker {
            let mut waiting = 0;
            for queue in queues {
                waiting += crate::persist::amqp::depth(channel, queue).await.unwrap_or(0);
            }
            raw.figures.insert("in the broker".into(), waiting as f64);
        }
        #[cfg(feature = "postgres")]
        if let Some(client) = &self.database
            && let Ok(row) = client.query_one(DATABASE, &[]).await
        {
            let [commits, hit, blocks_read] = [0, 1, 2].map(|index| row.get::<_, i64>(index) as f64);
            raw.counters.insert("commits/s".into(), commits);
            raw.counters.insert("WAL MB/s".into(), row.get::<_, f64>(5) / 1e6);
            raw.counters.insert("WAL syncs/s".into(), row.get::<_, i64>(6) as f64);
            raw.counters.insert("blocks read/s".into(), blocks_read);
            raw.figures.insert("connections".into(), f64::from(row.get::<_, i32>(3)));
            raw.figures.insert(LOCK_WAITS.into(), row.get::<_, i64>(7) as f64);
            raw.figures.extend(
                self.database_pid.map(|pid| (DATABASE_CORES.to_owned(), crate::machine::may_use(pid))),
            );
            raw.figures.insert("database MB".into(), row.get::<_, i64>(4) as f64 / 1e6);
            raw.ratios.insert("cache hits %".into(), (100.0 * hit, hit + blocks_read));
        }
        processes(self, &mut raw);
        if let Some((writes, bytes)) = disk() {
            raw.counters.insert("disk writes/s".into(), writes);
            raw.counters.insert(DISK.into(), bytes / 1e6);
        }
        raw.at_s = begun.elapsed().as_secs_f64();
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_shown_as_a_rate_and_as_a_ratio() {
        let raw = |seconds, stored, hits| Raw {
            at_s: seconds,
            counters: [("stored/s".to_owned(), stored)].into(),
            figures: [("connections".to_owned(), 3.0)].into(),
            ratios: [("cache hits %".to_owned(), hits)].into(),
            seconds: BTreeMap::new(),
        };
        let sample = raw(6.0, 500.0, (900.0, 20.0)).since(&raw(4.0, 100.0, (100.0, 10.0)));
        let values: Vec<(&str, f64)> = sample.values.iter().map(|(name, value)| (&**name, *value)).collect();
        assert_eq!(values, [("cache hits %", 80.0), ("connections", 3.0), ("stored/s", 200.0)]);
        assert_eq!(sample.at_s, 6.0);
    }

    #[test]
    fn a_process_that_ends_takes_no_time_from_the_others() {
        let raw = |at, seconds: &[(u32, f64)]| Raw {
            at_s: at,
            seconds: [("postgres CPU".to_owned(), seconds.iter().copied().collect())].into(),
            ..Raw::default()
        };
        let sample = raw(2.0, &[(1, 6.0), (3, 1.0)]).since(&raw(0.0, &[(1, 4.0), (2, 50.0)]));
        assert_eq!(sample.values["postgres CPU"], 1.5, "two seconds of the first, one of the new one");
    }
}
