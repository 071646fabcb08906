//! A store that survives a change of the database's history. After a promotion or a restore it drops everything cached
//! of the old history, and opens the database as at the start.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hubbub_core::backoff::Backoff;
use hubbub_core::clock::{Clock, ClockAnomaly, RandomSource};
use hubbub_core::essential::supervise;
use hubbub_core::kv::{KeyPage, KvChangesRead, KvEntry};
use hubbub_core::queue::{Delivery, QueueInfo, TakeFilter, WaitFilter, Waiting};
use hubbub_core::replica::ReplicaStore;
use hubbub_core::store::{
    Access, ApplyError, BatchCap, HistoryPage, HistoryQuery, KvStore, LastMessages, Member, Membership,
    PeerMessages, QueueStore, Read, RemoteChanges, RoomHead, RoomInfo, RoomStore, Store, StoreFigures,
    StoreHealth, UserRooms,
};
use hubbub_core::{
    ClientId, Essential, LogStore, MessageId, OpBatch, Outcome, QueueId, RoomId, Timestamp, UserId,
};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::db::connect::OpenError;
use crate::options::PostgresOptions;
use crate::stats::delegate_stats;
use crate::store::Postgres;

/// Shortest and longest time between two attempts to open a new history.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Called when a new history begins, before anything of it can be read, and again once it is the one that is read and
/// written: what was committed in the old one may have been published in between.
pub type OnNewEpoch = Arc<dyn Fn() + Send + Sync>;

/// A PostgreSQL database as a store that survives promotions and restores.
pub struct ReopeningStore {
    first: Arc<Link>,
    follower: JoinHandle<()>,
}

/// One history, and the one after it. An old one is closed and kept: reads that began with it may still run, and a process
/// sees few histories.
struct Link {
    postgres: Postgres,
    next: OnceLock<Box<Link>>,
    replaced: Notify,
}

impl Link {
    fn new(postgres: Postgres) -> Self {
        Self { postgres, next: OnceLock::new(), replaced: Notify::new() }
    }

    async fn wait_until_replaced(&self) {
        let replaced = self.replaced.notified();
        if self.next.get().is_none() {
            replaced.await;
        }
    }

    fn last(&self) -> &Self {
        let mut link = self;
        while let Some(next) = link.next.get() {
            link = next;
        }
        link
    }
}

impl ReopeningStore {
    /// As [`Postgres::open`]; `on_new_history` is called for each history after the first.
    pub async fn open(
        options: PostgresOptions,
        clock: Arc<dyn Clock>,
        random: Arc<dyn RandomSource>,
        on_new_history: OnNewEpoch,
    ) -> Result<Self, OpenError> {
        let postgres = Postgres::open(options.clone(), clock.clone(), &*random).await?;
        let first = Arc::new(Link::new(postgres));
        let links = first.clone();
        let following = async move {
            loop {
                let current = links.last();
                current.postgres.context.history.wait_until_replaced().await;
                let postgres = open_again(&options, &clock, &*random).await;
                on_new_history();
                current.postgres.close();
                // Nobody else sets it.
                let _ = current.next.set(Box::new(Link::new(postgres)));
                on_new_history();
                current.replaced.notify_waiters();
            }
        };
        let follower = tokio::spawn(supervise(Essential::new("database history"), following));
        Ok(Self { first, follower })
    }

    fn now(&self) -> &Postgres {
        &self.first.last().postgres
    }
}

async fn open_again(
    options: &PostgresOptions,
    clock: &Arc<dyn Clock>,
    random: &dyn RandomSource,
) -> Postgres {
    let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
    loop {
        match Postgres::open(options.clone(), clock.clone(), random).await {
            Ok(postgres) => {
                tracing::warn!(
                    epoch = &*postgres.epoch(),
                    "the database was promoted or restored; clients with old cursors get a reset"
                );
                return postgres;
            }
            Err(error) => tracing::warn!(%error, "opening the database's new history failed; retrying"),
        }
        tokio::time::sleep(backoff.pause(random)).await;
    }
}

