//! A clock that is robust against steps of the wall clock.
//!
//! Deletions cannot be undone, and a wall clock can be wrong for a while: set by hand, by a broken time server, or by a
//! machine without a battery. [`SteadyClock`] wraps the machine's clocks. It tracks the offset of the wall clock from the
//! monotonic one, by these rules:
//!
//! - **Drift is followed at once.** While the offset stays within [`STEP_MAX`] of its value up to one trust time ago, the
//!   time is the wall clock's.
//! - **A step is followed only after it was held.** After a larger difference, in either direction, the time continues by
//!   the old offset. Once the wall clock has kept the new offset for the trust time, it is followed. So a wall clock that
//!   is wrong for less than the trust time has no effect. Within any trust time this clock and the monotonic one diverge
//!   by at most [`STEP_MAX`], unless a step was held for that long.
//! - **A start has no old offset,** but the store has a time: the last proven time when it wrote its last batch
//!   ([`Clock::begin_at`]). A wall clock behind that was set back: the time continues from the store's, and the wall clock
//!   is treated as one that stepped. A wall clock ahead by at most [`DOWNTIME_MAX`] is trusted. One that is further ahead
//!   may be right, after a long downtime, or wrong: reads and new messages use it, but [`Clock::proven`] continues from
//!   the store's time until the wall clock has kept its time for the trust time.
//!
//! Deletions go by [`Clock::proven`]: expired keys and messages, retention, forgotten ids. It differs from [`Clock::now`]
//! only in the last case. Hiding expired data is not a deletion, and goes by [`Clock::now`] everywhere.
//!
//! **What was reported as expired stays expired.** While the time is proven, expired data is deleted at once by a journaled
//! operation. A step back that is followed later finds nothing to restore. Nor does a restart with a wall clock that was
//! set back: it begins at the time of the last batch, which is the deletion or a later one. A gap remains until that
//! operation is durable: a process killed within those milliseconds, and started with a clock set back, shows the key
//! again. Only answers by an unproven time can be reverted; that is their purpose. A disk that refused writes for the
//! whole trust time leaves another gap: what expired meanwhile reappears if the clock is then set back permanently.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Clock, ClockAnomaly};
use crate::invariant::saturate;
use crate::time::Timestamp;

/// A wall clock that diverges from the monotonic one by more than this within a trust time was set.
pub const STEP_MAX: Duration = Duration::from_micros(STEP_MICROS.unsigned_abs());

/// Default time that a new offset must be kept before it is trusted.
pub const TRUST_AFTER: Duration = Duration::from_secs(60);

/// Longest downtime that is trusted at a start, in microseconds.
const DOWNTIME_MAX: i64 = 3_600_000_000;

/// [`STEP_MAX`] in microseconds.
const STEP_MICROS: i64 = 1_000_000;

/// Interval in which the followed offset is recorded, so that a step finds a recent one. In microseconds.
const RECORD_INTERVAL: i64 = 1_000_000;

/// Wraps the machine's clocks. All times and offsets are in microseconds.
pub struct SteadyClock {
    machine: Arc<dyn Clock>,
    trust_after: i64,
    /// Until this monotonic time the offset need not be recorded while it is near `centre`, so that readers need no lock.
    /// 0 = a step is not followed yet, or the time is not proven.
    fast_until: AtomicI64,
    centre: AtomicI64,
    state: Mutex<State>,
}

/// Offsets are those of the wall clock from the monotonic one.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The offset that determines the time.
    offset: i64,
    /// When `offset` was recorded.
    recorded_at: i64,
    /// The offset that drift is measured from, and since when.
    centre: i64,
    centred_at: i64,
    /// The offset of a wall clock that stepped.
    stepped: Option<HeldOffset>,
    /// The offset of the proven time, while the wall clock is followed but not proven yet.
    unproven: Option<HeldOffset>,
    /// Whether a store has passed its last proven time.
    has_begun: bool,
}

/// An offset, and since when the wall clock has kept what is to be trusted.
#[derive(Debug, Clone, Copy)]
struct HeldOffset {
    offset: i64,
    since: i64,
}

/// Simultaneous readings of both clocks.
#[derive(Debug, Clone, Copy)]
struct Reading {
    wall: i64,
    monotonic: i64,
}

