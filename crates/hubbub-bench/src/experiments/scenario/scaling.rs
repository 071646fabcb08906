//! How the rate grows with the one thing that a scenario sweeps over, as the Universal Scalability Law has it.

use std::fmt::{self, Display};

use serde::Serialize;

use super::file::Point;
use crate::report::grouped;
use crate::statistics::median;
use crate::statistics::models::usl::{Estimate, Usl};

/// Points that a law is fitted to, at least: it has three parameters.
const POINTS_MIN: usize = 4;

/// What the law is about: how many work or ask at the same time. Sizes, times and given rates are something else.
const HOW_MANY: [&str; 10] = [
    "clients",
    "connections",
    "in-flight",
    "listeners",
    "publishers",
    "senders",
    "server.threads",
    "servers",
    "subscribers",
    "window",
];

/// The law of a scenario, and how well it agrees with what was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Scaling {
    /// The option or setting that was swept over.
    over: String,
    #[serde(flatten)]
    law: Usl,
    points: Vec<Prediction>,
    /// Measurements that it is fitted to, and all of them: those that are not clean are left out.
    measurements: [usize; 2],
}

/// A point that was measured; rates are medians of the repetitions, in each second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Prediction {
    at: f64,
    per_second: f64,
    predicted_per_second: f64,
}

impl Scaling {
    /// Of the rates at each point. `None` unless the points differ in how many of one thing there are, and are enough.
    pub(super) fn of(rates: &[(&Point, Vec<f64>)]) -> Option<Self> {
        let over = rates.first()?.0.keys().next()?;
        if !HOW_MANY.contains(&over.as_str()) {
            return None;
        }
        let mut measured = Vec::new();
        for (point, values) in rates.iter().filter(|(_, values)| !values.is_empty()) {
            let number = point.get(over).filter(|_| point.len() == 1)?;
            measured.push((number.parse::<f64>().ok()?, values));
        }
        if measured.len() < POINTS_MIN {
            return None;
        }
        let pairs = measured.iter().flat_map(|(at, values)| values.iter().map(move |value| (*at, *value)));
        let law = Usl::fit(&pairs.collect::<Vec<_>>())?;
        let prediction = |(at, values): &(f64, &Vec<f64>)| Prediction {
            at: *at,
            per_second: median(values),
            predicted_per_second: law.rate(*at),
        };
        let count = measured.iter().map(|(_, values)| values.len()).sum();
        let points = measured.iter().map(prediction).collect();
        Some(Self { over: over.clone(), points, law, measurements: [count; 2] })
    }

    /// The same where so many of all measurements were taken for it.
    pub(super) fn of_runs(self, taken: usize, all: usize) -> Self {
        Self { measurements: [taken, all], ..self }
    }

    /// Share by which the worst point differs from the law.
    fn off_by(&self) -> f64 {
        let off = |one: &Prediction| (one.per_second / one.predicted_per_second - 1.0).abs();
        self.points.iter().map(off).fold(0.0, f64::max)
    }
}

impl Display for Scaling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { over, law, points, measurements: [taken, all] } = self;
        let percent = |estimate| shown(estimate, |value| format!("{:.3} %", 100.0 * value));
        let number = |estimate| shown(estimate, |value| format!("{value:.1}"));
        let rate = |estimate| shown(estimate, |value| format!("{}/s", grouped(value)));
        writeln!(out, "  Universal Scalability Law over {over}, with 95 % intervals:")?;
        writeln!(out, "    one alone              {}", rate(law.lambda))?;
        writeln!(
            out,
            "    waiting (contention)   {} of the work is done by one at a time",
            percent(law.sigma)
        )?;
        writeln!(out, "    agreeing (coherency)   {} more work for each pair", percent(law.kappa))?;
        match (law.maximum, law.peak) {
            (Some(maximum), Some(peak)) => {
                writeln!(out, "    predicted maximum      {} at {over} {}", rate(maximum), number(peak))?;
            }
            (Some(maximum), None) => {
                writeln!(out, "    predicted maximum      {}, approached but not reached", rate(maximum))?;
            }
            (None, _) => writeln!(out, "    predicted maximum      none: the rate grows in proportion")?,
        }
        if let Some(knee) = law.knee {
            writeln!(out, "    knee                   {over} {}: beyond it, more gain little", number(knee))?;
        }
        if law.is_extrapolated && law.maximum.is_some() {
            writeln!(out, "    the maximum lies beyond what was measured: a guess")?;
        }
        let off = 100.0 * self.off_by();
        write!(out, "    {} points, the worst {off:.1} % off the law", points.len())?;
        if taken < all {
            write!(out, "; {} of {all} measurements left out: not clean", all - taken)?;
        }
        writeln!(out)
    }
}

