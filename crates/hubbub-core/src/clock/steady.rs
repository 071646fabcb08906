//! A clock that survives a wall clock that is set.
//!
//! Deleting cannot be undone, and a wall clock can be wrong for a moment: set by hand, by a time server gone mad, by a
//! machine that starts without a battery. [`SteadyClock`] stands between the machine's clocks and everybody else. It
//! knows the offset between the wall clock and the monotonic one, and goes by these rules:
//!
//! - **Drift is followed at once.** As long as the offset stays within [`STEP_MAX`] of where it was up to one trust time
//!   ago, the time is the wall clock's.
//! - **A step is not followed until it was held.** With a larger difference, in either direction, the time goes on by the
//!   old offset. Once the wall clock has kept the new offset for the trust time, it is followed. So a wall clock that is
//!   wrong for less than the trust time has no effect, and in any trust time this clock and the monotonic one come apart
//!   by no more than [`STEP_MAX`], unless a step was held for that long.
//! - **A start has no old offset,** but the store knows a time: the last one that was proven when it wrote its last batch
//!   ([`Clock::begin_at`]). A wall clock behind it has been set back: the time goes on from what the store knows, and the
//!   wall clock is treated as one that stepped. A wall clock ahead by at most [`DOWNTIME_MAX`] is believed. One that is
//!   further ahead may be right, after a long time out of service, or wrong: reads and new messages go by it, but
//!   [`Clock::proven`] goes on from what the store knows until the wall clock has kept its time for the trust time.
//!
//! [`Clock::proven`] is what deletes: expired keys and messages, retention, ids that are forgotten. It differs from
//! [`Clock::now`] in the last case only. Hiding what has run out is no deletion, and goes by [`Clock::now`] everywhere.
//!
//! **What was answered as expired stays expired.** While the time is proven, what it says is expired is deleted by a
//! journaled operation at once, so a step back that is followed later finds nothing to bring back, and nor does a restart
//! with a wall clock that was set back: it begins at the time of the last batch, that of the deletion or a later one.
//! What is left is the moment until that operation is durable: a process killed within those milliseconds, and started
//! with a clock set back, shows the key again.
//! Only answers by a time that was not proven can be taken back; that is their purpose. A disk that refused writes for
//! the whole trust time leaves a gap: what ran out meanwhile is there again if the clock is then set back for good.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Clock, ClockDoubt};
use crate::time::Timestamp;

/// A wall clock that comes apart from the monotonic one by more than this within a trust time has been set.
pub const STEP_MAX: Duration = Duration::from_micros(STEP_MICROS.unsigned_abs());

/// How long a new offset must be kept by default before it is believed.
pub const TRUST_AFTER: Duration = Duration::from_secs(60);

/// A wall clock that says that a store was out of service for longer than this must prove it.
const DOWNTIME_MAX: i64 = 3_600_000_000;

/// [`STEP_MAX`] in microseconds.
const STEP_MICROS: i64 = 1_000_000;

/// How often the offset is noted while it is followed, so that a step finds a recent one to go on by.
const NOTE_EVERY: i64 = 1_000_000;

/// The machine's clocks, and what is made of them. All times and offsets are in microseconds.
pub struct SteadyClock {
    machine: Arc<dyn Clock>,
    trust_after: i64,
    /// Until this monotonic time nothing need be noted while the offset is near `centre`, so that those who ask for the
    /// time need no lock. 0 = a step is not followed yet, or nothing is proven.
    fast_until: AtomicI64,
    centre: AtomicI64,
    state: Mutex<State>,
}

/// Offsets are those of the wall clock from the monotonic one.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// What the time goes by.
    offset: i64,
    /// When `offset` was noted.
    noted_at: i64,
    /// What drift is measured from, and since when.
    centre: i64,
    centred_at: i64,
    /// Where a wall clock that stepped is.
    stepped: Option<Held>,
    unproven: Option<Unproven>,
    /// Whether a store said what it knows.
    has_begun: bool,
}

/// An offset that is not believed yet, and since when the wall clock keeps it.
#[derive(Debug, Clone, Copy)]
struct Held {
    offset: i64,
    since: i64,
}

/// The wall clock is followed, but nothing proves it yet.
#[derive(Debug, Clone, Copy)]
struct Unproven {
    /// The offset that proven time goes by.
    proven: i64,
    since: i64,
}

/// What both clocks said at a moment.
#[derive(Debug, Clone, Copy)]
struct Reading {
    wall: i64,
    monotonic: i64,
}

/// What is made of that.
#[derive(Debug, Clone, Copy)]
struct Times {
    now: i64,
    proven: i64,
}

impl std::fmt::Debug for SteadyClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SteadyClock").field("trust_after", &self.trust_after).finish_non_exhaustive()
    }
}

impl SteadyClock {
    /// Follows the clocks of `machine`; a step of its wall clock once it was held for `trust_after`.
    pub fn new(machine: Arc<dyn Clock>, trust_after: Duration) -> Self {
        let clock = Self {
            machine,
            trust_after: micros(trust_after),
            fast_until: AtomicI64::new(0),
            centre: AtomicI64::new(0),
            state: Mutex::default(),
        };
        let reading = clock.read();
        clock.change(|state| state.follow(reading));
        clock
    }

