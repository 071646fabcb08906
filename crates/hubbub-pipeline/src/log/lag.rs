//! How far that part of a broker's log lags that is furthest behind: a partition of Kafka, a queue of RabbitMQ. One that fails
//! again and again is not hidden by the others.

use std::collections::BTreeMap;
use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use crate::metrics::MicrosGauge;

/// Batches that are being stored, and when the last message of each was published.
#[derive(Debug, Default)]
pub(super) struct Storing(Mutex<Published>);

#[derive(Debug, Default)]
struct Published {
    next: u64,
    /// With their parts of the log.
    by_batch: BTreeMap<u64, (u32, Timestamp)>,
    /// Since when nothing comes of a part that has more.
    waits_since: Option<Timestamp>,
}

/// A batch that is being stored, until this is dropped.
#[derive(Debug)]
pub(super) struct InHand<'a> {
    storing: &'a Storing,
    batch: u64,
}

impl Storing {
    pub(super) fn begin(&self, part: u32, published: Timestamp) -> InHand<'_> {
        let mut all = self.0.lock();
        let batch = all.next;
        all.next += 1;
        all.by_batch.insert(batch, (part, published));
        InHand { storing: self, batch }
    }

    /// The part was taken away: how far it lags is told by others, even if a batch is still in flight here.
    #[cfg(feature = "kafka")]
    pub(super) fn forget(&self, part: u32) {
        let mut all = self.0.lock();
        all.by_batch.retain(|_, (of, _)| *of != part);
        all.waits_since = None;
    }

    /// Since when nothing comes of a part that has more; `None` = there is no such part.
    #[cfg(feature = "kafka")]
    pub(super) fn set_waiting(&self, since: Option<Timestamp>) {
        self.0.lock().waits_since = since;
    }

    /// How long ago the oldest of them was published, or nothing came any more; `None` when nothing is being stored, or is to be.
    fn lag(&self, now: Timestamp) -> Option<Duration> {
        let all = self.0.lock();
        let published = all.by_batch.values().map(|(_, published)| *published);
        let oldest = published.chain(all.waits_since).min()?;
        Some(Duration::from_micros(saturate(now.as_micros().saturating_sub(oldest.as_micros()).max(0))))
    }

    /// Leaves the lag as it is when nothing is being stored.
    pub(super) fn measure(&self, now: Timestamp, lag: &MicrosGauge) {
        if let Some(measured) = self.lag(now) {
            lag.set(saturate(measured.as_micros()));
        }
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.storing.0.lock().by_batch.remove(&self.batch);
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

    #[cfg(feature = "kafka")]
    #[test]
    fn a_partition_that_was_taken_away_does_not_count() {
        let storing = Storing::default();
        let lag = |now| storing.lag(Timestamp::from_micros(now)).map(|lag| lag.as_micros());
        let lost = storing.begin(3, Timestamp::from_micros(10));
        let _kept = storing.begin(4, Timestamp::from_micros(50));
        storing.set_waiting(Some(Timestamp::from_micros(20)));
        assert_eq!(lag(60), Some(50));
        storing.set_waiting(Some(Timestamp::from_micros(40)));
        storing.forget(3);
        assert_eq!(lag(60), Some(10));
        storing.set_waiting(Some(Timestamp::from_micros(45)));
        assert_eq!(lag(60), Some(15));
        storing.set_waiting(None);
        // It came back.
        let _again = storing.begin(3, Timestamp::from_micros(20));
        drop(lost);
        assert_eq!(lag(60), Some(40));
    }
}
