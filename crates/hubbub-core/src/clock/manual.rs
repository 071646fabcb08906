//! A clock for tests and simulations.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::Clock;
use crate::invariant::saturate;
use crate::time::Timestamp;

/// A clock that moves only by calls. Its wall clock can be set without time passing.
#[derive(Debug, Default)]
pub struct ManualClock {
    /// Time of the wall clock, if it was never set.
    micros: AtomicI64,
    /// How far the wall clock was set ahead.
    ahead: AtomicI64,
}

impl ManualClock {
    /// A clock standing at `start`.
    pub fn at(start: Timestamp) -> Self {
        Self { micros: AtomicI64::new(start.as_micros()), ahead: AtomicI64::new(0) }
    }

    /// Moves both clocks by `micros`. Negative values simulate a machine without a reliable clock.
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
        Duration::from_micros(saturate(self.micros.load(Ordering::SeqCst)))
    }
}
