//! What publishers count, and when each message was to be sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use super::preset::Plan;
use super::texts::Texts;
use crate::record::Dist;
use crate::run::Counts;

/// The counts of a run and what its messages are drawn from, shared by its publishers.
#[derive(Debug)]
pub(crate) struct PublishLedger {
    plan: Plan,
    pub(super) texts: Arc<Texts>,
    /// When the first message was taken.
    started: OnceLock<Instant>,
    next: AtomicU64,
    pub(super) counts: Counts,
    pub(super) latency: Mutex<Dist>,
}

impl PublishLedger {
    pub(super) fn new(plan: Plan, texts: Arc<Texts>) -> Arc<Self> {
        let (started, next, counts, latency) = Default::default();
        Arc::new(Self { plan, texts, started, next, counts, latency })
    }

    /// Numbers of up to `count` messages to send next; fewer at the end, none after it.
    pub(crate) fn take(&self, count: u64) -> std::ops::Range<u64> {
        let started = *self.started.get_or_init(Instant::now);
        if self.plan.time.is_some_and(|time| started.elapsed() >= time) {
            return 0..0;
        }
        let first = self.next.fetch_add(count, Ordering::Relaxed).min(self.plan.messages);
        first..(first + count).min(self.plan.messages)
    }

    /// Waits until message `index` is to be sent; the answer is when that was.
    pub(crate) async fn due(&self, index: u64) -> Instant {
        let Some(rate) = self.plan.rate else { return Instant::now() };
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

    fn ledger(time: Option<Duration>) -> Arc<PublishLedger> {
        let plan = Plan { time, ..Plan::all(25) };
        PublishLedger::new(plan, Arc::new(Texts::new(1, 1, 1, 1)))
    }

    #[test]
    fn every_number_is_taken_once() {
        let ledger = ledger(None);
        let taken: Vec<u64> = std::iter::repeat_with(|| ledger.take(10)).take(5).flatten().collect();
        assert_eq!(taken, (0..25).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_taken_when_the_time_is_over() {
        assert!(ledger(Some(Duration::ZERO)).take(10).is_empty());
        assert_eq!(ledger(Some(Duration::MAX)).take(10).count(), 10);
    }
}
