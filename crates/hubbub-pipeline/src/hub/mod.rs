//! Fan-out of committed messages to live subscribers.
//!
//! Path: the dispatcher hands in a batch that is durable → the messages of each room that somebody follows are
//! encoded once into one [`Run`] → the run goes, as a reference, into the bounded [`Outbox`] of each subscriber → the
//! subscriber's connection writes it to its socket. All outboxes together are bounded, too ([`LiveMemory`]).
//!
//! Joining without a gap: [`Hub::attach`] makes the room followed; the subscriber then reads the store page by page;
//! once a page that was read after the attach reached the end, it asks to go live ([`Hub::join`]). If nothing beyond
//! its cursor was published since, it is live. Otherwise it reads on, and its outbox holds what is published from then
//! on; at the end of that page, which has everything published before, [`Hub::join`] hands over what is held and makes
//! it live, under one lock. What is held may be given up at any time: then the subscriber reads the store again.
//! Nothing is kept for rooms that nobody catches up with.
//!
//! A batch is published in its order: what a change of members or rooms ends or begins ([`changes`]) happens between
//! the messages before it and those after it.
//!
//! Where other servers write to the same store, [`others`] finds what they committed and publishes it, too. Then a room's
//! messages go out only in an unbroken row: what this server committed after messages of others is left to be read from
//! the store together with them.
//!
//! Invariants
//! - Within one room a subscriber sees seqs strictly increasing, without a gap.
//! - Once a subscription has ended, nothing of the room is put into its outbox any more.
//! - Nothing here blocks on a socket: a full outbox is closed and its connection cut, the others go on.
//! - A room nobody follows costs a look into a map for each batch, nothing more.
//!
//! Not here: durability (`committer`), reading history (the store), WebSocket (the gateway passes `encode`).

mod changes;
mod channel;
mod memory;
mod others;
mod outbox;
mod run;
mod sockets;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hubbub_core::store::{Access, Read};
use hubbub_core::{Message, Op, OpBatch, Outcome, ReadMark, RoomId, UserId};
use parking_lot::Mutex;

use crate::batcher::Waiter;
use crate::metrics::Metrics;
use channel::{Channel, Joining, Subscriber};
pub use memory::LiveMemory;
use others::Behind;
pub(crate) use others::follow;
pub use outbox::{Delivery, Outbox, OutboxLimits, Parcel};
use run::{Fit, Published, Run, RunBuilder};
use sockets::Sockets;

/// How subscribers get what happens in a room.
#[derive(Debug, Clone, Copy)]
pub struct Encode {
    /// Appends one message.
    pub message: fn(&Message<'_>, &mut Vec<u8>),
    /// Appends something that is not kept.
    pub notice: fn(&Notice<'_>, &mut Vec<u8>),
}

/// What is told to those whom it concerns now, and to nobody later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'a> {
    /// Somebody's first subscription of the room began, or the last one ended.
    Presence {
        /// The room.
        room: &'a str,
        /// Who came or went.
        user: &'a str,
        /// Whether there is a subscription now.
        is_online: bool,
    },
    /// Somebody writes.
    Typing {
        /// The room.
        room: &'a str,
        /// Who.
        user: &'a str,
    },
    /// To all sockets of a user: the user's read mark moved.
    Read {
        /// The room.
        room: &'a str,
        /// Whose mark.
        user: &'a str,
        /// Where it stands now.
        mark: ReadMark,
    },
    /// To a subscriber: the subscription of the room ended here.
    Removed {
        /// The room.
        room: &'a str,
    },
}

/// Asks the store how a user stands to a room.
pub type AskAccess<'a> = dyn Fn(RoomId, UserId) -> Read<'a, Access> + Sync + 'a;

/// Shards of the room map: subscribing to one room rarely waits for the fan-out of another.
const SHARDS: usize = 64;

/// Live delivery on this node.
pub struct Hub {
    shards: Vec<Mutex<HashMap<RoomId, Channel>>>,
    hasher: RandomState,
    /// Rooms with a channel, so that a server nobody listens to skips the fan-out altogether.
    channels: AtomicUsize,
    sockets: Sockets,
    /// Where others write to the store, too: rooms of which messages are missing.
    behind: OnceLock<Behind>,
    encode: Encode,
    memory: Arc<LiveMemory>,
    metrics: Arc<Metrics>,
}

/// Keeps a room followed, and its holder subscribed once joined. Given back with [`Hub::detach`].
#[derive(Debug)]
#[must_use = "an attachment that is not detached keeps its room in the hub for ever"]
pub struct Attachment {
    room: RoomId,
}

/// What became of an attempt to go live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// From here on the outbox gets the messages.
    Live,
    /// More was published beyond the cursor: read on from there to the end, then try again.
    ReadOn,
    /// The subscription ended meanwhile, and the outbox says so.
    Ended,
}

