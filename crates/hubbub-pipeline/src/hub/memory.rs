//! One bound for the memory of all live messages: what is on its way to subscribers, whoever and however many they are.
//!
//! Encoded messages are shared by all subscribers of a room, so each run is charged once, from its encoding until the
//! last reference is dropped ([`LiveMemory::frames`]). An outbox charges its queue's slots besides. When the bound is
//! exceeded ([`LiveMemory::relieve`]), the outboxes that hold most give up what can be read from the store again: first
//! what they hold for a subscriber that is about to go live, then all; the latter are cut off and resume. The gateway
//! reads smaller pages for those who catch up.
//!
//! An outbox with less than [`SMALL_BYTES`] is never cut off for this bound, nor one that is empty: a subscriber that
//! keeps pace is not harmed by others that do not. So the bound can be exceeded by that much for each outbox.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use super::outbox::Outbox;
use crate::metrics::Metrics;

/// Backlog that an outbox may have in any case.
pub(super) const SMALL_BYTES: usize = 16 * 1024;

/// What live messages take on this server, and the bound of it.
#[derive(Debug)]
pub struct LiveMemory {
    bytes_max: usize,
    metrics: Arc<Metrics>,
    /// Outboxes that had a large backlog when they were last looked at.
    large: Mutex<Large>,
}

#[derive(Debug, Default)]
struct Large {
    outboxes: Vec<Weak<Outbox>>,
    /// When there are more, those that are no longer large are removed.
    prune_at: usize,
}

/// Bytes charged until dropped.
#[derive(Debug)]
struct Charge {
    memory: Arc<LiveMemory>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}

struct ChargedFrames {
    frames: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for ChargedFrames {
    fn as_ref(&self) -> &[u8] {
        &self.frames
    }
}

impl LiveMemory {
    /// Bounds live messages to about `bytes_max` bytes.
    pub fn new(bytes_max: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { bytes_max, metrics, large: Mutex::default() })
    }

    /// Whether there is more than there should be.
    pub fn is_exceeded(&self) -> bool {
        self.held() > self.bytes_max
    }

    /// Makes frames shared, and charges them until the last reference is dropped.
    pub fn frames(self: &Arc<Self>, frames: Vec<u8>) -> Bytes {
        self.frames_with(frames, 0)
    }

    /// The same, with `extra` bytes that are kept beside them.
    pub(super) fn frames_with(self: &Arc<Self>, frames: Vec<u8>, extra: usize) -> Bytes {
        let bytes = frames.capacity() + size_of::<ChargedFrames>() + extra;
        self.charge(bytes);
        Bytes::from_owner(ChargedFrames { frames, _charge: Charge { memory: self.clone(), bytes } })
    }

    pub(super) fn charge(&self, bytes: usize) {
        self.metrics.live_bytes.inc_by(signed(bytes));
    }

    pub(super) fn release(&self, bytes: usize) {
        self.metrics.live_bytes.dec_by(signed(bytes));
    }

    pub(super) fn held(&self) -> usize {
        usize::try_from(self.metrics.live_bytes.get()).unwrap_or(0)
    }

    /// Counts something that was given up.
    pub(super) fn count_eviction(&self) {
        self.metrics.live_evictions.inc();
    }

    /// Takes note of an outbox whose backlog has become large.
    pub(super) fn list(&self, outbox: Weak<Outbox>) {
        let mut large = self.large.lock();
        large.outboxes.push(outbox);
        if large.outboxes.len() > large.prune_at {
            large.outboxes.retain(|outbox| outbox.upgrade().is_some_and(|outbox| outbox.stays_listed()));
            large.prune_at = 64.max(large.outboxes.len() * 2);
            let prune_at = large.prune_at;
            large.outboxes.shrink_to(prune_at);
        }
    }

    /// Brings the memory back to three quarters of the bound, if the bound is exceeded: by what the largest outboxes
    /// hold, as far as they hold it alone.
    pub(super) fn relieve(&self) {
        let target = self.bytes_max / 4 * 3;
        let mut excess = match self.held() {
            held if held > self.bytes_max => held - target,
            _ => return,
        };
        let mut large = self.large.lock();
        let listed = large.outboxes.drain(..).filter_map(|outbox| outbox.upgrade());
        let mut outboxes: Vec<_> = listed.map(|outbox| (outbox.memory_bytes(), outbox)).collect();
        outboxes.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (bytes, outbox) in outboxes {
            if excess > 0 && bytes >= SMALL_BYTES {
                excess = excess.saturating_sub(outbox.give_up());
            }
            if outbox.stays_listed() {
                large.outboxes.push(Arc::downgrade(&outbox));
            }
        }
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
