//! A lock-free histogram with buckets at powers of two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

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
