//! What waits to be written to one subscriber's socket: bounded, and closed for good when it overflows.
//!
//! While a subscriber reads the last page of a room that it catches up with, what is published meanwhile is held here,
//! too, for that one room; it can be given up, because the subscriber can read it from the store.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use hubbub_core::RoomId;
use parking_lot::Mutex;

use super::memory::{LiveMemory, SMALL_BYTES};
use super::run::Run;
use crate::batcher::Waiter;

/// How much one subscriber may lag behind before it is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxLimits {
    /// Messages.
    pub messages: usize,
    /// Bytes. They are shared among all subscribers of a room.
    pub bytes: usize,
}

impl Default for OutboxLimits {
    fn default() -> Self {
        Self { messages: 16_384, bytes: 8 * 1024 * 1024 }
    }
}

/// Messages of one room, encoded, on their way to one subscriber.
#[derive(Debug, Clone)]
pub struct Parcel {
    run: Run,
    /// How many of the run's first messages the subscriber has already.
    skipped: usize,
}

impl Parcel {
    pub(super) fn new(run: Run, skipped: usize) -> Self {
        Self { run, skipped }
    }

    /// Whole frames, one after another.
    pub fn frames(&self) -> Bytes {
        self.run.frames.slice(self.start()..)
    }

    /// How many messages they are.
    pub fn messages(&self) -> usize {
        self.run.ends.len() - self.skipped
    }

    /// The seq of each message, and its frame.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut start = self.start();
        self.run.ends.iter().skip(self.skipped).map(move |(seq, end)| {
            let frame = self.run.frames.get(start..*end).unwrap_or_default();
            start = *end;
            (*seq, frame)
        })
    }

    fn bytes(&self) -> usize {
        self.run.frames.len() - self.start()
    }

    fn start(&self) -> usize {
        let last_skipped = self.skipped.checked_sub(1).and_then(|last| self.run.ends.get(last));
        last_skipped.map_or(0, |(_, end)| *end)
    }
}

/// What a connection is given.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// Frames for the peer.
    Parcel(Parcel),
    /// The subscription of a room ended here; nothing of it follows.
    Ended {
        /// The room.
        room: RoomId,
        /// What to tell the peer.
        notice: Parcel,
    },
    /// The user was made a member of a room. Only for those who want all rooms of the user.
    Joined {
        /// The room.
        room: RoomId,
        /// The read mark it began with.
        read_seq: u64,
    },
}

impl Delivery {
    fn messages(&self) -> usize {
        if let Self::Parcel(parcel) = self { parcel.messages() } else { 0 }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Parcel(parcel) => parcel.bytes(),
            Self::Ended { room, notice } => room.as_str().len() + notice.bytes(),
            Self::Joined { room, .. } => room.as_str().len() + size_of::<Self>(),
        }
    }
}

/// The backlog of one connection.
#[derive(Debug)]
pub struct Outbox {
    backlog: Mutex<Backlog>,
    waiter: Arc<Waiter>,
    limits: OutboxLimits,
    memory: Arc<LiveMemory>,
    this: Weak<Outbox>,
    /// Whether the memory has it in its list of large ones.
    is_listed: AtomicBool,
}

#[derive(Debug, Default)]
struct Backlog {
    deliveries: VecDeque<Delivery>,
    /// What was published in a room whose subscriber reads the last page of what it missed.
    held: Option<Held>,
    /// Messages and bytes of deliveries and of what is held.
    messages: usize,
    bytes: usize,
    /// Deliveries that were ever taken.
    taken: u64,
    /// Bytes of the queue's slots that are charged.
    charged: usize,
    is_cut: bool,
}

/// What was published in a room since its subscriber last asked to go live.
#[derive(Debug)]
struct Held {
    room: RoomId,
    /// Everything published beyond this seq is here.
    after: u64,
    runs: Vec<Run>,
    messages: usize,
    bytes: usize,
}

/// Slots of an empty queue that are kept, and cost nothing.
const FREE_SLOTS: usize = 16;
/// What a run has for each message besides its frame.
const END_BYTES: usize = size_of::<(u64, usize)>();

