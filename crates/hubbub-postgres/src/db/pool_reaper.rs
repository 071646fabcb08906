//! Closes old and idle connections of the pool, and keeps the minimum open.

use futures_util::future::try_join_all;

use super::{Db, DbError};
use crate::options::PoolOptions;

impl Db {
    /// Closes connections that are too old or idle for too long. Opens connections up to the minimum.
    pub(crate) async fn reap(&self, options: &PoolOptions) -> Result<(), DbError> {
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
