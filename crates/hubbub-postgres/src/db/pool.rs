//! Counts how long callers waited for connections of the pool, closes old and idle connections, and keeps the minimum open.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::try_join_all;
use hubbub_core::invariant::saturate;
use hubbub_core::store::PoolFigures;

use super::{Db, Result};
use crate::options::PoolOptions;

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

impl Db {
    /// Closes connections that are too old or idle for too long. Opens connections up to the minimum.
    pub(crate) async fn reap(&self, options: &PoolOptions) -> Result<()> {
        let mut spare = self.pool.status().size.saturating_sub(options.min);
        self.pool.retain(|_, metrics| {
            let is_idle = spare > 0 && metrics.last_used() >= options.idle_timeout;
            let is_over = is_idle || metrics.age() >= options.max_lifetime;
            spare -= usize::from(is_over && spare > 0);
            !is_over
        });
        let min = options.min.min(options.max);
        if self.pool.status().size < min {
            // All are held until the last is open, so that none is counted twice.
            try_join_all((0..min).map(|_| self.get())).await?;
        }
        Ok(())
    }
}
