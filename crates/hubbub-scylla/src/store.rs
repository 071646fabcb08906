//! The store that the pipeline sees, and its background task.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::TryStreamExt;
use hubbub_core::clock::{Clock, RandomSource};
use hubbub_core::essential::{Essential, supervise};
use hubbub_core::invariant::saturate;
use hubbub_core::store::{ApplyError, BatchCap, Store, StoreFigures, StoreHealth};
use hubbub_core::{LogStore, OpBatch, Outcome, RoomTotals, Timestamp};
use parking_lot::RwLock;
use scylla::client::session::Session;
use scylla::value::CqlValue;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::db::{self, Db, DbError, OpenError, PAGE_ROWS, Writes, wrong};
use crate::log::Attachment;
use crate::options::{Address, ScyllaOptions};
use crate::properties::{EPOCH, look_again, set_once};
use crate::read::stats::Pairs;
use crate::replicas;
use crate::schema::{self, Version};
use crate::state::RoomState;
use crate::status::Status;
use crate::write::{Applier, remove_leftovers};

/// Largest batch. Each partition of the log has its part of it, and all are applied at the same time.
const BATCH_CAP: BatchCap = BatchCap { ops: 20_000, bytes: 8 << 20 };
/// Batches at the same time: a partition of the log does not wait for another one, which may be erasing somebody.
const BATCHES_AT_ONCE: usize = 16;
/// Pause between two rounds of background work, and after one that failed.
const ROUND: Duration = Duration::from_secs(30);
const ROUND_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// What all parts share.
pub(crate) struct Context {
    pub(crate) db: Db,
    pub(crate) options: ScyllaOptions,
    pub(crate) clock: Arc<dyn Clock>,
    /// The attached log, if there is one.
    pub(crate) log: OnceLock<Attachment>,
    /// Whether this server attached it.
    pub(crate) is_attached: AtomicBool,
    /// How often.
    pub(crate) attached: AtomicU64,
    pub(crate) status: Status,
    /// Messages and rooms.
    pub(crate) totals: RoomTotals,
    pub(crate) cleanup: Notify,
    /// For tests: positions in the store are read only once, as if this server never learned that it lost a partition.
    pub(crate) is_zombie: AtomicBool,
    epoch: RwLock<Arc<str>>,
    keyspace: String,
    place: RwLock<Arc<str>>,
}

/// A keyspace of Cassandra or ScyllaDB as a store of rooms and statistics.
pub struct Scylla {
    pub(crate) context: Arc<Context>,
    pub(crate) pairs: Pairs,
    applier: Applier,
    runtime: Handle,
    background: JoinHandle<Infallible>,
    is_closed: AtomicBool,
}

/// Creates or migrates the schema; without `run` it only says what would be done.
pub async fn migrate(options: &ScyllaOptions, run: bool) -> Result<Vec<Version>, OpenError> {
    let address = Address::parse(&options.url).map_err(OpenError)?;
    let session = session(options).await?;
    schema::migrate(&session, &address, options, run).await
}

/// Connects without a keyspace, for tools that make and remove keyspaces.
pub async fn session(options: &ScyllaOptions) -> Result<Session, OpenError> {
    let address = Address::parse(&options.url).map_err(OpenError)?;
    db::connect(&address, options).await
}

