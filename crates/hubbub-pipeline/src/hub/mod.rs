//! Fan-out of committed messages to live subscribers.
//!
//! Path: the dispatcher hands in a batch that is durable → the messages of each room that somebody follows are
//! encoded once into one [`Run`] → the run goes into the room's recent ring and, as a reference, into the bounded
//! [`Outbox`] of each subscriber → the subscriber's connection writes it to its socket.
//!
//! Joining without a gap: [`Hub::attach`] makes the room keep its ring; the subscriber then reads the store page by
//! page; once a page that was read after the attach reached the end, [`Hub::join`] hands over what the ring has
//! beyond the cursor and makes it live, under one lock. If the ring has already dropped something beyond the cursor,
//! the subscriber reads on.
//!
//! Invariants
//! - Within one room a subscriber sees seqs strictly increasing, without a gap.
//! - Nothing here blocks on a socket: a full outbox is closed and its connection cut, the others go on.
//! - A room nobody follows costs a look into a map for each batch, nothing more.
//!
//! Not here: durability (`committer`), reading history (the store), WebSocket (the gateway passes `encode`).

mod outbox;
mod ring;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hubbub_core::{Message, Op, OpBatch, Outcome, RoomId, UserId};
use parking_lot::Mutex;

use crate::metrics::Metrics;
pub use outbox::{Outbox, OutboxLimits, Parcel};
use ring::Ring;
pub use ring::{Run, RunBuilder};

