//! Rate and latency of each minute of a run.
//!
//! Moments of the latencies are kept for each second. When there are too many, two seconds become one, and a minute has
//! two, so memory is bounded however long the run. Seconds that follow each other are alike; so the intervals are those of
//! ten means of six seconds ([`half_width`], which gives none where these are too alike): the method of batch means, A. M. Law, Simulation Modeling and Analysis, 5th
//! edition, section 9.5.3.

use serde::{Deserialize, Serialize};

use crate::report::{SLOPE_SAMPLES, Table, figure};
use crate::results::record::at;
use crate::statistics::{MEANS_MIN, Moments, Slope, correlation_of, half_width};

/// Width of a second, in microseconds, before it is widened.
const SECOND_US: u64 = 1_000_000;
/// Seconds of a minute, and of one of the means its intervals are made of.
const MINUTE: usize = 60;
const MEAN: usize = 6;
/// Seconds that are kept at most: four hours.
const SECONDS_MAX: usize = 4 * 60 * MINUTE;
/// Whole seconds that are worth a table: two minutes without the second in which they end.
const SECONDS_MIN: usize = 2 * MINUTE - 1;

/// What a run did in each second; an answer belongs to the second in which it came.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seconds {
    width_us: u64,
    /// Latencies in microseconds.
    seconds: Vec<Moments>,
}

impl Default for Seconds {
    fn default() -> Self {
        Self { width_us: SECOND_US, seconds: Vec::new() }
    }
}

impl Seconds {
    /// A message that was answered `at_us` after the start.
    pub(crate) fn add(&mut self, at_us: u64, latency_us: f64) {
        let mut index = at_us / self.width_us;
        while index >= SECONDS_MAX as u64 {
            self.widen();
            index = at_us / self.width_us;
        }
        // Below the bound, so it fits.
        if let Some(second) = at(&mut self.seconds, index as usize) {
            second.add(latency_us);
        }
    }

    /// Adds what another generator did in the same time.
    ///
    /// # Errors
    /// Seconds that no run has.
    pub(crate) fn merge(&mut self, other: &Self) -> anyhow::Result<()> {
        let is_width =
            (other.width_us / SECOND_US).is_power_of_two() && other.width_us.is_multiple_of(SECOND_US);
        anyhow::ensure!(is_width && other.seconds.len() <= SECONDS_MAX, "seconds of no run");
        let mut other = other.clone();
        while self.width_us < other.width_us {
            self.widen();
        }
        while other.width_us < self.width_us {
            other.widen();
        }
        for (index, second) in other.seconds.iter().enumerate() {
            if let Some(own) = at(&mut self.seconds, index) {
                own.merge(second);
            }
        }
        Ok(())
    }

    fn widen(&mut self) {
        self.width_us = self.width_us.saturating_mul(2);
        self.seconds = self.seconds.chunks(2).map(merged).collect();
    }

    fn width_s(&self) -> f64 {
        self.width_us as f64 / 1e6
    }

    /// Those before the one in which the last message began, `ended_us` after the start: of that one only a part was
    /// measured, and the ones after it have nothing but answers to what was still under way.
    fn whole(&self, ended_us: u64) -> &[Moments] {
        let count = usize::try_from(ended_us / self.width_us).unwrap_or(usize::MAX);
        self.seconds.get(..count.min(self.seconds.len())).unwrap_or_default()
    }

