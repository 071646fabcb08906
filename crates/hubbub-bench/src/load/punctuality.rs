//! How punctual the load generator was: how late its threads and its sends were, and whether its clocks agreed. What it
//! measures is worth no more than that.

use std::fmt;
use std::time::{Duration, Instant};

use hubbub_core::Timestamp;
use serde::Serialize;

use crate::results::record::Stats;

/// Of the measured phase.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeneratorTiming {
    /// How much later than it wanted a thread woke that sleeps a little at a time.
    pub(crate) scheduling_delay: Stats,
    /// From the intended send until the first, of accepted messages of an open loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) send_delay: Option<Stats>,
    /// Share of the time for which the process stood still; `None` where the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stopped_share: Option<f64>,
    /// By how many milliseconds the wall clock went ahead of the monotonic one; less than 0 where it fell behind.
    pub(crate) clock_drift_ms: f64,
}

impl fmt::Display for GeneratorTiming {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "threads late by ms: {}", Late(&self.scheduling_delay))?;
        if let Some(delay) = &self.send_delay {
            write!(out, "; sends: {}", Late(delay))?;
        }
        if let Some(share) = self.stopped_share {
            write!(out, "; stood still {:.1} %", 100.0 * share)?;
        }
        write!(out, "; clock drift {:.3} ms", self.clock_drift_ms)
    }
}

struct Late<'s>(&'s Stats);

impl fmt::Display for Late<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { median_ms, p99_ms, max_ms, .. } = self.0;
        write!(out, "p50 {median_ms:.3}, p99 {p99_ms:.3}, max {max_ms:.3}")
    }
}

/// Readings of both clocks, of which those nearest to each other count.
const READINGS: usize = 5;

/// The monotonic and the wall clock at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockMark {
    at: Instant,
    wall: Timestamp,
}

impl ClockMark {
    pub(crate) fn now() -> Self {
        let read = || {
            let mark = Self { at: Instant::now(), wall: crate::host::machine::now() };
            (mark.at.elapsed(), mark)
        };
        let first = read();
        let nearest =
            |one: (Duration, Self), other: (Duration, Self)| if other.0 < one.0 { other } else { one };
        std::iter::repeat_with(read).take(READINGS - 1).fold(first, nearest).1
    }

    /// By how many milliseconds the wall clock went ahead of the monotonic one until `later`.
    pub(crate) fn drift_ms(&self, later: &Self) -> f64 {
        let wall_us = later.wall.as_micros() - self.wall.as_micros();
        wall_us as f64 / 1e3 - 1e3 * later.at.duration_since(self.at).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_meanwhile_drifts() {
        let begun = ClockMark::now();
        for (wall_us, drift_ms) in [(10_000_000, 0.0), (10_250_500, 250.5), (9_999_000, -1.0)] {
            let wall = Timestamp::from_micros(begun.wall.as_micros() + wall_us);
            let later = ClockMark { at: begun.at + Duration::from_secs(10), wall };
            assert!(
                (begun.drift_ms(&later) - drift_ms).abs() < 1e-6,
                "{wall_us}: {}",
                begun.drift_ms(&later)
            );
        }
    }

    #[test]
    fn sends_are_told_of_open_loops_only() {
        let late = |ms| Stats { median_ms: ms, p99_ms: 2.0 * ms, max_ms: 3.0 * ms, ..Stats::default() };
        let closed =
            GeneratorTiming { scheduling_delay: late(1.0), clock_drift_ms: -0.5, ..Default::default() };
        let open =
            GeneratorTiming { send_delay: Some(late(10.0)), stopped_share: Some(0.25), ..closed.clone() };
        let threads = "threads late by ms: p50 1.000, p99 2.000, max 3.000";
        assert_eq!(closed.to_string(), format!("{threads}; clock drift -0.500 ms"));
        let sends = "sends: p50 10.000, p99 20.000, max 30.000; stood still 25.0 %";
        assert_eq!(open.to_string(), format!("{threads}; {sends}; clock drift -0.500 ms"));
        let [closed, open] = [closed, open].map(|timing| serde_json::to_value(timing).unwrap());
        assert!(closed.get("sendDelay").is_none() && closed.get("stoppedShare").is_none(), "{closed}");
        assert_eq!((&open["sendDelay"]["maxMs"], &open["stoppedShare"]), (&30.0.into(), &0.25.into()));
    }
}
