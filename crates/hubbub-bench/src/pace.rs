//! When to send: a rate that is constant or rises, and a thread that keeps to it whatever the server does.

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use hubbub_core::clock::{RandomSource, SeededRandom};
use serde::{Serialize, Serializer};

use crate::feed::Feed;
use crate::job::{Job, below};
use crate::run::Run;

/// Messages per second, from the start to the end of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    from: f64,
    to: f64,
}

impl FromStr for Rate {
    type Err = String;

    /// `1000`, or `1000..10000` for a ramp.
    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| match text.trim_start_matches('.').parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate <= 1e8 => Ok(rate),
            _ => Err("write a rate per second such as 5000, or a ramp such as 1000..10000".to_owned()),
        };
        Ok(Self { from: number(from)?, to: number(to)? })
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.from == self.to {
            write!(f, "{}", self.from)
        } else {
            write!(f, "{}..{}", self.from, self.to)
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    rate: Rate,
    duration: Duration,
    start_us: u64,
}

impl Schedule {
    /// Starts `start_us` after the start of the run.
    pub(crate) fn new(rate: Rate, duration: Duration, start_us: u64) -> Self {
        Self { rate, duration, start_us }
    }

    pub(crate) fn messages(&self) -> u64 {
        ((self.rate.from + self.rate.to) / 2.0 * self.duration.as_secs_f64()) as u64
    }

    /// When message `index` is to be sent, in microseconds after the start of the run.
    pub(crate) fn intended_us(&self, index: u64) -> u64 {
        let Rate { from, to } = self.rate;
        let growth = (to - from) / (2.0 * self.duration.as_secs_f64());
        let n = index as f64;
        // n = from·t + growth·t²
        let seconds = if growth == 0.0 {
            n / from
        } else {
            (2.0 * n) / (from + (from * from + 4.0 * growth * n).max(0.0).sqrt())
        };
        self.start_us + (seconds * 1e6) as u64
    }
}

/// Shortest sleep: many wake-ups would take time from what is measured.
const SLEEP_MIN: Duration = Duration::from_micros(50);

/// Hands over the numbers of what is due, as their time comes; returns when all are out, or `is_over` says so.
pub(crate) fn pace(
    run: &Run,
    schedule: &Schedule,
    is_over: impl Fn() -> bool,
    mut release: impl FnMut(Range<u64>),
) {
    let messages = schedule.messages();
    let mut next = 0;
    while next < messages && !is_over() {
        let (now_us, first) = (run.now_us(), next);
        while next < messages && schedule.intended_us(next) <= now_us {
            next += 1;
        }
        if first < next {
            release(first..next);
        }
        let wait_us = schedule.intended_us(next).saturating_sub(run.now_us());
        std::thread::sleep(Duration::from_micros(wait_us).max(SLEEP_MIN));
    }
}

/// Puts each message of `schedule` into `feed` when its time has come. Returns when all are there.
pub(crate) fn feed_paced(run: &Run, feed: &Feed, schedule: &Schedule, rooms: u16, random: &SeededRandom) {
    let job = |index| {
        let job = run.shape.draw(random, index, any_room(rooms, random));
        Job { intended_us: schedule.intended_us(index).max(1), ..job }
    };
    pace(run, schedule, || feed.is_ended(), |due| feed.push(&mut due.map(job).collect()));
    feed.end();
}

/// Puts messages into `feed` for the given time: the generator of a closed loop. `space` says how many more there may be,
/// after so many; where there may be none, it waits.
pub(crate) fn supply(
    run: &Run,
    feed: &Feed,
    duration: Duration,
    rooms: u16,
    random: &SeededRandom,
    space: impl Fn(u64) -> u64,
) {
    let mut jobs = Vec::new();
    let mut next = 0;
    while u128::from(run.now_us()) < duration.as_micros() && !feed.is_ended() {
        let end = next + space(next);
        jobs.extend((next..end).map(|index| run.shape.draw(random, index, any_room(rooms, random))));
        if !jobs.is_empty() {
            feed.push(&mut jobs);
        }
        next = end;
    }
    feed.end();
}

fn any_room(rooms: u16, random: &SeededRandom) -> u16 {
    below(random.next_u64(), u64::from(rooms.max(1))) as u16 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_sends_what_its_area_says() {
        let rate: Rate = "1000..10000".parse().expect("ramp");
        let schedule = Schedule::new(rate, Duration::from_secs(10), 5);
        assert_eq!(schedule.messages(), 55_000);
        assert_eq!(schedule.intended_us(0), 5);
        assert_eq!(schedule.intended_us(55_000), 10_000_005);
        let first_second = (0..55_000).filter(|&n| schedule.intended_us(n) < 1_000_005).count();
        assert_eq!(first_second, 1_450);
    }

    #[test]
    fn a_constant_rate_has_equal_steps() {
        let schedule = Schedule::new("2000".parse().expect("rate"), Duration::from_secs(3), 0);
        assert_eq!(schedule.messages(), 6_000);
        assert_eq!(schedule.intended_us(5_000), 2_500_000);
        for wrong in ["0", "-5", "fast", "1..", "1..x"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
