//! What follows from the results of a scenario, in one line: computed from them, whatever the scenario asks.

use serde_json::Value;

use super::chart::differing;
use super::file::Point;
use super::find_max::RATE;
use super::results::{FIGURES, Figure, PointRun, Results, bounds, label};
use crate::analysis::verdict::{Bottleneck, REACHED, percent_missed};
use crate::report::{Analysis, figure, grouped};
use crate::results::steps;
use crate::statistics::median;

/// Share of the highest rate from which on more of what is swept over gains little.
const KNEE: f64 = 0.9;
/// Points whose numbers tell a knee.
const KNEE_POINTS_MIN: usize = 3;
/// Less than so many times as much is not said to be more.
const SAME: f64 = 1.05;
/// What is said of a larger difference that may be chance.
const UNSURE: &str = ", but repetitions differ as much: more of them would tell";

/// The medians of the rate at each point, in their order, with that of each repetition.
type Rates<'r> = [(&'r Point, f64, Vec<f64>)];

/// The same, each with its number of what is swept over.
type Numbered<'r> = (f64, &'r Point, f64);

/// `None` where nothing was measured.
pub(super) fn conclusion(results: &Results) -> Option<String> {
    let quick = if results.is_quick { " (a quick look)" } else { "" };
    if let Some(said) = of_steps(results) {
        return Some(capitalized(&format!("{said}{quick}.")));
    }
    let rates = rates(results, FIGURES.first()?);
    let Some(best) = rates.iter().max_by(|one, other| one.1.total_cmp(&other.1)) else {
        return not_clean(results);
    };
    let once = if rates.iter().any(|(.., values)| values.len() < 2) { " (measured once)" } else { "" };
    let run = most_named(results, best.0)?;
    let said = match rates.as_slice() {
        [_] => of_one(run, best.1) + &marked(results, best.0),
        several => of_several(results, several, best),
    };
    let full = full(run).map(|full| format!(". {full}")).unwrap_or_default();
    let skipped = not_clean(results).map(|said| format!(". {said}")).unwrap_or_default();
    Some(capitalized(&format!("{said}{once}{quick}{full}{skipped}.")))
}

/// What is said of runs that do not count.
fn not_clean(results: &Results) -> Option<String> {
    let count = results.runs.iter().filter(|run| !run.is_sound()).count();
    (count > 0)
        .then(|| format!("Nothing follows from {count} of {} measurements: not clean", results.runs.len()))
}

fn clean_runs<'r>(results: &'r Results, point: &'r Point) -> impl Iterator<Item = &'r PointRun> {
    results.runs.iter().filter(move |run| run.point == *point && run.is_sound())
}

/// What clean runs have of a figure, by points in their order.
fn rates<'r>(results: &'r Results, figure: &Figure) -> Vec<(&'r Point, f64, Vec<f64>)> {
    let points = results.by_point_of(figure, PointRun::is_sound).into_iter();
    let points = points.filter(|(_, values)| !values.is_empty());
    points.map(|(point, values)| (point, median(&values), values)).collect()
}

/// Of the runs of a point, the last of those with the limit that most of them had.
fn most_named<'r>(results: &'r Results, point: &'r Point) -> Option<&'r PointRun> {
    let named = |run: &PointRun| {
        let limit = run.verdict("bottleneck");
        clean_runs(results, point).filter(|other| other.verdict("bottleneck") == limit).count()
    };
    clean_runs(results, point).max_by_key(|run| named(run))
}

