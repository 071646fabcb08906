//! The chart of a published page: the rates over the minutes of a single run, over the one number that points differ in, or
//! of each point.

use std::collections::BTreeSet;

use super::file::Point;
use super::results::{FIGURES, Results, bounds};
use crate::report::{Analysis, Axes, Measured, bars, measured, picture};
use crate::statistics::{Moments, median};

/// Points that make a line.
const LINE_MIN: usize = 3;
const PER_SECOND: &str = "per second";

/// A picture, and what it shows in words.
pub(super) fn chart(results: &Results) -> (String, &'static str) {
    let rates = FIGURES.first().map(|rate| results.by_point(rate)).unwrap_or_default();
    let rates: Vec<(&Point, Vec<f64>)> = rates.into_iter().filter(|(_, values)| !values.is_empty()).collect();
    if let Some(minutes) = minutes(results) {
        return (picture(&measured(&minutes, Axes { x: "minutes", y: PER_SECOND })), "Rate of each minute");
    }
    if let Some((key, points)) = swept(&rates) {
        let axes = Axes { x: key, y: PER_SECOND };
        return (picture(&measured(&points, axes)), "Mean of each point, with 95 % intervals");
    }
    let keys = differing(&points_of(&rates));
    let medians: Vec<(String, f64)> =
        rates.iter().map(|(point, values)| (short(point, &keys), median(values))).collect();
    (picture(&bars(&medians, Axes { x: "point", y: "per second, median" })), "Medians of each point")
}

/// Those of a single run.
fn minutes(results: &Results) -> Option<Vec<Measured>> {
    let [run] = &results.runs[..] else { return None };
    let minutes = Analysis::of(&run.summary).minutes;
    let measured = minutes.iter().map(|minute| Measured {
        x: minute.start_s / 60.0,
        y: minute.per_second.mean,
        interval: minute.per_second.interval,
    });
    (!minutes.is_empty()).then(|| measured.collect())
}

/// The one key that points differ in, and what was measured at its numbers.
fn swept<'r>(rates: &[(&'r Point, Vec<f64>)]) -> Option<(&'r str, Vec<Measured>)> {
    let [key] = differing(&points_of(rates))[..] else { return None };
    let mut points = Vec::new();
    for (point, values) in rates {
        points.push(Measured {
            x: point.get(key)?.parse().ok().filter(|x: &f64| *x >= 0.0 && x.is_finite())?,
            y: values.iter().copied().collect::<Moments>().mean,
            interval: bounds(values),
        });
    }
    points.sort_by(|one, other| one.x.total_cmp(&other.x));
    (points.len() >= LINE_MIN).then_some((key, points))
}

fn points_of<'r>(rates: &[(&'r Point, Vec<f64>)]) -> Vec<&'r Point> {
    rates.iter().map(|(point, _)| *point).collect()
}

/// The keys that not all points have the same value of.
pub(super) fn differing<'r>(points: &[&'r Point]) -> Vec<&'r str> {
    let keys: BTreeSet<&str> = points.iter().flat_map(|point| point.keys()).map(String::as_str).collect();
    let values = |key: &str| points.iter().map(|point| point.get(key)).collect::<BTreeSet<_>>();
    keys.into_iter().filter(|key| values(key).len() > 1).collect()
}

/// A point in as many words as tell it from the others.
fn short(point: &Point, keys: &[&str]) -> String {
    let parts = keys.iter().filter_map(|key| Some(format!("{key} {}", point.get(*key)?)));
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn results(runs: &[(Value, f64)], summary: &Value) -> Results {
        let run = |(point, rate): &(Value, f64)| {
            let mut summary = summary.clone();
            summary["perSecond"] = (*rate).into();
            json!({"point": point, "repetition": 1, "isClean": true, "faults": [], "summary": summary})
        };
        serde_json::from_value(json!({
            "version": 1, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
            "started": "2026-01-01T00:00:00Z", "text": "", "runs": runs.iter().map(run).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    #[test]
    fn a_point_is_called_by_what_tells_it_from_the_others() {
        let point = |max: u32, window: u32| {
            (json!({"batch_max": max.to_string(), "lanes": "4", "window": window.to_string()}), 5.0)
        };
        let (svg, alt) = chart(&results(&[point(1, 1), point(100, 10), point(500, 50)], &json!({})));
        assert!(svg.contains("batch_max 100, window 10</text>") && !svg.contains("lanes"), "{svg}");
        assert_eq!(alt, "Medians of each point");
    }

    #[test]
    fn a_sweep_over_a_number_is_a_line_with_intervals() {
        let point = |clients: &str, rate| (json!({"clients": clients, "bytes": "10"}), rate);
        let all = [("20", 90.0), ("20", 110.0), ("10", 50.0), ("10", 60.0), ("30", 70.0), ("30", 80.0)];
        let (svg, alt) = chart(&results(&all.map(|(clients, rate)| point(clients, rate)), &json!({})));
        assert_eq!(svg.matches("class=\"interval\"").count(), 3, "{svg}");
        assert!(
            svg.contains("over clients") && svg.contains("<title>100</title>") && alt.contains("95 %"),
            "{svg}"
        );
        let words = [point("few", 5.0), point("some", 6.0), point("many", 7.0)];
        assert!(chart(&results(&words, &json!({}))).0.contains(">clients many</text>"));
        let two = [point("10", 5.0), point("20", 6.0)];
        assert!(!chart(&results(&two, &json!({}))).0.contains("<circle"), "two points are no line");
    }

    #[test]
    fn a_long_run_is_drawn_over_its_minutes() {
        let spread = |mean: f64| json!({"mean": mean, "variance": 1.0, "interval": [mean - 1.0, mean + 1.0]});
        let minute = |n: f64| {
            json!({"startS": 60.0 * (n - 1.0), "endS": 60.0 * n, "messages": 5, "perSecond": spread(100.0 - n),
                   "latencyMs": spread(1.0), "partial": false})
        };
        let summary = json!({"minutes": [minute(1.0), minute(2.0)]});
        let (svg, alt) = chart(&results(&[(json!({}), 5.0)], &summary));
        assert!(svg.contains("per second over minutes") && svg.contains("<title>98</title>"), "{svg}");
        assert_eq!(alt, "Rate of each minute");
    }
}
