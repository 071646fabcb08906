//! A shared store begins another history, which may lack what was just committed, while a batch is on its way.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt;
use hubbub_core::clock::ManualClock;
use hubbub_core::kv::{Condition, KeyPage, KvChangesRead, KvEntry};
use hubbub_core::queue::{Delivery, QueueInfo, TakeFilter, WaitFilter, Waiting};
use hubbub_core::stats::*;
use hubbub_core::store::*;
use hubbub_core::{
    Change, ClientId, KvOp, MessageId, Op, OpBatch, QueueId, Receipt, RoomChange, RoomId, Timestamp, UserId,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::*;
use crate::access_cache::AccessCache;
use crate::batcher::{LogOptions, Ticket, Waiter};
use crate::consumers::WaitingConsumers;
use crate::hub::{FrameEncoder, Hub, Joined, OutboxLimits};
use crate::kv::CacheLimits;
use crate::order::SendLane;
use crate::sweeper::WakeupSignal;
use crate::test_message::message;

/// A store in which every operation succeeds. It answers who may read once it is told to.
struct Shared {
    histories: AtomicUsize,
    /// Whether operations were executed before.
    repeats: bool,
    /// Whether another one begins while a batch is applied.
    is_promoted_meanwhile: bool,
    next_seq: Mutex<u64>,
    answers: Semaphore,
    /// How often it was asked to store something while it is away; `None` where it is not.
    asked_away: Option<AtomicUsize>,
    /// Looked at whenever a batch is applied.
    on_apply: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Store for Shared {
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        self.on_apply.get().inspect(|on_apply| on_apply());
        if let Some(asked) = &self.asked_away {
            asked.fetch_add(1, Ordering::SeqCst);
            return Err(ApplyError::Unavailable { reason: "away".to_owned() });
        }
        let outcome = |op: Op<'_>| match op {
            Op::Send(_) => {
                let mut seq = self.next_seq.lock();
                *seq += 1;
                Outcome::Stored(Receipt { seq: *seq, received_at: Timestamp::default(), gap: 0 })
            }
            _ if self.repeats => Outcome::Accepted,
            _ => Outcome::Changed { changed: true },
        };
        let outcomes = batch.iter().map(outcome).collect();
        self.histories.fetch_add(usize::from(self.is_promoted_meanwhile), Ordering::SeqCst);
        Ok(outcomes)
    }

    fn batch_cap(&self) -> BatchCap {
        BatchCap { ops: 100, bytes: 1 << 20 }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::Up
    }

    fn figures(&self) -> StoreFigures {
        StoreFigures::default()
    }

    fn close(&self) {}
}

/// A trait of the store, with the methods that are called, and those that nobody calls.
macro_rules! part {
    ($kind:ident { $($called:item)* } $($name:ident($($argument:ty),*) -> $answer:ty;)*) => {
        impl $kind for Shared {
            $($called)*
            $(fn $name(&self $(, _: $argument)*) -> $answer { unreachable!(stringify!($name)) })*
        }
    };
}

part! { RoomStore {
        fn epoch(&self) -> Arc<str> {
            self.histories.load(Ordering::SeqCst).to_string().into()
        }

        fn access(&self, _: RoomId, _: UserId) -> Read<'_, Access> {
            Box::pin(async {
                self.answers.acquire().await.unwrap().forget();
                Ok(Access::Member { read_seq: 0 })
            })
        }
    }

    history(RoomId, HistoryQuery) -> Read<'_, HistoryPage>;
    seq_of(RoomId, MessageId) -> Read<'_, Option<u64>>;
    room(RoomId) -> Read<'_, Option<RoomInfo>>;
    heads(Vec<RoomId>) -> Read<'_, Vec<RoomHead>>;
    rooms(Option<RoomId>, usize) -> Read<'_, Vec<RoomInfo>>;
    members(RoomId, Option<UserId>, usize) -> Read<'_, Vec<Member>>;
    user_rooms(UserId, Option<RoomId>, usize, LastMessages) -> Read<'_, UserRooms>;
    user_room_count(UserId, usize) -> Read<'_, usize>;
    memberships(Vec<UserId>) -> Read<'_, Vec<Option<Vec<Membership>>>>;
}