/// What makes the figures of a point worth less than they seem.
fn marked(results: &Results, point: &Point) -> String {
    let marks = results.marks_of(point);
    if marks.is_empty() { String::new() } else { format!(" (marked: {})", marks.join("; ")) }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Where the rate changes within the measurements.
fn of_steps(results: &Results) -> Option<String> {
    // Of several repetitions, the one that was well the least. That some of it was refused belongs to what steps say.
    let said = |last: &PointRun| {
        let said = |run: &PointRun| {
            let steps = Analysis::of(&run.summary).steps;
            steps::in_short(&steps).map(|said| (said.well_per_second(), said.to_string()))
        };
        let runs = results.runs.iter().filter(|run| run.point == last.point && run.mishaps.is_empty());
        let all = runs.filter_map(said);
        let (_, said) = all.min_by(|one, other| one.0.total_cmp(&other.0))?;
        let said = said + &marked(results, &last.point);
        Some(if last.point.is_empty() { said } else { format!("{}: {said}", label(&last.point)) })
    };
    let all: Vec<String> = results.last_of_each().filter_map(said).collect();
    (!all.is_empty()).then(|| all.join(". "))
}

fn of_one(run: &PointRun, rate: f64) -> String {
    let p99 = FIGURES.get(2).and_then(|p99| p99.of(&run.summary));
    let p99 = p99.map(|ms| format!(", 99 % of them within {} ms", figure(ms))).unwrap_or_default();
    let point = if run.point.is_empty() { String::new() } else { format!("{}: ", label(&run.point)) };
    format!("{point}{} a second{p99}", grouped(rate))
}

fn of_several(results: &Results, rates: &Rates<'_>, best: &(&Point, f64, Vec<f64>)) -> String {
    let swept = swept(rates);
    if let Some((RATE, points)) = &swept {
        return of_given_rates(results, points);
    }
    if let Some(said) = of_latencies(results) {
        return said;
    }
    let Some(least) = rates.iter().min_by(|one, other| one.1.total_cmp(&other.1)) else {
        return String::new();
    };
    let mark = marked(results, best.0);
    let both = || {
        let [best, least] =
            [best, least].map(|(point, rate, _)| format!("{} a second at {}", grouped(*rate), label(point)));
        format!("{best}{mark}, {least}")
    };
    match Difference::between(best, least) {
        Difference::None => return format!("no difference beyond noise: {}", both()),
        Difference::Unsure => return format!("not decided: {}{UNSURE}", both()),
        Difference::Sure => {}
    }
    if let Some((key, points)) = swept {
        return of_sweep(key, &points, best.1) + &mark;
    }
    let most = format!("most at {}, {} a second{mark}", label(best.0), grouped(best.1));
    format!("{most}: {:.1} times as much as at {}", best.1 / least.1, label(least.0))
}

/// What can be said of how two points differ.
enum Difference {
    Sure,
    /// One is larger, and its repetitions do not tell whether that is chance.
    Unsure,
    None,
}

impl Difference {
    /// By what their repetitions tell, and by what is too small to be said.
    fn between(most: &(&Point, f64, Vec<f64>), least: &(&Point, f64, Vec<f64>)) -> Self {
        let may_be_chance = bounds(&most.2).zip(bounds(&least.2)).map(|([low, _], [_, high])| low <= high);
        match may_be_chance {
            Some(false) => Self::Sure,
            None | Some(true) if most.1 < SAME * least.1 => Self::None,
            Some(true) => Self::Unsure,
            None => Self::Sure,
        }
    }
}

/// Where all points were to have one rate, and had it: what they differ in is how long that took.
fn of_latencies(results: &Results) -> Option<String> {
    let asked = |run: &PointRun| {
        run.summary.pointer("/parameters/rate").filter(|rate| !rate.is_null()).map(Value::to_string)
    };
    let mut clean = results.runs.iter().filter(|run| run.is_sound());
    let rate = asked(clean.next()?)?;
    let is_kept = |run: &PointRun| run.reached().is_some_and(|share| share >= REACHED);
    let is_one = results
        .runs
        .iter()
        .filter(|run| run.is_sound())
        .all(|run| asked(run).as_ref() == Some(&rate) && is_kept(run));
    let times = if is_one { rates(results, FIGURES.get(2)?) } else { return None };
    let shortest = times.iter().min_by(|one, other| one.1.total_cmp(&other.1))?;
    let longest = times.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let at = |(point, ms, _): &(&Point, f64, Vec<f64>)| {
        format!("99 % within {} ms at {}{}", figure(*ms), label(point), marked(results, point))
    };
    let same = match Difference::between(longest, shortest) {
        Difference::Sure => "",
        Difference::Unsure => UNSURE,
        Difference::None => ", no difference beyond noise",
    };
    Some(format!("all had the rate of {}: {}, {}{same}", rate.trim_matches('"'), at(shortest), at(longest)))
}

/// The one key that points differ in, its numbers in their order, and the points with their rates.
fn swept<'r>(rates: &Rates<'r>) -> Option<(&'r str, Vec<Numbered<'r>>)> {
    let points: Vec<&Point> = rates.iter().map(|(point, ..)| *point).collect();
    let [key] = differing(&points)[..] else { return None };
    let mut numbers = Vec::new();
    for (point, rate, _) in rates {
        numbers.push((point.get(key)?.parse::<f64>().ok()?, *point, *rate));
    }
    numbers.sort_by(|one, other| one.0.total_cmp(&other.0));
    (numbers.len() >= KNEE_POINTS_MIN || key == RATE).then_some((key, numbers))
}

/// Where each point asks for a rate: up to which it was reached.
fn of_given_rates(results: &Results, points: &[Numbered<'_>]) -> String {
    // What a run does not say it did not reach.
    let share = |point: &Point| {
        let shares: Option<Vec<f64>> = clean_runs(results, point).map(PointRun::reached).collect();
        shares?.into_iter().min_by(f64::total_cmp)
    };
    let shares: Vec<(f64, f64)> =
        points.iter().filter_map(|(rate, point, _)| Some((*rate, share(point)?))).collect();
    let first = shares.iter().find(|(_, share)| *share < REACHED).copied();
    let is_reached = |rate: f64| first.is_none_or(|(missed, _)| rate < missed);
    let reached =
        shares.iter().map(|(rate, _)| *rate).filter(|rate| is_reached(*rate)).max_by(f64::total_cmp);
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
mod tests;