impl Scylla {
    /// Connects, migrates if allowed, and starts the background task. Call it on a multi-threaded tokio runtime that lives as
    /// long as the store.
    pub async fn open(
        options: ScyllaOptions,
        clock: Arc<dyn Clock>,
        random: &dyn RandomSource,
    ) -> Result<Self, OpenError> {
        let address = Address::parse(&options.url).map_err(OpenError)?;
        let session = db::connect(&address, &options).await?;
        let missing = schema::migrate(&session, &address, &options, options.migrate).await?;
        if !options.migrate && !missing.is_empty() {
            let text = "the keyspace or its schema is not up to date; run hubbub migrate";
            return Err(OpenError(text.into()));
        }
        replicas::check(&session, &address.keyspace, &options).await?;
        let db = Db::new(session, &options).await?;
        let epoch = format!("{:012x}", random.next_u64() >> 16);
        let epoch = set_once(&db, EPOCH, &epoch).await.map_err(wrong("naming the history"))?;
        let log = OnceLock::new();
        if let Some(attached) = Attachment::read(&db).await.map_err(wrong("opening"))? {
            let _ = log.set(attached);
        }
        let context = Arc::new(Context {
            db,
            options,
            clock,
            log,
            is_attached: AtomicBool::new(false),
            attached: AtomicU64::new(0),
            status: Status::default(),
            totals: RoomTotals::default(),
            cleanup: Notify::new(),
            is_zombie: AtomicBool::new(false),
            epoch: RwLock::new(epoch.into()),
            keyspace: address.keyspace,
            place: RwLock::default(),
        });
        context.look_where_it_is().await;
        let newest = count(&context).await.map_err(wrong("counting"))?;
        // The log's clock may be ahead of this machine's, which is no step of it.
        let now = context.clock.now();
        context.clock.begin_at(newest.map(|newest| newest.min(now)));
        let working = work_in_background(context.clone());
        let background = tokio::spawn(supervise(Essential::new("database background work"), working));
        Ok(Self {
            context,
            pairs: Pairs::default(),
            applier: Applier::default(),
            runtime: Handle::current(),
            background,
            is_closed: AtomicBool::new(false),
        })
    }

    /// For tests of what is cut: after so many more writes all fail, until it is called again; `None` = none fails.
    #[doc(hidden)]
    pub fn fail_after(&self, writes: Option<u32>) {
        self.context.db.fails_after.store(writes.map_or(-1, i64::from), Ordering::Relaxed);
    }

    /// For tests of a cluster under stress: the confirmations of so many changes of rooms are lost, though they are written.
    #[doc(hidden)]
    pub fn lose_confirmations(&self, count: u64) {
        self.context.db.unconfirmed.store(count, Ordering::Relaxed);
    }

    /// For tests of servers that lost their partitions: never again looks whether others went on with them.
    #[doc(hidden)]
    pub fn become_zombie(&self) {
        self.context.is_zombie.store(true, Ordering::Relaxed);
    }

    /// Does at once what a round of background work does, but for cleaning up.
    #[doc(hidden)]
    pub async fn finish_round(&self) -> Result<(), OpenError> {
        end_round(&self.context).await.map_err(wrong("background work"))
    }

    /// Removes at once what deleted rooms and expired messages left behind.
    pub async fn finish_cleanup(&self) -> Result<(), OpenError> {
        clean_up(&self.context, &self.context.parts()).await.map_err(wrong("removing messages that are gone"))
    }
}

impl Context {
    /// Numbers of the log's partitions; none before a log is attached.
    pub(crate) fn parts(&self) -> Vec<i32> {
        let parts = self.log.get().map_or(0, |log| log.identity.partitions);
        (0..saturate::<_, i32>(parts)).collect()
    }

    /// Changes a room of a partition of the log: [`Db::commit`]. `/health` tells while it is not confirmed.
    pub(crate) async fn commit(
        &self,
        what: &'static str,
        part: i32,
        rows: Writes<'_>,
    ) -> crate::db::Result<()> {
        self.db.commit(what, rows, |error| self.status.report(Some(part), Err(error.to_string()))).await
    }

    pub(crate) fn epoch(&self) -> Arc<str> {
        self.epoch.read().clone()
    }

    /// Where the store is; empty if that cannot be read.
    pub(crate) fn place(&self) -> Arc<str> {
        self.place.read().clone()
    }

    /// Servers that create the schema at the same time may see another id of the table at first.
    pub(crate) async fn look_where_it_is(&self) {
        let (what, statement) = ("reading where the store is", &self.db.statements.place);
        match self.db.row::<(CqlValue,)>(what, statement, (self.keyspace.as_str(),)).await {
            Ok(Some((CqlValue::Uuid(id),))) => *self.place.write() = id.to_string().into(),
            Ok(_) => tracing::debug!("the schema does not say where the store is"),
            Err(error) => tracing::debug!(%error, "where the store is cannot be read"),
        }
    }

    pub(crate) fn set_epoch(&self, epoch: &str) {
        if **self.epoch.read() != *epoch {
            tracing::warn!(
                epoch,
                "another server named the history at the same time; clients that resume start again"
            );
            *self.epoch.write() = epoch.into();
        }
    }
}

