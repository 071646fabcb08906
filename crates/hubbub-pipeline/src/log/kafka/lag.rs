//! How far the partition of this server lags that is furthest behind.

use super::Core;

impl Core {
    /// Leaves the lag as it is when nothing is being stored.
    pub(super) fn measure_lag(&self) {
        self.storing.measure(self.clock.now(), &self.metrics.log_lag);
    }

    /// Forgets how far partitions lagged that were taken away. What is left is measured with the next batch of another one.
    pub(super) fn forget_lag(&self, partitions: impl Iterator<Item = u32>) {
        partitions.for_each(|partition| self.storing.forget(partition));
        self.metrics.log_lag.set(0);
        self.measure_lag();
    }
}
