//! The store as the pipeline knows it: one type that hands everything on to the faces.

use std::sync::Arc;

use hubbub_core::clock::{Clock, ClockDoubt, RandomSource};
use hubbub_core::replica::ReplicaStore;
use hubbub_core::store::{ApplyError, BatchCap, ReadError, Store, StoreFigures, StoreHealth};
use hubbub_core::{OpBatch, Outcome};
use tokio::runtime::Handle;

use crate::db::Db;
use crate::db::clock::DatabaseClock;
use crate::db::connect::{self, OpenError};
use crate::db::refusal::refusal;
use crate::history::History;
use crate::kv::Kv;
use crate::options::PostgresOptions;
use crate::partitions::Partitions;
use crate::pulse::{Pulse, Status};
use crate::queues::Queues;
use crate::replicas::{Reader, Replicas, Replicated};
use crate::rooms::Rooms;
use crate::stats::{Counts, Stats};
use crate::{apply, migrate};

/// Most operations, and bytes of them, of one batch.
const BATCH_CAP: BatchCap = BatchCap { ops: 5_000, bytes: 4 * 1024 * 1024 };

/// What all faces use.
pub(crate) struct Context {
    pub(crate) db: Db,
    pub(crate) options: PostgresOptions,
    pub(crate) clock: Arc<dyn Clock>,
    /// What `clock` follows, where it is the database's.
    pub(crate) database_clock: Option<Arc<DatabaseClock>>,
    pub(crate) runtime: Handle,
    pub(crate) status: Status,
    pub(crate) partitions: Partitions,
    pub(crate) history: Arc<History>,
}

/// A PostgreSQL database as a store.
pub struct Postgres {
    pub(crate) context: Arc<Context>,
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) kv: Arc<Kv>,
    pub(crate) stats: Arc<Stats>,
    /// What the primary says.
    pub(crate) counts: Counts,
    replicated: Option<Replicated>,
    pulse: Pulse,
}

impl Postgres {
    /// Connects, migrates if told so, and begins what is done in the background. To be called on a multi-threaded
    /// tokio runtime, which must live as long as the store.
    pub async fn open(
        options: PostgresOptions,
        clock: Arc<dyn Clock>,
        random: &dyn RandomSource,
    ) -> Result<Self, OpenError> {
        let config = connect::config(&options.url, true)?;
        let client = migrate::prepare(&config, &options).await?;
        let history = History::open(&client, random).await;
        let history = history.map_err(|error| refusal(&config, "naming the history of", &error))?;
        let history = Arc::new(history);
        drop(client);
        let pool = connect::pool(config, &options, Some(history.hook()))?;
        let db = Db::new(pool, options.pooler, options.apply_timeout, Some(history.clone()));
        let (clock, database_clock): (Arc<dyn Clock>, _) = match options.clock_trust_after {
            None => (clock, None),
            Some(trust_after) => {
                let opened = DatabaseClock::open(&db, clock, trust_after).await;
                let (source, steady) = opened.map_err(|fault| OpenError(fault.to_string()))?;
                (steady, Some(source))
            }
        };
        let context = Arc::new(Context {
            db,
            options,
            clock,
            database_clock,
            runtime: Handle::current(),
            status: Status::default(),
            partitions: Partitions::default(),
            history,
        });
        let replicas = Replicas::open(&context.options, &context.db, &context.history).await?;
        let rooms = Arc::new(Rooms::open(context.clone()).await?);
        let queues = Arc::new(Queues::open(context.clone()).await?);
        let kv = Arc::new(Kv::open(context.clone()).await?);
        let stats = Arc::new(Stats::open(context.clone()).await?);
        let pulse =
            Pulse::start(context.clone(), rooms.clone(), queues.clone(), kv.clone(), stats.clone()).await;
        let counts = Counts::new(&stats, Reader::new(&context.db, None));
        let replicated = replicas.map(|replicas| Replicated::new(&rooms, &stats, &context.db, replicas));
        Ok(Self { context, rooms, queues, kv, stats, counts, replicated, pulse })
    }

    /// Finishes what would otherwise be done by and by: counts everything stored, and removes everything deleted.
    pub async fn settle(&self) -> Result<(), ReadError> {
        self.stats.settle().await?;
        Ok(())
    }
}

impl Store for Postgres {
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        // Lets other tasks of this thread go on where it is one of the runtime's.
        tokio::task::block_in_place(|| self.context.runtime.block_on(apply::apply(self, batch)))
    }

    fn batch_cap(&self) -> BatchCap {
        BATCH_CAP
    }

    fn health(&self) -> StoreHealth {
        self.context.status.health()
    }

    fn figures(&self) -> StoreFigures {
        let mut figures = StoreFigures { pool: self.context.db.figures(), ..self.context.status.figures() };
        self.rooms.tell(&mut figures);
        figures
    }

    fn replicas(&self) -> Option<&dyn ReplicaStore> {
        self.replicated.as_ref().map(|replicated| -> &dyn ReplicaStore { replicated })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn clock_doubt(&self) -> Option<ClockDoubt> {
        self.context.database_clock.as_ref().and_then(|_| self.context.clock.doubt())
    }

    fn close(&self) {
        self.pulse.stop();
        self.replicated.iter().for_each(Replicated::close);
        self.kv.close();
        self.context.db.close();
    }
}
