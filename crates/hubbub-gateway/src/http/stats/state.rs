//! What statistics keep between requests: since when, how much in the last seconds and the last hour, and whether an audit
//! runs.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hubbub_pipeline::Metrics;

use crate::http::{StoreReads, Watching};
use crate::trends::Trends;

pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Samples that are kept: rates are those of the last ten seconds.
const SAMPLES: usize = 10;

/// What `GET /metrics` answers to those who take anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsDefault {
    /// Prometheus text.
    Prometheus,
    /// The statistics report, JSON.
    Report,
}

/// One server's own part of the statistics.
#[derive(Debug)]
pub struct Statistics {
    pub(super) metrics_default: MetricsDefault,
    /// When the server started, on the monotonic clock.
    started: Duration,
    samples: Mutex<VecDeque<Sample>>,
    /// Held while messages are recounted.
    pub(super) audit: tokio::sync::Mutex<()>,
    /// The figures of the last hour.
    pub(crate) trends: Trends,
    pub(in crate::http) watching: Watching,
    pub(in crate::http) store_reads: StoreReads,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    messages_in: u64,
    messages_out: u64,
}

impl Sample {
    fn of(metrics: &Metrics, at: Duration) -> Self {
        Self { at, messages_in: metrics.accepted.get(), messages_out: metrics.delivered.get() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    /// Acknowledged to senders.
    pub(super) messages_in: f64,
    /// Handed to subscribers' sockets.
    pub(super) messages_out: f64,
    pub(super) over: Duration,
}

impl Statistics {
    /// Of a server that starts `now`, on the monotonic clock.
    pub fn new(metrics_default: MetricsDefault, now: Duration) -> Self {
        let begin = Sample { at: now, messages_in: 0, messages_out: 0 };
        let samples = Mutex::new(VecDeque::from([begin]));
        let audit = tokio::sync::Mutex::new(());
        let (trends, watching, store_reads) = (Trends::default(), Watching::default(), StoreReads::default());
        Self { metrics_default, started: now, samples, audit, trends, watching, store_reads }
    }

    /// Remembers how the counters stand; called every [`SAMPLE_INTERVAL`].
    pub(crate) fn sample(&self, metrics: &Metrics, now: Duration) {
        let mut samples = self.samples();
        if samples.len() >= SAMPLES {
            samples.pop_front();
        }
        samples.push_back(Sample::of(metrics, now));
    }

    /// From the oldest sample that is kept until `now`.
    pub(super) fn rates(&self, metrics: &Metrics, now: Duration) -> Rates {
        let (begin, end) = (self.samples().front().copied(), Sample::of(metrics, now));
        let begin = begin.unwrap_or(end);
        let over = now.saturating_sub(begin.at);
        #[allow(clippy::cast_precision_loss)]
        let per_second = |count: u64| if over.is_zero() { 0.0 } else { count as f64 / over.as_secs_f64() };
        Rates {
            messages_in: per_second(end.messages_in.saturating_sub(begin.messages_in)),
            messages_out: per_second(end.messages_out.saturating_sub(begin.messages_out)),
            over,
        }
    }

    pub(in crate::http) fn uptime(&self, now: Duration) -> Duration {
        now.saturating_sub(self.started)
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_ten_seconds() {
        let second = Duration::from_secs;
        let (metrics, statistics) =
            (Metrics::default(), Statistics::new(MetricsDefault::Report, second(100)));
        assert_eq!(statistics.rates(&metrics, second(100)).messages_in, 0.0);
        metrics.accepted.inc_by(60);
        metrics.delivered.inc_by(30);
        let rates = statistics.rates(&metrics, second(102));
        assert_eq!((rates.messages_in, rates.messages_out, rates.over), (30.0, 15.0, second(2)));
        for at in 101..=130 {
            metrics.accepted.inc_by(7);
            statistics.sample(&metrics, second(at));
        }
        let rates = statistics.rates(&metrics, second(130));
        assert_eq!((rates.messages_in, rates.messages_out, rates.over), (7.0, 0.0, second(9)));
        assert_eq!(statistics.rates(&metrics, second(140)).over, second(19));
        assert_eq!(statistics.uptime(second(130)), second(30));
    }
}
