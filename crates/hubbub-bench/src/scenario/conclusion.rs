//! What follows from the results of a scenario, in one line: computed from them, whatever the scenario asks.

use super::chart::differing;
use super::file::Point;
use super::find_max::RATE;
use super::results::{FIGURES, PointRun, Results, label};
use crate::report::{Analysis, figure, grouped};
use crate::statistics::median;
use crate::steps;
use crate::verdict::{Bottleneck, percent_missed};

/// Share of the highest rate from which on more of what is swept over gains little.
const KNEE: f64 = 0.9;
/// Points whose numbers tell a knee.
const KNEE_POINTS_MIN: usize = 3;

/// The medians of the rate at each point, in their order.
type Rates<'r> = [(&'r Point, f64)];

/// The same, each with its number of what is swept over.
type Numbered<'r> = (f64, &'r Point, f64);

/// `None` where nothing was measured.
pub(super) fn conclusion(results: &Results) -> Option<String> {
    let rates = FIGURES.first().map(|rate| results.by_point(rate)).unwrap_or_default();
    let rates: Vec<(&Point, f64)> = rates
        .into_iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(point, values)| (point, median(&values)))
        .collect();
    let best = rates.iter().max_by(|one, other| one.1.total_cmp(&other.1)).copied()?;
    if let Some(said) = of_steps(results) {
        return Some(capitalized(&said));
    }
    let run = results.last_of_each().find(|run| run.point == *best.0)?;
    let said = match rates.as_slice() {
        [_] => of_one(run, best.1),
        several => of_several(results, several, best),
    };
    let full = full(run).map(|full| format!(". {full}")).unwrap_or_default();
    Some(capitalized(&format!("{said}{full}.")))
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Where the rate changes within the measurements.
fn of_steps(results: &Results) -> Option<String> {
    let said = |run: &PointRun| {
        let steps = Analysis::of(&run.summary).steps;
        let said = steps::in_short(&steps)?.to_string();
        Some(if run.point.is_empty() { said } else { format!("{}: {said}", label(&run.point)) })
    };
    let all: Vec<String> = results.last_of_each().filter_map(said).collect();
    (!all.is_empty()).then(|| format!("{}.", all.join(". ")))
}

fn of_one(run: &PointRun, rate: f64) -> String {
    let p99 = FIGURES.get(2).and_then(|p99| p99.of(&run.summary));
    let p99 = p99.map(|ms| format!(", 99 % of them within {} ms", figure(ms))).unwrap_or_default();
    format!("{} a second{p99}", grouped(rate))
}

fn of_several(results: &Results, rates: &Rates<'_>, best: (&Point, f64)) -> String {
    match swept(rates) {
        Some((key, points)) if key == RATE => return of_given_rates(results, &points),
        Some((key, points)) => return of_sweep(key, &points, best.1),
        None => {}
    }
    let most = format!("most at {}, {} a second", label(best.0), grouped(best.1));
    let least = rates.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    least.map_or_else(String::new, |least| {
        format!("{most}: {:.1} times as much as at {}", best.1 / least.1, label(least.0))
    })
}

/// The one key that points differ in, its numbers in their order, and the points with their rates.
fn swept<'r>(rates: &Rates<'r>) -> Option<(&'r str, Vec<Numbered<'r>>)> {
    let points: Vec<&Point> = rates.iter().map(|(point, _)| *point).collect();
    let [key] = differing(&points)[..] else { return None };
    let mut numbers = Vec::new();
    for (point, rate) in rates {
        numbers.push((point.get(key)?.parse::<f64>().ok()?, *point, *rate));
    }
    numbers.sort_by(|one, other| one.0.total_cmp(&other.0));
    (numbers.len() >= KNEE_POINTS_MIN || key == RATE).then_some((key, numbers))
}

