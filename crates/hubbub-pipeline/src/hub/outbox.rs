//! What waits to be written to one subscriber's socket: bounded, and closed for good when it overflows.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use hubbub_core::RoomId;
use parking_lot::Mutex;

use super::ring::Run;
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
}

#[derive(Debug, Default)]
struct Backlog {
    deliveries: VecDeque<Delivery>,
    messages: usize,
    bytes: usize,
    /// Deliveries that were ever taken.
    taken: u64,
    is_cut: bool,
}

impl Outbox {
    /// An empty backlog whose connection is woken through `waiter`.
    pub fn new(limits: OutboxLimits, waiter: Arc<Waiter>) -> Self {
        Self { backlog: Mutex::default(), waiter, limits }
    }

    /// Adds something; `false` when the subscriber lags too far behind, which closes the outbox for good. An empty
    /// outbox takes anything.
    pub fn push(&self, delivery: Delivery) -> bool {
        let mut backlog = self.backlog.lock();
        let (messages, bytes) = (delivery.messages(), delivery.bytes());
        let is_over =
            backlog.messages + messages > self.limits.messages || backlog.bytes + bytes > self.limits.bytes;
        if backlog.is_cut || (!backlog.deliveries.is_empty() && is_over) {
            *backlog = Backlog { is_cut: true, ..Backlog::default() };
        } else {
            backlog.messages += messages;
            backlog.bytes += bytes;
            backlog.deliveries.push_back(delivery);
        }
        let (is_open, was_empty) = (!backlog.is_cut, backlog.deliveries.len() <= 1);
        drop(backlog);
        if was_empty {
            self.waiter.wake();
        }
        is_open
    }

    /// Closes it for good, as if the subscriber lagged too far behind: its connection ends, and it asks anew.
    pub fn cut(&self) {
        *self.backlog.lock() = Backlog { is_cut: true, ..Backlog::default() };
        self.waiter.wake();
    }

    /// Takes the oldest delivery.
    pub fn pop(&self) -> Option<Delivery> {
        let mut backlog = self.backlog.lock();
        let delivery = backlog.deliveries.pop_front()?;
        backlog.messages -= delivery.messages();
        backlog.bytes -= delivery.bytes();
        backlog.taken += 1;
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
}