    fn rates<'a>(&self, seconds: &'a [Moments]) -> impl Iterator<Item = f64> + use<'a> {
        let width_s = self.width_s();
        seconds.iter().map(move |second| second.count as f64 / width_s)
    }

    /// By how much the rates of single seconds scatter, as a share of their mean; `None` for less than two seconds.
    pub(crate) fn rate_variation(&self, ended_us: u64) -> Option<f64> {
        let whole = self.whole(ended_us);
        (whole.len() > 1).then(|| self.rates(whole).collect::<Moments>().variation())
    }

    /// How the rate, and the latency in milliseconds, change over a run that has minutes; none where they do not tell.
    pub(crate) fn slopes(&self, ended_us: u64) -> [Option<Slope>; 2] {
        let whole = self.whole(ended_us);
        if whole.len() < SECONDS_MIN {
            return [None; 2];
        }
        let rates: Vec<f64> = self.rates(whole).collect();
        let answered = whole.chunks_exact(SLOPE_SAMPLES).map(merged).filter(|ten| ten.count > 0);
        let latencies: Vec<f64> = answered.map(|ten| ten.mean / 1e3).collect();
        [Slope::of(&rates, SLOPE_SAMPLES), Slope::through(&latencies)]
    }

    /// The minutes of a run whose last message began `ended_us` after its start; none of a run of less than two. What is
    /// left at the end counts from half a minute on.
    pub(crate) fn minutes(&self, ended_us: u64) -> Vec<Minute> {
        let whole = self.whole(ended_us);
        if whole.len() < SECONDS_MIN {
            return Vec::new();
        }
        let minutes: Vec<&[Moments]> =
            whole.chunks(MINUTE).filter(|seconds| seconds.len() >= MEANS_MIN * MEAN).collect();
        let means = |of: &dyn Fn(&[Moments]) -> Vec<f64>| -> Vec<Vec<f64>> {
            minutes.iter().map(|seconds| of(seconds)).collect()
        };
        let rates = means(&|seconds| {
            let sixth = |six: &[Moments]| self.rates(six).sum::<f64>() / six.len() as f64;
            seconds.chunks_exact(MEAN).map(sixth).collect()
        });
        let latencies = means(&|seconds| {
            let sixths = seconds.chunks_exact(MEAN).map(merged).filter(|six| six.count > 0);
            sixths.map(|six| six.mean / 1e3).collect()
        });
        let alike = [&rates, &latencies].map(|means| correlation_of(means));
        let each = minutes.iter().enumerate().zip(rates.iter().zip(&latencies));
        each.map(|((index, seconds), (rates, latencies))| {
            let all = merged(seconds);
            let start_s = (index * MINUTE) as f64 * self.width_s();
            let rate: Moments = self.rates(seconds).collect();
            Minute {
                start_s,
                end_s: start_s + seconds.len() as f64 * self.width_s(),
                messages: all.count,
                per_second: Spread::new(rate.mean, rate.variance(), half_width(rates, alike[0])),
                latency_ms: Spread::new(
                    all.mean / 1e3,
                    all.variance() / 1e6,
                    half_width(latencies, alike[1]),
                ),
                partial: seconds.len() < MINUTE,
            }
        })
        .collect()
    }
}

fn merged(seconds: &[Moments]) -> Moments {
    seconds.iter().fold(Moments::default(), |mut all, second| {
        all.merge(second);
        all
    })
}

/// One minute of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Minute {
    /// Seconds after the start.
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
    pub(crate) messages: u64,
    /// The variance is that of single seconds.
    pub(crate) per_second: Spread,
    /// The variance is that of single messages.
    pub(crate) latency_ms: Spread,
    /// Shorter than the others; its rate is scaled to its length.
    pub(crate) partial: bool,
}

/// A mean, how single values scatter, and where the mean lies with a probability of 95 %; `None` where that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) variance: f64,
    pub(crate) interval: Option<[f64; 2]>,
}

impl Spread {
    /// Of what cannot be negative.
    fn new(mean: f64, variance: f64, half: Option<f64>) -> Self {
        Self { mean, variance, interval: half.map(|half| [(mean - half).max(0.0), mean + half]) }
    }

    fn cells(&self) -> [String; 3] {
        let interval = self.interval.map(|bounds| bounds.map(figure));
        let interval = interval.map_or_else(String::new, |[low, high]| format!("{low} to {high}"));
        [figure(self.mean), interval, figure(self.variance)]
    }

    fn raw(&self) -> [String; 4] {
        let [low, high] =
            self.interval.map_or([const { String::new() }; 2], |it| it.map(|one| one.to_string()));
        [self.mean.to_string(), low, high, self.variance.to_string()]
    }
}

impl Minute {
    /// Its columns as CSV has them.
    pub(crate) const COLUMNS: [&str; 12] = [
        "startS",
        "endS",
        "messages",
        "partial",
        "perSecond",
        "perSecondLow",
        "perSecondHigh",
        "perSecondVariance",
        "latencyMs",
        "latencyMsLow",
        "latencyMsHigh",
        "latencyMsVariance",
    ];

    /// Its figures in these columns.
    pub(crate) fn cells(&self) -> impl Iterator<Item = String> + use<> {
        let own = [
            self.start_s.to_string(),
            self.end_s.to_string(),
            self.messages.to_string(),
            self.partial.to_string(),
        ];
        own.into_iter().chain(self.per_second.raw()).chain(self.latency_ms.raw())
    }
}

