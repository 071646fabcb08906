//! Clock and random source as parameters, so that a seed replays a run.

mod manual;
mod steady;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::time::Timestamp;
pub use manual::ManualClock;
pub use steady::{STEP_MAX, SteadyClock, TRUST_AFTER};

/// A source of time.
pub trait Clock: std::marker::Send + Sync + 'static {
    /// Wall-clock time. May step back; callers that need an order take the maximum with the previous value.
    fn now(&self) -> Timestamp;

    /// The same to the microsecond, to show beside times of other programs. [`Clock::now`] has whole milliseconds.
    fn precise(&self) -> Timestamp {
        self.now()
    }

    /// Time since an arbitrary moment. Never decreases. For durations.
    fn monotonic(&self) -> Duration;

    /// A time that has certainly passed, for deletions. Usually [`Clock::now`], never later; see [`SteadyClock`].
    fn proven(&self) -> Timestamp {
        self.now()
    }

    /// Passes the last [`Clock::proven`] time that a store has on its disk; `None` = the store is new. Called when a store
    /// is opened, before its data is compared with the time.
    fn begin_at(&self, last_proven: Option<Timestamp>) {
        let _ = last_proven;
    }

    /// Why the wall clock is not trusted; `None` = it is.
    fn anomaly(&self) -> Option<ClockAnomaly> {
        None
    }
}

/// Why a wall clock is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockAnomaly {
    /// It stepped against the monotonic clock, and is not followed yet.
    Stepped {
        /// Size of the step; positive = ahead.
        micros: i64,
    },
    /// At the start it was far ahead of the newest time in the store: a long downtime, or a wrong clock. It is followed,
    /// but nothing is deleted by it yet.
    Unproven {
        /// How far it is ahead.
        micros: i64,
    },
}

impl std::fmt::Display for ClockAnomaly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Stepped { micros } | Self::Unproven { micros }) = self;
        let seconds = micros.unsigned_abs() / 1_000_000;
        match self {
            Self::Stepped { .. } => {
                let direction = if *micros < 0 { "back" } else { "ahead" };
                write!(f, "the wall clock stepped {direction} by {seconds} s; it is followed")?;
                f.write_str(" once it has kept its time for clock.trust_after")
            }
            Self::Unproven { .. } => write!(
                f,
                "at the start the wall clock was {seconds} s ahead of the newest time in the store; nothing is deleted \
                 by it until it has kept its time for clock.trust_after",
            ),
        }
    }
}

/// A source of random bits.
pub trait RandomSource: std::marker::Send + Sync + 'static {
    /// 64 uniformly distributed bits.
    fn next_u64(&self) -> u64;
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
