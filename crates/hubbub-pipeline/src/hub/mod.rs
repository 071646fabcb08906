//! Fan-out of committed messages to live subscribers.
//!
//! Path: the dispatcher passes a durable batch → the messages of each followed room are encoded once, into one
//! [`EncodedChunk`] → each subscriber's bounded [`Outbox`] gets a reference to it → the subscriber's connection writes it
//! to its socket. All outboxes together are bounded, too ([`LiveMemory`]).
//!
//! Joining without a gap: [`Hub::attach`] makes the room followed. The subscriber then reads the store page by page.
//! When a page that was read after the attach reaches the end, it asks to go live ([`Hub::join`]). If nothing beyond
//! its cursor was published meanwhile, it is live. Otherwise it reads another page, and its outbox holds everything
//! published from then on. That page ends with everything published before. At its end [`Hub::join`] delivers the held
//! messages and makes the subscriber live, under one lock. Held messages may be dropped at any time; then the
//! subscriber reads the store again. Rooms in which nobody catches up hold nothing.
//!
//! A batch is published in its order: a change of members or rooms ([`changes`]) takes effect between the messages
//! before it and those after it.
//!
//! Where other servers write to the same store, [`remote`] finds and publishes what they commit. A room's messages are
//! then published only as a contiguous sequence: this server's messages behind a gap are read from the store, together
//! with the missing ones. [`joins`] finds rooms that users join there, and [`membership_checks`] checks users that were removed there.
//!
//! Invariants
//! - Within one room a subscriber sees seqs strictly increasing, without a gap.
//! - After a subscription has ended, its outbox gets nothing more of the room.
//! - Nothing here blocks on a socket: a full outbox is closed and its connection cut, the others go on.
//! - A room that nobody follows costs one map lookup for each batch.
//!
//! Not here: durability (`committer`), history (the store), WebSocket frames (the gateway passes [`FrameEncoder`]).

mod changes;
mod channel;
mod deliver;
mod encoded;
mod joins;
mod membership_checks;
mod memory;
mod notice;
mod outbox;
mod presence;
mod relay;
mod remote;
mod sample;
mod sockets;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hubbub_core::clock::Clock;
use hubbub_core::store::{Access, Read};
use hubbub_core::{Message, Op, OpBatch, Outcome, RoomChange, RoomId, UserId};
use parking_lot::{Mutex, MutexGuard};

use crate::batcher::Waiter;
use crate::metrics::Metrics;
use crate::timeline::{Source, Timeline};
use channel::{Channel, Stage, Subscriber};
use encoded::ChunkEncoder;
pub use encoded::EncodedChunk;
pub(crate) use joins::follow_joins;
use joins::{Join, Joins};
use membership_checks::RoomsToCheck;
pub(crate) use membership_checks::run_checks;
pub use memory::LiveMemory;
pub use notice::{FrameEncoder, Notice};
pub use outbox::{Delivery, Outbox, OutboxLimits};
use presence::RoomsToTell;
pub(crate) use presence::tell_presence;
use relay::Relay;
pub use relay::relay_over_store;
#[cfg(feature = "kafka")]
pub(crate) use relay::{NodeBus, run_relay};
use remote::RoomsBehind;
pub(crate) use remote::follow_remote;
use sockets::Sockets;

/// Queries the store for a user's access to a room.
pub type QueryAccess<'a> = dyn Fn(RoomId, UserId) -> Read<'a, Access> + Sync + 'a;

/// Shards of the room map, so that subscribing to one room rarely waits for the fan-out of another.
const SHARDS: usize = 64;