part! { QueueStore {}
    queue(QueueId) -> Read<'_, Option<QueueInfo>>;
    queues(Option<QueueId>, usize) -> Read<'_, Vec<QueueInfo>>;
    queues_holding(ClientId, Option<QueueId>, usize) -> Read<'_, Vec<Arc<str>>>;
    clients(Option<ClientId>, usize) -> Read<'_, Vec<ClientId>>;
    is_client(&str) -> bool;
    peek(TakeFilter<'_>, usize) -> Read<'_, Option<Vec<Delivery>>>;
    matching_filters(Vec<WaitFilter>) -> Read<'_, Vec<usize>>;
    waiting(QueueId, u64, usize) -> Read<'_, Option<Vec<Waiting>>>;
    queue_due_in() -> Option<Duration>;
}

part! { KvStore {
        fn revision(&self) -> u64 {
            0
        }
    }

    value(&[u8]) -> Read<'_, Option<KvEntry>>;
    keys(&[u8], Option<&[u8]>, usize) -> Read<'_, KeyPage>;
    changes(&[u8], u64, usize) -> Read<'_, KvChangesRead>;
    kv_due_in() -> Option<Duration>;
}

part! { StatsStore {}
    totals() -> Read<'_, Counted<Totals>>;
    room_stats(RoomId) -> Read<'_, Counted<Option<RoomStats>>>;
    top_rooms(usize) -> Read<'_, Counted<Vec<RoomStats>>>;
    user_stats(UserId) -> Read<'_, Counted<Option<UserStats>>>;
    top_users(usize) -> Read<'_, Counted<Vec<UserStats>>>;
    top_pairs(usize) -> Read<'_, Counted<Vec<PairStats>>>;
    hours(HoursQuery) -> Read<'_, Counted<HoursPage>>;
    active_users(ActiveUsersQuery) -> Read<'_, Counted<ActiveUsers>>;
    participation(UserId, Option<RoomId>, usize) -> Read<'_, Counted<ParticipationPage>>;
    user_history(UserId, UserHistoryQuery) -> Read<'_, UserHistoryPage>;
    audit() -> Read<'_, Counted<Audit>>;
}

struct Server {
    store: Arc<Shared>,
    hub: Arc<Hub>,
    keys: Arc<Keys>,
    metrics: Arc<Metrics>,
    batcher: Arc<Batcher>,
    failed: Arc<Mutex<FailedSends>>,
    clock: Arc<ManualClock>,
}

impl Server {
    fn new(is_promoted_meanwhile: bool) -> Self {
        Self::with(is_promoted_meanwhile, false)
    }

    fn with(is_promoted_meanwhile: bool, repeats: bool) -> Self {
        Self::with_store(is_promoted_meanwhile, repeats, None)
    }

    fn with_store(is_promoted_meanwhile: bool, repeats: bool, asked_away: Option<AtomicUsize>) -> Self {
        let answers = Semaphore::new(0);
        let store = Shared {
            histories: AtomicUsize::new(0),
            repeats,
            is_promoted_meanwhile,
            next_seq: Mutex::new(0),
            answers,
            asked_away,
            on_apply: OnceLock::new(),
        };
        let (store, clock) = (Arc::new(store), Arc::new(ManualClock::default()));
        let (metrics, encoder) =
            (Arc::new(Metrics::default()), FrameEncoder { message: |_, _| {}, notice: |_, _| {} });
        let hub = Arc::new(Hub::new(encoder, usize::MAX, clock.clone(), metrics.clone()));
        hub.enable_remote();
        let limits = CacheLimits { bytes: 1 << 20, entries: 100, value_bytes: 1 << 10 };
        let keys = Keys::new(store.clone(), clock.clone(), metrics.clone(), limits);
        let batcher = Batcher::new(LogOptions::default(), store.batch_cap());
        let failed = Arc::default();
        Self { store, hub, keys: Arc::new(keys), metrics, batcher: Arc::new(batcher), failed, clock }
    }

    /// Somebody who was added to the room, if so, and a message there.
    fn submit(&self, is_change: bool) -> Ticket {
        self.submit_by(&Arc::new(Waiter::default()), is_change)
    }

    fn submit_by(&self, sender: &Arc<Waiter>, is_change: bool) -> Ticket {
        let mut ops = OpBatch::default();
        if is_change {
            ops.push(&Op::Change(Change {
                by: None,
                what: RoomChange::AddMember { room: "r", user: "ada" },
            }));
        }
        ops.push(&message("r", "i", "t"));
        self.batcher.submit(&ops, sender, Duration::ZERO).unwrap()
    }

    /// Commits what was submitted, and nothing more.
    async fn commit(&self) -> mpsc::Receiver<DispatcherMessage> {
        self.batcher.close();
        let (committing, receiver) = self.start_commit_thread();
        committing.await.unwrap();
        receiver
    }

    fn start_commit_thread(&self) -> (tokio::task::JoinHandle<()>, mpsc::Receiver<DispatcherMessage>) {
        let (sender, receiver) = mpsc::channel(COMMITTED_MAX);
        let (batcher, store, clock) = (self.batcher.clone(), self.store.clone(), self.clock.clone());
        let (metrics, keys, failed) = (self.metrics.clone(), self.keys.clone(), self.failed.clone());
        let committing = move || commit(&batcher, &*store, &*clock, &metrics, &keys, &failed, &sender);
        (tokio::task::spawn_blocking(committing), receiver)
    }

    fn members(&self, ttl: Duration) -> Arc<AccessCache> {
        Arc::new(AccessCache::new(self.store.clone(), self.clock.clone(), self.metrics.clone(), ttl))
    }

    async fn dispatch(&self, committed: mpsc::Receiver<DispatcherMessage>) {
        self.dispatch_to(self.members(Duration::ZERO), committed).await;
    }

    async fn dispatch_to(&self, members: Arc<AccessCache>, committed: mpsc::Receiver<DispatcherMessage>) {
        let listeners = CommitListeners {
            store: self.store.clone(),
            hub: self.hub.clone(),
            members,
            keys: self.keys.clone(),
            consumers: Arc::new(WaitingConsumers::new(self.metrics.clone())),
            sweep_signal: WakeupSignal::default(),
        };
        let (batcher, failed) = (self.batcher.clone(), self.failed.clone());
        dispatch(committed, batcher, failed, listeners, self.clock.clone(), self.metrics.clone()).await;
    }

    /// As the store does.
    fn promote(&self) {
        self.hub.reset();
        self.store.histories.fetch_add(1, Ordering::SeqCst);
        self.hub.reset();
    }

    /// Somebody who follows the room from its head on, and whether there is anything in the outbox afterwards.
    async fn hears_something(&self, meanwhile: impl Future<Output = ()>) -> bool {
        let outbox = self.hub.outbox(OutboxLimits::default(), Arc::new(Waiter::default()));
        let attachment = self.hub.attach(RoomId::new("r").unwrap(), None, &outbox);
        assert_eq!(self.hub.join(&attachment, &outbox, 0), Joined::Live);
        meanwhile.await;
        self.hub.detach(attachment);
        outbox.pop().is_some()
    }
}

fn is_unconfirmed(ticket: &Ticket) -> bool {
    matches!(ticket.outcomes(), Some(Err(ApplyError::Unconfirmed { .. })))
}

#[tokio::test]
async fn what_is_committed_meanwhile_is_not_confirmed() {
    let server = Server::new(true);
    let ticket = server.submit(false);
    let committed = server.commit().await;
    assert!(is_unconfirmed(&ticket));
    assert!(!server.hears_something(server.dispatch(committed)).await);
}

#[tokio::test]
async fn what_was_committed_before_is_not_published_after() {
    for is_change in [false, true] {
        let server = Server::new(false);
        let ticket = server.submit(is_change);
        let committed = server.commit().await;
        server.promote();
        server.store.answers.add_permits(10);
        assert!(!server.hears_something(server.dispatch(committed)).await);
        if is_change {
            assert!(is_unconfirmed(&ticket));
        } else {
            // It was told at once. The receipt says of which history.
            assert!(matches!(ticket.outcomes(), Some(Ok(_))));
            assert_eq!(ticket.epoch().map(|epoch| &**epoch), Some("0"));
        }
    }
}

/// Who may read is asked between the change and the message.
#[tokio::test]
async fn what_is_being_published_is_published_no_further() {
    let ada = UserId::new("ada").unwrap();
    for is_promoted in [false, true] {
        let server = Server::new(false);
        let socket = server.hub.outbox(OutboxLimits::default(), Arc::new(Waiter::default()));
        server.hub.open_socket(&ada, &socket);
        server.hub.follow_all(&ada, &socket, true);
        let ticket = server.submit(true);
        let mut dispatching = Box::pin(server.dispatch(server.commit().await));
        assert!((&mut dispatching).now_or_never().is_none(), "it waits for an answer");
        if is_promoted {
            server.promote();
        }
        server.store.answers.add_permits(10);
        assert_eq!(server.hears_something(dispatching).await, !is_promoted);
        assert_eq!(is_unconfirmed(&ticket), is_promoted);
    }
}

/// The first is repeated after the failure. The second, committed in the new history, would stand before it.
#[tokio::test]
async fn what_was_submitted_behind_a_lost_message_is_refused() {
    let server = Server::new(false);
    let sender = Arc::new(Waiter::ordered());
    let (committing, committed) = server.start_commit_thread();
    let first = server.submit_by(&sender, true);
    while *server.store.next_seq.lock() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.promote();
    let (second, of_another) = (server.submit_by(&sender, false), server.submit(false));
    server.batcher.close();
    server.store.answers.add_permits(10);
    server.dispatch(committed).await;
    committing.await.unwrap();
    assert!(is_unconfirmed(&first));
    assert_eq!(second.outcomes(), Some(Ok(&[Outcome::Refused(Refusal::OutOfOrder)][..])));
    assert!(matches!(of_another.outcomes(), Some(Ok([Outcome::Stored(_)]))));
    assert_eq!(sender.acknowledge_failure(&first), [SendLane::Room("r".to_owned())]);
}

/// Its first execution may have been confirmed to nobody, so no server knows of it yet.
#[tokio::test]
async fn a_repeated_change_ends_what_is_cached_of_access() {
    let server = Server::with(false, true);
    let members = server.members(Duration::from_secs(3600));
    server.store.answers.add_permits(10);
    let (room, user) = (RoomId::new("r").unwrap(), UserId::new("ada").unwrap());
    let misses = || server.metrics.members_misses.get();
    for expected in [1, 1] {
        members.cached_access(&room, &user).await.unwrap();
        assert_eq!(misses(), expected);
    }
    server.submit(true);
    let committed = server.commit().await;
    server.dispatch_to(members.clone(), committed).await;
    members.cached_access(&room, &user).await.unwrap();
    assert_eq!(misses(), 2);
}

/// It may be committed all the same.
#[tokio::test]
async fn a_change_that_was_not_confirmed_ends_what_is_cached_of_access() {
    let server = Server::new(true);
    let members = server.members(Duration::from_secs(3600));
    server.store.answers.add_permits(10);
    let (room, user) = (RoomId::new("r").unwrap(), UserId::new("ada").unwrap());
    let ticket = server.submit(true);
    let committed = server.commit().await;
    let misses = || server.metrics.members_misses.get();
    for expected in [1, 1] {
        members.cached_access(&room, &user).await.unwrap();
        assert_eq!(misses(), expected);
    }
    server.dispatch_to(members.clone(), committed).await;
    assert!(is_unconfirmed(&ticket));
    members.cached_access(&room, &user).await.unwrap();
    assert_eq!(misses(), 2);
    server.promote();
    members.cached_access(&room, &user).await.unwrap();
    assert_eq!(misses(), 3, "another history may have another answer");
}

/// What is read of the store may be older than a change that is committed meanwhile, and is not remembered behind it. An erased user
/// is no member any more.
#[tokio::test]
async fn what_a_change_overtakes_is_not_remembered() {
    let (room, user) = (RoomId::new("r").unwrap(), UserId::new("ada").unwrap());
    let removed = (RoomChange::RemoveMember { room: "r", user: "ada" }, Outcome::Changed { changed: true });
    let erased = (RoomChange::EraseUser { user: "ada" }, Outcome::Erased { messages: 0, more: false });
    for (what, outcome) in [removed, erased] {
        for is_under_way in [true, false] {
            let server = Server::new(false);
            let members = server.members(Duration::from_secs(3600));
            let mut ops = OpBatch::default();
            ops.push(&Op::Change(Change { by: None, what }));
            let change = || members.apply_committed(&ops, std::slice::from_ref(&outcome));
            let mut reading = Box::pin(members.cached_access(&room, &user));
            assert!((&mut reading).now_or_never().is_none(), "the store has not answered yet");
            if is_under_way {
                change();
            }
            server.store.answers.add_permits(1);
            reading.await.unwrap();
            if !is_under_way {
                change();
            }
            let again = members.cached_access(&room, &user).now_or_never();
            assert!(again.is_none(), "the store is asked again after {what:?}");
        }
    }
}

/// Each chunk would take as long as the store is waited for.
#[tokio::test]
async fn a_server_that_stops_asks_a_store_that_is_away_once() {
    let server = Server::with_store(false, false, Some(AtomicUsize::new(0)));
    // More than a chunk takes.
    let tickets: Vec<Ticket> = (0..250).map(|_| server.submit(false)).collect();
    server.commit().await;
    let asked = server.store.asked_away.as_ref().map(|asked| asked.load(Ordering::SeqCst));
    assert_eq!(asked, Some(1));
    let is_refused = |ticket: &Ticket| matches!(ticket.outcomes(), Some(Err(ApplyError::Unavailable { .. })));
    assert!(tickets.iter().all(is_refused));
}

/// Others may read a key in the store before this server knows what became of its change.
#[tokio::test]
async fn keys_are_said_to_change_before_the_store_has_the_change() {
    let mut server = Server::new(false);
    let limits = CacheLimits { bytes: 1 << 20, entries: 100, value_bytes: 1 << 10 };
    let (store, clock, metrics) = (server.store.clone(), server.clock.clone(), server.metrics.clone());
    server.keys = Arc::new(Keys::shared(store, Arc::new(|| "0".into()), clock, metrics, limits));
    let (keys, changes) = (server.keys.clone(), Arc::new(AtomicBool::new(false)));
    let seen = changes.clone();
    let look = move || seen.store(keys.is_changing(b"k"), Ordering::SeqCst);
    assert!(server.store.on_apply.set(Box::new(look)).is_ok());
    let mut ops = OpBatch::default();
    ops.push(&Op::Kv(KvOp::Put { key: b"k", value: b"v", ttl_ms: None, condition: Condition::Always }));
    server.batcher.submit(&ops, &Arc::new(Waiter::default()), Duration::ZERO).unwrap();
    let committed = server.commit().await;
    assert!(changes.load(Ordering::SeqCst));
    server.dispatch(committed).await;
    assert!(!server.keys.is_changing(b"k"));
}