/// Where each point asks for a rate: up to which it was reached.
fn of_given_rates(results: &Results, points: &[Numbered<'_>]) -> String {
    let missed = |point: &Point| {
        let runs = results.runs.iter().filter(|run| run.point == *point);
        runs.filter_map(PointRun::missed).min_by(f64::total_cmp)
    };
    let first = points.iter().find_map(|(rate, point, _)| Some((*rate, missed(point)?)));
    let reached =
        points.iter().map(|(rate, ..)| *rate).filter(|rate| first.is_none_or(|(missed, _)| *rate < missed));
    let reached =
        reached.fold(None, |highest: Option<f64>, rate| Some(highest.map_or(rate, |it| it.max(rate))));
    let reached = reached.map_or_else(
        || "no rate was reached".to_owned(),
        |rate| format!("rates up to {} a second were reached", grouped(rate)),
    );
    match first {
        Some((rate, share)) => format!("{reached}; of {} only {}", grouped(rate), percent_missed(share)),
        None => reached,
    }
}

/// Where each point has another number of something: the best, the knee before it, and what is lost behind it.
fn of_sweep(key: &str, points: &[Numbered<'_>], best: f64) -> String {
    let percent = |rate: f64| format!("{:.0} %", 100.0 * rate / best);
    let at_best = points.iter().find(|(.., rate)| *rate >= best).map_or(0.0, |(number, ..)| *number);
    let mut said = format!("most at {key} {at_best}, {} a second", grouped(best));
    match points.iter().find(|(.., rate)| *rate >= KNEE * best) {
        Some((number, _, rate)) if *number < at_best => {
            said += &format!("; {key} {number} has {} of that already", percent(*rate));
        }
        _ if points.last().is_some_and(|(number, ..)| *number <= at_best) => {
            said += "; it still rises there";
        }
        _ => {}
    }
    match points.last() {
        Some((number, _, rate)) if *number > at_best && *rate < KNEE * best => {
            said += &format!("; {key} {number} has only {}", percent(*rate));
        }
        _ => {}
    }
    said
}

/// What was full in a run, as its verdict and its use of all parts say.
fn full(run: &PointRun) -> Option<String> {
    let bottleneck = run.verdict("bottleneck")?;
    let capacity = Analysis::of(&run.summary).capacity;
    let fullest = capacity.as_ref().and_then(|it| it.fullest_use());
    if bottleneck != Bottleneck::Load.name() {
        let used = fullest.map(|(name, share, _)| format!(" (fullest: {name}, {:.0} %)", 100.0 * share));
        return Some(format!("The limit there: {bottleneck}{}", used.unwrap_or_default()));
    }
    let (name, share, maximum) = fullest?;
    let share = 100.0 * share;
    Some(format!(
        "The fullest there: {name}, {share:.0} %, which would be full at {} a second",
        grouped(maximum)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn results(key: &str, runs: &[(&str, f64, Value)]) -> Results {
        let run = |(value, rate, verdict): &(&str, f64, Value)| {
            let point = if key.is_empty() { json!({}) } else { json!({key: value}) };
            let use_of_disk = json!({"resource": "disk", "share": 0.8});
            let capacity = json!({"perSecond": rate, "used": [use_of_disk], "maximumPerSecond": rate / 0.8,
                                  "headroomPerSecond": rate / 4.0, "scaleAtPerSecond": rate});
            json!({"point": point, "repetition": 1, "isClean": true, "others": 0.0, "faults": [],
                   "summary": {"perSecond": rate, "latency": {"p99Ms": 7.0}, "verdict": verdict, "capacity": capacity}})
        };
        serde_json::from_value(json!({
            "version": 1, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
            "started": "2026-01-01T00:00:00Z", "text": "", "runs": runs.iter().map(run).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    fn said(key: &str, runs: &[(&str, f64)]) -> String {
        let verdict = json!({"bottleneck": "server CPU"});
        let runs: Vec<_> = runs.iter().map(|(value, rate)| (*value, *rate, verdict.clone())).collect();
        conclusion(&results(key, &runs)).unwrap()
    }

    #[test]
    fn a_sweep_has_a_best_point_and_a_knee() {
        let rising = said("clients", &[("10", 100.0), ("20", 950.0), ("40", 1_000.0), ("80", 500.0)]);
        let best = "Most at clients 40, 1,000 a second";
        assert!(
            rising.starts_with(&format!(
                "{best}; clients 20 has 95 % of that already; clients 80 has only 50 %. "
            )),
            "{rising}"
        );
        assert!(rising.contains("The limit there: server CPU (fullest: "), "{rising}");
        let still = said("clients", &[("10", 100.0), ("20", 200.0), ("40", 400.0)]);
        assert!(still.starts_with("Most at clients 40, 400 a second; it still rises there. "), "{still}");
        let falling = said("bytes", &[("2", 400.0), ("4", 380.0), ("8", 100.0)]);
        assert!(falling.starts_with("Most at bytes 2, 400 a second; bytes 8 has only 25 %. "), "{falling}");
        let words = said("kind", &[("a", 400.0), ("b", 100.0)]);
        assert!(
            words.starts_with("Most at kind a, 400 a second: 4.0 times as much as at kind b. "),
            "{words}"
        );
        let one = said("", &[("", 400.0)]);
        assert!(one.starts_with("400 a second, 99 % of them within 7.000 ms. The limit there"), "{one}");
        assert_eq!(conclusion(&results("", &[])), None);
    }

    #[test]
    fn of_given_rates_the_highest_that_was_reached_is_told() {
        let verdict =
            |reached: f64| json!({"bottleneck": "the load itself", "figures": {"reached": reached}});
        let all =
            [("100", 100.0, verdict(1.0)), ("200", 199.0, verdict(0.99)), ("400", 250.0, verdict(0.62))];
        let text = conclusion(&results("rate", &all)).unwrap();
        assert!(text.starts_with("Rates up to 200 a second were reached; of 400 only 62 %. "), "{text}");
        assert!(text.ends_with(", 80 %, which would be full at 312 a second."), "{text}");
    }

    #[test]
    fn a_rate_in_steps_says_where_it_gets_worse() {
        let mut results = results("", &[("", 400.0, json!({"bottleneck": "server CPU"}))]);
        let step = |asked: f64, answered: f64| {
            json!({"startS": 0.0, "endS": 1.0, "askedPerSecond": asked, "perSecond": answered, "meanMs": 1.0,
                   "medianMs": 1.0, "p99Ms": 2.0, "p99FromSendMs": 2.0, "accepted": 9, "failed": 0})
        };
        results.runs[0].summary["steps"] = json!([step(100.0, 100.0), step(200.0, 150.0)]);
        let text = conclusion(&results).unwrap();
        let well = "Up to 100/s all was answered in time (p99 2.000 ms)";
        assert_eq!(text, format!("{well}; at 200/s only 75 % of it was answered meanwhile."));
    }
}
