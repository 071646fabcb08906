//! Bounded send queue of one subscriber's socket, closed for good when it overflows.
//!
//! While a subscriber reads the last page of a room, the outbox also holds what is published in that room meanwhile. Held
//! messages can be dropped at any time, because the subscriber can read them from the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use hubbub_core::RoomId;
use parking_lot::Mutex;

use super::encoded::EncodedChunk;
use super::memory::{LiveMemory, SMALL_BYTES};
use super::sample::Sample;
use crate::batcher::Waiter;

/// Backlog at which a subscriber is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxLimits {
    /// Messages.
    pub messages: usize,
    /// Bytes of frames; the memory is shared by all subscribers of a room.
    pub bytes: usize,
}

impl Default for OutboxLimits {
    fn default() -> Self {
        Self { messages: 16_384, bytes: 8 * 1024 * 1024 }
    }
}

/// One entry of an outbox.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// Frames for the peer.
    EncodedChunk(EncodedChunk),
    /// The subscription of a room ended here; no message of it follows.
    Ended {
        /// The room.
        room: RoomId,
        /// The frame for the peer.
        notice: EncodedChunk,
    },
    /// The read mark of the socket's user moved in a room, which the peer need not be allowed to read.
    Marked {
        /// The room.
        room: RoomId,
        /// The read mark.
        seq: u64,
        /// The frame for the peer.
        notice: EncodedChunk,
    },
    /// The user became a member of a room. Only for sockets that follow all rooms of the user.
    Joined {
        /// The room.
        room: RoomId,
        /// The socket gets what follows this message.
        start: u64,
        /// The read mark.
        read_seq: u64,
    },
}

impl Delivery {
    /// Messages and bytes.
    fn size(&self) -> (usize, usize) {
        match self {
            Self::EncodedChunk(chunk) => (chunk.messages(), chunk.bytes()),
            Self::Ended { room, notice } | Self::Marked { room, notice, .. } => {
                (0, room.as_str().len() + notice.bytes())
            }
            Self::Joined { room, .. } => (0, room.as_str().len() + size_of::<Self>()),
        }
    }
}

/// The send queue of one connection.
#[derive(Debug)]
pub struct Outbox {
    backlog: Mutex<Backlog>,
    waiter: Arc<Waiter>,
    limits: OutboxLimits,
    memory: Arc<LiveMemory>,
    /// Whether it is in the memory's list of large outboxes.
    is_listed: AtomicBool,
}

#[derive(Debug, Default)]
struct Backlog {
    deliveries: VecDeque<Delivery>,
    /// Messages of the room whose last page the subscriber is reading.
    held: Option<HeldMessages>,
    /// Messages and bytes, deliveries and held messages together.
    messages: usize,
    bytes: usize,
    /// Number of deliveries taken so far.
    taken: u64,
    /// Bytes charged for the queue's slots.
    charged: usize,
    sample: Sample,
    is_cut: bool,
}

/// Messages published in a room since its subscriber last tried to join.
#[derive(Debug)]
struct HeldMessages {
    room: RoomId,
    /// All messages published beyond this seq are held.
    after: u64,
    chunks: Vec<EncodedChunk>,
}

/// Queue slots that are not charged.
const FREE_SLOTS: usize = 16;
/// Bytes of a chunk for each message besides its frame.
const END_BYTES: usize = size_of::<(u64, usize)>();

impl Backlog {
    fn is_over(&self, limits: OutboxLimits, (messages, bytes): (usize, usize)) -> bool {
        self.messages.saturating_add(messages) > limits.messages
            || self.bytes.saturating_add(bytes) > limits.bytes
    }

    fn add(&mut self, (messages, bytes): (usize, usize)) {
        self.messages += messages;
        self.bytes += bytes;
    }

    fn subtract(&mut self, (messages, bytes): (usize, usize)) {
        self.messages -= messages;
        self.bytes -= bytes;
    }

    fn enqueue(&mut self, delivery: Delivery, memory: &LiveMemory) {
        self.add(delivery.size());
        self.sample.queued(self.taken + self.deliveries.len() as u64, memory);
        self.deliveries.push_back(delivery);
        self.charge_slots(memory);
    }

    /// Charges the growth or shrinking of the queue's slots.
    fn charge_slots(&mut self, memory: &LiveMemory) {
        let slots = self.deliveries.capacity();
        let bytes = if slots > FREE_SLOTS { slots * size_of::<Delivery>() } else { 0 };
        memory.recharge(std::mem::replace(&mut self.charged, bytes), bytes);
    }

    fn take_held(&mut self) -> Vec<EncodedChunk> {
        let held = self.held.take().map(|held| held.chunks).unwrap_or_default();
        held.iter().for_each(|chunk| self.subtract((chunk.messages(), chunk.bytes())));
        held
    }

