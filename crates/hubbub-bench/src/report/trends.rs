//! Whether rate, latency and memory change over a run, from its beginning to its end: a straight line through means of ten
//! seconds, as single seconds are alike. For runs of two minutes or more.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use super::{Table, figure};
use crate::host::sample::series::values;
use crate::host::sample::{BATCH_MS, SystemSample};
use crate::statistics::Slope;

/// Samples, one a second, that make one point of a line.
pub(crate) const SLOPE_SAMPLES: usize = 10;
/// What the memory of the server is called in samples.
const MEMORY: &str = "server MiB";
/// Change that is a fault where nothing should change, as a share of the mean.
const CHANGE_MAX: f64 = 0.1;

/// What may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Course {
    /// Of answers.
    Rate,
    Latency,
    BatchTime,
    Memory,
    /// Over the second half of the run: at first, caches fill.
    LateMemory,
}

impl Course {
    const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Latency => "latency",
            Self::BatchTime => "batch time",
            Self::Memory | Self::LateMemory => "memory of the server",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Rate => "/s",
            Self::Latency | Self::BatchTime => " ms",
            Self::Memory | Self::LateMemory => " MiB",
        }
    }

    const fn over(self) -> &'static str {
        match self {
            Self::LateMemory => "over the second half of the run",
            _ => "over the run",
        }
    }

    /// Whether a run in which it changes is worse for it. The batch time explains the latency, and may grow with the batches.
    /// Memory may grow while caches fill.
    const fn is_judged(self) -> bool {
        matches!(self, Self::Rate | Self::Latency | Self::LateMemory)
    }
}

/// The line of one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trend {
    figure: Course,
    #[serde(flatten)]
    slope: Slope,
}

impl Trend {
    /// The change and its bounds, in percent of the mean.
    fn percents(&self) -> [f64; 3] {
        [self.slope.change, self.slope.low, self.slope.high].map(|value| self.slope.percent(value))
    }

    fn verdict(&self) -> &'static str {
        match self.slope {
            Slope { high, .. } if high < 0.0 => "it falls",
            Slope { low, .. } if low > 0.0 => "it rises",
            _ => "no change is seen",
        }
    }

    /// Whether it surely gets worse, and by more than a tenth.
    fn is_fault(&self) -> bool {
        let Slope { mean, change, low, high } = self.slope;
        let is_worse = if self.figure == Course::Rate { high < 0.0 } else { low > 0.0 };
        self.figure.is_judged() && is_worse && change.abs() > CHANGE_MAX * mean.abs()
    }
}

/// In a sentence.
impl Display for Trend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([change, low, high], what) = (self.percents(), self.figure);
        write!(
            out,
            "{} {change:+.1} % {} (95 %: {low:+.1} to {high:+.1}): {}",
            what.name(),
            what.over(),
            self.verdict()
        )
    }
}

/// Those of a run; empty where it was too short.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trends(Vec<Trend>);

impl Trends {
    /// Of the rate and the latency.
    pub(crate) fn of([rate, latency]: [Option<Slope>; 2]) -> Self {
        let mut trends = Self::default();
        trends.push(Course::Rate, rate);
        trends.push(Course::Latency, latency);
        trends
    }

    fn push(&mut self, figure: Course, slope: Option<Slope>) {
        self.0.extend(slope.map(|slope| Trend { figure, slope }));
    }