/// Live delivery on this server.
pub struct Hub {
    shards: [Mutex<HashMap<RoomId, Channel>>; SHARDS],
    hasher: RandomState,
    /// Number of followed rooms; at 0 the fan-out is skipped.
    followed: AtomicUsize,
    /// Number of subscriptions that there have been.
    attached: AtomicU64,
    sockets: Sockets,
    /// What other servers may have added to the rooms of users.
    joins: Joins,
    /// Rooms that other servers may have removed users from.
    to_check: RoomsToCheck,
    rooms_to_tell: RoomsToTell,
    /// How many epochs of the store have begun: the number of the current one.
    epoch_number: AtomicU64,
    /// Set where other servers write to the store: rooms with messages that are not published yet.
    behind: OnceLock<RoomsBehind>,
    /// Set where other servers are told who is in the rooms.
    relay: OnceLock<Relay>,
    encoder: FrameEncoder,
    memory: Arc<LiveMemory>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    timeline: Timeline,
}

/// Keeps a room followed, and its holder subscribed after a join. Released by [`Hub::detach`].
#[derive(Debug)]
#[must_use = "an attachment that is not detached keeps its room in the hub forever"]
pub struct Attachment {
    room: RoomId,
    /// That of its subscriber.
    number: u64,
}

/// Result of an attempt to go live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// From here on the outbox gets the room's messages.
    Live,
    /// Messages beyond the cursor were published: read the store to its end, then try again.
    ReadOn,
    /// The subscription ended meanwhile; the outbox has the notice.
    Ended,
}