impl Backlog {
    fn is_over(&self, limits: OutboxLimits, messages: usize, bytes: usize) -> bool {
        self.messages.saturating_add(messages) > limits.messages
            || self.bytes.saturating_add(bytes) > limits.bytes
    }

    fn enqueue(&mut self, delivery: Delivery, memory: &LiveMemory) {
        self.deliveries.push_back(delivery);
        self.charge_slots(memory);
    }

    /// Charges what the queue has grown or shrunk by.
    fn charge_slots(&mut self, memory: &LiveMemory) {
        let slots = self.deliveries.capacity();
        let bytes = if slots > FREE_SLOTS { slots * size_of::<Delivery>() } else { 0 };
        match bytes.cmp(&self.charged) {
            Ordering::Greater => memory.charge(bytes - self.charged),
            Ordering::Less => memory.release(self.charged - bytes),
            Ordering::Equal => {}
        }
        self.charged = bytes;
    }

    /// Drops what is held; how much memory that took.
    fn drop_held(&mut self) -> usize {
        let Some(held) = self.held.take() else { return 0 };
        self.messages -= held.messages;
        self.bytes -= held.bytes;
        held.bytes + held.messages * END_BYTES
    }

    fn memory_bytes(&self) -> usize {
        self.bytes + self.messages * END_BYTES + self.charged
    }

    fn cut(&mut self, memory: &LiveMemory) {
        memory.release(self.charged);
        *self = Self { is_cut: true, ..Self::default() };
    }
}

impl Outbox {
    /// An empty backlog, part of `memory`, whose connection is woken through `waiter`.
    pub fn new(limits: OutboxLimits, memory: Arc<LiveMemory>, waiter: Arc<Waiter>) -> Arc<Self> {
        let (backlog, is_listed) = (Mutex::default(), AtomicBool::new(false));
        Arc::new_cyclic(|this| Self { backlog, waiter, limits, memory, this: this.clone(), is_listed })
    }

    /// Adds something; `false` when the subscriber lags too far behind, which closes the outbox for good. An empty
    /// outbox takes anything.
    pub fn push(&self, delivery: Delivery) -> bool {
        let mut backlog = self.backlog.lock();
        let (messages, bytes) = (delivery.messages(), delivery.bytes());
        if backlog.is_over(self.limits, messages, bytes) && backlog.held.is_some() {
            self.memory.count_eviction();
            backlog.drop_held();
        }
        let is_over = !backlog.deliveries.is_empty() && backlog.is_over(self.limits, messages, bytes);
        if is_over && !backlog.is_cut {
            backlog.cut(&self.memory);
        } else if !backlog.is_cut {
            backlog.messages += messages;
            backlog.bytes += bytes;
            backlog.enqueue(delivery, &self.memory);
        }
        let (is_open, was_empty) = (!backlog.is_cut, backlog.deliveries.len() <= 1);
        let bytes = backlog.memory_bytes();
        drop(backlog);
        if was_empty {
            self.waiter.wake();
        }
        self.list_if_large(bytes);
        is_open
    }

    fn list_if_large(&self, bytes: usize) {
        if bytes >= SMALL_BYTES && !self.is_listed.swap(true, Relaxed) {
            self.memory.list(self.this.clone());
        }
    }

    /// Closes it for good, as if the subscriber lagged too far behind: its connection ends, and it asks anew.
    pub fn cut(&self) {
        self.backlog.lock().cut(&self.memory);
        self.waiter.wake();
    }

    /// Takes the oldest delivery.
    pub fn pop(&self) -> Option<Delivery> {
        let mut backlog = self.backlog.lock();
        let delivery = backlog.deliveries.pop_front()?;
        backlog.messages -= delivery.messages();
        backlog.bytes -= delivery.bytes();
        backlog.taken += 1;
        if backlog.deliveries.is_empty() && backlog.charged > 0 {
            backlog.deliveries = VecDeque::new();
            backlog.charge_slots(&self.memory);
        }
        Some(delivery)
    }

    /// The end of what it holds now, for [`Self::has_passed`].
    pub fn end(&self) -> u64 {
        let backlog = self.backlog.lock();
        backlog.taken + backlog.deliveries.len() as u64
    }