    /// Adds what server and database did meanwhile, where the run is long enough.
    pub(crate) fn add(&mut self, samples: &[SystemSample]) {
        if self.is_empty() {
            return;
        }
        let slope = |samples, name| Slope::of(&values(samples, name), SLOPE_SAMPLES);
        let late = samples.get(samples.len() / 2..).unwrap_or_default();
        self.push(Course::BatchTime, slope(samples, BATCH_MS));
        self.push(Course::Memory, slope(samples, MEMORY));
        self.push(Course::LateMemory, slope(late, MEMORY));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Trend> {
        self.0.iter()
    }

    /// What gets worse though nothing should change, each in a sentence.
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter(|trend| trend.is_fault()).map(Trend::to_string)
    }

    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(["", "mean", "change", "95 %", "so"]);
        for trend in &self.0 {
            let ([change, low, high], what) = (trend.percents(), trend.figure);
            table.row([
                format!("{} {}", what.name(), what.over()),
                format!("{}{}", figure(trend.slope.mean), what.unit()),
                format!("{change:+.1} %"),
                format!("{low:+.1} to {high:+.1} %"),
                trend.verdict().to_owned(),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn slope(mean: f64, change: f64, half: f64) -> Option<Slope> {
        Some(Slope { mean, change, low: change - half, high: change + half })
    }

    /// Samples of two minutes in which the memory of the server grows at first.
    fn samples() -> Vec<SystemSample> {
        let value = |second: u32| f64::from(second.min(60) + second % 2);
        let sample = |second| SystemSample {
            at_s: f64::from(second),
            values: BTreeMap::from([(MEMORY.to_owned(), value(second).into())]),
            ..SystemSample::default()
        };
        (1..=120).map(sample).collect()
    }

    #[test]
    fn a_change_is_said_in_a_sentence() {
        let trends = Trends::of([slope(1_000.0, -40.0, 20.0), slope(5.0, 0.1, 0.2)]);
        let said: Vec<String> = trends.iter().map(Trend::to_string).collect();
        assert_eq!(
            said,
            [
                "rate -4.0 % over the run (95 %: -6.0 to -2.0): it falls",
                "latency +2.0 % over the run (95 %: -2.0 to +6.0): no change is seen",
            ]
        );
        let table = trends.table().markdown();
        assert!(
            table.contains("\n| rate over the run | 1,000/s | -4.0 % | -6.0 to -2.0 % | it falls |"),
            "{table}"
        );
        let json = serde_json::to_value(&trends).unwrap();
        assert_eq!((&json[0]["figure"], &json[0]["change"]), (&"rate".into(), &(-40.0).into()));
        assert_eq!(serde_json::from_value::<Trends>(json).unwrap(), trends);
    }

    #[test]
    fn what_gets_worse_by_more_than_a_tenth_is_a_fault() {
        let faults = |rate, latency| Trends::of([rate, latency]).faults().count();
        assert_eq!(faults(slope(100.0, -12.0, 3.0), None), 1);
        assert_eq!(faults(slope(100.0, -9.0, 3.0), None), 0, "less than a tenth");
        assert_eq!(faults(slope(100.0, -12.0, 13.0), None), 0, "it may be chance");
        assert_eq!(faults(slope(100.0, 12.0, 3.0), None), 0, "it gets better");
        assert_eq!(faults(None, slope(100.0, 12.0, 3.0)), 1);
        assert_eq!(faults(None, slope(100.0, -12.0, 3.0)), 0, "it gets better");
        let mut growing = Trends::default();
        growing.push(Course::Memory, slope(100.0, 50.0, 3.0));
        assert_eq!(growing.faults().count(), 0, "caches fill");
        growing.push(Course::LateMemory, slope(100.0, 12.0, 3.0));
        let said =
            "memory of the server +12.0 % over the second half of the run (95 %: +9.0 to +15.0): it rises";
        assert_eq!(growing.faults().collect::<Vec<_>>(), [said]);
    }

    #[test]
    fn memory_is_looked_at_twice_and_not_in_a_short_run() {
        let mut trends = Trends::of([slope(100.0, 0.0, 3.0), None]);
        trends.add(&samples());
        let said: Vec<&str> = trends.iter().map(Trend::verdict).collect();
        assert_eq!(said, ["no change is seen", "it rises", "no change is seen"], "{trends:?}");
        let mut short = Trends::of([None; 2]);
        short.add(&samples());
        assert!(short.is_empty() && short.table().is_empty(), "{short:?}");
    }
}
