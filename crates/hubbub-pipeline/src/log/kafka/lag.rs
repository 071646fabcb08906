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
    /// With their partitions.
    by_batch: BTreeMap<u64, (u32, Timestamp)>,
}

/// A batch that is being stored, until this is dropped.
#[derive(Debug)]
pub(super) struct InHand<'a> {
    storing: &'a Storing,
    batch: u64,
}

impl Storing {
    pub(super) fn begin(&self, partition: u32, published: Timestamp) -> InHand<'_> {
        let mut all = self.0.lock();
        let batch = all.next;
        all.next += 1;
        all.by_batch.insert(batch, (partition, published));
        InHand { storing: self, batch }
    }

    /// The partition was taken away: how far it lags is told by others, even if a batch is still in flight here.
    pub(super) fn forget(&self, partition: u32) {
        self.0.lock().by_batch.retain(|_, (of, _)| *of != partition);
    }

    /// How long ago the oldest of them was published; `None` when nothing is being stored.
    pub(super) fn lag(&self, now: Timestamp) -> Option<Duration> {
        let oldest = self.0.lock().by_batch.values().map(|(_, published)| *published).min()?;
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

    /// Forgets how far partitions lagged that were taken away. What is left is measured with the next batch of another one.
    pub(super) fn forget_lag(&self, partitions: impl Iterator<Item = u32>) {
        partitions.for_each(|partition| self.storing.forget(partition));
        self.metrics.log_lag.set(0);
        self.measure_lag();
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
        let stuck = storing.begin(0, Timestamp::from_micros(10));
        let other = storing.begin(1, Timestamp::from_micros(50));
        assert_eq!((lag(60), lag(5)), (Some(50), Some(0)));
        drop(other);
        assert_eq!(lag(70), Some(60));
        drop(stuck);
        assert_eq!(lag(80), None);
    }

    #[test]
    fn a_partition_that_was_taken_away_does_not_count() {
        let storing = Storing::default();
        let lag = |now| storing.lag(Timestamp::from_micros(now)).map(|lag| lag.as_micros());
        let lost = storing.begin(3, Timestamp::from_micros(10));
        let _kept = storing.begin(4, Timestamp::from_micros(50));
        storing.forget(3);
        assert_eq!(lag(60), Some(10));
        // It came back.
        let _again = storing.begin(3, Timestamp::from_micros(20));
        drop(lost);
        assert_eq!(lag(60), Some(40));
    }
}