    /// Drops the held messages. Returns the bytes they took.
    fn drop_held(&mut self) -> usize {
        let before = self.memory_bytes();
        self.take_held();
        before - self.memory_bytes()
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
    /// An empty outbox, charged to `memory`, whose connection `waiter` wakes.
    pub fn new(limits: OutboxLimits, memory: Arc<LiveMemory>, waiter: Arc<Waiter>) -> Arc<Self> {
        Arc::new(Self {
            backlog: Mutex::default(),
            waiter,
            limits,
            memory,
            is_listed: AtomicBool::new(false),
        })
    }

    /// Adds a delivery. Returns false when the limits are exceeded, which closes the outbox for good. An empty outbox
    /// accepts a delivery of any size.
    pub fn push(self: &Arc<Self>, delivery: Delivery) -> bool {
        let mut backlog = self.backlog.lock();
        let size = delivery.size();
        if backlog.is_over(self.limits, size) && backlog.held.is_some() {
            self.memory.count_eviction();
            backlog.drop_held();
        }
        let is_over = !backlog.deliveries.is_empty() && backlog.is_over(self.limits, size);
        if is_over && !backlog.is_cut {
            backlog.cut(&self.memory);
        } else if !backlog.is_cut {
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

    fn list_if_large(self: &Arc<Self>, bytes: usize) {
        if bytes >= SMALL_BYTES && !self.is_listed.swap(true, Relaxed) {
            self.memory.list(Arc::downgrade(self));
        }
    }

    /// Closes the outbox for good: its connection ends, and the subscriber reconnects.
    pub fn cut(&self) {
        self.backlog.lock().cut(&self.memory);
        self.waiter.wake();
    }

    /// Removes the oldest delivery.
    pub fn pop(&self) -> Option<Delivery> {
        let mut backlog = self.backlog.lock();
        let delivery = backlog.deliveries.pop_front()?;
        backlog.subtract(delivery.size());
        let number = backlog.taken;
        backlog.sample.taken(number, &self.memory);
        backlog.taken += 1;
        if backlog.deliveries.is_empty() && backlog.charged > 0 {
            backlog.deliveries = VecDeque::new();
            backlog.charge_slots(&self.memory);
        }
        Some(delivery)
    }

    /// Position behind the newest delivery, for [`Self::has_passed`].
    pub fn end(&self) -> u64 {
        let backlog = self.backlog.lock();
        backlog.taken + backlog.deliveries.len() as u64
    }

    /// Whether everything up to `end` was taken, or is lost because the outbox was cut.
    pub fn has_passed(&self, end: u64) -> bool {
        let backlog = self.backlog.lock();
        backlog.is_cut || backlog.taken >= end
    }

    /// Whether the outbox was cut; it accepts nothing more.
    pub fn is_cut(&self) -> bool {
        self.backlog.lock().is_cut
    }

    /// Starts to hold messages of `room` beyond `after`, instead of what was held before.
    pub(super) fn hold_from(&self, room: &RoomId, after: u64) {
        let mut backlog = self.backlog.lock();
        backlog.drop_held();
        if !backlog.is_cut {
            backlog.held = Some(HeldMessages { room: room.clone(), after, chunks: Vec::new() });
        }
    }

    /// Holds messages of `room`. Returns false when it does not hold the room, or drops it for its size: the subscriber
    /// reads the store. The first held chunk may be of any size.
    pub(super) fn hold(self: &Arc<Self>, room: &str, chunk: &EncodedChunk) -> bool {
        let mut backlog = self.backlog.lock();
        let size = (chunk.messages(), chunk.bytes());
        let is_over = backlog.is_over(self.limits, size) || self.memory.is_exceeded();
        let Some(held) = backlog.held.as_mut().filter(|held| held.room.as_str() == room) else {
            return false;
        };
        if is_over && !held.chunks.is_empty() {
            self.memory.count_eviction();
            backlog.drop_held();
            return false;
        }
        held.chunks.push(chunk.clone());
        backlog.add(size);
        let bytes = backlog.memory_bytes();
        drop(backlog);
        self.list_if_large(bytes);
        true
    }

    /// Turns the held messages of `room` beyond `cursor` into deliveries. Returns the seq of the last one, or `None`
    /// when not all of them are held.
    pub(super) fn take_held(&self, room: &RoomId, cursor: u64) -> Option<u64> {
        let mut backlog = self.backlog.lock();
        backlog.held.as_ref().filter(|held| held.room == *room && cursor >= held.after)?;
        let mut after = cursor;
        for chunk in backlog.take_held().iter().filter(|chunk| chunk.last_seq() > cursor) {
            after = chunk.last_seq();
            let lacking = chunk.lacking(cursor);
            if let Some(deliveries) = lacking.deliveries() {
                deliveries.add_subscribers(1);
            }
            backlog.enqueue(Delivery::EncodedChunk(lacking), &self.memory);
        }
        drop(backlog);
        self.waiter.wake();
        Some(after)
    }

    pub(super) fn holds(&self, room: &RoomId) -> bool {
        self.backlog.lock().held.as_ref().is_some_and(|held| held.room == *room)
    }

    pub(super) fn drop_held(&self, room: &str) {
        let mut backlog = self.backlog.lock();
        if backlog.held.as_ref().is_some_and(|held| held.room.as_str() == room) {
            backlog.drop_held();
        }
    }

    /// Memory of deliveries and held messages, as if no other outbox shared them.
    pub(super) fn memory_bytes(&self) -> usize {
        self.backlog.lock().memory_bytes()
    }

    /// Drops the held messages or, if there are none, cuts the outbox. Returns the bytes freed, as if no other outbox
    /// shared them.
    pub(super) fn evict(&self) -> usize {
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

    /// Whether it is still large. If not, it leaves the list until it grows again.
    pub(super) fn stays_listed(&self) -> bool {
        // Before its size is read: a push that makes it large in between lists it again.
        self.is_listed.store(false, Relaxed);
        self.memory_bytes() >= SMALL_BYTES && !self.is_listed.swap(true, Relaxed)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.memory.release(self.backlog.get_mut().charged);
    }
}
