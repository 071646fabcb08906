//! Counts the subscribers that got the messages of one publication.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use super::{Publication, Source};

/// Shared by the record of a publication and its chunk. Figures for people: each is read by itself.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    subscribers: AtomicU32,
    delivered: AtomicU32,
    /// Microseconds of the monotonic clock; 0 = never.
    first_at: AtomicU64,
    last_at: AtomicU64,
}

impl Deliveries {
    /// Counts live subscriptions that the messages are queued for.
    pub(crate) fn add_subscribers(&self, count: u32) {
        self.subscribers.fetch_add(count, Relaxed);
    }

    /// Counts one that takes them to its socket.
    pub(super) fn count(&self, now: u64) {
        self.last_at.store(now.max(1), Relaxed);
        if self.delivered.fetch_add(1, Relaxed) == 0 {
            self.first_at.store(now.max(1), Relaxed);
        }
    }

    pub(super) fn public(&self, at: u64, source: Source) -> Publication {
        let time =
            |time: &AtomicU64| Some(time.load(Relaxed)).filter(|time| *time > 0).map(Duration::from_micros);
        Publication {
            at: Duration::from_micros(at),
            source,
            subscribers: self.subscribers.load(Relaxed).into(),
            delivered: self.delivered.load(Relaxed).into(),
            delivered_at: time(&self.first_at).zip(time(&self.last_at)),
        }
    }
}
