//! Finds rooms that users join through other servers, for sockets that follow all rooms of their user (`"*"`).
//!
//! The store is the truth. A server that commits a join gives the others a hint ([`super::relay`]). Who has such a socket of
//! that user asks the store, and notifies the socket as if the user had joined here. The socket asks the store itself before
//! it gets anything of the room, so a notification does no harm where the user was removed again.
//!
//! A hint may be lost, late, repeated or dropped. So what the store lists for each of these users is compared with what the
//! user's sockets know ([`KnownRooms`]):
//!
//! - at once where a hint may be missing: records of another server are missing, or the server is silent; a partition of the
//!   bus begins to be read; hints are too many; the store could not be asked
//! - at once after a subscription of the user has ended: the user may have been added again before
//! - all users once in [`ROUND_INTERVAL`]. Comparing takes a small share of the time ([`COMPARE_SHARE`]), so with many users
//!   a round takes longer.
//!
//! Nothing waits without bound: hints that do not fit are as good as lost, and there is one entry for each user.

mod known;

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use hubbub_core::clock::Clock;
use hubbub_core::store::{Access, ReadError, RoomStore};
use hubbub_core::{Change, Outcome, RoomChange, RoomId, UserId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, timeout};

use super::changes::QUERIES_MAX;
use super::{Hub, Outbox, QueryAccess};
pub(super) use known::KnownRooms;

/// Hints that wait to be looked up.
const HINTS_MAX: usize = 10_000;
/// Users whose rooms are listed by one query, and how many of them because they are to be compared at once.
const USERS_PER_QUERY: usize = 50;
const URGENT_PER_QUERY: usize = 30;
/// How often the rooms of all users are compared, at most.
const ROUND_INTERVAL: Duration = Duration::from_secs(5);
/// After a comparison the next one waits this many times as long as it took.
const COMPARE_SHARE: u32 = 20;
/// Shortest pause while the store does not answer, and longest pause.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest pause after a comparison.
const SHARE_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Joins of one batch whose marks are read before it is answered, and how long that may delay the answer.
const MARKS_MAX: usize = QUERIES_MAX;
const MARKS_TIMEOUT: Duration = Duration::from_millis(250);
/// Batches with joins whose marks are not read once that took too long, so that a slow store delays few answers.
const BATCHES_SKIPPED: u32 = 50;

/// Ranks of users that are compared at once.
const FIRST: usize = 0;
const LATER: usize = 1;

/// What other servers may have added to the rooms of users.
#[derive(Debug, Default)]
pub(super) struct Joins {
    /// Users, and rooms that they may have joined: with which mark, if that is known.
    hints: Mutex<HashMap<(UserId, RoomId), Option<u64>>>,
    hinted: Notify,
    /// Batches whose marks are not to be read.
    skipped: AtomicU32,
    /// Those first of whom something is known to be missing, then those of whom something may be.
    urgent: Mutex<[Urgent; 2]>,
    wanted: Notify,
}

/// Users whose rooms are to be compared at once, in the order in which that was wanted first.
#[derive(Debug, Default)]
struct Urgent {
    queue: VecDeque<UserId>,
    waiting: HashSet<UserId>,
}

/// Who became a member of which room, and with which read mark, if it is known.
pub(super) struct Join {
    room: RoomId,
    user: UserId,
    mark: Option<u64>,
}

impl Join {
    /// The join that this change made.
    pub(super) fn of(change: &Change<'_>, outcome: &Outcome) -> Option<Self> {
        // What was executed before was so by a server that may not have come to tell.
        let (room, user, mark) = match (change.what, outcome) {
            (
                RoomChange::AddMember { room, user },
                Outcome::Changed { changed: true } | Outcome::Accepted,
            ) => (room, user, None),
            // The room is new, and has no messages.
            (RoomChange::PutRoom { room, .. }, Outcome::Room { created: true }) => {
                (room, change.by?, Some(0))
            }
            (RoomChange::PutRoom { room, .. }, Outcome::Accepted) => (room, change.by?, None),
            _ => return None,
        };
        Some(Self { room: RoomId::new(room).ok()?, user: UserId::new(user).ok()?, mark })
    }
}

/// Notifies sockets of joins through other servers, until the task is aborted.
pub(crate) async fn follow_joins(hub: Arc<Hub>, store: Arc<dyn RoomStore>, clock: Arc<dyn Clock>) {
    tokio::join!(look_up_hints(&hub, &*store), compare_all(&hub, &*store, &*clock));
}

