//! Clock and random source as parameters, so that a seed replays a run.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::time::Timestamp;

/// Where the time comes from.
pub trait Clock: std::marker::Send + Sync + 'static {
    /// Wall-clock time. May step back; whoever needs order takes the maximum with what it had.
    fn now(&self) -> Timestamp;
    /// Time since an arbitrary fixed moment; never decreases. For durations.
    fn monotonic(&self) -> Duration;
}

/// Where random bits come from.
pub trait RandomSource: std::marker::Send + Sync + 'static {
    /// 64 uniformly distributed bits.
    fn next_u64(&self) -> u64;
}

/// A clock that moves only when told; for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock {
    micros: AtomicI64,
}

impl ManualClock {
    /// A clock standing at `start`.
    pub fn at(start: Timestamp) -> Self {
        Self { micros: AtomicI64::new(start.as_micros()) }
    }

    /// Moves the clock by `micros`, which may be negative for the wall clock of a badly kept machine.
    pub fn advance_micros(&self, micros: i64) {
        self.micros.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.micros.load(Ordering::SeqCst)).unwrap_or(0))
    }
}

/// splitmix64 (Steele, Lea, Flood 2014): a small generator that a seed replays. Not for secrets.
#[derive(Debug)]
pub struct SeededRandom {
    state: AtomicU64,
}

impl SeededRandom {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }
}

impl RandomSource for SeededRandom {
    fn next_u64(&self) -> u64 {
        let mut z = self
            .state
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed)
            .wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
