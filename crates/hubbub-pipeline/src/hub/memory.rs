//! One bound for the memory of all undelivered live messages, over all subscribers.
//!
//! Encoded messages are shared by all subscribers of a room. Each run is charged once, from its encoding until its last
//! reference is dropped ([`LiveMemory::frames`]). An outbox also charges its queue's slots. When the bound is exceeded
//! ([`LiveMemory::enforce_bound`]), the largest outboxes drop what can be read from the store again: first held messages
//! of joining subscribers, then everything, which cuts the subscriber; it reconnects and resumes. The gateway reads
//! smaller pages meanwhile.
//!
//! An outbox below [`SMALL_BYTES`] is never cut for this bound: slow subscribers do not harm those that keep pace. So
//! each outbox can exceed the bound by that much.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use hubbub_core::clock::Clock;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use super::outbox::Outbox;
use super::sample::Timer;
use crate::metrics::Metrics;

/// Backlog that is never evicted, in bytes.
pub(super) const SMALL_BYTES: usize = 16 * 1024;

/// Memory of undelivered live messages on this server, and its bound.
#[derive(Debug)]
pub struct LiveMemory {
    bytes_max: usize,
    metrics: Arc<Metrics>,
    timer: OnceLock<Timer>,
    /// Outboxes whose backlog was large when it was last checked.
    large: Mutex<Vec<Weak<Outbox>>>,
}

/// Frames that stay charged until this is dropped.
struct ChargedFrames {
    frames: Vec<u8>,
    memory: Arc<LiveMemory>,
    bytes: usize,
}

impl Drop for ChargedFrames {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}

impl AsRef<[u8]> for ChargedFrames {
    fn as_ref(&self) -> &[u8] {
        &self.frames
    }
}

impl LiveMemory {
    /// Bounds live messages to about `bytes_max` bytes.
    pub fn new(bytes_max: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { bytes_max, metrics, timer: OnceLock::new(), large: Mutex::default() })
    }

    /// Whether the bound is exceeded.
    pub fn is_exceeded(&self) -> bool {
        self.held() > self.bytes_max
    }

    /// Whether so much is held that nothing is to be kept which cannot be dropped for others.
    pub(super) fn is_half_full(&self) -> bool {
        self.held() > self.bytes_max / 2
    }

    /// Makes frames shareable, and charges them until the last reference is dropped.
    pub fn frames(self: &Arc<Self>, frames: Vec<u8>) -> Bytes {
        self.frames_with(frames, 0)
    }

    /// The same, and charges `extra` bytes that are kept beside the frames.
    pub(super) fn frames_with(self: &Arc<Self>, frames: Vec<u8>, extra: usize) -> Bytes {
        let bytes = frames.capacity() + size_of::<ChargedFrames>() + extra;
        self.charge(bytes);
        Bytes::from_owner(ChargedFrames { frames, memory: self.clone(), bytes })
    }

    pub(super) fn charge(&self, bytes: usize) {
        self.recharge(0, bytes);
    }

    pub(super) fn release(&self, bytes: usize) {
        self.recharge(bytes, 0);
    }

    /// Charges `after` bytes instead of `before`.
    pub(super) fn recharge(&self, before: usize, after: usize) {
        if before != after {
            self.metrics.live_bytes.inc_by(saturate::<_, i64>(after) - saturate::<_, i64>(before));
        }
    }

    pub(super) fn held(&self) -> usize {
        saturate(self.metrics.live_bytes.get())
    }

    pub(super) fn count_eviction(&self) {
        self.metrics.live_evictions.inc();
    }

    /// From now on deliveries are measured by this clock.
    pub(super) fn measure_waits(&self, clock: Arc<dyn Clock>) {
        let _ = self.timer.set(Timer(clock));
    }

    pub(super) fn clock(&self) -> Option<&dyn Clock> {
        self.timer.get().map(|timer| &*timer.0)
    }

    pub(super) fn record_wait(&self, waited: Duration) {
        self.metrics.delivery_time.record(saturate(waited.as_micros()), 1);
    }

    pub(super) fn list(&self, outbox: Weak<Outbox>) {
        let mut large = self.large.lock();
        if large.len() == large.capacity() {
            // Outboxes that are no longer large leave it before it grows.
            large.retain(|outbox| outbox.upgrade().is_some_and(|outbox| outbox.stays_listed()));
            let room = large.len().max(32);
            large.shrink_to(2 * room);
            large.reserve(room);
        }
        large.push(outbox);
    }

    /// If the bound is exceeded, evicts the largest outboxes until about three quarters of it are used. Memory that
    /// several outboxes share is counted for each.
    pub(super) fn enforce_bound(&self) {
        let target = self.bytes_max / 4 * 3;
        let mut excess = match self.held() {
            held if held > self.bytes_max => held - target,
            _ => return,
        };
        let mut large = self.large.lock();
        let listed = large.drain(..).filter_map(|outbox| outbox.upgrade());
        let mut outboxes: Vec<_> = listed.map(|outbox| (outbox.memory_bytes(), outbox)).collect();
        outboxes.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (bytes, outbox) in outboxes {
            if excess > 0 && bytes >= SMALL_BYTES {
                excess = excess.saturating_sub(outbox.evict());
            }
            if outbox.stays_listed() {
                large.push(Arc::downgrade(&outbox));
            }
        }
    }
}
