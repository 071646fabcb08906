//! How far the partition lags that is furthest behind. One that fails again and again is not hidden by the others.

use std::collections::BTreeMap;
use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use super::Core;

/// Batches that are being stored, and when the last record of each was published.
#[derive(Debug, Default)]
pub(super) struct Storing(Mutex<Published>);

#[derive(Debug, Default)]
struct Published {
    next: u64,
    by_batch: BTreeMap<u64, Timestamp>,
}

/// A batch that is being stored, until this is dropped.
#[derive(Debug)]
pub(super) struct InHand<'a> {
    storing: &'a Storing,
    batch: u64,
}

impl Storing {
    pub(super) fn begin(&self, published: Timestamp) -> InHand<'_> {
        let mut all = self.0.lock();
        let batch = all.next;
        all.next += 1;
        all.by_batch.insert(batch, published);
        InHand { storing: self, batch }
    }

    /// How long ago the oldest of them was published; `None` when nothing is being stored.
    pub(super) fn lag(&self, now: Timestamp) -> Option<Duration> {
        let oldest = self.0.lock().by_batch.values().min().copied()?;
        Some(Duration::from_micros(saturate(now.as_micros().saturating_sub(oldest.as_micros()).max(0))))
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.storing.0.lock().by_batch.remove(&self.batch);
    }
}

impl Core {
    /// Leaves the lag as it is when nothing is being stored.
    pub(super) fn measure_lag(&self) {
        if let Some(lag) = self.storing.lag(self.clock.now()) {
            self.metrics.log_lag.set(saturate(lag.as_micros()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_batch_counts_until_it_is_stored() {
        let storing = Storing::default();
        let lag = |now| storing.lag(Timestamp::from_micros(now)).map(|lag| lag.as_micros());
        assert_eq!(lag(9), None);
        let stuck = storing.begin(Timestamp::from_micros(10));
        let other = storing.begin(Timestamp::from_micros(50));
        assert_eq!((lag(60), lag(5)), (Some(50), Some(0)));
        drop(other);
        assert_eq!(lag(70), Some(60));
        drop(stuck);
        assert_eq!(lag(80), None);
    }
}
