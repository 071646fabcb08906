//! What publishers count, and when each message was to be sent.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use crate::record::Dist;
use crate::run::Counts;

/// The counts of a run, shared by its publishers.
#[derive(Debug)]
pub(crate) struct PublishLedger {
    started: OnceLock<Instant>,
    messages: u64,
    /// Messages per second; `None` = as fast as they are confirmed.
    rate: Option<f64>,
    /// How long to publish; `None` = until all are.
    time: Option<Duration>,
    next: AtomicU64,
    pub(crate) counts: Counts,
    pub(crate) latency: Mutex<Dist>,
}

impl PublishLedger {
    /// `messages` messages, or as many as can be sent in `time`, beginning when the first is taken.
    pub(crate) fn new(messages: u64, rate: Option<f64>, time: Option<Duration>) -> Self {
        Self {
            started: OnceLock::new(),
            messages,
            rate,
            time,
            next: AtomicU64::new(0),
            counts: Counts::default(),
            latency: Mutex::default(),
        }
    }

    /// Numbers of up to `count` messages to send next; fewer at the end, none after it.
    pub(crate) fn take(&self, count: u64) -> std::ops::Range<u64> {
        let started = *self.started.get_or_init(Instant::now);
        if self.time.is_some_and(|time| started.elapsed() >= time) {
            return 0..0;
        }
        let first = self.next.fetch_add(count, Ordering::Relaxed).min(self.messages);
        first..(first + count).min(self.messages)
    }

    /// Waits until message `index` is to be sent; the answer is when that was.
    pub(crate) async fn due(&self, index: u64) -> Instant {
        let Some(rate) = self.rate else { return Instant::now() };
        let due = *self.started.get_or_init(Instant::now) + Duration::from_secs_f64(index as f64 / rate);
        // A timer is not finer than that; whoever is late sends at once.
        if due.saturating_duration_since(Instant::now()) > Duration::from_millis(1) {
            tokio::time::sleep_until(due.into()).await;
        }
        due
    }

    /// Notes an answer to a message that was to be sent at `due`.
    pub(crate) fn answered(&self, counter: &AtomicU64, due: Instant, count: u64) {
        Counts::add(counter, count);
        self.latency.lock().add(saturate(due.elapsed().as_micros()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_taken_once() {
        let ledger = PublishLedger::new(25, None, None);
        let taken: Vec<u64> = std::iter::repeat_with(|| ledger.take(10)).take(5).flatten().collect();
        assert_eq!(taken, (0..25).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_taken_when_the_time_is_over() {
        assert!(PublishLedger::new(25, None, Some(Duration::ZERO)).take(10).is_empty());
        assert_eq!(PublishLedger::new(25, None, Some(Duration::MAX)).take(10).count(), 10);
    }
}
