//! Users that were removed from rooms, until the store was asked about them: another server may have added a user again, who may
//! have subscribed here anew, before this one hears of the removal, or publishes its own.
//!
//! Until then the messages of the room wait here, in their order, for all of its subscribers. So the store is asked only about
//! those who were removed, and not about everybody in the room; all that were removed meanwhile are one query. They get no
//! notices of the room, are not present in it, and type to nobody. Who turns out to be a member and has missed who came or left
//! reconnects. Each message waits only for the removals that were known before it came: others may follow without end.
//!
//! What waits is bounded. Beyond that, and for what may have been erased meanwhile, messages are read from the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use hubbub_core::store::{Access, ReadError, RoomStore};
use hubbub_core::{RoomId, UserId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Hub;
use super::changes::query_access;
use super::channel::{Channel, Subscriber};
use super::encoded::{EncodedChunk, Predecessors};
use crate::timeline::Source;

/// Users of one room that are asked about; beyond that the whole room is compared with the store.
const USERS_MAX: usize = 1_000;
/// Bounds of what waits in one room.
const CHUNKS_MAX: usize = 1_000;
const BYTES_MAX: usize = 1 << 20;
/// Rooms that are asked about at the same time: the store merges their queries.
const ROOMS_AT_ONCE: usize = 256;
/// Shortest pause before the store is asked again that did not answer, and longest pause.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The rooms that somebody may have been removed from.
#[derive(Debug, Default)]
pub(super) struct DoubtfulRooms {
    rooms: Mutex<HashSet<RoomId>>,
    /// How many removals there were.
    removals: AtomicU64,
    added: Notify,
}

/// A batch of messages that waits.
pub(super) struct HeldBack {
    pub(super) batch: EncodedChunk,
    pub(super) predecessors: Predecessors,
    pub(super) source: Source,
}

/// What need not wait any longer.
#[derive(Default)]
pub(super) struct Released {
    pub(super) waiting: Vec<HeldBack>,
    /// Whether the rest lies behind a gap.
    is_lossy: bool,
}

/// The users that may have been removed from one room, and what waits until that is known.
#[derive(Default)]
pub(super) struct Doubts {
    /// With the number of the removal, which the store is asked about.
    users: HashMap<UserId, u64>,
    /// The number of the last removal.
    removal: u64,
    /// Those of them that got no notice of who came or left.
    lacking: HashSet<UserId>,
    /// Each with the number of the last removal that was known when it came.
    waiting: Vec<(u64, HeldBack)>,
    bytes: usize,
    /// Whether messages did not fit, or were dropped.
    is_lossy: bool,
}

impl Doubts {
    fn push(&mut self, held: HeldBack, is_full: bool) {
        let bytes = self.bytes + held.batch.bytes();
        if is_full || self.waiting.len() >= CHUNKS_MAX || bytes > BYTES_MAX {
            self.is_lossy = true;
        } else {
            self.bytes = bytes;
            self.waiting.push((self.removal, held));
        }
    }

    /// What waits may not be delivered any more.
    pub(super) fn drop_waiting(&mut self) {
        self.is_lossy |= !self.waiting.is_empty();
        (self.waiting, self.bytes) = (Vec::new(), 0);
    }
}

impl Channel {
    /// Whether the user may have been removed from the room.
    pub(super) fn is_doubted(&self, user: &UserId) -> bool {
        self.doubts.as_ref().is_some_and(|doubts| doubts.users.contains_key(user))
    }

    /// Lets messages wait, if they must, unless memory `is_full`. Returns them otherwise.
    pub(super) fn hold_back(&mut self, held: HeldBack, is_full: bool) -> Option<HeldBack> {
        match &mut self.doubts {
            Some(doubts) => {
                doubts.push(held, is_full);
                None
            }
            None => Some(held),
        }
    }

    /// These users get no notice of who came or left, as they may have been removed.
    pub(super) fn withhold(&mut self, lacking: Vec<UserId>) {
        self.doubts.iter_mut().for_each(|doubts| doubts.lacking.extend(lacking.iter().cloned()));
    }

    /// Returns false if there are too many.
    fn doubt(&mut self, user: &UserId, removal: u64) -> bool {
        let doubts = self.doubts.get_or_insert_default();
        let is_known = doubts.users.len() < USERS_MAX || doubts.users.contains_key(user);
        if is_known {
            doubts.users.insert(user.clone(), removal);
            doubts.removal = removal;
        }
        is_known
    }

    /// A user was added after all removals that were published.
    pub(super) fn believe(&mut self, user: &str) {
        self.doubts.iter_mut().for_each(|doubts| doubts.users.retain(|known, _| known.as_str() != user));
    }

    /// Those of whom the store is to be asked, with their removals, and the number of the last removal. Nothing is delivered to
    /// who is not here any more; later subscriptions ask for access themselves.
    pub(super) fn doubted(&mut self) -> (HashMap<UserId, u64>, u64) {
        let Some(doubts) = &mut self.doubts else { return Default::default() };
        let here: HashSet<&UserId> =
            self.subscribers.iter().filter_map(|subscriber| subscriber.user.as_ref()).collect();
        doubts.users.retain(|user, _| here.contains(user));
        (doubts.users.clone(), doubts.removal)
    }

    /// Takes out the subscriptions of users that may still have been removed, began before the `attached`th one, and are over
    /// by what the store told.
    pub(super) fn take_removed(&mut self, told: &HashMap<UserId, Access>, attached: u64) -> Vec<Subscriber> {
        let Some(doubts) = &self.doubts else { return Vec::new() };
        let is_over = |subscriber: &Subscriber| {
            let user = subscriber.user.as_ref().filter(|user| doubts.users.contains_key(*user));
            match user.and_then(|user| told.get(user)) {
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

    /// The store was asked about these removals, which are all up to the number `last`. Returns what does not wait for others.
    pub(super) fn trust(&mut self, asked: &HashMap<UserId, u64>, last: u64) -> Released {
        let Some(doubts) = &mut self.doubts else { return Released::default() };
        doubts.users.retain(|user, removal| asked.get(user) != Some(removal));
        let lacking: HashSet<UserId> =
            doubts.lacking.extract_if(|user| !doubts.users.contains_key(user)).collect();
        // They were added again, and read anew who is present.
        let stay = self.subscribers.iter().filter(|subscriber| subscriber.is_any_of(&lacking));
        stay.for_each(|subscriber| subscriber.outbox.cut());
        let is_settled = doubts.users.is_empty();
        let released = doubts.waiting.extract_if(.., |(removal, _)| is_settled || *removal <= last);
        let waiting: Vec<HeldBack> = released.map(|(_, held)| held).collect();
        doubts.bytes -= waiting.iter().map(|held| held.batch.bytes()).sum::<usize>();
        let is_lossy = is_settled && doubts.is_lossy;
        if is_settled {
            self.doubts = None;
        }
        Released { waiting, is_lossy }
    }
}

/// Asks the store about users that were removed, until the task is aborted.
pub(crate) async fn settle_doubts(hub: Arc<Hub>, store: Arc<dyn RoomStore>) {
    let settle = |room: RoomId| {
        let (hub, store) = (hub.clone(), store.clone());
        async move { hub.settle_room(&*store, &room).await }
    };
    hub.doubtful.settle_each(settle).await;
}

impl DoubtfulRooms {
    /// Settles each room that is added, one attempt at a time for each, so that none waits for another.
    async fn settle_each<F: Future<Output = ()>>(&self, settle: impl Fn(RoomId) -> F) {
        let (mut busy, mut settling) = (HashSet::new(), FuturesUnordered::new());
        loop {
            tokio::select! {
                () = self.added.notified() => {}
                Some(room) = settling.next() => drop(busy.remove(&room)),
            }
            let free = ROOMS_AT_ONCE.saturating_sub(busy.len());
            let next: Vec<RoomId> =
                self.rooms.lock().extract_if(|room| !busy.contains(room)).take(free).collect();
            for room in next {
                busy.insert(room.clone());
                settling.push(settle(room.clone()).map(|()| room));
            }
        }
    }
}

impl Hub {
    /// A user was removed from a room. Until the store was asked, nothing more of the room is delivered.
    pub(super) fn doubt(&self, room: &str, user: &str) {
        let (Ok(id), Ok(user)) = (RoomId::new(room), UserId::new(user)) else { return };
        let removal = self.doubtful.removals.fetch_add(1, Ordering::SeqCst);
        let doubt = |channel: &mut Channel| {
            let is_followed = channel.subscribers.iter().any(|subscriber| subscriber.is_of(user.as_str()));
            is_followed.then(|| channel.doubt(&user, removal))
        };
        match self.with_channel(room, doubt).flatten() {
            Some(true) => {
                self.doubtful.rooms.lock().insert(id);
                self.doubtful.added.notify_one();
            }
            Some(false) => self.expect_comparison(Some(room)),
            None => {}
        }
    }

    /// Asks about those who may have been removed from a room until that is known.
    async fn settle_room(&self, store: &dyn RoomStore, room: &RoomId) {
        let mut pause = RETRY_PAUSE;
        while self.settle_doubts(store, room).await.is_err() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    /// Asks about those who may have been removed from a room, ends their subscriptions if they were, and delivers what waited
    /// for that. Fails if it is not known of some of them.
    pub(super) async fn settle_doubts(&self, store: &dyn RoomStore, room: &RoomId) -> Result<(), ReadError> {
        let attached = self.attached.load(Ordering::SeqCst);
        let Some((doubted, last)) = self.with_channel(room.as_str(), Channel::doubted) else {
            return Ok(());
        };
        let access = |room, user| store.access(room, user);
        let (mut told, mut failed) = (HashMap::new(), None);
        for (user, answer) in query_access(room, doubted.keys().cloned().collect(), &access).await {
            match answer {
                Ok(access) => drop(told.insert(user, access)),
                Err(error) => failed = Some(error),
            }
        }
        self.end_taken(room.as_str(), |channel| channel.take_removed(&told, attached));
        if let Some(error) = failed {
            return Err(error);
        }
        let has_gap = self.with_channel(room.as_str(), |channel| {
            let Released { waiting, is_lossy } = channel.trust(&doubted, last);
            let deliver = |has_gap, held| self.deliver_held(channel, room.as_str(), held) || has_gap;
            waiting.into_iter().fold(is_lossy, deliver)
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
        let doubtful = DoubtfulRooms::default();
        let add = |room: &str| {
            doubtful.rooms.lock().insert(RoomId::new(room).unwrap());
            doubtful.added.notify_one();
        };
        let asked = Mutex::new(Vec::new());
        let settling = doubtful.settle_each(|room| {
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
            () = settling => {}
            () = adding => {}
        }
        assert_eq!(*asked.lock(), ["stuck", "a", "a"], "and one at a time in each");
    }
}