/// The resulting times.
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
    /// Follows the clocks of `machine`, and a step of its wall clock after it was held for `trust_after`.
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
        self.change(|state| state.apply(reading, self.trust_after))
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        let is_fast = state.stepped.is_none() && state.unproven.is_none();
        let record_at = state.recorded_at.saturating_add(RECORD_INTERVAL);
        let centre_at = state.centred_at.saturating_add(self.trust_after);
        self.centre.store(state.centre, Ordering::Relaxed);
        self.fast_until.store(if is_fast { record_at.min(centre_at) } else { 0 }, Ordering::Release);
        result
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.times().now)
    }

    fn precise(&self) -> Timestamp {
        let (now, precise) = (self.now(), self.machine.precise());
        // What was cut off, and a moment between both readings. A clock that is not followed shows other times.
        let beyond = precise.as_micros().saturating_sub(now.as_micros());
        if (0..2_000).contains(&beyond) { precise } else { now }
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
            // A store that is reopened later has no better time.
            if let (false, Some(known)) = (state.has_begun, last_proven) {
                state.begin(reading, known.as_micros().saturating_sub(reading.monotonic));
            }
            state.has_begun = true;
        });
    }

    fn anomaly(&self) -> Option<ClockAnomaly> {
        let reading = self.read();
        self.change(|state| {
            state.apply(reading, self.trust_after);
            let stepped = state.stepped.map(|_| reading.offset().saturating_sub(state.offset));
            let unproven = state.unproven.map(|unproven| reading.offset().saturating_sub(unproven.offset));
            stepped
                .map(|micros| ClockAnomaly::Stepped { micros })
                .or(unproven.map(|micros| ClockAnomaly::Unproven { micros }))
        })
    }
}

impl Reading {
    fn offset(self) -> i64 {
        self.wall.saturating_sub(self.monotonic)
    }
}

impl State {
    /// Applies a reading, and returns the times.
    fn apply(&mut self, reading: Reading, trust_after: i64) -> Times {
        let Reading { wall, monotonic } = reading;
        let offset = reading.offset();
        if !is_near(offset, self.centre) {
            if let Some(unproven) = self.unproven {
                // The clock was set after an unproven start: decided as at the start.
                self.begin(reading, unproven.offset);
            } else if self.holds(reading, trust_after) {
                self.follow(reading);
            }
        } else {
            self.stepped = None;
            (self.offset, self.recorded_at) = (offset, monotonic);
            let held_since = self.unproven.map_or(self.centred_at, |unproven| unproven.since);
            if monotonic.saturating_sub(held_since) >= trust_after {
                self.follow(reading);
            }
        }
        let now = if self.stepped.is_some() { in_ms(monotonic.saturating_add(self.offset)) } else { wall };
        let proven = |unproven: HeldOffset| in_ms(monotonic.saturating_add(unproven.offset)).min(now);
        Times { now, proven: self.unproven.map_or(now, proven) }
    }

    /// Trusts the wall clock.
    fn follow(&mut self, reading: Reading) {
        (self.offset, self.recorded_at) = (reading.offset(), reading.monotonic);
        (self.centre, self.centred_at) = (self.offset, reading.monotonic);
        (self.stepped, self.unproven) = (None, None);
    }

    /// Compares the wall clock with the proven offset, and decides which one to follow.
    fn begin(&mut self, reading: Reading, proven: i64) {
        let offset = reading.offset();
        let ahead = offset.saturating_sub(proven);
        self.follow(reading);
        if ahead > DOWNTIME_MAX {
            self.unproven = Some(HeldOffset { offset: proven, since: reading.monotonic });
        } else if ahead < -STEP_MICROS {
            (self.offset, self.centre) = (proven, proven);
            self.stepped = Some(HeldOffset { offset, since: reading.monotonic });
        }
    }

    /// Whether the wall clock has kept its new offset for the trust time.
    fn holds(&mut self, reading: Reading, trust_after: i64) -> bool {
        let offset = reading.offset();
        match self.stepped {
            Some(held) if is_near(held.offset, offset) => {
                reading.monotonic.saturating_sub(held.since) >= trust_after
            }
            _ => {
                self.stepped = Some(HeldOffset { offset, since: reading.monotonic });
                false
            }
        }
    }
}

fn micros(duration: Duration) -> i64 {
    saturate(duration.as_micros())
}

/// Cut to milliseconds, the resolution of wall clocks.
fn in_ms(micros: i64) -> i64 {
    micros.div_euclid(1_000).saturating_mul(1_000)
}

fn is_near(offset: i64, other: i64) -> bool {
    offset.abs_diff(other) <= STEP_MICROS.unsigned_abs()
}

#[cfg(test)]
mod tests;
