//! What waits to be written to one subscriber's socket: bounded, and closed for good when it overflows.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
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

/// The backlog of one connection.
#[derive(Debug)]
pub struct Outbox {
    backlog: Mutex<Backlog>,
    waiter: Arc<Waiter>,
    limits: OutboxLimits,
}

#[derive(Debug, Default)]
struct Backlog {
    parcels: VecDeque<Parcel>,
    messages: usize,
    bytes: usize,
    is_cut: bool,
}

impl Outbox {
    /// An empty backlog whose connection is woken through `waiter`.
    pub fn new(limits: OutboxLimits, waiter: Arc<Waiter>) -> Self {
        Self { backlog: Mutex::default(), waiter, limits }
    }

    /// Adds a parcel; `false` when the subscriber lags too far behind, which closes the outbox for good. An empty
    /// outbox takes any parcel.
    pub fn push(&self, parcel: Parcel) -> bool {
        let mut backlog = self.backlog.lock();
        let is_over = backlog.messages + parcel.messages() > self.limits.messages
            || backlog.bytes + parcel.bytes() > self.limits.bytes;
        if backlog.is_cut || (!backlog.parcels.is_empty() && is_over) {
            *backlog = Backlog { is_cut: true, ..Backlog::default() };
        } else {
            backlog.messages += parcel.messages();
            backlog.bytes += parcel.bytes();
            backlog.parcels.push_back(parcel);
        }
        let (is_open, was_empty) = (!backlog.is_cut, backlog.parcels.len() <= 1);
        drop(backlog);
        if was_empty {
            self.waiter.wake();
        }
        is_open
    }

    /// Takes the oldest parcel.
    pub fn pop(&self) -> Option<Parcel> {
        let mut backlog = self.backlog.lock();
        let parcel = backlog.parcels.pop_front()?;
        backlog.messages -= parcel.messages();
        backlog.bytes -= parcel.bytes();
        Some(parcel)
    }

    /// Whether the subscriber lagged too far behind and gets nothing any more.
    pub fn is_cut(&self) -> bool {
        self.backlog.lock().is_cut
    }
}