/// The partitions whose positions can be read. Whoever stores one that cannot be read tells of it; it fails if none can.
async fn readable_parts(context: &Context) -> crate::db::Result<Vec<i32>> {
    let Some(log) = context.log.get() else { return Ok(Vec::new()) };
    let reading = context.parts().into_iter().map(async |part| (part, log.next_offset(context, part).await));
    let (mut readable, mut failure) = (Vec::new(), None);
    for (part, next) in futures_util::future::join_all(reading).await {
        match next {
            Ok(_) => readable.push(part),
            Err(error) => failure = Some(error),
        }
    }
    match failure.filter(|_| readable.is_empty()) {
        Some(error) => Err(error),
        None => Ok(readable),
    }
}

async fn work_in_background(context: Arc<Context>) -> Infallible {
    let mut round = Instant::now() + ROUND;
    loop {
        // However often there is something to clean up, all is counted now and then.
        let is_round = tokio::select! {
            () = tokio::time::sleep_until(round) => true,
            () = context.cleanup.notified() => Instant::now() >= round,
        };
        // Whoever commits nothing learns here only that a newer program goes on, which may clean up otherwise.
        let parts = readable_parts(&context).await;
        if context.status.outdated().is_some() {
            return std::future::pending().await;
        }
        let mut done = match parts {
            Ok(parts) => clean_up(&context, &parts).await,
            Err(error) => Err(error),
        };
        if is_round {
            done = end_round(&context).await.and(done);
        }
        if let Err(error) = &done {
            let pause = ROUND_AFTER_FAILURE;
            round = Instant::now() + pause;
            tracing::warn!("background work of the store failed: {error}; retrying in {} s", pause.as_secs());
        } else if is_round {
            round = Instant::now() + ROUND;
            context.status.end_round();
        }
        context.status.report(None, done.map_err(|error| error.to_string()));
    }
}

/// What is done once in a round.
async fn end_round(context: &Context) -> Result<(), DbError> {
    look_again(context).await?;
    count(context).await.map(drop)
}

/// Cleans up all partitions. One that fails holds up no other; the last failure is returned.
async fn clean_up(context: &Context, parts: &[i32]) -> Result<(), DbError> {
    let mut done = Ok(());
    for part in parts {
        done = remove_leftovers(&context.db, *part).await.and(done);
    }
    done
}

/// Counts rooms and their messages by the rooms' states. Returns when the newest message was received.
async fn count(context: &Context) -> Result<Option<Timestamp>, DbError> {
    let db = &context.db;
    let count = || async {
        let statement = &db.statements.all_rooms;
        let mut rows =
            db.stream::<(String, Option<RoomState>)>("counting rooms", statement, (), PAGE_ROWS).await?;
        let (mut messages, mut rooms, mut newest) = (0, 0, None);
        while let Some((_, state)) = rows.try_next().await? {
            newest = newest.max(state.as_ref().and_then(|state| state.last_received));
            let Some(state) = state.filter(|state| state.present) else { continue };
            rooms += 1;
            messages += state.kept;
        }
        Ok((messages, rooms, newest))
    };
    Ok(context.totals.count(count).await?.map(Timestamp::from_micros))
}

impl Store for Scylla {
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(ApplyError::Unavailable { reason: "the store is closed".into() });
        }
        // Other tasks of this thread continue if it belongs to the runtime.
        tokio::task::block_in_place(|| self.runtime.block_on(self.applier.apply(&self.context, batch)))
    }

    fn batch_cap(&self) -> BatchCap {
        BATCH_CAP
    }

    fn batches_at_once(&self) -> usize {
        BATCHES_AT_ONCE
    }

    fn health(&self) -> StoreHealth {
        self.context.status.health()
    }

    fn figures(&self) -> StoreFigures {
        let (messages, rooms) = self.context.totals.sums();
        StoreFigures {
            messages,
            rooms,
            requests: Some(self.context.db.requests.figures()),
            ..StoreFigures::default()
        }
    }

    fn log(&self) -> Option<&dyn LogStore> {
        Some(self)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn has_queues_and_keys(&self) -> bool {
        false
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.background.abort();
    }
}
