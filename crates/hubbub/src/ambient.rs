//! The machine's clock and randomness; every other crate is handed these.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hubbub_core::clock::{Clock, RandomSource};
use hubbub_core::time::Timestamp;

/// The machine's clocks; wall-clock times are whole milliseconds.
pub(crate) struct SystemClock {
    started: Instant,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since_1970.as_millis()).unwrap_or(0).saturating_mul(1_000))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Random bits from a keyed hash of a counter; the key comes from the operating system. Good for ids, not for secrets.
pub(crate) struct KeyedRandom {
    key: RandomState,
    counter: AtomicU64,
}

impl KeyedRandom {
    pub(crate) fn new() -> Self {
        Self { key: RandomState::new(), counter: AtomicU64::new(0) }
    }
}

impl RandomSource for KeyedRandom {
    fn next_u64(&self) -> u64 {
        self.key.hash_one(self.counter.fetch_add(1, Ordering::Relaxed))
    }
}
