//! Rows of one interval, the newest of them: when it is full, the oldest row goes.

use std::collections::VecDeque;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::Moment;
use super::series::{Series, Span};

/// A figure; `null` in JSON where there was nothing to measure.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub(crate) struct Value(#[schemars(with = "Option<f64>")] f32);

impl Value {
    #[allow(clippy::cast_possible_truncation, reason = "seven digits are enough to draw")]
    fn of(value: Option<f64>) -> Self {
        Self(value.map_or(f32::NAN, |value| value as f32))
    }

    fn or_zero(self) -> f64 {
        if self.0.is_nan() { 0.0 } else { f64::from(self.0) }
    }
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) at: Duration,
    /// How long the interval really was.
    seconds: f64,
    pub(super) values: Box<[Value]>,
}

/// The rows of an interval, column by column.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Columns {
    /// Seconds between two rows, if the server is not late.
    seconds: u64,
    /// When each interval ended: seconds on the server's monotonic clock.
    at: Vec<f64>,
    /// One list for each of `series`, as long as `at`.
    values: Vec<Vec<Value>>,
}

#[derive(Debug)]
pub(super) struct Ring {
    interval: Duration,
    rows_max: usize,
    rows: VecDeque<Row>,
    /// Where the next interval begins.
    before: Moment,
}

impl Ring {
    pub(super) fn new((interval, rows_max): (Duration, usize), now: Moment) -> Self {
        Self { interval, rows_max, rows: VecDeque::with_capacity(rows_max), before: now }
    }

    /// Adds a row if an interval has passed since the last one.
    pub(super) fn add(&mut self, now: &Moment, series: &[Series]) -> Option<&Row> {
        let passed = now.at.saturating_sub(self.before.at);
        // A timer is late or early by a little; half of a second is nearer to this interval than to the next one.
        if passed.is_zero() || passed + Duration::from_millis(500) < self.interval {
            return None;
        }
        let span = Span { before: &self.before, now, seconds: passed.as_secs_f64() };
        let values = series.iter().map(|one| Value::of(one.value(&span))).collect();
        if self.rows.len() >= self.rows_max {
            self.rows.pop_front();
        }
        self.rows.push_back(Row { at: now.at, seconds: span.seconds, values });
        self.before = now.clone();
        self.rows.back()
    }

    pub(super) fn columns(&self, width: usize) -> Columns {
        let column =
            |index: usize| self.rows.iter().filter_map(|row| row.values.get(index).copied()).collect();
        Columns {
            seconds: self.interval.as_secs(),
            at: self.rows.iter().map(|row| row.at.as_secs_f64()).collect(),
            values: (0..width).map(column).collect(),
        }
    }

    /// What a rate per second adds up to over the last `rows` rows.
    pub(super) fn total_over(&self, column: usize, rows: usize) -> f64 {
        let newest = self.rows.iter().rev().take(rows);
        newest.filter_map(|row| Some(row.values.get(column)?.or_zero() * row.seconds)).sum()
    }
}