/// All minutes, for people.
pub(crate) fn table(minutes: &[Minute]) -> Table {
    let mut table =
        Table::new(["seconds", "per second", "95 %", "variance", "latency ms", "95 %", "variance"]);
    for Minute { start_s, end_s, per_second, latency_ms, .. } in minutes {
        let when = format!("{start_s:.0} to {end_s:.0}");
        table.row(std::iter::once(when).chain(per_second.cells()).chain(latency_ms.cells()));
    }
    table
}

/// All minutes, for programs.
pub(crate) fn csv(minutes: &[Minute]) -> String {
    let mut table = Table::new(Minute::COLUMNS);
    minutes.iter().for_each(|minute| table.row(minute.cells()));
    table.csv()
}

/// In one line: between which means all of them lie. `None` where there are none.
pub(crate) fn in_short(minutes: &[Minute]) -> Option<String> {
    let range = |of: fn(&Minute) -> f64| {
        let (low, high) = minutes
            .iter()
            .map(of)
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        format!("{} to {}", figure(low), figure(high))
    };
    (!minutes.is_empty()).then(|| {
        format!(
            "{}/s and {} ms, the means of {} minutes",
            range(|minute| minute.per_second.mean),
            range(|minute| minute.latency_ms.mean),
            minutes.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `per_second(s)` messages in each second, evenly, with latencies of 1 and 3 ms in turn.
    fn seconds(count: u64, per_second: impl Fn(u64) -> u64) -> Seconds {
        let mut seconds = Seconds::default();
        for second in 0..count {
            for message in 0..per_second(second) {
                let at_us = second * SECOND_US + message * SECOND_US / per_second(second);
                seconds.add(at_us, if message % 2 == 0 { 1_000.0 } else { 3_000.0 });
            }
        }
        seconds
    }

    #[test]
    fn each_minute_has_its_mean_and_variance() {
        // The second minute is faster; what is left is half a minute, and then some.
        let seconds = seconds(152, |second| if second < 60 { 100 + second % 2 * 20 } else { 200 });
        let minutes = seconds.minutes(151_500_000);
        let shown: Vec<_> = minutes.iter().map(|m| (m.start_s, m.end_s, m.messages, m.partial)).collect();
        assert_eq!(
            shown,
            [(0.0, 60.0, 6_600, false), (60.0, 120.0, 12_000, false), (120.0, 151.0, 6_200, true)]
        );
        let first = &minutes[0];
        let is_near = |value: f64, wanted: f64| (value - wanted).abs() < 1e-9;
        assert!(is_near(first.per_second.mean, 110.0) && is_near(first.latency_ms.mean, 2.0), "{first:?}");
        // 100 and 120 in turn: 60/59 times 10²; 1 and 3 ms in turn: just above 1 ms².
        assert!(is_near(first.per_second.variance, 100.0 * 60.0 / 59.0), "{first:?}");
        assert!((first.latency_ms.variance - 1.0).abs() < 1e-3, "{first:?}");
        assert_eq!(minutes[1].per_second, Spread { mean: 200.0, variance: 0.0, interval: Some([200.0; 2]) });
        assert_eq!(minutes[2].per_second.mean, 200.0, "its rate is that of its own length");
        let said = in_short(&minutes).unwrap();
        assert_eq!(said, "110.000 to 200.000/s and 2.000 to 2.000 ms, the means of 3 minutes");
        let shown = table(&minutes).markdown();
        assert!(shown.contains("\n| 60 to 120 | 200.000 | 200.000 to 200.000 | 0.000 | 2.000 | "), "{shown}");
        let csv = csv(&minutes);
        assert!(csv.contains("\n60,120,12000,false,200,200,200,0,2"), "{csv}");
        assert!(csv.lines().all(|line| line.split(',').count() == Minute::COLUMNS.len()), "{csv}");
        let json = serde_json::to_value(&minutes).unwrap();
        assert_eq!(serde_json::from_value::<Vec<Minute>>(json).unwrap(), minutes);
    }

    #[test]
    fn a_minute_that_scatters_has_a_wide_interval() {
        let calm = seconds(120, |second| 100 + second % 2);
        let alike = seconds(120, |second| 100 + second / 12 % 2 * 50);
        let width = |seconds: &Seconds| {
            let [low, high] = seconds.minutes(120_000_000)[0].per_second.interval.unwrap();
            high - low
        };
        assert!(width(&calm) < 1e-9, "means of six seconds are all the same");
        // Twelve seconds slow, twelve fast: means of six come in pairs, and count as fewer.
        let alone = half_width(&[100.0, 100.0, 150.0, 150.0, 100.0, 100.0, 150.0, 150.0, 100.0, 100.0], 0.0);
        assert!(width(&alike) > 2.0 * alone.unwrap(), "{}", width(&alike));
    }

    #[test]
    fn a_run_that_gets_slower_has_a_slope() {
        let ended_us = 200_500_000;
        let [rate, latency] = seconds(201, |second| 500 - second).slopes(ended_us);
        let rate = rate.unwrap();
        assert!((rate.change + 190.0).abs() < 1.0 && rate.high < 0.0, "{rate:?}");
        let latency = latency.unwrap();
        assert!(latency.change.abs() < 0.1 && (latency.mean - 2.0).abs() < 0.01, "{latency:?}");
        assert_eq!(seconds(119, |_| 10).slopes(118_900_000), [None; 2], "too short");
    }

    #[test]
    fn answers_after_the_last_message_are_no_second_of_the_run() {
        // The last message began in the second from 150 to 151; then come answers to what was under way.
        let draining = seconds(154, |second| if second < 150 { 100 } else { 10 });
        let ended_us = 150_400_000;
        let minutes = draining.minutes(ended_us);
        let last = minutes.last().unwrap();
        assert_eq!((last.end_s, last.messages, last.per_second.mean), (150.0, 3_000, 100.0), "{last:?}");
        assert!(draining.rate_variation(ended_us).is_some_and(|share| share < 1e-9));
        // Two minutes at 10/s: the last message begins just before they end.
        let two = seconds(120, |_| 10).minutes(119_900_000);
        let shown: Vec<_> = two.iter().map(|minute| (minute.end_s, minute.partial)).collect();
        assert_eq!(shown, [(60.0, false), (119.0, true)]);
    }

    #[test]
    fn means_that_are_too_alike_have_no_interval() {
        // A wave of two minutes: means of six seconds that follow each other are nearly the same.
        let wave =
            |second: u64| (200.0 + 100.0 * (second as f64 * std::f64::consts::TAU / 120.0).sin()) as u64;
        let minutes = seconds(240, wave).minutes(240_000_000);
        assert_eq!(minutes.len(), 4);
        assert!(minutes.iter().all(|minute| minute.per_second.interval.is_none()), "{minutes:?}");
        assert!(minutes.iter().all(|minute| minute.latency_ms.interval.is_some()), "{minutes:?}");
        let csv = csv(&minutes);
        assert!(csv.lines().all(|line| line.split(',').count() == Minute::COLUMNS.len()), "{csv}");
    }

    #[test]
    fn a_short_run_has_none() {
        let short = seconds(119, |_| 10);
        assert_eq!(short.minutes(118_900_000), []);
        assert_eq!(in_short(&[]), None);
        assert!(short.rate_variation(119_000_000).is_some_and(|share| share < 1e-9));
        assert_eq!(short.rate_variation(1_900_000), None);
        assert_eq!(Seconds::default().minutes(0), []);
        // The last twenty seconds are too few for an interval, and are left out.
        assert_eq!(seconds(140, |_| 10).minutes(140_000_000).len(), 2);
    }

    #[test]
    fn a_long_run_takes_no_more_memory_and_forgets_nothing() {
        let mut seconds = Seconds::default();
        let hours = 9;
        for second in 0..hours * 3_600 {
            seconds.add(second * SECOND_US, 1_000.0);
            seconds.add(second * SECOND_US + 1, 2_000.0);
        }
        let elapsed_us = hours * 3_600 * SECOND_US;
        assert!(seconds.seconds.len() <= SECONDS_MAX && seconds.width_us == 4 * SECOND_US);
        let minutes = seconds.minutes(elapsed_us);
        assert_eq!(minutes.len(), 135, "four minutes each");
        assert_eq!(minutes.iter().map(|minute| minute.messages).sum::<u64>(), hours * 7_200);
        let is_even = |minute: &Minute| {
            (minute.per_second.mean - 2.0).abs() < 1e-9 && (minute.latency_ms.mean - 1.5).abs() < 1e-9
        };
        assert!(minutes.iter().all(is_even), "{minutes:?}");
        // A clock that jumps far ahead.
        seconds.add(u64::MAX, 5.0);
        assert!(seconds.seconds.len() <= SECONDS_MAX);
    }
}