fn shown(estimate: Estimate, text: impl Fn(f64) -> String) -> String {
    let Estimate { value, interval } = estimate;
    match interval {
        // None of these figures can be negative.
        Some([low, high]) => format!("{} ({} to {})", text(value), text(low.max(0.0)), text(high)),
        None => text(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(over: &str, numbers: &[&str]) -> Vec<Point> {
        numbers.iter().map(|number| Point::from([(over.to_owned(), (*number).to_owned())])).collect()
    }

    /// Made with λ = 1,000, σ = 0.1 and κ = 0.01, and repetitions that differ by 2 in a thousand.
    fn table(points: &[Point]) -> Vec<(&Point, Vec<f64>)> {
        let rate = |n: f64| 1_000.0 * n / (1.0 + 0.1 * (n - 1.0) + 0.01 * n * (n - 1.0));
        let numbers = [1.0, 2.0, 4.0, 8.0, 16.0];
        let values = numbers.map(|n| [0.999, 1.0, 1.001].map(|share| share * rate(n)).to_vec());
        points.iter().zip(values).collect()
    }

    #[test]
    fn a_sweep_over_how_many_has_its_law_in_words() {
        let points = points("clients", &["1", "2", "4", "8", "16"]);
        let scaling = Scaling::of(&table(&points)).unwrap();
        let [sigma, kappa] = [scaling.law.sigma, scaling.law.kappa].map(|one| one.value);
        assert!((sigma - 0.1).abs() < 1e-3 && (kappa - 0.01).abs() < 1e-4, "{scaling:?}");
        let said = scaling.to_string();
        for part in [
            "over clients",
            "one alone              1,000/s (",
            "10.000 % (",
            "1.000 % (",
            "at clients 9.5 (",
            "knee                   clients 3.6 (",
            "5 points, the worst 0.0 % off",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("beyond what was measured"), "{said}");
        let json = serde_json::to_value(&scaling).unwrap();
        assert_eq!((&json["over"], json["points"].as_array().unwrap().len()), (&"clients".into(), 5));
        let interval = json["maximum"]["interval"].as_array().unwrap();
        let bounds: Vec<f64> = interval.iter().filter_map(serde_json::Value::as_f64).collect();
        let maximum = json["maximum"]["value"].as_f64().unwrap();
        assert!(bounds[0] < maximum && maximum < bounds[1], "{json}");
    }

    #[test]
    fn other_sweeps_have_none() {
        for (over, numbers) in [
            ("bytes", &["1", "2", "4", "8"][..]),
            ("rate", &["1", "2", "4", "8"]),
            ("clients", &["1", "2", "4"]),
            ("clients", &["1", "2", "4", "many"]),
        ] {
            assert_eq!(Scaling::of(&table(&points(over, numbers))), None, "{over} {numbers:?}");
        }
        let mut two = points("clients", &["1", "2", "4", "8"]);
        two[1].insert("bytes".to_owned(), "9".to_owned());
        assert_eq!(Scaling::of(&table(&two)), None);
        assert_eq!(Scaling::of(&[]), None);
    }
}
