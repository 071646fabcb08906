//! A lock-free histogram with buckets at powers of two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::metrics::Readable;

/// Counts values in buckets up to 1, 2, 4 … 2^(`BUCKETS`-1) units, and a last one for the rest.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Arc<Counts>,
    /// One unit in the exported unit: 1e-6 for microseconds shown as seconds.
    scale: f64,
}

#[derive(Debug, Default)]
struct Counts {
    buckets: [AtomicU64; BUCKETS + 1],
    sum: AtomicU64,
}

/// 2^26 µs are 67 s: longer than every time-out of the server.
const BUCKETS: usize = 27;

impl Histogram {
    /// Values are durations in microseconds, shown in seconds.
    pub fn of_micros() -> Self {
        Self { counts: Arc::default(), scale: 1e-6 }
    }

    /// Values are plain numbers.
    pub fn of_counts() -> Self {
        Self { counts: Arc::default(), scale: 1.0 }
    }

    /// Adds `count` values of `value` units each.
    pub fn record(&self, value: u64, count: u64) {
        // The bucket of v is the smallest power of two that is not below v.
        let bucket = (u64::BITS - value.saturating_sub(1).leading_zeros()) as usize;
        if let Some(bucket) = self.counts.buckets.get(bucket.min(BUCKETS)) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
        self.counts.sum.fetch_add(value.saturating_mul(count), Ordering::Relaxed);
    }
}

/// The counts of a histogram at one moment.
#[derive(Debug, Clone, Copy)]
pub struct HistogramReading {
    buckets: [u64; BUCKETS + 1],
    sum: u64,
    scale: f64,
}

impl Readable for Histogram {
    type Value = HistogramReading;

    fn read(&self) -> HistogramReading {
        let buckets = self.counts.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        HistogramReading { buckets, sum: self.counts.sum.load(Ordering::Relaxed), scale: self.scale }
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
impl HistogramReading {
    /// How many values came since an earlier reading.
    pub fn count_since(&self, before: &Self) -> u64 {
        self.since(before).iter().sum()
    }

    /// Their mean, in the exported unit; `None` = there were none.
    pub fn mean_since(&self, before: &Self) -> Option<f64> {
        let count = self.count_since(before);
        (count > 0).then(|| self.sum.saturating_sub(before.sum) as f64 / count as f64 * self.scale)
    }

    /// The value that `quantile` (0 to 1) of them do not exceed, in the exported unit; `None` = there were none. Between
    /// the bounds of its bucket it is a guess, as if the values were spread evenly.
    pub fn quantile_since(&self, before: &Self, quantile: f64) -> Option<f64> {
        let counts = self.since(before);
        let wanted = counts.iter().sum::<u64>() as f64 * quantile;
        let mut below = 0.0;
        for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= wanted {
                let upper = (1_u64 << index) as f64;
                let lower = if index == 0 { 0.0 } else { upper / 2.0 };
                return Some((lower + (upper - lower) * (wanted - below) / count) * self.scale);
            }
            below += count;
        }
        None
    }

    fn since(&self, before: &Self) -> [u64; BUCKETS + 1] {
        let mut counts = self.buckets;
        counts
            .iter_mut()
            .zip(before.buckets)
            .for_each(|(count, before)| *count = count.saturating_sub(before));
        counts
    }
}

impl EncodeMetric for Histogram {
    #[allow(clippy::cast_precision_loss)]
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts: Vec<u64> = self.counts.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        // The encoder writes `+Inf`, which readers demand of the last bucket, for infinity alone.
        let bounds = (0..BUCKETS).map(|i| (1_u64 << i) as f64 * self.scale).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
        let sum = self.counts.sum.load(Ordering::Relaxed) as f64 * self.scale;
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without `+Inf` no quantile can be computed.
    #[test]
    fn the_last_bucket_is_infinite_and_holds_everything() {
        let mut registry = prometheus_client::registry::Registry::default();
        let histogram = Histogram::of_micros();
        for value in [3, u64::MAX] {
            histogram.record(value, 1);
        }
        registry.register("h", "help", histogram);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let last = text.lines().rfind(|line| line.starts_with("h_bucket"));
        assert_eq!(last, Some("h_bucket{le=\"+Inf\"} 2"), "{text}");
        assert_eq!(text.matches("h_bucket").count(), BUCKETS + 1, "{text}");
    }

    #[test]
    fn quantiles_are_those_of_the_values_between_two_readings() {
        let histogram = Histogram::of_micros();
        histogram.record(1_000_000, 500);
        let before = histogram.read();
        assert_eq!(before.quantile_since(&before, 0.5), None, "nothing came");
        assert_eq!(before.mean_since(&before), None);
        histogram.record(100, 98);
        histogram.record(3_000, 2);
        let now = histogram.read();
        assert_eq!(now.count_since(&before), 100);
        let (p50, p99) =
            (now.quantile_since(&before, 0.5).unwrap(), now.quantile_since(&before, 0.99).unwrap());
        assert!((64e-6..=128e-6).contains(&p50), "{p50}");
        assert!((2_048e-6..=4_096e-6).contains(&p99), "{p99}");
        let mean = now.mean_since(&before).unwrap();
        assert!((mean - 158e-6).abs() < 1e-9, "{mean}");
        // Beyond the last bound there is nothing to tell; the bound is what is known.
        histogram.record(u64::MAX, 1);
        assert!(histogram.read().quantile_since(&now, 0.5).is_some_and(f64::is_finite));
    }

    #[test]
    fn a_value_lands_in_the_bucket_that_bounds_it() {
        let histogram = Histogram::of_counts();
        for (value, bucket) in
            [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 26, 26), (u64::MAX, BUCKETS)]
        {
            let before = histogram.counts.buckets[bucket].load(Ordering::Relaxed);
            histogram.record(value, 2);
            assert_eq!(histogram.counts.buckets[bucket].load(Ordering::Relaxed), before + 2, "{value}");
        }
    }
}
