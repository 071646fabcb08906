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
//! - again after [`HINT_TIME`], where a room was seen for the first time. Only then a socket is notified of it, and starts at the
//!   mark that was seen first: a hint may be under way, with the mark that the user joined with
//! - all users once in [`ROUND_INTERVAL`]. Comparing takes a small share of the time ([`COMPARE_SHARE`]), so with many users
//!   a round takes longer.
//!
//! A hint says nothing of which join it is of. One that comes behind a removal, and behind the next join, is taken for that one's:
//! then a socket starts at the mark of the join before, with messages that it could read, too.
//!
//! Nothing waits without bound: hints that do not fit are as good as lost, and there is one entry for each user.

mod hints;
mod known;
mod marks;

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hubbub_core::clock::Clock;
use hubbub_core::store::{Access, ReadError, RoomStore};
use hubbub_core::{RoomId, UserId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::changes::QUERIES_MAX;
use super::sockets::JoinedAt;
use super::{Hub, Outbox};
use hints::Hints;
use known::HINT_TIME;
pub(super) use known::{CheckResult, KnownRooms, NextCheck};
pub(super) use marks::Join;

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

/// How often it is looked for what is to be asked again.
const RECALL_INTERVAL: Duration = Duration::from_millis(100);

/// Ranks of users that are compared at once.
const FIRST: usize = 0;
const LATER: usize = 1;

/// What other servers may have added to the rooms of users.
#[derive(Debug, Default)]
pub(super) struct Joins {
    hints: Hints,
    /// Until then nothing is asked of the store that others would wait for: it was slow.
    marks_from: Mutex<Duration>,
    /// Those first of whom something is known to be missing, then those of whom something may be.
    urgent: Mutex<[Urgent; 2]>,
    wanted: Notify,
    /// Users whose rooms are to be compared again, and when.
    again: Mutex<HashMap<UserId, Duration>>,
}

/// Users whose rooms are to be compared at once, in the order in which that was wanted first.
#[derive(Debug, Default)]
struct Urgent {
    queue: VecDeque<UserId>,
    waiting: HashSet<UserId>,
}

/// Notifies sockets of joins through other servers, until the task is aborted.
pub(crate) async fn follow_joins(hub: Arc<Hub>, store: Arc<dyn RoomStore>, clock: Arc<dyn Clock>) {
    tokio::join!(
        look_up_hints(&hub, &*store),
        compare_all(&hub, &*store, &*clock),
        recall_all(&hub, &*clock)
    );
}

async fn recall_all(hub: &Hub, clock: &dyn Clock) {
    let mut interval = tokio::time::interval(RECALL_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        hub.recall_joins(clock.monotonic());
    }
}

async fn look_up_hints(hub: &Hub, store: &dyn RoomStore) {
    loop {
        hub.joins.hints.hinted.notified().await;
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

    /// The same for rooms that were listed before the socket read its rooms, but that no page had. A store may list also rooms
    /// that the user has left: they let those wait of whom something is known to be missing.
    pub fn forget_unread<'a>(
        &self,
        user: &UserId,
        outbox: &Arc<Outbox>,
        rooms: impl IntoIterator<Item = &'a RoomId>,
    ) {
        if self.sockets.forget(user, outbox, rooms) {
            self.compare_soon([user.clone()], LATER);
        }
    }

    /// Lets be asked again what is due.
    pub(super) fn recall_joins(&self, now: Duration) {
        self.joins.hints.recall(now);
        let mut due = Vec::new();
        due.extend(self.joins.again.lock().extract_if(|_, due| *due <= now).map(|(user, _)| user));
        if !due.is_empty() {
            self.compare_soon(due, FIRST);
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
            let Some(listed) = listed else { continue };
            let (listed, is_soon) = self.sockets.lacking(user, listed, now);
            lacking.extend(listed.into_iter().map(|listed| (user, listed)));
            self.compare_again(user, is_soon, now);
        }
        let mut done = Ok(());
        for lacking in lacking.chunks(QUERIES_MAX) {
            let queries =
                lacking.iter().map(|(user, listed)| store.access(listed.room.clone(), (*user).clone()));
            for ((user, listed), access) in lacking.iter().zip(join_all(queries).await) {
                done = done.and(access.map(|access| {
                    let mark = || self.joins.hints.mark(user, &listed.room);
                    let at = match access {
                        Access::Member { read_seq } => Some(JoinedAt::new(mark(), read_seq)),
                        _ => None,
                    };
                    let is_soon = self.sockets.complete_check(user, listed, at, now);
                    self.compare_again(user, is_soon, now);
                }));
            }
        }
        done
    }

    /// A room of the user was seen first: it is told of soon, unless a hint comes before.
    fn compare_again(&self, user: &UserId, is_soon: bool, now: Duration) {
        if is_soon {
            self.joins.again.lock().entry(user.clone()).or_insert(now + HINT_TIME);
        }
    }
}
