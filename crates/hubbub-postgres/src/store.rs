//! The store that the pipeline sees. It opens the subsystems and delegates to them.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{Clock, ClockAnomaly, RandomSource};
use hubbub_core::replica::ReplicaStore;
use hubbub_core::store::{
    ApplyError, BatchCap, HANGING, PeerMessages, ReadError, Store, StoreFigures, StoreHealth,
};
use hubbub_core::{LogStore, OpBatch, Outcome};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::db::Db;
use crate::db::clock::DatabaseClock;
use crate::db::connect::{self, OpenError};
use crate::db::error::open_error;
use crate::history::DatabaseHistory;
use crate::kv::Kv;
use crate::log::LogState;
use crate::maintenance::{Maintenance, Status, Subsystems};
use crate::notifications::Notifications;
use crate::options::{Pooler, PostgresOptions};
use crate::partitions::Partitions;
use crate::queues::Queues;
use crate::replicas::{Reader, Replicas, ReplicatedReads};
use crate::rooms::Rooms;
use crate::stats::{CountReader, Stats};
use crate::{apply, durability, migrate};

/// How long a server that stops waits at most to let others change keys.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// Largest batch.
const BATCH_CAP: BatchCap = BatchCap { ops: 5_000, bytes: 4 * 1024 * 1024 };

/// What all subsystems share.
pub(crate) struct Context {
    pub(crate) db: Db,
    pub(crate) options: PostgresOptions,
    pub(crate) clock: Arc<dyn Clock>,
    /// The clock that `clock` follows if it is the database's.
    pub(crate) database_clock: Option<Arc<DatabaseClock>>,
    pub(crate) runtime: Handle,
    pub(crate) status: Status,
    pub(crate) partitions: Partitions,
    pub(crate) history: Arc<DatabaseHistory>,
    pub(crate) log: LogState,
    pub(crate) notifications: Notifications,
}

/// A PostgreSQL database as a store.
pub struct Postgres {
    pub(crate) context: Arc<Context>,
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) kv: Arc<Kv>,
    pub(crate) stats: Arc<Stats>,
    /// Statistics, read from the primary.
    pub(crate) counts: CountReader,
    replicated_reads: Option<ReplicatedReads>,
    maintenance: Maintenance,
    /// When the batch under way began, by the monotonic clock.
    applying_since: Mutex<Option<Duration>>,
}

impl Postgres {
    /// Connects, migrates if allowed, and starts maintenance. Call it on a multi-threaded tokio runtime that lives as long
    /// as the store.
    pub async fn open(
        options: PostgresOptions,
        clock: Arc<dyn Clock>,
        random: &dyn RandomSource,
    ) -> Result<Self, OpenError> {
        let config = connect::config(&options.url, true)?;
        let client = migrate::prepare(&config, &options).await?;
        let warned = durability::warn_of_risks(&client).await;
        warned.map_err(|error| open_error(&config, "reading the settings of", &error))?;
        let history = DatabaseHistory::open(&client, random).await;
        let history = history.map_err(|error| open_error(&config, "naming the history of", &error))?;
        let history = Arc::new(history);
        drop(client);
        let notifications = Notifications::default();
        if options.pooler == Pooler::Session {
            notifications.start(config.clone(), connect::tls(options.ca.as_deref())?);
        }
        // Behind a transaction pooler it would reach the sessions of others.
        let setup = (options.pooler == Pooler::Session).then(|| connect::session_settings(&options));
        let pool = connect::pool(config, &options, Some(history.connection_check(setup)))?;
        let times = (options.apply_timeout, options.pool.max_lifetime);
        let db = Db::new(pool, options.pooler, times, Some(history.clone()), random.next_u64());
        let (clock, database_clock): (Arc<dyn Clock>, _) = match options.clock_trust_after {
            None => (clock, None),
            Some(trust_after) => {
                let opened = DatabaseClock::open(&db, clock, trust_after).await;
                let (source, steady) = opened.map_err(|fault| OpenError(fault.to_string()))?;
                (steady, Some(source))
            }
        };
        let log = LogState::open(&db).await.map_err(|fault| OpenError(fault.to_string()))?;
        let context = Arc::new(Context {
            db,
            options,
            clock,
            database_clock,
            runtime: Handle::current(),
            status: Status::default(),
            partitions: Partitions::default(),
            history,
            log,
            notifications,
        });
        let replicas = Replicas::open(&context.options, &context.db, &context.history).await?;
        let rooms = Arc::new(Rooms::new(context.clone()));
        let queues = Arc::new(Queues::open(context.clone()).await?);
        let kv = Arc::new(Kv::open(context.clone(), random.next_u64()).await?);
        let stats = Arc::new(Stats::new(context.clone()));
        let maintenance = Maintenance::start(Subsystems {
            context: context.clone(),
            rooms: rooms.clone(),
            queues: queues.clone(),
            kv: kv.clone(),
            stats: stats.clone(),
        });
        let maintenance = maintenance.await;
        let counts = CountReader::new(&stats, Reader::new(&context.db, None));
        let replicated_reads =
            replicas.map(|replicas| ReplicatedReads::new(&rooms, &stats, &context.db, replicas));
        let applying_since = Mutex::default();
        Ok(Self { context, rooms, queues, kv, stats, counts, replicated_reads, maintenance, applying_since })
    }

