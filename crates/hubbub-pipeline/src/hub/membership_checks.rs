//! Checks the access of users that were removed from rooms, before anything more is delivered to them.
//!
//! A removal may arrive late: another server may have added the user again, who may have subscribed here anew. So the store is
//! queried. Until it has answered:
//!
//! - New messages of the room are paused, in their order, for all of its subscribers. Only the removed users are queried, and not
//!   everybody in the room; all users removed meanwhile share one query.
//! - The removed users get no notices of the room, are not present in it, and their typing is not delivered. A user who turns out
//!   to be a member, and missed a notice, reconnects.
//! - A message waits only for the removals that were known when it came, so removals without end do not pause a room for ever.
//!
//! Paused messages are bounded. Beyond that, and where some may have been erased meanwhile, they are read from the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use hubbub_core::backoff::Backoff;
use hubbub_core::store::{Access, ReadError, RoomStore};
use hubbub_core::{RoomId, UserId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Hub;
use super::changes::query_access;
use super::channel::{Channel, Subscriber};
use super::encoded::{EncodedChunk, Predecessors};
use crate::timeline::Source;

/// Users of one room to check; beyond that the whole room is compared with the store.
const USERS_MAX: usize = 1_000;
/// Bounds of the paused messages of one room.
const CHUNKS_MAX: usize = 1_000;
const BYTES_MAX: usize = 1 << 20;
/// Rooms that are checked at the same time: the store merges their queries.
const ROOMS_AT_ONCE: usize = 256;
/// Shortest and longest pause after a failed query.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The rooms with users to check.
#[derive(Debug, Default)]
pub(super) struct RoomsToCheck {
    rooms: Mutex<HashSet<RoomId>>,
    /// Number of removals so far.
    removals: AtomicU64,
    added: Notify,
}

/// A batch of messages that is paused.
pub(super) struct PausedBatch {
    pub(super) batch: EncodedChunk,
    pub(super) predecessors: Predecessors,
    pub(super) source: Source,
}

/// Batches that are paused no longer.
#[derive(Default)]
pub(super) struct Released {
    pub(super) waiting: Vec<PausedBatch>,
    /// Whether messages before or after them are missing.
    has_gap: bool,
}

/// The users of one room to check, and the batches that are paused meanwhile.
#[derive(Default)]
pub(super) struct PendingChecks {
    /// With the number of the removal.
    users: HashMap<UserId, u64>,
    /// The number of the last removal.
    removal: u64,
    /// Those of them that missed notices of who came or left.
    missed: HashSet<UserId>,
    /// Each with the number of the last removal that was known when it came.
    waiting: Vec<(u64, PausedBatch)>,
    bytes: usize,
    /// Whether messages did not fit, or were dropped.
    has_gap: bool,
}

impl PendingChecks {
    fn push(&mut self, held: PausedBatch, is_full: bool) {
        let bytes = self.bytes + held.batch.bytes();
        if is_full || self.waiting.len() >= CHUNKS_MAX || bytes > BYTES_MAX {
            self.has_gap = true;
        } else {
            self.bytes = bytes;
            self.waiting.push((self.removal, held));
        }
    }

    /// Drops paused batches, which may have been erased.
    pub(super) fn drop_waiting(&mut self) {
        self.has_gap |= !self.waiting.is_empty();
        (self.waiting, self.bytes) = (Vec::new(), 0);
    }
}

impl Channel {
    /// Whether the user is to be checked.
    pub(super) fn is_to_be_checked(&self, user: &UserId) -> bool {
        self.pending_checks.as_ref().is_some_and(|checks| checks.users.contains_key(user))
    }

    /// Pauses a batch while users are to be checked, unless memory `is_full`. Returns it otherwise.
    pub(super) fn hold_back(&mut self, held: PausedBatch, is_full: bool) -> Option<PausedBatch> {
        match &mut self.pending_checks {
            Some(checks) => {
                checks.push(held, is_full);
                None
            }
            None => Some(held),
        }
    }

    /// Records that these users missed a notice.
    pub(super) fn record_missed_notices(&mut self, missed: Vec<UserId>) {
        self.pending_checks.iter_mut().for_each(|checks| checks.missed.extend(missed.iter().cloned()));
    }

    /// Returns false if too many users are to be checked.
    fn require_check(&mut self, user: &UserId, removal: u64) -> bool {
        let checks = self.pending_checks.get_or_insert_default();
        let is_known = checks.users.len() < USERS_MAX || checks.users.contains_key(user);
        if is_known {
            checks.users.insert(user.clone(), removal);
            checks.removal = removal;
        }
        is_known
    }

    /// Cancels the check of a user who was added after all published removals.
    pub(super) fn cancel_check(&mut self, user: &str) {
        self.pending_checks
            .iter_mut()
            .for_each(|checks| checks.users.retain(|known, _| known.as_str() != user));
    }

    /// The users to check, with their removals, and the number of the last removal. Users without a subscription here need no
    /// check; later subscriptions query access themselves.
    pub(super) fn users_to_check(&mut self) -> (HashMap<UserId, u64>, u64) {
        let Some(checks) = &mut self.pending_checks else { return Default::default() };
        let here: HashSet<&UserId> =
            self.subscribers.iter().filter_map(|subscriber| subscriber.user.as_ref()).collect();
        checks.users.retain(|user, _| here.contains(user));
        (checks.users.clone(), checks.removal)
    }

    /// Takes out the subscriptions before the `attached`th one of users to check that the store has no longer as members.
    pub(super) fn take_removed(&mut self, found: &HashMap<UserId, Access>, attached: u64) -> Vec<Subscriber> {
        let Some(checks) = &self.pending_checks else { return Vec::new() };
        let is_over = |subscriber: &Subscriber| {
            let user = subscriber.user.as_ref().filter(|user| checks.users.contains_key(*user));
            match user.and_then(|user| found.get(user)) {
                None | Some(Access::Member { .. }) => false,
                // As a guest anybody may follow an open room.
                Some(Access::Open) => subscriber.is_member,
                Some(_) => true,
            }
        };
        let taken =
            self.subscribers.extract_if(.., |subscriber| subscriber.number < attached && is_over(subscriber));
        taken.collect()
    }

    /// Completes the checks of these removals, which are all up to the number `last`. Returns the batches that wait for no other.
    pub(super) fn complete_checks(&mut self, asked: &HashMap<UserId, u64>, last: u64) -> Released {
        let Some(checks) = &mut self.pending_checks else { return Released::default() };
        checks.users.retain(|user, removal| asked.get(user) != Some(removal));
        let missed: HashSet<UserId> =
            checks.missed.extract_if(|user| !checks.users.contains_key(user)).collect();
        // They are members, and read anew who is present.
        let stay = self.subscribers.iter().filter(|subscriber| subscriber.is_any_of(&missed));
        stay.for_each(|subscriber| subscriber.outbox.cut());
        let is_complete = checks.users.is_empty();
        let released = checks.waiting.extract_if(.., |(removal, _)| is_complete || *removal <= last);
        let waiting: Vec<PausedBatch> = released.map(|(_, held)| held).collect();
        checks.bytes -= waiting.iter().map(|held| held.batch.bytes()).sum::<usize>();
        let has_gap = is_complete && checks.has_gap;
        if is_complete {
            self.pending_checks = None;
        }
        Released { waiting, has_gap }
    }
}

/// Runs membership checks until the task is aborted.
pub(crate) async fn run_checks(hub: Arc<Hub>, store: Arc<dyn RoomStore>) {
    let check = |room: RoomId| {
        let (hub, store) = (hub.clone(), store.clone());
        async move { hub.check_room(&*store, &room).await }
    };
    hub.to_check.check_each(check).await;
}

impl RoomsToCheck {
    /// Checks each room that is added, one at a time per room, so that no room waits for another.
    async fn check_each<F: Future<Output = ()>>(&self, check: impl Fn(RoomId) -> F) {
        let (mut busy, mut checking) = (HashSet::new(), FuturesUnordered::new());
        loop {
            tokio::select! {
                () = self.added.notified() => {}
                Some(room) = checking.next() => drop(busy.remove(&room)),
            }
            let free = ROOMS_AT_ONCE.saturating_sub(busy.len());
            let next: Vec<RoomId> =
                self.rooms.lock().extract_if(|room| !busy.contains(room)).take(free).collect();
            for room in next {
                busy.insert(room.clone());
                checking.push(check(room.clone()).map(|()| room));
            }
        }
    }
}

impl Hub {
    /// A user was removed from a room. Deliveries of the room are paused until the store has answered.
    pub(super) fn require_check(&self, room: &str, user: &str) {
        let (Ok(id), Ok(user)) = (RoomId::new(room), UserId::new(user)) else { return };
        let removal = self.to_check.removals.fetch_add(1, Ordering::SeqCst);
        let require = |channel: &mut Channel| {
            let is_followed = channel.subscribers.iter().any(|subscriber| subscriber.is_of(user.as_str()));
            is_followed.then(|| channel.require_check(&user, removal))
        };
        match self.with_channel(room, require).flatten() {
            Some(true) => {
                self.to_check.rooms.lock().insert(id);
                self.to_check.added.notify_one();
            }
            Some(false) => self.expect_comparison(Some(room)),
            None => {}
        }
    }

    /// Checks the users of a room until the store has answered.
    async fn check_room(&self, store: &dyn RoomStore, room: &RoomId) {
        let mut backoff = Backoff::new(RETRY_PAUSE, RETRY_PAUSE_MAX);
        while self.run_checks(store, room).await.is_err() {
            tokio::time::sleep(backoff.exact_pause()).await;
        }
    }

    /// Queries the access of a room's users to check, ends the subscriptions of those who are not members, and delivers paused
    /// batches. Fails if the store did not answer for all of them.
    pub(super) async fn run_checks(&self, store: &dyn RoomStore, room: &RoomId) -> Result<(), ReadError> {
        let attached = self.attached.load(Ordering::SeqCst);
        let Some((users, last)) = self.with_channel(room.as_str(), Channel::users_to_check) else {
            return Ok(());
        };
        let access = |room, user| store.access(room, user);
        let (mut found, mut failed) = (HashMap::new(), None);
        for (user, answer) in query_access(room, users.keys().cloned().collect(), &access).await {
            match answer {
                Ok(access) => drop(found.insert(user, access)),
                Err(error) => failed = Some(error),
            }
        }
        self.end_taken(room.as_str(), |channel| channel.take_removed(&found, attached));
        if let Some(error) = failed {
            return Err(error);
        }
        let has_gap = self.with_channel(room.as_str(), |channel| {
            let Released { waiting, has_gap: lost } = channel.complete_checks(&users, last);
            let deliver = |has_gap, held| self.deliver_held(channel, room.as_str(), held) || has_gap;
            waiting.into_iter().fold(lost, deliver)
        });
        if let (Some(true), Some(behind)) = (has_gap, self.behind.get()) {
            behind.insert(room.as_str());
        }
        self.memory.enforce_bound();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_room_waits_for_another() {
        let to_check = RoomsToCheck::default();
        let add = |room: &str| {
            to_check.rooms.lock().insert(RoomId::new(room).unwrap());
            to_check.added.notify_one();
        };
        let asked = Mutex::new(Vec::new());
        let checking = to_check.check_each(|room| {
            asked.lock().push(room.as_str().to_owned());
            async move {
                if room.as_str() == "stuck" {
                    std::future::pending::<()>().await;
                }
            }
        });
        let adding = async {
            for room in ["stuck", "a", "stuck", "a"] {
                add(room);
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = checking => {}
            () = adding => {}
        }
        assert_eq!(*asked.lock(), ["stuck", "a", "a"], "and one at a time in each");
    }
}