    fn read(&self) -> Reading {
        Reading { wall: self.machine.now().as_micros(), monotonic: micros(self.machine.monotonic()) }
    }

    fn times(&self) -> Times {
        let reading = self.read();
        let fast_until = self.fast_until.load(Ordering::Acquire);
        if reading.monotonic < fast_until && is_near(reading.offset(), self.centre.load(Ordering::Relaxed)) {
            return Times { now: reading.wall, proven: reading.wall };
        }
        self.change(|state| state.look(reading, self.trust_after))
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        let is_fast = state.stepped.is_none() && state.unproven.is_none();
        let note_at = state.noted_at.saturating_add(NOTE_EVERY);
        let centre_at = state.centred_at.saturating_add(self.trust_after);
        self.centre.store(state.centre, Ordering::Relaxed);
        self.fast_until.store(if is_fast { note_at.min(centre_at) } else { 0 }, Ordering::Release);
        result
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.times().now)
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }

    fn proven(&self) -> Timestamp {
        Timestamp::from_micros(self.times().proven)
    }

    fn begin_at(&self, last_proven: Option<Timestamp>) {
        let reading = self.read();
        self.change(|state| {
            // A store that is opened again while this runs knows nothing better.
            if let (false, Some(known)) = (state.has_begun, last_proven) {
                state.begin(reading, known.as_micros().saturating_sub(reading.monotonic));
            }
            state.has_begun = true;
        });
    }

    fn doubt(&self) -> Option<ClockDoubt> {
        let reading = self.read();
        self.change(|state| {
            state.look(reading, self.trust_after);
            let stepped = state.stepped.map(|_| reading.offset().saturating_sub(state.offset));
            let unproven = state.unproven.map(|unproven| reading.offset().saturating_sub(unproven.proven));
            stepped
                .map(|micros| ClockDoubt::Stepped { micros })
                .or(unproven.map(|micros| ClockDoubt::Unproven { micros }))
        })
    }
}

impl Reading {
    fn offset(self) -> i64 {
        self.wall.saturating_sub(self.monotonic)
    }
}

impl State {
    /// Takes note of a reading, and says what time it is.
    fn look(&mut self, reading: Reading, trust_after: i64) -> Times {
        let Reading { wall, monotonic } = reading;
        let offset = reading.offset();
        if !is_near(offset, self.centre) {
            if let Some(unproven) = self.unproven {
                // The clock was set after an unproven start: it is looked at as at the start.
                self.begin(reading, unproven.proven);
            } else if self.holds(reading, trust_after) {
                self.follow(reading);
            }
        } else {
            self.stepped = None;
            (self.offset, self.noted_at) = (offset, monotonic);
            let held_since = self.unproven.map_or(self.centred_at, |unproven| unproven.since);
            if monotonic.saturating_sub(held_since) >= trust_after {
                self.follow(reading);
            }
        }
        let now = if self.stepped.is_some() { in_ms(monotonic.saturating_add(self.offset)) } else { wall };
        let proven = |unproven: Unproven| in_ms(monotonic.saturating_add(unproven.proven)).min(now);
        Times { now, proven: self.unproven.map_or(now, proven) }
    }

    /// Believes the wall clock.
    fn follow(&mut self, reading: Reading) {
        (self.offset, self.noted_at) = (reading.offset(), reading.monotonic);
        (self.centre, self.centred_at) = (self.offset, reading.monotonic);
        (self.stepped, self.unproven) = (None, None);
    }

    /// Compares the wall clock with what is proven, and goes by one or the other.
    fn begin(&mut self, reading: Reading, proven: i64) {
        let offset = reading.offset();
        let ahead = offset.saturating_sub(proven);
        self.follow(reading);
        if ahead > DOWNTIME_MAX {
            self.unproven = Some(Unproven { proven, since: reading.monotonic });
        } else if ahead < -STEP_MICROS {
            (self.offset, self.centre) = (proven, proven);
            self.stepped = Some(Held { offset, since: reading.monotonic });
        }
    }

    /// Whether a wall clock that stepped was held where it is for the trust time.
    fn holds(&mut self, reading: Reading, trust_after: i64) -> bool {
        let offset = reading.offset();
        match self.stepped {
            Some(held) if is_near(held.offset, offset) => {
                reading.monotonic.saturating_sub(held.since) >= trust_after
            }
            _ => {
                self.stepped = Some(Held { offset, since: reading.monotonic });
                false
            }
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Cut to milliseconds, as those of wall clocks are.
fn in_ms(micros: i64) -> i64 {
    micros.div_euclid(1_000).saturating_mul(1_000)
}

fn is_near(offset: i64, other: i64) -> bool {
    offset.abs_diff(other) <= STEP_MICROS.unsigned_abs()
}

#[cfg(test)]
mod tests;
