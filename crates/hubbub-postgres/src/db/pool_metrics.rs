//! Counts how long callers waited for connections of the pool.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::store::PoolFigures;

/// Counters since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct PoolMetrics {
    count: AtomicU64,
    timeouts: AtomicU64,
    micros: AtomicU64,
    micros_max: AtomicU64,
}

impl PoolMetrics {
    pub(crate) fn record(&self, waited: Duration, is_timeout: bool) {
        let micros: u64 = saturate(waited.as_micros());
        self.count.fetch_add(1, Relaxed);
        self.timeouts.fetch_add(u64::from(is_timeout), Relaxed);
        self.micros.fetch_add(micros, Relaxed);
        self.micros_max.fetch_max(micros, Relaxed);
    }

    pub(crate) fn figures(&self) -> PoolFigures {
        PoolFigures {
            acquired: self.count.load(Relaxed),
            timeouts: self.timeouts.load(Relaxed),
            acquire_us: self.micros.load(Relaxed),
            acquire_us_max: self.micros_max.load(Relaxed),
            ..PoolFigures::default()
        }
    }
}