    /// Whether everything up to `end` was taken, or is lost because the subscriber was cut off.
    pub fn has_passed(&self, end: u64) -> bool {
        let backlog = self.backlog.lock();
        backlog.is_cut || backlog.taken >= end
    }

    /// Whether the subscriber lagged too far behind and gets nothing any more.
    pub fn is_cut(&self) -> bool {
        self.backlog.lock().is_cut
    }

    /// From now on holds what is published in `room`, all of it beyond `after`, and no longer what it held before.
    pub(super) fn hold_from(&self, room: &RoomId, after: u64) {
        let mut backlog = self.backlog.lock();
        backlog.drop_held();
        if !backlog.is_cut {
            backlog.held = Some(Held { room: room.clone(), after, runs: Vec::new(), messages: 0, bytes: 0 });
        }
    }

    /// Holds what was published in `room`; `false` when it holds nothing of the room, or now gives up: the subscriber
    /// reads it from the store. What is held alone may be of any size.
    pub(super) fn hold(&self, room: &str, run: &Run) -> bool {
        let mut backlog = self.backlog.lock();
        let (messages, bytes) = (run.ends.len(), run.frames.len());
        let is_over = backlog.is_over(self.limits, messages, bytes) || self.memory.is_exceeded();
        let Some(held) = backlog.held.as_mut().filter(|held| held.room.as_str() == room) else {
            return false;
        };
        if is_over && !held.runs.is_empty() {
            self.memory.count_eviction();
            backlog.drop_held();
            return false;
        }
        held.runs.push(run.clone());
        held.messages += messages;
        held.bytes += bytes;
        backlog.messages += messages;
        backlog.bytes += bytes;
        let bytes = backlog.memory_bytes();
        drop(backlog);
        self.list_if_large(bytes);
        true
    }

    /// Has the connection get what is held of `room` beyond `cursor`; the seq of the last message it has then. `None`
    /// when not all of that is held.
    pub(super) fn release_held(&self, room: &RoomId, cursor: u64) -> Option<u64> {
        let mut backlog = self.backlog.lock();
        backlog.held.as_ref().filter(|held| held.room == *room && cursor >= held.after)?;
        let held = backlog.held.take()?;
        backlog.messages -= held.messages;
        backlog.bytes -= held.bytes;
        let mut after = cursor;
        for run in held.runs.iter().filter(|run| run.last_seq() > cursor) {
            after = run.last_seq();
            let delivery = Delivery::Parcel(run.parcel_after(cursor));
            backlog.messages += delivery.messages();
            backlog.bytes += delivery.bytes();
            backlog.enqueue(delivery, &self.memory);
        }
        drop(backlog);
        self.waiter.wake();
        Some(after)
    }

    /// Whether it holds what is published in `room`.
    pub(super) fn holds(&self, room: &RoomId) -> bool {
        self.backlog.lock().held.as_ref().is_some_and(|held| held.room == *room)
    }

    /// Drops what is held of `room`.
    pub(super) fn drop_held(&self, room: &str) {
        let mut backlog = self.backlog.lock();
        if backlog.held.as_ref().is_some_and(|held| held.room.as_str() == room) {
            backlog.drop_held();
        }
    }

    /// Memory that what waits and what is held takes, if nobody else has it.
    pub(super) fn memory_bytes(&self) -> usize {
        self.backlog.lock().memory_bytes()
    }

    /// Gives up what is held, or if there is nothing all that waits, which closes the outbox for good. How much memory
    /// that took, if nobody else has it.
    pub(super) fn give_up(&self) -> usize {
        self.memory.count_eviction();
        let mut backlog = self.backlog.lock();
        let held = backlog.drop_held();
        if held > 0 {
            return held;
        }
        let bytes = backlog.memory_bytes();
        backlog.cut(&self.memory);
        drop(backlog);
        self.waiter.wake();
        bytes
    }

    /// Whether it is large still; if not, it will be listed again when it is.
    pub(super) fn stays_listed(&self) -> bool {
        // Before its size is read: who makes it large in between lists it again.
        self.is_listed.store(false, Relaxed);
        self.memory_bytes() >= SMALL_BYTES && !self.is_listed.swap(true, Relaxed)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.memory.release(self.backlog.get_mut().charged);
    }
}
