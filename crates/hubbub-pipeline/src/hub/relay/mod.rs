//! Gossip between servers: presence, typing, read marks and hints about memberships.
//!
//! All of it is soft state. Each server broadcasts who came to and left the rooms of its subscribers, and keeps the presence
//! that other servers broadcast for the rooms followed here. Changes are collected for a tick, so a room is broadcast at most
//! ten times a second, however many users come and go.
//!
//! - A server without a record for [`NODE_TTL`] is gone, and its users with it. One that has users sends a record at least
//!   each [`HEARTBEAT`].
//! - Records are numbered. A server that misses one requests a snapshot of the rooms it follows, and sends its own: the missing
//!   record may have been a request. The last of many records is followed by a heartbeat, so its loss is noticed.
//! - When a room is first followed here, a snapshot is requested. Each server sends its users, at most once a second for each
//!   room.
//! - Members added through a server are broadcast in the partition of the user, as hints ([`super::joins`]). Where hints may be
//!   missing, the rooms of users are compared with the store.
//!
//! Records of all rooms share what [`NodeBus`] carries in a tick. What does not fit waits, and is sent with its state by then.

mod joined;
mod outgoing;
mod over_store;
mod presence;
mod receive;
mod record;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{Clock, RandomSource};
use hubbub_core::{ReadMark, RoomId, UserId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Hub;
use outgoing::{Changes, Outgoing, OutgoingRecord};
pub use over_store::relay_over_store;
pub(super) use presence::RemotePresence;
use receive::PeerCursors;
use record::{ENVELOPE_BYTES, Entry};

/// Pause between two writes of what changed.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// A server that has users sends a record this often.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A server that is silent for this long is gone.
const NODE_TTL: Duration = Duration::from_secs(6);
/// Shortest time between two snapshots of a room, and between two notices of lost joins.
const FULL_INTERVAL: Duration = Duration::from_secs(1);
/// Rooms that are looked at in a tick, unless as many entries wait.
const ROOMS_PER_TICK: usize = 1_000;
/// Users in one entry.
const USERS_PER_ENTRY: usize = 100;
/// Answers to a request for a snapshot have arrived after this time, if any do.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// Longest wait of a request for the users of a room.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a room stays followed after a request for its users, and how many rooms at once.
const WATCH_TIME: Duration = Duration::from_secs(10);
const WATCHES_MAX: usize = 1_000;

/// Carries records between servers. It may lose and repeat them.
pub(crate) trait NodeBus: Send + Sync {
    /// Number of partitions. A server receives those of the rooms followed on it, and of the users of whom a socket there
    /// follows all rooms.
    fn partitions(&self) -> u32;
    /// The partition of a room or a user.
    fn partition_of(&self, id: &str) -> u32;
    /// Whether records of the partition arrive. Once they do, [`Hub::begin_partitions`] is called.
    fn is_subscribed(&self, partition: u32) -> bool;
    /// Largest record in bytes.
    fn record_bytes(&self) -> usize;
    /// Most records in a tick.
    fn records_per_tick(&self) -> usize;
    /// Whether changes of read marks do not reach other servers by themselves.
    fn lacks_marks(&self) -> bool;
    /// Writes a record, if it can at once.
    fn send(&self, partition: u32, record: String);
}

pub(super) struct Relay {
    node: u64,
    bus: Arc<dyn NodeBus>,
    outgoing: Mutex<Outgoing>,
    /// Held while records are written: they go out in the order of their numbers.
    writing: Mutex<()>,
    cursors: Mutex<PeerCursors>,
    /// Rooms that are followed for requests of their users.
    watches: Arc<tokio::sync::Semaphore>,
    /// A room was followed that was not before, or all rooms of a user.
    follows: Notify,
}

impl Relay {
    fn change(&self, room: &RoomId, change: impl FnOnce(&mut Changes)) {
        self.outgoing.lock().change(room, self.bus.partition_of(room.as_str()), change);
    }

    /// A room is followed here. If answers would not arrive yet, the snapshot is requested later.
    pub(super) fn follow(&self, room: &RoomId) {
        if self.is_subscribed(room.as_str()) {
            self.change(room, |changes| changes.asks = true);
        }
        self.follow_more();
    }

    /// Whether records about this room, or hints about this user, arrive here.
    pub(super) fn is_subscribed(&self, id: &str) -> bool {
        self.bus.is_subscribed(self.bus.partition_of(id))
    }

    /// Something is followed here that was not before: a room, or all rooms of a user.
    pub(super) fn follow_more(&self) {
        self.follows.notify_one();
    }

    /// The user's first subscription of the room here began, or the last one ended.
    pub(super) fn set_present(&self, room: &RoomId, user: &UserId, is_online: bool) {
        let partition = self.bus.partition_of(room.as_str());
        let mut outgoing = self.outgoing.lock();
        if let Some(lane) = outgoing.lanes.get_mut(partition as usize) {
            lane.present = if is_online { lane.present + 1 } else { lane.present.saturating_sub(1) };
        }
        outgoing.change(room, partition, |changes| changes.add_user(user));
    }

    pub(super) fn typing(&self, room: &RoomId, user: &UserId) {
        self.change(room, |changes| changes.add_typing(user));
    }

    pub(super) fn marked(&self, room: &RoomId, user: &UserId, mark: ReadMark) {
        if self.bus.lacks_marks() {
            self.change(room, |changes| changes.add_mark(user, mark));
        }
    }

    /// Writes the records that fit into a tick, and heartbeats that are due.
    fn write(&self, now: Duration) {
        let _writing = self.writing.lock();
        let bytes = self.bus.record_bytes().saturating_sub(ENVELOPE_BYTES);
        let records = self.outgoing.lock().next_records(now, self.bus.records_per_tick(), bytes);
        for OutgoingRecord { partition, n, entries } in records {
            self.bus.send(partition, record::write(self.node, n, false, &entries));
        }
    }
}

impl Hub {
    /// Starts the exchange with other servers. Call before any room is followed.
    pub(crate) fn enable_relay(&self, bus: Arc<dyn NodeBus>, random: &dyn RandomSource) {
        let outgoing = Mutex::new(Outgoing::new(bus.partitions()));
        let (writing, cursors, follows) = Default::default();
        let watches = Arc::new(tokio::sync::Semaphore::new(WATCHES_MAX));
        let node = random.next_u64();
        let _ = self.relay.set(Relay { node, bus, outgoing, writing, cursors, watches, follows });
    }

    /// Waits until a room is followed that was not before, or all rooms of a user.
    #[cfg(feature = "kafka")]
    pub(crate) async fn follows_more(&self) {
        match self.relay.get() {
            Some(relay) => relay.follows.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Writes what changed, and forgets servers that are gone. Called each [`TICK`].
    pub(crate) fn tick_relay(&self, now: Duration) {
        let Some(relay) = self.relay.get() else { return };
        self.repair(relay, now);
        let rooms = {
            let mut outgoing = relay.outgoing.lock();
            let waiting: usize = outgoing.lanes.iter().map(|lane| lane.entries.len()).sum();
            outgoing.take(ROOMS_PER_TICK.saturating_sub(waiting))
        };
        for (room, changes) in rooms {
            let entries = self.entries(relay, &room, changes, now);
            relay.outgoing.lock().extend(relay.bus.partition_of(room.as_str()), entries);
        }
        relay.queue_membership_hints();
        relay.queue_lost_joins(now);
        relay.write(now);
    }

    /// The entries of a room's changes, with its present state.
    fn entries(&self, relay: &Relay, room: &RoomId, changes: Changes, now: Duration) -> Vec<String> {
        let Changes { users, mut is_full, asks, typing, marks } = changes;
        let name = room.as_str();
        let (mut on, mut off, mut everybody, mut nodes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut is_early = false;
        self.with_channel(name, |channel| {
            nodes = channel.remote.nodes();
            if asks {
                channel.remote.requested_at.get_or_insert(now);
            }
            let is_present = |user: &UserId| channel.present.contains_key(user);
            (on, off) = users.iter().cloned().partition(is_present);
            let sent_at = channel.remote.sent_at;
            is_early = is_full && sent_at.is_some_and(|at| now.saturating_sub(at) < FULL_INTERVAL);
            if is_full && !is_early {
                everybody = channel.present.keys().cloned().collect();
                channel.remote.sent_at = Some(now);
            }
        })
        .unwrap_or_else(|| off = users.into_iter().collect());
        if is_early {
            is_full = false;
            relay.change(room, |changes| changes.is_full = true);
        }
        let mut entries = Vec::new();
        if asks {
            entries.push(Entry { ask: Some(nodes), ..Entry::of(name) }.to_json());
        }
        if is_full {
            let parts = everybody.len().div_ceil(USERS_PER_ENTRY).max(1);
            let part = |part: usize| {
                let users = everybody.iter().skip(part * USERS_PER_ENTRY).take(USERS_PER_ENTRY);
                Entry { full: Some((part, parts)), on: names(users), ..Entry::of(name) }.to_json()
            };
            entries.extend((0..parts).map(part));
        }
        for users in on.chunks(USERS_PER_ENTRY) {
            entries.push(Entry { on: names(users), ..Entry::of(name) }.to_json());
        }
        for users in off.chunks(USERS_PER_ENTRY) {
            entries.push(Entry { off: names(users), ..Entry::of(name) }.to_json());
        }
        if !typing.is_empty() {
            entries.push(Entry { typing: names(&typing), ..Entry::of(name) }.to_json());
        }
        let marks: Vec<_> = marks.iter().map(|(user, mark)| Entry::mark(user.as_str(), *mark)).collect();
        for marks in marks.chunks(USERS_PER_ENTRY / 2) {
            entries.push(Entry { marks: marks.to_vec(), ..Entry::of(name) }.to_json());
        }
        entries
    }

    /// Announces that this server stops, and its users are gone.
    #[cfg(feature = "kafka")]
    pub(crate) fn announce_shutdown(&self) {
        let Some(relay) = self.relay.get() else { return };
        let _writing = relay.writing.lock();
        for OutgoingRecord { partition, n, entries } in relay.outgoing.lock().last_records() {
            relay.bus.send(partition, record::write(relay.node, n, true, &entries));
        }
    }

    /// The users that are live in the room on any server. If nobody follows the room here, a snapshot is requested first.
    pub async fn present_everywhere(self: &Arc<Self>, room: &RoomId, clock: &dyn Clock) -> Vec<UserId> {
        let Some(relay) = self.relay.get() else { return self.present(room.as_str()) };
        let deadline = clock.monotonic() + ANSWER_TIME_MAX;
        if !self.is_followed(room.as_str())
            && let Ok(permit) = relay.watches.clone().try_acquire_owned()
        {
            self.follow_room(room, |_| {});
            let (hub, room) = (self.clone(), room.clone());
            tokio::spawn(async move {
                tokio::time::sleep(WATCH_TIME).await;
                hub.unfollow(room.as_str(), |_| {});
                drop(permit);
            });
        }
        while let Some(requested_at) = self.with_channel(room.as_str(), |channel| channel.remote.requested_at)
        {
            let answered_at = requested_at.map_or(deadline, |at| deadline.min(at + ANSWER_TIME));
            let rest = answered_at.saturating_sub(clock.monotonic());
            if rest.is_zero() {
                break;
            }
            tokio::time::sleep(rest.min(TICK)).await;
        }
        self.present(room.as_str())
    }
}

fn names<'a>(users: impl IntoIterator<Item = &'a UserId>) -> Vec<Cow<'a, str>> {
    users.into_iter().map(|user| Cow::Borrowed(user.as_str())).collect()
}

/// Writes what changed, until the task is aborted.
pub(crate) async fn run_relay(hub: Arc<Hub>, clock: Arc<dyn Clock>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        hub.tick_relay(clock.monotonic());
    }
}
