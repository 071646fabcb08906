//! One time for everything that runs out.
//!
//! It begins at the time that is proven when the store is opened, and runs with the monotonic clock, so that a wall clock
//! that is set changes nothing that is under way. What is shown, and what is written for the next start, is wall-clock
//! time again.
//!
//! A wall clock far ahead of what the store knows is a long time out of service, or wrong ([`hubbub_core::Clock::proven`]).
//! Until one or the other is proven, what was loaded goes on as if no time had passed: nothing that was delayed comes
//! early, and nothing is lost because it outlived its time. Then the time out of service counts, too
//! ([`Times::time_out`]).

use std::time::Duration;

use hubbub_core::Clock;
use hubbub_core::invariant::saturate;

/// Wall clock and this time may differ by so much before that is taken for a clock that was set: clocks are corrected
/// a little all the time, and what is shown of one deadline shall not flicker with it.
const DRIFT_MICROS: i64 = 1_000;

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Now {
    /// By this module's time.
    pub(crate) at: i64,
    /// By the wall clock.
    pub(crate) wall: i64,
}

impl Now {
    /// Of something written at `begun` by the wall clock that lasts so many microseconds: when it ends. What remains is
    /// never more than it was meant to be, and never more than until the wall clock's end of it.
    pub(super) fn end_of(&self, begun: i64, lasts: u64) -> i64 {
        let lasts = saturate::<_, i64>(lasts);
        self.at.saturating_add(lasts.min(begun.saturating_add(lasts).saturating_sub(self.wall)))
    }

    /// The wall clock's name for a time.
    pub(super) fn wall_of(&self, at: i64) -> i64 {
        at.saturating_add(self.wall.saturating_sub(self.at))
    }
}

/// Where the time comes from.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    wall: i64,
    monotonic: Duration,
    /// What the wall clock is ahead by.
    ahead: i64,
    last: i64,
    /// The time out of service is not proven yet.
    is_unproven: bool,
}

impl Times {
    pub(super) fn begin(clock: &dyn Clock) -> Self {
        let (wall, proven) = (clock.now().as_micros(), clock.proven().as_micros());
        let is_unproven = proven < wall;
        Self { wall: proven, monotonic: clock.monotonic(), ahead: wall - proven, last: proven, is_unproven }
    }

    /// The time for what the store has from before the start.
    pub(super) fn for_loading(&mut self, clock: &dyn Clock) -> Now {
        let now = self.now(clock);
        if self.is_unproven { Now { at: now.at, wall: now.at } } else { now }
    }

    /// Whether the time out of service is still to be proven.
    pub(super) fn is_unproven(&self) -> bool {
        self.is_unproven
    }

    /// Whether it was to be proven, and is.
    pub(super) fn is_proven_since(&self, clock: &dyn Clock) -> bool {
        self.is_unproven && clock.proven() >= clock.now()
    }

    /// Once, when it is proven: how long the store was out of service, as far as that was left out so far, in microseconds.
    pub(super) fn time_out(&mut self, clock: &dyn Clock) -> Option<i64> {
        if !self.is_proven_since(clock) {
            return None;
        }
        self.is_unproven = false;
        let now = self.now(clock);
        Some(now.wall.saturating_sub(now.at)).filter(|micros| *micros > 0)
    }

    pub(super) fn now(&mut self, clock: &dyn Clock) -> Now {
        let passed = clock.monotonic().saturating_sub(self.monotonic).as_micros();
        let at = self.wall.saturating_add(saturate::<_, i64>(passed)).max(self.last);
        self.last = at;
        let ahead = clock.now().as_micros().saturating_sub(at);
        // Never later than the wall clock itself, so that nothing that has a date comes before it.
        if !(self.ahead..=self.ahead.saturating_add(DRIFT_MICROS)).contains(&ahead) {
            self.ahead = ahead;
        }
        Now { at, wall: at.saturating_add(self.ahead) }
    }
}

pub(super) fn micros(ms: u64) -> u64 {
    ms.saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hubbub_core::Timestamp;
    use std::sync::Mutex;

    /// A wall clock that can be set.
    struct Clocks(Mutex<(i64, u64)>);

    impl Clock for Clocks {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(self.0.lock().unwrap().0)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_micros(self.0.lock().unwrap().1)
        }
    }

    #[test]
    fn setting_the_wall_clock_ends_nothing_sooner_or_later() {
        let clocks = Clocks(Mutex::new((1_000_000_000, 5)));
        let mut times = Times::begin(&clocks);
        let begin = times.now(&clocks);
        assert_eq!((begin.at, begin.wall), (1_000_000_000, 1_000_000_000));
        *clocks.0.lock().unwrap() = (500_000_000, 105);
        let later = times.now(&clocks);
        assert_eq!((later.at - begin.at, later.wall), (100, 500_000_000));
        assert_eq!(later.wall_of(later.at + 7), 500_000_007);
        *clocks.0.lock().unwrap() = (500_000_150, 205);
        assert_eq!(times.now(&clocks).wall, 500_000_100, "a little drift is none");
    }

    #[test]
    fn what_remains_is_the_smaller_of_both() {
        let now = Now { at: 100, wall: 1_000 };
        assert_eq!(now.end_of(1_000, 50), 150, "begun now");
        assert_eq!(now.end_of(970, 50), 120, "begun before");
        assert_eq!(now.end_of(900, 50), 50, "over");
        assert_eq!(now.end_of(5_000, 50), 150, "the clock was set back meanwhile");
        assert!(now.end_of(1_000, u64::MAX) > 1 << 60);
    }
}
