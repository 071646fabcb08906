//! Users that were removed from rooms, until the store was asked about them: another server may have added a user again, who may
//! have subscribed here anew, before this one hears of the removal, or publishes its own.
//!
//! Until then the messages of the room wait here, in their order, for all of its subscribers. So the store is asked only about
//! those who were removed, and not about everybody in the room; all that were removed meanwhile are one query. They get no
//! notices of the room, are not present in it, and type to nobody. Who turns out to be a member and has missed who came or left
//! reconnects.
//!
//! What waits is bounded. Beyond that, and for what may have been erased meanwhile, messages are read from the store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use hubbub_core::store::{Access, ReadError, RoomStore};
use hubbub_core::{RoomId, UserId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Hub;
use super::channel::Channel;
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

/// The users that may have been removed from one room, and what waits until that is known.
#[derive(Default)]
pub(super) struct Doubts {
    /// With the number of the removal.
    users: HashMap<UserId, u64>,
    /// Those of them that got no notice of who came or left.
    lacking: HashSet<UserId>,
    waiting: Vec<HeldBack>,
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
            self.waiting.push(held);
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
        }
        is_known
    }

    fn doubted(&self) -> HashMap<UserId, u64> {
        self.doubts.as_ref().map(|doubts| doubts.users.clone()).unwrap_or_default()
    }

    /// The store was asked about these removals. Returns the doubts, with what waits, if there are none about other ones.
    fn trust(&mut self, asked: &HashMap<UserId, u64>) -> Option<Doubts> {
        let doubts = self.doubts.as_mut()?;
        doubts.users.retain(|user, removal| asked.get(user) != Some(removal));
        let lacking: HashSet<UserId> =
            doubts.lacking.extract_if(|user| !doubts.users.contains_key(user)).collect();
        // They were added again, and read anew who is present.
        let stay = self.subscribers.iter().filter(|subscriber| subscriber.is_any_of(&lacking));
        stay.for_each(|subscriber| subscriber.outbox.cut());
        if doubts.users.is_empty() { self.doubts.take().map(|doubts| *doubts) } else { None }
    }
}

/// Asks the store about users that were removed, until the task is aborted.
pub(crate) async fn settle_doubts(hub: Arc<Hub>, store: Arc<dyn RoomStore>) {
    // `None` = everything asked about is known.
    let mut pause: Option<Duration> = None;
    loop {
        // Those that are new do not wait for a room about which the store cannot be asked.
        tokio::select! {
            () = hub.doubtful.added.notified() => {}
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
        if hub.settle_doubts(&*store).await.is_ok() {
            pause = None;
        } else {
            tokio::time::sleep(RETRY_PAUSE).await;
            pause = Some((pause.unwrap_or(RETRY_PAUSE) * 2).min(RETRY_PAUSE_MAX));
        }
    }
}

impl Hub {
    /// Whether other servers may change a room before this one has published what it changed itself.
    pub(super) fn is_written_by_others_at_once(&self) -> bool {
        self.behind.get().is_some_and(|behind| !behind.has_bus.load(Ordering::Relaxed))
    }

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

    /// Asks about all who may have been removed, ends their subscriptions if they were, and delivers what waits. Fails if that
    /// is not known of some of them: they are asked about again.
    pub(super) async fn settle_doubts(&self, store: &dyn RoomStore) -> Result<(), ReadError> {
        let rooms = std::mem::take(&mut *self.doubtful.rooms.lock());
        let settling = stream::iter(rooms).map(async |room| {
            let settled = self.settle_doubts_of(store, &room).await;
            if settled.is_err() {
                self.doubtful.rooms.lock().insert(room);
            }
            settled
        });
        settling.buffer_unordered(ROOMS_AT_ONCE).fold(Ok(()), async |done, settled| done.and(settled)).await
    }

    async fn settle_doubts_of(&self, store: &dyn RoomStore, room: &RoomId) -> Result<(), ReadError> {
        let Some(doubted) = self.with_channel(room.as_str(), |channel| channel.doubted()) else {
            return Ok(());
        };
        let access = |room, user| store.access(room, user);
        let is_over = |access: &Result<Access, _>| matches!(access, Ok(access) if !matches!(access, Access::Member { .. }));
        self.end_removed(room, doubted.keys().cloned().collect(), &access, is_over).await?;
        let has_gap = self.with_channel(room.as_str(), |channel| {
            let Some(Doubts { waiting, is_lossy, .. }) = channel.trust(&doubted) else { return false };
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