    /// Runs all pending maintenance at once: counts everything stored, and removes everything deleted.
    pub async fn finish_maintenance(&self) -> Result<(), ReadError> {
        self.stats.finish_maintenance().await?;
        Ok(())
    }
}

impl Store for Postgres {
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        *self.applying_since.lock() = Some(self.context.clock.monotonic());
        // Other tasks of this thread continue if it belongs to the runtime.
        let done = tokio::task::block_in_place(|| self.context.runtime.block_on(apply::apply(self, batch)));
        *self.applying_since.lock() = None;
        done
    }

    fn batch_cap(&self) -> BatchCap {
        BATCH_CAP
    }

    fn health(&self) -> StoreHealth {
        let health = self.context.status.health();
        let since = *self.applying_since.lock();
        let applying = since.map(|since| self.context.clock.monotonic().saturating_sub(since));
        match (health, applying.filter(|applying| *applying >= HANGING)) {
            (StoreHealth::Up | StoreHealth::Alarm(_), Some(applying)) => StoreHealth::Unreachable(format!(
                "the database has not finished a batch for {} s; it may wait for a lock of somebody else",
                applying.as_secs()
            )),
            (health, _) => health,
        }
    }

    fn figures(&self) -> StoreFigures {
        let mut figures = StoreFigures {
            pool: self.context.db.figures(),
            lease: self.kv.lease_figures(),
            ..self.context.status.figures()
        };
        self.rooms.report(&mut figures);
        figures
    }

    fn replicas(&self) -> Option<&dyn ReplicaStore> {
        self.replicated_reads.as_ref().map(|replicated_reads| -> &dyn ReplicaStore { replicated_reads })
    }

    fn log(&self) -> Option<&dyn LogStore> {
        Some(self)
    }

    fn peers(&self) -> Option<&dyn PeerMessages> {
        let notifications = &self.context.notifications;
        notifications.is_running().then_some(notifications)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn clock_anomaly(&self) -> Option<ClockAnomaly> {
        self.context.database_clock.as_ref().and_then(|_| self.context.clock.anomaly())
    }

    fn close(&self) {
        self.maintenance.stop();
        self.replicated_reads.iter().for_each(ReplicatedReads::close);
        // Others need not wait until the lease has run out. A task of its own says so: `block_on` would take wakeups that are
        // for the future whose thread this is.
        let (left, has_left) = std::sync::mpsc::channel();
        let kv = self.kv.clone();
        self.context.runtime.spawn(async move {
            kv.leave().await;
            // Nobody may wait any more.
            let _ = left.send(());
        });
        let _ = tokio::task::block_in_place(|| has_left.recv_timeout(LEAVE_MAX));
        self.kv.close();
        self.context.notifications.close();
        self.context.db.close();
    }
}
