//! A clock for tests and simulations.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::Clock;
use crate::time::Timestamp;

/// A clock that moves only when told. Its wall clock can be set without time passing.
#[derive(Debug, Default)]
pub struct ManualClock {
    /// Where the wall clock stands if it was never set.
    micros: AtomicI64,
    /// How far the wall clock was set ahead.
    ahead: AtomicI64,
}

impl ManualClock {
    /// A clock standing at `start`.
    pub fn at(start: Timestamp) -> Self {
        Self { micros: AtomicI64::new(start.as_micros()), ahead: AtomicI64::new(0) }
    }

    /// Lets `micros` pass by both clocks; negative ones for a machine on which no clock can be relied on.
    pub fn advance_micros(&self, micros: i64) {
        self.micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Sets the wall clock ahead by `micros`, or back by negative ones. No time passes.
    pub fn step_micros(&self, micros: i64) {
        self.ahead.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let ahead = self.ahead.load(Ordering::SeqCst);
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst).saturating_add(ahead))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.micros.load(Ordering::SeqCst)).unwrap_or(0))
    }
}