/// Delegates methods to the store of the current history.
macro_rules! delegate {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self $(, $argument: $kind)*) -> $answer {
            self.now().$name($($argument),*)
        })*
    };
}

impl Store for ReopeningStore {
    delegate! {
        apply(batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError>;
        batch_cap() -> BatchCap;
        health() -> StoreHealth;
        figures() -> StoreFigures;
        is_shared() -> bool;
        clock_anomaly() -> Option<ClockAnomaly>;
        replicas() -> Option<&dyn ReplicaStore>;
        log() -> Option<&dyn LogStore>;
        peers() -> Option<&dyn PeerMessages>;
    }

    fn apply_in(&self, epoch: &str, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        let postgres = self.now();
        if *postgres.epoch() != *epoch {
            let reason = "the database has just been promoted or restored".to_owned();
            return Err(ApplyError::Unavailable { reason });
        }
        postgres.apply(batch)
    }

    fn close(&self) {
        self.follower.abort();
        self.now().close();
    }
}

impl RoomStore for ReopeningStore {
    delegate! {
        epoch() -> Arc<str>;
        history(room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage>;
        seq_of(room: RoomId, id: MessageId) -> Read<'_, Option<u64>>;
        room(room: RoomId) -> Read<'_, Option<RoomInfo>>;
        heads(rooms: Vec<RoomId>) -> Read<'_, Vec<RoomHead>>;
        rooms(after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>>;
        access(room: RoomId, user: UserId) -> Read<'_, Access>;
        members(room: RoomId, after: Option<UserId>, limit: usize) -> Read<'_, Vec<Member>>;
        user_rooms(user: UserId, after: Option<RoomId>, limit: usize, last: LastMessages) -> Read<'_, UserRooms>;
        user_room_count(user: UserId, most: usize) -> Read<'_, usize>;
        memberships(users: Vec<UserId>) -> Read<'_, Vec<Option<Vec<Membership>>>>;
    }

    fn remote_changes(&self) -> Pin<Box<dyn Future<Output = RemoteChanges> + Send + '_>> {
        let link = self.first.last();
        Box::pin(async move {
            tokio::select! {
                changes = link.postgres.remote_changes() => changes,
                () = link.wait_until_replaced() => RemoteChanges::Any,
            }
        })
    }
}

impl QueueStore for ReopeningStore {
    delegate! {
        queue(queue: QueueId) -> Read<'_, Option<QueueInfo>>;
        queues(after: Option<QueueId>, limit: usize) -> Read<'_, Vec<QueueInfo>>;
        queues_holding(receiver: ClientId, after: Option<QueueId>, limit: usize) -> Read<'_, Vec<Arc<str>>>;
        clients(after: Option<ClientId>, limit: usize) -> Read<'_, Vec<ClientId>>;
        is_client(client: &str) -> bool;
        peek(wanted: TakeFilter<'_>, max: usize) -> Read<'_, Option<Vec<Delivery>>>;
        matching_filters(wants: Vec<WaitFilter>) -> Read<'_, Vec<usize>>;
        waiting(queue: QueueId, after: u64, limit: usize) -> Read<'_, Option<Vec<Waiting>>>;
        queue_due_in() -> Option<Duration>;
    }
}

impl KvStore for ReopeningStore {
    delegate! {
        value(key: &[u8]) -> Read<'_, Option<KvEntry>>;
        keys(prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Read<'_, KeyPage>;
        changes(prefix: &[u8], after: u64, limit: usize) -> Read<'_, KvChangesRead>;
        revision() -> u64;
        kv_due_in() -> Option<Duration>;
        kv_now() -> Option<Timestamp>;
        kv_lease() -> Option<NonZeroU64>;
    }
}

delegate_stats!(ReopeningStore, |store| store.now());