impl Hub {
    /// A hub whose undelivered messages take about `bytes_max` bytes at most.
    pub fn new(
        encoder: FrameEncoder,
        bytes_max: usize,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            followed: AtomicUsize::new(0),
            attached: AtomicU64::new(0),
            sockets: Sockets::default(),
            joins: Joins::default(),
            to_check: RoomsToCheck::default(),
            rooms_to_tell: RoomsToTell::default(),
            epoch_number: AtomicU64::new(0),
            behind: OnceLock::new(),
            relay: OnceLock::new(),
            encoder,
            memory: LiveMemory::new(bytes_max, metrics.clone()),
            clock,
            metrics,
            timeline: Timeline::default(),
        }
    }

    /// Records what becomes of messages.
    pub fn with_timeline(self, timeline: Timeline) -> Self {
        Self { timeline, ..self }
    }

    /// What became of messages.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The memory of undelivered messages.
    pub fn memory(&self) -> &Arc<LiveMemory> {
        &self.memory
    }

    /// A new outbox for the connection that `waiter` wakes.
    pub fn outbox(&self, limits: OutboxLimits, waiter: Arc<Waiter>) -> Arc<Outbox> {
        Outbox::new(limits, self.memory.clone(), waiter)
    }

    /// Prepares for other servers that write to the same store. Call before any room is followed.
    pub(crate) fn enable_remote(&self) -> &RoomsBehind {
        self.behind.get_or_init(RoomsBehind::default)
    }

    /// The followed rooms of the shard that `room` belongs to.
    #[expect(clippy::indexing_slicing, reason = "the remainder is less than the number of shards")]
    fn channels(&self, room: &str) -> MutexGuard<'_, HashMap<RoomId, Channel>> {
        let [byte, ..] = self.hasher.hash_one(room).to_le_bytes();
        self.shards[usize::from(byte) % SHARDS].lock()
    }

    /// Makes `room` followed, for an `outbox` of `user` that does not follow it yet. After the join, `user` counts as
    /// present.
    pub fn attach(&self, room: RoomId, user: Option<UserId>, outbox: &Arc<Outbox>) -> Attachment {
        let stage = Stage::Joining { is_overtaken: false, is_held: false };
        let number = self.attached.fetch_add(1, Ordering::SeqCst);
        let subscriber = Subscriber { number, outbox: outbox.clone(), user, is_member: false, stage };
        self.follow_room(&room, |channel| channel.subscribers.push(subscriber));
        Attachment { room, number }
    }

    /// Makes `room` followed, until [`Hub::unfollow`].
    fn follow_room(&self, room: &RoomId, begin: impl FnOnce(&mut Channel)) {
        let mut channels = self.channels(room.as_str());
        let channel = channels.entry(room.clone()).or_insert_with(|| {
            self.followed.fetch_add(1, Ordering::SeqCst);
            let relay = self.relay.get();
            relay.into_iter().for_each(|relay| relay.follow(room));
            // Whoever follows it asks the store for access after this, and the bus brings what changes from now on.
            let is_compared = relay.is_none_or(|relay| relay.is_subscribed(room.as_str()));
            Channel { is_compared, missed: self.misses(), ..Channel::default() }
        });
        channel.attached += 1;
        begin(channel);
    }

    /// Releases an attachment of a room, once what it had in the channel has ended.
    fn unfollow(&self, room: &str, end: impl FnOnce(&mut Channel)) {
        let mut channels = self.channels(room);
        let Some(channel) = channels.get_mut(room) else { return };
        end(channel);
        channel.attached -= 1;
        if channel.attached == 0 {
            self.metrics.presence_remote.dec_by(channel.remote.len());
            channels.remove(room);
            self.followed.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Records whether the user of a subscription that has not joined yet is a member, as read from the store after the
    /// attach. Returns false when another server's change of the room was applied meanwhile: query the store again.
    pub fn confirm(&self, attachment: &Attachment, outbox: &Arc<Outbox>, is_member: bool) -> bool {
        let confirm = |channel: &mut Channel| {
            let joining = channel.subscribers.iter_mut().find(|subscriber| subscriber.is_joining(outbox))?;
            let Stage::Joining { is_overtaken, .. } = &mut joining.stage else { return None };
            let is_certain = !(std::mem::take(is_overtaken) && is_member);
            joining.is_member |= is_certain && is_member;
            Some(is_certain)
        };
        self.with_channel(attachment.room.as_str(), confirm).flatten().unwrap_or(true)
    }

    /// Makes `outbox`, which has everything up to `cursor`, a live subscriber, if nothing published since is missing.
    /// The caller has read the store to its end since the attach, or since the last [`Joined::ReadOn`].
    pub fn join(&self, attachment: &Attachment, outbox: &Arc<Outbox>, cursor: u64) -> Joined {
        let room = &attachment.room;
        let mut channels = self.channels(room.as_str());
        let Some(channel) = channels.get_mut(room.as_str()) else { return Joined::Ended };
        let Channel { published, subscribers, .. } = &mut *channel;
        let joining = subscribers.iter_mut().find(|subscriber| subscriber.is_joining(outbox));
        let Some(subscriber) = joining else { return Joined::Ended };
        if outbox.is_cut() {
            // Its connection is about to end.
            return Joined::Live;
        }
        if self.behind.get().is_some() {
            published.begin(cursor);
        }
        let is_current = published.last <= cursor;
        let Some(after) = outbox.take_held(room, cursor).or(is_current.then_some(cursor)) else {
            if let Stage::Joining { is_held, .. } = &mut subscriber.stage
                && !outbox.holds(room)
            {
                outbox.hold_from(room, published.last);
                *is_held = true;
            }
            return Joined::ReadOn;
        };
        subscriber.stage = Stage::Live { after };
        let user = subscriber.user.clone();
        channel.count_presence(self, room.as_str(), &user, outbox, true);
        drop(channels);
        self.metrics.subscriptions.inc();
        self.memory.enforce_bound();
        Joined::Live
    }

    /// Ends a subscription that has not joined yet, with a notice in its outbox. Does nothing if it has ended already.
    pub fn end_joining(&self, attachment: &Attachment, outbox: &Arc<Outbox>) {
        self.end(attachment.room.as_str(), |subscriber| subscriber.is_joining(outbox));
    }

    /// Ends a subscription, unless it has ended already, and releases the attachment.
    pub fn detach(&self, attachment: Attachment) {
        let room = attachment.room.as_str();
        // The same outbox may have subscribed anew.
        let is_own = |subscriber: &Subscriber| subscriber.number == attachment.number;
        self.unfollow(room, |channel| {
            if let Some(index) = channel.subscribers.iter().position(is_own) {
                let gone = channel.subscribers.swap_remove(index);
                self.release(channel, room, &gone);
            }
        });
        self.memory.enforce_bound();
    }

    /// Releases what a removed subscriber held or counted.
    fn release(&self, channel: &mut Channel, room: &str, gone: &Subscriber) {
        match gone.stage {
            Stage::Joining { .. } => gone.outbox.drop_held(room),
            Stage::Live { .. } => {
                self.metrics.subscriptions.dec();
                channel.count_presence(self, room, &gone.user, &gone.outbox, false);
            }
        }
    }

    /// Clears all published positions and cuts all subscribers, who reconnect: the store's history was replaced. What is
    /// being published of the one before reaches nobody any more.
    pub fn reset(&self) {
        self.epoch_number.fetch_add(1, Ordering::SeqCst);
        self.timeline.clear();
        for shard in &self.shards {
            for channel in shard.lock().values_mut() {
                channel.reset();
                channel.subscribers.iter().for_each(|subscriber| subscriber.outbox.cut());
            }
        }
    }

    /// The number of the store's current epoch, counted by this hub.
    pub(crate) fn epoch_number(&self) -> u64 {
        self.epoch_number.load(Ordering::SeqCst)
    }

    /// Publishes a batch that was committed in the store's epoch of this number. Called in the order of commits, by one task.
    /// Queries the store only for changes of rooms and members.
    pub(crate) async fn publish(
        &self,
        ops: &OpBatch,
        outcomes: &[Outcome],
        access: &QueryAccess<'_>,
        epoch_number: u64,
    ) {
        let has_listeners = || !self.sockets.is_empty() || self.relay.get().is_some();
        if self.followed.load(Ordering::SeqCst) == 0
            && !(outcomes.iter().any(Outcome::may_change_rooms) && has_listeners())
        {
            return;
        }
        let mut joins = Vec::new();
        // For each room of the batch: its messages so far, or `None` when nobody follows the room.
        let mut rooms: HashMap<&str, Option<ChunkEncoder>> = HashMap::new();
        for (op, outcome) in ops.iter().zip(outcomes) {
            match (op, outcome) {
                (Op::Send(sent), Outcome::Stored(receipt)) => {
                    let is_followed = || self.is_followed(sent.room).then(ChunkEncoder::default);
                    if let Some(encoder) = rooms.entry(sent.room).or_insert_with(is_followed) {
                        let message = Message { seq: receipt.seq, received_at: receipt.received_at, sent };
                        encoder.push_behind(receipt.prev(), receipt.seq, |out| {
                            (self.encoder.message)(&message, out)
                        });
                    }
                }
                (Op::Send(_) | Op::Queue(_) | Op::Kv(_), _) => {}
                (Op::Change(change), outcome) => {
                    // The room's earlier messages of the batch go out before the change.
                    if let Some(room) = change.room() {
                        self.deliver(room, rooms.remove(room).flatten(), Source::Commit, epoch_number);
                    }
                    if matches!(outcome, Outcome::Accepted)
                        && !matches!(change.what, RoomChange::MarkRead { .. })
                    {
                        // Executed before, by a server that may not have come to tell what it changed.
                        self.expect_comparison(change.room());
                    }
                    self.publish_change(&change, outcome, access).await;
                    self.broadcast_left(&change, outcome);
                    joins.extend(Join::of(&change, outcome).filter(|_| self.relay.get().is_some()));
                }
            }
        }
        for (room, encoder) in rooms {
            self.deliver(room, encoder, Source::Commit, epoch_number);
        }
        self.broadcast_joined(joins, access).await;
        self.memory.enforce_bound();
    }

    fn with_channel<T>(&self, room: &str, f: impl FnOnce(&mut Channel) -> T) -> Option<T> {
        self.channels(room).get_mut(room).map(f)
    }

    /// Whether somebody on this server follows the room.
    pub(crate) fn is_followed(&self, room: &str) -> bool {
        self.channels(room).contains_key(room)
    }
}

#[cfg(test)]
mod tests;