impl Hub {
    /// A hub that shows messages by `encode`, of which those on their way take about `bytes_max` bytes at most.
    pub fn new(encode: Encode, bytes_max: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            channels: AtomicUsize::new(0),
            sockets: Sockets::default(),
            behind: OnceLock::new(),
            encode,
            memory: LiveMemory::new(bytes_max, metrics.clone()),
            metrics,
        }
    }

    /// The memory of what is on its way to subscribers.
    pub fn memory(&self) -> &Arc<LiveMemory> {
        &self.memory
    }

    /// An outbox for a connection that is woken through `waiter`.
    pub fn outbox(&self, limits: OutboxLimits, waiter: Arc<Waiter>) -> Arc<Outbox> {
        Outbox::new(limits, self.memory.clone(), waiter)
    }

    /// From now on expects that other servers write to the same store. To be called before anybody follows a room.
    pub(crate) fn expect_others(&self) -> &Behind {
        self.behind.get_or_init(Behind::default)
    }

    fn shard(&self, room: &str) -> Option<&Mutex<HashMap<RoomId, Channel>>> {
        let hash = self.hasher.hash_one(room);
        self.shards.get(usize::try_from(hash % SHARDS as u64).unwrap_or(0))
    }

    /// Has the hub take note of what is published in `room` from now on, for `outbox`, which belongs to `user` and does not
    /// follow the room yet. Once joined, `user` counts as present.
    pub fn attach(&self, room: RoomId, user: Option<UserId>, outbox: &Arc<Outbox>) -> Attachment {
        if let Some(shard) = self.shard(room.as_str()) {
            let mut channels = shard.lock();
            let channel = channels.entry(room.clone()).or_insert_with(|| {
                self.channels.fetch_add(1, Ordering::SeqCst);
                Channel::default()
            });
            channel.attached += 1;
            let outbox = outbox.clone();
            let (is_member, is_overtaken, is_held) = (false, false, false);
            channel.joining.push(Joining { outbox, user, is_member, is_overtaken, is_held });
        }
        Attachment { room }
    }

    /// Notes whether the user of a subscription that has not joined yet is a member, as the store said after the attach.
    /// `false` = another server's change of the room was taken in meanwhile: the store must be asked again.
    pub fn confirm(&self, attachment: &Attachment, outbox: &Arc<Outbox>, is_member: bool) -> bool {
        let note = |channel: &mut Channel| {
            let joining = channel.joining.iter_mut().find(|joining| Arc::ptr_eq(&joining.outbox, outbox));
            joining.is_none_or(|joining| {
                let is_certain = !(std::mem::take(&mut joining.is_overtaken) && is_member);
                joining.is_member |= is_certain && is_member;
                is_certain
            })
        };
        self.with_channel(attachment.room.as_str(), note).unwrap_or(true)
    }

    /// Makes `outbox` a live subscriber that has everything up to `cursor`, if it has or gets all that was published
    /// beyond. The caller has read the store to its end since the attach, or since it was told to read on.
    pub fn join(&self, attachment: &Attachment, outbox: &Arc<Outbox>, cursor: u64) -> Joined {
        let room = &attachment.room;
        let Some(shard) = self.shard(room.as_str()) else { return Joined::Ended };
        let mut channels = shard.lock();
        let Some(channel) = channels.get_mut(room.as_str()) else { return Joined::Ended };
        let Some(place) = channel.joining.iter().position(|j| Arc::ptr_eq(&j.outbox, outbox)) else {
            return Joined::Ended;
        };
        if outbox.is_cut() {
            // Its connection ends.
            channel.joining.swap_remove(place);
            return Joined::Live;
        }
        if self.behind.get().is_some() {
            channel.published.begin(cursor);
        }
        let is_current = channel.published.last <= cursor;
        let Some(after) = outbox.release_held(room, cursor).or(is_current.then_some(cursor)) else {
            if !outbox.holds(room) {
                outbox.hold_from(room, channel.published.last);
                if let Some(joining) = channel.joining.get_mut(place) {
                    joining.is_held = true;
                }
            }
            return Joined::ReadOn;
        };
        let Joining { outbox, user, is_member, .. } = channel.joining.swap_remove(place);
        channel.enter(self, room, Subscriber { outbox, user, is_member, after });
        self.metrics.subscriptions.inc();
        Joined::Live
    }

    /// Ends a subscription that has not joined yet, unless it has ended already; the outbox says so.
    pub fn end_joining(&self, attachment: &Attachment, outbox: &Arc<Outbox>) {
        let room = &attachment.room;
        self.with_channel(room.as_str(), |channel| {
            let place = channel.joining.iter().position(|joining| Arc::ptr_eq(&joining.outbox, outbox));
            if let Some(place) = place {
                channel.joining.swap_remove(place);
                outbox.drop_held(room.as_str());
                let run = self.notice_run(&Notice::Removed { room: room.as_str() });
                outbox.push(Delivery::Ended { room: room.clone(), notice: run.parcel_after(0) });
            }
        });
    }

    /// Ends a subscription, unless it has ended already, and gives the attachment back.
    pub fn detach(&self, attachment: Attachment, outbox: &Arc<Outbox>) {
        let room = &attachment.room;
        let Some(shard) = self.shard(room.as_str()) else { return };
        let mut channels = shard.lock();
        let Some(channel) = channels.get_mut(room.as_str()) else { return };
        if let Some(place) = channel.joining.iter().position(|j| Arc::ptr_eq(&j.outbox, outbox)) {
            channel.joining.swap_remove(place);
            outbox.drop_held(room.as_str());
        } else if let Some(place) = channel.subscribers.iter().position(|s| Arc::ptr_eq(&s.outbox, outbox)) {
            let gone = channel.subscribers.swap_remove(place);
            channel.leave(self, room.as_str(), &gone);
            self.metrics.subscriptions.dec();
        }
        channel.attached -= 1;
        if channel.attached == 0 {
            channels.remove(room.as_str());
            self.channels.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Forgets everything and cuts off all subscribers, who ask anew: what they have is of another history.
    pub fn begin_anew(&self) {
        for shard in &self.shards {
            for channel in shard.lock().values_mut() {
                (channel.published, channel.changes) = (Published::default(), None);
                channel.subscribers.iter().for_each(|subscriber| subscriber.outbox.cut());
                channel.joining.iter().for_each(|joining| joining.outbox.cut());
            }
        }
    }

    /// Tells the others who follow the room that `user`, whose outbox this is, writes.
    pub fn typing(&self, attachment: &Attachment, user: &UserId, outbox: &Arc<Outbox>) {
        let room = attachment.room.as_str();
        let Some(shard) = self.shard(room) else { return };
        if let Some(channel) = shard.lock().get_mut(room) {
            channel.tell(self, &Notice::Typing { room, user: user.as_str() }, outbox);
        }
    }

    /// Who follows the room live on this node, in the order of their ids.
    pub fn present(&self, room: &str) -> Vec<UserId> {
        let Some(shard) = self.shard(room) else { return Vec::new() };
        let mut users: Vec<UserId> = shard
            .lock()
            .get(room)
            .map(|channel| channel.present.keys().cloned().collect())
            .unwrap_or_default();
        users.sort_unstable();
        users
    }

    /// Delivers what a batch did. Called in the order of commits, by one task. The store is asked only for changes of
    /// rooms and members.
    pub async fn publish(&self, ops: &OpBatch, outcomes: &[Outcome], access: &AskAccess<'_>) {
        let is_change = |outcome: &Outcome| !matches!(outcome, Outcome::Stored(_) | Outcome::Duplicate(_));
        if self.channels.load(Ordering::SeqCst) == 0
            && (self.sockets.is_empty() || !outcomes.iter().any(is_change))
        {
            return;
        }
        // Per room of the batch: the run so far, or `None` when nobody follows the room.
        let mut rooms: HashMap<&str, Option<RunBuilder>> = HashMap::new();
        for (op, outcome) in ops.iter().zip(outcomes) {
            match (op, outcome) {
                (Op::Send(sent), Outcome::Stored(receipt)) => {
                    let run = rooms
                        .entry(sent.room)
                        .or_insert_with(|| self.is_followed(sent.room).then(RunBuilder::default));
                    if let Some(run) = run {
                        let message = Message { seq: receipt.seq, received_at: receipt.received_at, sent };
                        run.push(receipt.seq, |out| (self.encode.message)(&message, out));
                    }
                }
                (Op::Send(_) | Op::Queue(_) | Op::Kv(_), _) => {}
                (Op::Change(change), outcome) => {
                    // What came before it in its room goes out before it.
                    let run = change
                        .room()
                        .and_then(|room| Some((room, rooms.remove(room)??.finish(&self.memory)?)));
                    if let Some((room, run)) = run {
                        self.deliver(room, run);
                    }
                    self.publish_change(&change, outcome, access).await;
                }
            }
        }
        for (room, run) in rooms {
            if let Some(run) = run.and_then(|run| run.finish(&self.memory)) {
                self.deliver(room, run);
            }
        }
        self.memory.relieve();
    }

    fn with_channel<T>(&self, room: &str, look: impl FnOnce(&mut Channel) -> T) -> Option<T> {
        self.shard(room)?.lock().get_mut(room).map(look)
    }

    fn is_followed(&self, room: &str) -> bool {
        self.shard(room).is_some_and(|shard| shard.lock().contains_key(room))
    }

    /// Delivers what this server committed.
    fn deliver(&self, room: &str, run: Run) {
        let Some(behind) = self.behind.get() else {
            self.with_channel(room, |channel| self.push(channel, room, run));
            return;
        };
        let has_hole = self.with_channel(room, |channel| {
            let Fit { next, has_hole } = channel.published.fit(run);
            if let Some(run) = next {
                self.push(channel, room, run);
            }
            has_hole
        });
        if has_hole == Some(true) {
            behind.note(room);
        }
    }

    fn push(&self, channel: &mut Channel, room: &str, run: Run) {
        let mut cut = Vec::new();
        channel.subscribers.retain_mut(|subscriber| {
            if subscriber.after >= run.last_seq() {
                return true;
            }
            let is_open = subscriber.outbox.push(Delivery::Parcel(run.parcel_after(subscriber.after)));
            subscriber.after = run.last_seq();
            if !is_open {
                cut.push(subscriber.clone());
            }
            is_open
        });
        for gone in cut {
            self.metrics.slow_subscribers.inc();
            self.metrics.subscriptions.dec();
            channel.leave(self, room, &gone);
        }
        channel.hold(room, &run);
        channel.published.push(&run);
    }
}

#[cfg(test)]
mod tests;