/// How subscribers get what happens in a room.
#[derive(Debug, Clone, Copy)]
pub struct Encode {
    /// Appends one message.
    pub message: fn(&Message<'_>, &mut Vec<u8>),
    /// Appends something that is not kept.
    pub notice: fn(&Notice<'_>, &mut Vec<u8>),
}

/// What is told to those who follow a room now, and to nobody later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'a> {
    /// Somebody's first subscription of the room began, or the last one ended.
    Presence {
        /// The room.
        room: &'a RoomId,
        /// Who came or went.
        user: &'a UserId,
        /// Whether there is a subscription now.
        is_online: bool,
    },
    /// Somebody writes.
    Typing {
        /// The room.
        room: &'a RoomId,
        /// Who.
        user: &'a UserId,
    },
}

/// Shards of the room map: subscribing to one room rarely waits for the fan-out of another.
const SHARDS: usize = 64;

/// Live delivery on this node.
pub struct Hub {
    shards: Vec<Mutex<HashMap<RoomId, Channel>>>,
    hasher: RandomState,
    /// Rooms with a channel, so that a server nobody listens to skips the fan-out altogether.
    channels: AtomicUsize,
    encode: Encode,
    metrics: Arc<Metrics>,
}

/// One room that is followed.
#[derive(Default)]
struct Channel {
    ring: Ring,
    subscribers: Vec<Subscriber>,
    /// How many [`Attachment`]s hold it.
    attached: usize,
    /// Who follows it live, and with how many subscriptions.
    present: HashMap<UserId, usize>,
}

struct Subscriber {
    outbox: Arc<Outbox>,
    /// Seq of the last message it has; earlier ones are not sent again.
    after: u64,
}

/// Keeps a room's ring alive, and its holder subscribed once joined. Given back with [`Hub::detach`].
#[derive(Debug)]
#[must_use = "an attachment that is not detached keeps its room in the hub for ever"]
pub struct Attachment {
    room: RoomId,
    user: Option<UserId>,
    is_live: bool,
}

impl Hub {
    /// A hub that shows messages by `encode`.
    pub fn new(encode: Encode, metrics: Arc<Metrics>) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, hasher: RandomState::new(), channels: AtomicUsize::new(0), encode, metrics }
    }

    fn shard(&self, room: &str) -> Option<&Mutex<HashMap<RoomId, Channel>>> {
        let hash = self.hasher.hash_one(room);
        self.shards.get(usize::try_from(hash % SHARDS as u64).unwrap_or(0))
    }

    /// Has the hub remember what is published in `room` from now on. Once joined, `user` counts as present.
    pub fn attach(&self, room: RoomId, user: Option<UserId>) -> Attachment {
        if let Some(shard) = self.shard(room.as_str()) {
            let mut channels = shard.lock();
            let channel = channels.entry(room.clone()).or_insert_with(|| {
                self.channels.fetch_add(1, Ordering::SeqCst);
                Channel::default()
            });
            channel.attached += 1;
        }
        Attachment { room, user, is_live: false }
    }

    /// Makes `outbox` a live subscriber that has everything up to `cursor`, if the ring still holds all beyond it.
    /// The caller has read the store to its end after the attach. `false`: read on from `cursor`, then try again.
    pub fn join(&self, attachment: &mut Attachment, outbox: &Arc<Outbox>, cursor: u64) -> bool {
        let Some(shard) = self.shard(attachment.room.as_str()) else { return false };
        let mut channels = shard.lock();
        let Some(channel) = channels.get_mut(attachment.room.as_str()) else { return false };
        let Some(missed) = channel.ring.after(cursor) else { return false };
        let mut after = cursor;
        for run in missed {
            after = run.last_seq();
            if !outbox.push(run.parcel_after(cursor)) {
                self.metrics.slow_subscribers.inc();
                return true;
            }
        }
        attachment.is_live = true;
        if let Some(user) = &attachment.user {
            let subscriptions = channel.present.entry(user.clone()).or_default();
            *subscriptions += 1;
            if *subscriptions == 1 {
                let notice = Notice::Presence { room: &attachment.room, user, is_online: true };
                channel.tell(&self.encode, &notice, outbox);
            }
        }
        channel.subscribers.push(Subscriber { outbox: outbox.clone(), after });
        self.metrics.subscriptions.inc();
        true
    }

    /// Ends a subscription and gives the attachment back.
    pub fn detach(&self, attachment: Attachment, outbox: &Arc<Outbox>) {
        let Some(shard) = self.shard(attachment.room.as_str()) else { return };
        let mut channels = shard.lock();
        let Some(channel) = channels.get_mut(attachment.room.as_str()) else { return };
        if let Some(place) = channel.subscribers.iter().position(|s| Arc::ptr_eq(&s.outbox, outbox)) {
            channel.subscribers.swap_remove(place);
            self.metrics.subscriptions.dec();
        }
        if let Some(user) = attachment.user.as_ref().filter(|_| attachment.is_live)
            && let Some(subscriptions) = channel.present.get_mut(user)
        {
            *subscriptions -= 1;
            if *subscriptions == 0 {
                channel.present.remove(user);
                let notice = Notice::Presence { room: &attachment.room, user, is_online: false };
                channel.tell(&self.encode, &notice, outbox);
            }
        }
        channel.attached -= 1;
        if channel.attached == 0 {
            channels.remove(attachment.room.as_str());
            self.channels.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Tells the others who follow the room that the attachment's user writes.
    pub fn typing(&self, attachment: &Attachment, outbox: &Arc<Outbox>) {
        let (Some(shard), Some(user)) = (self.shard(attachment.room.as_str()), &attachment.user) else {
            return;
        };
        if let Some(channel) = shard.lock().get_mut(attachment.room.as_str()) {
            channel.tell(&self.encode, &Notice::Typing { room: &attachment.room, user }, outbox);
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

    /// Delivers what a batch stored. Called in the order of commits, by one task.
    pub fn publish(&self, ops: &OpBatch, outcomes: &[Outcome]) {
        if self.channels.load(Ordering::SeqCst) == 0 {
            return;
        }
        // Per room of the batch: the run so far, or `None` when nobody follows the room.
        let mut rooms: HashMap<&str, Option<RunBuilder>> = HashMap::new();
        for (op, outcome) in ops.iter().zip(outcomes) {
            let (Op::Send(sent), Outcome::Stored(receipt)) = (op, outcome) else { continue };
            let run = rooms
                .entry(sent.room)
                .or_insert_with(|| self.is_followed(sent.room).then(RunBuilder::default));
            if let Some(run) = run {
                let message = Message { seq: receipt.seq, received_at: receipt.received_at, sent };
                run.push(receipt.seq, |out| (self.encode.message)(&message, out));
            }
        }
        for (room, run) in rooms {
            if let Some(run) = run.and_then(RunBuilder::finish) {
                self.deliver(room, run);
            }
        }
    }

    fn is_followed(&self, room: &str) -> bool {
        self.shard(room).is_some_and(|shard| shard.lock().contains_key(room))
    }

    fn deliver(&self, room: &str, run: Run) {
        let Some(shard) = self.shard(room) else { return };
        let mut channels = shard.lock();
        let Some(channel) = channels.get_mut(room) else { return };
        channel.subscribers.retain_mut(|subscriber| {
            if subscriber.after >= run.last_seq() {
                return true;
            }
            let is_open = subscriber.outbox.push(run.parcel_after(subscriber.after));
            subscriber.after = run.last_seq();
            if !is_open {
                self.metrics.slow_subscribers.inc();
                self.metrics.subscriptions.dec();
            }
            is_open
        });
        channel.ring.push(run);
    }
}

impl Channel {
    /// Sends a notice to all subscribers but the one it comes from. One whose outbox it fills up is cut off with the
    /// next message.
    fn tell(&self, encode: &Encode, notice: &Notice<'_>, from: &Arc<Outbox>) {
        let mut frame = Vec::new();
        (encode.notice)(notice, &mut frame);
        let run = Run::of_notice(frame);
        for subscriber in self.subscribers.iter().filter(|s| !Arc::ptr_eq(&s.outbox, from)) {
            subscriber.outbox.push(run.parcel_after(0));
        }
    }
}

#[cfg(test)]
mod tests;
