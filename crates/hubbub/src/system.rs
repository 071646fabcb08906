//! The system clock and random source. All other crates get them as parameters.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hubbub_core::clock::{Clock, RandomSource};
use hubbub_core::invariant::saturate;
use hubbub_core::time::Timestamp;

/// The machine's clocks; wall-clock times are whole milliseconds.
///
/// The monotonic clock includes the time the machine is suspended, if the system supports it. Then a resume is not a step
/// of the wall clock.
pub(crate) struct SystemClock {
    #[cfg(not(target_os = "linux"))]
    started: std::time::Instant,
    /// For tests of debug builds: a file with the error of the wall clock, in milliseconds.
    error: Option<PathBuf>,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(not(target_os = "linux"))]
            started: std::time::Instant::now(),
            error: std::env::var_os("HUBBUB_TEST_CLOCK").filter(|_| cfg!(debug_assertions)).map(Into::into),
        }
    }

    fn error_ms(&self) -> i64 {
        let text = self.error.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let micros = self.precise().as_micros();
        Timestamp::from_micros(micros - micros.rem_euclid(1_000))
    }

    fn precise(&self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let error = self.error_ms().saturating_mul(1_000);
        Timestamp::from_micros(saturate::<_, i64>(since_1970.as_micros()).saturating_add(error))
    }

    #[cfg(target_os = "linux")]
    fn monotonic(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(time).unwrap_or_default()
    }

    #[cfg(not(target_os = "linux"))]
    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Random bits from a keyed hash of a counter. The key comes from the operating system. For ids, not for secrets.
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
