//! The line of figures that is shown while something is measured.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use indicatif::HumanDuration;

use crate::load::pace::Schedule;
use crate::report::{figure, grouped};

/// A generator sleeps between messages, so a schedule that is less behind is kept.
const LATE: Duration = Duration::from_millis(10);

/// How long the next message of a schedule has been due; `None` where it is not, or not for long.
pub(super) fn late(schedule: &Schedule, sent: u64, now_us: u64) -> Option<Duration> {
    let due_us = (sent < schedule.messages()).then(|| schedule.intended_us(sent))?;
    let late = Duration::from_micros(now_us.saturating_sub(due_us));
    (late >= LATE).then_some(late)
}

/// What is shown at a time.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) at: Instant,
    pub(super) name: &'static str,
    pub(super) done: u64,
    pub(super) count: u64,
    pub(super) per_second: f64,
    pub(super) left: Option<Duration>,
    /// Of all of it, where that is known.
    pub(super) share: Option<f64>,
    /// The median and the 99th percentile of the last seconds.
    pub(super) latency_ms: Option<[f64; 2]>,
    /// Retries, rejected, unconfirmed.
    pub(super) failures: [u64; 3],
    /// Behind the schedule.
    pub(super) late: Option<Duration>,
    /// Messages that the slowest subscriber is behind.
    pub(super) behind: Option<u64>,
}

impl Line {
    /// How far it is.
    pub(super) fn progress(&self) -> String {
        let count =
            if self.count > 0 { format!(" of {}", grouped(self.count as f64)) } else { String::new() };
        let left = self.left.map(|left| format!(", {} left", HumanDuration(left))).unwrap_or_default();
        let [done, per_second] = [self.done as f64, self.per_second].map(grouped);
        format!("{}: {done}{count}, {per_second}/s{left}", self.name)
    }

    /// How it goes; empty where there is nothing to say.
    pub(super) fn course(&self) -> String {
        let latency =
            self.latency_ms.map(|[median, p99]| format!("p50 {} ms, p99 {} ms", figure(median), figure(p99)));
        let failures = self.failures.into_iter().zip(["retries", "rejected", "unconfirmed"]);
        let failures = failures.filter(|(count, _)| *count > 0);
        let late =
            self.late.map(|late| format!("{} ms behind the schedule", grouped(late.as_millis() as f64)));
        let behind = self.behind.map(|behind| match behind {
            0 => "subscribers have all".to_owned(),
            behind => format!("the slowest subscriber {} behind", grouped(behind as f64)),
        });
        let failures = failures.map(|(count, what)| format!("{} {what}", grouped(count as f64)));
        let parts: Vec<String> = latency.into_iter().chain(failures).chain(late).chain(behind).collect();
        parts.join(", ")
    }
}

impl Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let course = self.course();
        let comma = if course.is_empty() { "" } else { ", " };
        write!(out, "{}{comma}{course}", self.progress())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::pace::Rate;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_schedule_is_behind_by_its_next_message() {
        let schedule = Schedule::new(Rate::constant(100.0), seconds(1.0), 5_000);
        assert_eq!(late(&schedule, 3, 35_000), None, "in time");
        assert_eq!(late(&schedule, 3, 44_999), None, "the generator slept");
        assert_eq!(late(&schedule, 3, 535_000), Some(Duration::from_millis(500)));
        assert_eq!(late(&schedule, 100, 9_000_000), None, "all are sent");
    }

    #[test]
    fn a_line_has_what_there_is() {
        let bare = Line {
            at: Instant::now(),
            name: "sending",
            done: 1_500,
            count: 0,
            per_second: 4.0,
            left: None,
            share: None,
            latency_ms: None,
            failures: [0; 3],
            late: None,
            behind: None,
        };
        assert_eq!(bare.to_string(), "sending: 1,500, 4/s");
        let failed = Line { count: 2_000, left: Some(seconds(80.0)), failures: [7, 0, 1_234], ..bare };
        assert_eq!(
            failed.to_string(),
            "sending: 1,500 of 2,000, 4/s, 80 seconds left, 7 retries, 1,234 unconfirmed"
        );
        assert_eq!(failed.course(), "7 retries, 1,234 unconfirmed");
        let late = Line { late: Some(seconds(1.5)), latency_ms: Some([0.4, 1_200.0]), count: 0, ..failed };
        let late = Line { failures: [0, 2, 0], left: None, ..late };
        let shown = late.to_string();
        assert_eq!(
            shown,
            "sending: 1,500, 4/s, p50 0.400 ms, p99 1,200 ms, 2 rejected, 1,500 ms behind the schedule"
        );
        let behind = Line { behind: Some(1_200), ..late };
        assert_eq!(behind.to_string(), format!("{shown}, the slowest subscriber 1,200 behind"));
        let followed = Line { behind: Some(0), ..behind };
        assert_eq!(followed.to_string(), format!("{shown}, subscribers have all"));
    }
}