async fn look_up_hints(hub: &Hub, store: &dyn RoomStore) {
    loop {
        hub.joins.hinted.notified().await;
        hub.look_up_hints(store).await;
    }
}

async fn compare_all(hub: &Hub, store: &dyn RoomStore, clock: &dyn Clock) {
    let mut rounds = tokio::time::interval(ROUND_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Users that are still to be compared in this round.
    let mut rest: Vec<UserId> = Vec::new();
    let mut pause = PAUSE_MIN;
    loop {
        let is_idle = rest.is_empty() && hub.joins.urgent.lock().iter().all(|urgent| urgent.queue.is_empty());
        tokio::select! {
            biased;
            _ = rounds.tick(), if rest.is_empty() => {
                hub.sockets.each_comparing(|user| rest.push(user.clone()));
            }
            () = hub.joins.wanted.notified(), if is_idle => {}
            () = ready(()), if !is_idle => {}
        }
        let urgent = hub.take_urgent(URGENT_PER_QUERY);
        let mut users = rest.split_off(rest.len().saturating_sub(USERS_PER_QUERY - urgent.len()));
        // Twice in one query would be two looks at one moment.
        users.retain(|user| !urgent.contains(user));
        if users.is_empty() && urgent.is_empty() {
            continue;
        }
        let began = clock.monotonic();
        let compared = hub.compare_users(store, &urgent, users, began).await;
        let took = clock.monotonic().saturating_sub(began);
        pause = match compared {
            Ok(()) => (took * COMPARE_SHARE).min(SHARE_PAUSE_MAX),
            // Who was not urgent is compared with the next round.
            Err(_) => (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX),
        };
        tokio::time::sleep(pause).await;
    }
}

impl Hub {
    /// Gives other servers hints that users became members through this one. The marks are read before that is answered, as
    /// whoever knows of the membership may move the mark. Those that the store does not tell in time are left out.
    pub(super) async fn tell_joined(&self, mut joins: Vec<Join>, access: &QueryAccess<'_>) {
        let Some(relay) = self.relay.get() else { return };
        let lacking = joins.iter_mut().filter(|join| join.mark.is_none());
        self.read_marks(lacking.take(MARKS_MAX).collect(), access).await;
        for Join { room, user, mark } in &joins {
            relay.joined(room, user, *mark);
        }
    }

    async fn read_marks(&self, joins: Vec<&mut Join>, access: &QueryAccess<'_>) {
        let skipped = &self.joins.skipped;
        let skip = |rest: u32| rest.checked_sub(1);
        if joins.is_empty() || skipped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, skip).is_ok() {
            return;
        }
        let reading = join_all(joins.iter().map(|join| access(join.room.clone(), join.user.clone())));
        let Ok(read) = timeout(MARKS_TIMEOUT, reading).await else {
            return skipped.store(BATCHES_SKIPPED, Ordering::Relaxed);
        };
        for (join, access) in joins.into_iter().zip(read) {
            if let Ok(Access::Member { read_seq }) = access {
                join.mark = Some(read_seq);
            }
        }
    }

    /// Another server says that a user became a member.
    pub(super) fn hint_join(&self, room: &RoomId, user: &str, mark: Option<u64>) {
        if self.behind.get().is_none() || !self.sockets.follow_all(user) {
            return;
        }
        let Ok(user) = UserId::new(user) else { return };
        let mut hints = self.joins.hints.lock();
        if hints.len() < HINTS_MAX {
            hints.insert((user, room.clone()), mark);
            self.joins.hinted.notify_one();
        } else {
            self.compare_soon([user], LATER);
        }
    }

    /// Looks up all hints that wait.
    pub(super) async fn look_up_hints(&self, store: &dyn RoomStore) {
        let access = |room, user| store.access(room, user);
        let hints: Vec<_> = self.joins.hints.lock().drain().collect();
        for hints in hints.chunks(QUERIES_MAX) {
            let looked_up =
                hints.iter().map(|((user, room), mark)| self.look_up_join(room, user, *mark, &access));
            join_all(looked_up).await;
        }
    }

    /// Notifies the sockets that follow all rooms of a user, if the user is a member of this one. They start at the `mark`,
    /// which the user joined with, or at the present one: a device that read or wrote meanwhile has moved it.
    pub(super) async fn look_up_join(
        &self,
        room: &RoomId,
        user: &UserId,
        mark: Option<u64>,
        access: &QueryAccess<'_>,
    ) {
        match access(room.clone(), user.clone()).await {
            Ok(Access::Member { read_seq }) => {
                let read_seq = mark.map_or(read_seq, |mark| mark.min(read_seq));
                self.sockets.notify_joined(user, room, read_seq);
            }
            // Removed again meanwhile.
            Ok(_) => {}
            Err(_) if self.behind.get().is_some() => self.compare_soon([user.clone()], FIRST),
            // The starting position is unknown. The client reconnects and queries it again.
            Err(_) => self.sockets.each(user.as_str(), true, |outbox| outbox.cut()),
        }
    }

    /// The socket found that its user is not a member of rooms that it was to follow as some of all. It is notified if the user
    /// is a member again.
    pub fn forget_rooms<'a>(
        &self,
        user: &UserId,
        outbox: &Arc<Outbox>,
        rooms: impl IntoIterator<Item = &'a RoomId>,
    ) {
        if self.sockets.forget(user, outbox, rooms) {
            // The user may have been added again before, when the socket still followed a room.
            self.compare_soon([user.clone()], FIRST);
        }
    }

    /// The rooms of these users, of whom sockets follow all rooms, are compared at once.
    fn compare_soon(&self, users: impl IntoIterator<Item = UserId>, rank: usize) {
        let mut urgent = self.joins.urgent.lock();
        let Some(Urgent { queue, waiting }) = urgent.get_mut(rank) else { return };
        for user in users {
            if waiting.insert(user.clone()) {
                queue.push_back(user);
            }
        }
        self.joins.wanted.notify_one();
    }

    /// Hints about these users may be missing.
    pub(super) fn may_have_missed_joins(&self, is_concerned: impl Fn(&UserId) -> bool) {
        if self.behind.get().is_none() {
            return;
        }
        let mut users = Vec::new();
        self.sockets.each_comparing(|user| {
            if is_concerned(user) {
                users.push(user.clone());
            }
        });
        self.compare_soon(users, LATER);
    }

    /// Up to `most` users, each once.
    pub(super) fn take_urgent(&self, most: usize) -> Vec<UserId> {
        let mut users = Vec::new();
        for Urgent { queue, waiting } in &mut *self.joins.urgent.lock() {
            while users.len() < most
                && let Some(user) = queue.pop_front()
            {
                waiting.remove(&user);
                if !users.contains(&user) {
                    users.push(user);
                }
            }
        }
        users
    }

    /// Compares the rooms of users. One whose rooms cannot be read is in the way of no other, and waits again if urgent. Fails if
    /// nobody's could be read.
    pub(super) async fn compare_users(
        &self,
        store: &dyn RoomStore,
        urgent: &[UserId],
        others: Vec<UserId>,
        now: Duration,
    ) -> Result<(), ReadError> {
        let users = [urgent, &others].concat();
        if self.compare_rooms(store, users.clone(), now).await.is_ok() {
            return Ok(());
        }
        let comparing = users.iter().map(|user| self.compare_rooms(store, vec![user.clone()], now));
        let mut done = None;
        for (user, compared) in users.iter().zip(join_all(comparing).await) {
            if compared.is_err() && urgent.contains(user) {
                self.compare_soon([user.clone()], LATER);
            }
            done = done.filter(Result::is_ok).or(Some(compared));
        }
        done.unwrap_or(Ok(()))
    }

    /// Compares what the store lists for these users with what their sockets know, and notifies sockets that lack a room.
    pub(super) async fn compare_rooms(
        &self,
        store: &dyn RoomStore,
        users: Vec<UserId>,
        now: Duration,
    ) -> Result<(), ReadError> {
        let listed = store.memberships(users.clone()).await?;
        let mut lacking = Vec::new();
        for (user, listed) in users.iter().zip(listed) {
            // Of who has too many rooms nothing is known.
            let listed = listed.map(|listed| self.sockets.lacking(user, listed, now));
            lacking.extend(listed.into_iter().flatten().map(|listed| (user, listed)));
        }
        let mut done = Ok(());
        for lacking in lacking.chunks(QUERIES_MAX) {
            let queries =
                lacking.iter().map(|(user, listed)| store.access(listed.room.clone(), (*user).clone()));
            for ((user, listed), access) in lacking.iter().zip(join_all(queries).await) {
                done = done.and(access.map(|access| self.sockets.settle(user, listed, access, now)));
            }
        }
        done
    }
}
