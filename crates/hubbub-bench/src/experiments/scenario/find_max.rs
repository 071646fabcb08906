//! `hubbub bench find-max`: the highest rate at which a scenario keeps its thresholds.
//!
//! The rate doubles until something is not kept, then the gap between the highest that was kept and the lowest that was not
//! is halved, by its logarithm, until it is narrow. Each rate is measured until most of its repetitions agree.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::file::{Measurement, Point, Scenario};
use super::marks::store_behind;
use super::results::{Results, label, shown, shown_point};
use super::{RunArgs, measure_once, read};
use crate::analysis::verdict::REACHED;
use crate::host::background_load::{NOT_KNOWN, largest, marks};
use crate::host::machine::Machine;
use crate::progress::Overall;
use crate::report::{grouped, write_files};
use crate::workloads::engine::Findings;

/// The option that it sets.
pub(super) const RATE: &str = "rate";
/// Where a search begins when nothing is said.
const START: f64 = 1_000.0;
/// A search that falls below this has found nothing.
const LOWEST: f64 = 1.0;

#[derive(Debug, Clone, Args)]
pub(crate) struct FindMaxArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Rate to begin with; by default that of the scenario, or 1,000
    #[arg(long, value_name = "N")]
    from: Option<f64>,
    /// How near the rate that failed may be to the one that did not, in percent
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT")]
    precision: f64,
    /// Most measurements of a rate; what most of them say counts
    #[arg(long, default_value_t = 3, value_name = "N")]
    repetitions: usize,
}

/// What came of one rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Verdict {
    Kept,
    /// With the reason.
    Missed(String),
    /// Nothing was lost, but the rate was missed, and the load generator could do no more: with what it said.
    Generator(String),
}

#[derive(Debug, Serialize)]
struct RateTried {
    rate: f64,
    verdict: Verdict,
}

/// The result of one point.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    point: Point,
    /// The highest rate that was kept; `None` if none was.
    highest: Option<f64>,
    /// The lowest above it that was not, and why.
    missed: RateTried,
    tried: Vec<RateTried>,
    /// Largest share of the machine that others took during a measurement; `None` where it is not known.
    others: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Maxima {
    scenario: String,
    title: String,
    machine: String,
    thresholds: Vec<String>,
    precision: f64,
    found: Vec<Found>,
}

/// Searches at every point of the scenario; a rate that it sweeps over is not one.
pub(crate) async fn find_max(args: &FindMaxArgs) -> anyhow::Result<Maxima> {
    let name = &args.run.scenario;
    ensure!(args.precision > 0.0, "--precision must be more than 0");
    ensure!(args.repetitions > 0, "--repetitions must be at least 1");
    ensure!(args.from.is_none_or(|rate| rate >= LOWEST && rate.is_finite()), "--from must be 1 or more");
    let (text, mut scenario) = read(name, args.run.quick)?;
    // A quick look has none; here they are what is asked.
    scenario.thresholds = Scenario::parse(&text, false)?.thresholds;
    ensure!(!scenario.thresholds.is_empty(), "{name} has no thresholds: what is the highest rate to keep?");
    let args = &FindMaxArgs { run: args.run.on_backends_of(&scenario)?, ..args.clone() };
    let limits = args.run.check(&mut scenario).await?;
    let mut results = Results::new(&args.run, &text, &scenario, limits);
    let mut maxima = Maxima {
        scenario: name.clone(),
        title: scenario.title.clone(),
        machine: Machine::look().to_string(),
        thresholds: scenario.thresholds.iter().map(ToString::to_string).collect(),
        precision: args.precision,
        found: Vec::new(),
    };
    let points = points(&scenario);
    for (index, measurement) in points.iter().enumerate() {
        let written = measurement.all.get(RATE).and_then(|rate| rate.parse().ok());
        let start = args.from.or(written).unwrap_or(START);
        let (mut number, before) = (0, results.runs.len());
        let found = search(start, 1.0 + args.precision / 100.0, async |rate| {
            number += 1;
            let at = at_rate(measurement, rate);
            scenario.workload.check(&at).with_context(|| format!("{name}: find-max sets --rate"))?;
            let attempt = Tried { args, scenario: &scenario, place: format!("{:02}-{number:02}", index + 1) };
            // How many rates there will be, nobody knows.
            let name = format!("point {} of {}, {}", index + 1, points.len(), shown(&at));
            Overall::new(name, None).during(attempt.measure(&at, rate, &mut results)).await
        });
        let (highest, missed, tried) = found.await?;
        let others = largest(results.runs.iter().skip(before).map(|run| run.others));
        maxima.found.push(Found { point: shown_point(measurement), highest, missed, tried, others });
        if let Some(dir) = &args.run.out {
            maxima.write_files(dir)?;
        }
    }
    Ok(maxima)
}

/// The points without their rates, each once.
fn points(scenario: &Scenario) -> Vec<Measurement> {
    let mut points: Vec<Measurement> = Vec::new();
    for Measurement { point, all } in &scenario.points {
        let mut point = point.clone();
        point.remove(RATE);
        if points.iter().all(|other| other.point != point) {
            points.push(Measurement { point, all: all.clone() });
        }
    }
    points
}

fn at_rate(measurement: &Measurement, rate: f64) -> Measurement {
    let with_rate = |point: &Point| {
        let mut point = point.clone();
        point.insert(RATE.to_owned(), format!("{rate:.0}"));
        point
    };
    Measurement { point: with_rate(&measurement.point), all: with_rate(&measurement.all) }
}

/// One rate, as often as needed.
struct Tried<'r> {
    args: &'r FindMaxArgs,
    scenario: &'r Scenario,
    /// The point and the rate, in names of directories.
    place: String,
}

impl Tried<'_> {
    async fn measure(&self, at: &Measurement, rate: f64, results: &mut Results) -> anyhow::Result<Verdict> {
        let (mut kept, mut missed) = (0, Vec::new());
        let most = self.args.repetitions / 2 + 1;
        for repetition in 1..=self.args.repetitions {
            let place = format!("{}-{repetition}", self.place);
            let run = measure_once(&self.args.run, self.scenario, at, repetition, &place).await?;
            match verdict_of(&run.summary, run.is_clean, &run.faults, rate) {
                Verdict::Kept => kept += 1,
                other => missed.push((other, run.is_clean)),
            }
            results.add(run);
            if let Some(dir) = &self.args.run.out {
                results.write_files(dir)?;
            }
            if kept >= most {
                return Ok(Verdict::Kept);
            }
            if missed.len() >= most {
                break;
            }
        }
        Ok(verdict_on(&missed))
    }
}

/// What is said of a rate that these repetitions missed, each clean or not.
fn verdict_on(missed: &[(Verdict, bool)]) -> Verdict {
    // Where the generator was the limit in one of them, the server did not fail, unless it lost something in another.
    let unclean = missed.iter().find(|(_, is_clean)| !is_clean);
    let generator = || missed.iter().find(|(verdict, _)| matches!(verdict, Verdict::Generator(_)));
    let said = unclean.or_else(generator).or(missed.first());
    said.map_or(Verdict::Kept, |(verdict, _)| verdict.clone())
}

/// Share of the rate that was reached: of what was stored where the workload waits for that, else of answers, as the verdict has
/// it, which late ones do not lower. Behind a broker, how far the store may be behind them is a rule of its own.
fn reached(summary: &Value, rate: f64) -> f64 {
    let figure = |place: &str| summary.pointer(place).and_then(Value::as_f64);
    let share = |place: &str| figure(place).map(|per_second| per_second / rate);
    let stored = figure("/storeS").and_then(|_| share("/storedPerSecond"));
    let answered = || figure("/verdict/figures/reached").or_else(|| share("/perSecond"));
    stored.or_else(answered).unwrap_or(0.0)
}

fn verdict_of(summary: &Value, is_clean: bool, faults: &[String], rate: f64) -> Verdict {
    let reached = reached(summary, rate);
    let is_behind = reached < REACHED;
    let behind = is_behind.then(|| format!("{}/s were reached", grouped(reached * rate)));
    let store_behind = store_behind(summary);
    let behind = behind.into_iter().chain(store_behind.map(str::to_owned));
    let unclean = (!is_clean).then(|| "the ledger does not balance".to_owned());
    let reasons: Vec<String> = behind.chain(unclean).chain(faults.iter().cloned()).collect();
    if reasons.is_empty() {
        return Verdict::Kept;
    }
    // A store that is behind can do no more, whatever the generator could. And a busy generator sends less, but it loses nothing.
    let may_be_generator = is_clean && is_behind && store_behind.is_none();
    let limit = summary.get("generatorLimit").filter(|_| may_be_generator);
    match limit.and_then(Value::as_str) {
        Some(limit) => Verdict::Generator(limit.to_owned()),
        None => Verdict::Missed(reasons.join("; ")),
    }
}

/// The highest rate that was kept, the lowest above it that was not, and all that were tried.
async fn search(
    start: f64,
    narrow: f64,
    mut measure: impl AsyncFnMut(f64) -> anyhow::Result<Verdict>,
) -> anyhow::Result<(Option<f64>, RateTried, Vec<RateTried>)> {
    let (mut low, mut high): (Option<f64>, Option<(f64, Verdict)>) = (None, None);
    let (mut rate, mut tried) = (start.round().max(LOWEST), Vec::new());
    loop {
        let verdict = measure(rate).await?;
        tried.push(RateTried { rate, verdict: verdict.clone() });
        match verdict {
            Verdict::Kept => low = Some(rate),
            missed => high = Some((rate, missed)),
        }
        rate = match (low, &high) {
            (Some(low), None) => 2.0 * low,
            (None, Some((high, _))) => (high / 2.0).floor(),
            (Some(low), Some((high, _))) => (low * high).sqrt().round(),
            (None, None) => rate,
        };
        let is_done = match (low, &high) {
            // Rates are whole numbers.
            (Some(low), Some((high, _))) => *high <= low * narrow || rate <= low || rate >= *high,
            _ => rate < LOWEST,
        };
        if let Some((missed, verdict)) = high.take_if(|_| is_done) {
            return Ok((low, RateTried { rate: missed, verdict }, tried));
        }
    }
}

impl Findings for Maxima {
    fn terminal(&self) -> String {
        let mut out = format!("{}: {}\non {}\n", self.scenario, self.title, self.machine);
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "the highest rate that keeps {}, within {} %:",
            self.thresholds.join(", "),
            self.precision
        );
        for Found { point, highest, missed, tried, others } in &self.found {
            let highest = highest.map_or_else(|| "none".to_owned(), |rate| format!("{}/s", grouped(rate)));
            let at = grouped(missed.rate);
            let why = match &missed.verdict {
                Verdict::Generator(limit) => format!("not the server's limit: at {at}/s {limit}"),
                Verdict::Missed(reason) => format!("at {at}/s {reason}"),
                Verdict::Kept => String::new(),
            };
            let unknown = others.is_none().then(|| NOT_KNOWN.to_owned());
            let marks = marks(true, *others).into_iter().map(|mark| format!("! {mark}")).chain(unknown);
            let marks: String = marks.map(|mark| format!("   {mark}")).collect();
            let _ =
                writeln!(out, "  {}: {highest} ({} rates tried); {why}{marks}", label(point), tried.len());
        }
        out
    }

    fn is_clean(&self) -> bool {
        self.found.iter().all(|found| found.highest.is_some())
    }

    fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        write_files(dir, [("find-max.json", json), ("find-max.txt", self.terminal())])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Searches where rates up to `limit` are kept, and the generator can do no more than `generator`.
    async fn found(start: f64, limit: f64, generator: f64) -> (Option<f64>, RateTried, Vec<RateTried>) {
        let measure = async |rate: f64| {
            Ok(match rate {
                _ if rate > generator => Verdict::Generator("busy".to_owned()),
                _ if rate > limit => Verdict::Missed("late".to_owned()),
                _ => Verdict::Kept,
            })
        };
        search(start, 1.05, measure).await.unwrap()
    }

    #[tokio::test]
    async fn a_search_ends_near_the_limit_from_anywhere() {
        for start in [1.0, 100.0, 9_000.0, 1e6] {
            let (highest, missed, tried) = found(start, 7_777.0, f64::MAX).await;
            let highest = highest.unwrap();
            assert!(
                highest <= 7_777.0 && missed.rate > 7_777.0 && missed.rate <= 1.05 * highest,
                "{highest}"
            );
            assert_eq!(missed.verdict, Verdict::Missed("late".to_owned()));
            assert!(tried.len() < 25, "{}", tried.len());
        }
        let (highest, missed, _) = found(1_000.0, 0.5, f64::MAX).await;
        assert_eq!((highest, missed.rate), (None, 1.0), "nothing is kept");
        let (highest, missed, _) = found(7.0, 2.5, f64::MAX).await;
        assert_eq!((highest, missed.rate), (Some(2.0), 3.0), "whole numbers end it");
    }

    #[tokio::test]
    async fn the_generators_limit_is_not_the_servers() {
        let (highest, missed, _) = found(100.0, 50_000.0, 20_000.0).await;
        assert!(highest.unwrap() <= 20_000.0 && highest.unwrap() > 18_000.0);
        assert_eq!(missed.verdict, Verdict::Generator("busy".to_owned()));
    }

    #[test]
    fn a_run_is_kept_or_it_is_said_why_not() {
        let fine = json!({"perSecond": 99.0});
        assert_eq!(verdict_of(&fine, true, &[], 100.0), Verdict::Kept);
        let late = verdict_of(&fine, true, &["p99 is 9".to_owned()], 100.0);
        assert_eq!(late, Verdict::Missed("p99 is 9".to_owned()));
        assert_eq!(
            verdict_of(&fine, false, &[], 100.0),
            Verdict::Missed("the ledger does not balance".to_owned())
        );
        assert_eq!(verdict_of(&fine, true, &[], 200.0), Verdict::Missed("99/s were reached".to_owned()));
        let busy = json!({"perSecond": 99.0, "generatorLimit": "it was busy"});
        assert_eq!(verdict_of(&busy, true, &[], 200.0), Verdict::Generator("it was busy".to_owned()));
        assert_eq!(verdict_of(&busy, true, &[], 99.0), Verdict::Kept, "busy, but in time");
        let slow = verdict_of(&busy, true, &["p99 is 9".to_owned()], 99.0);
        assert_eq!(slow, Verdict::Missed("p99 is 9".to_owned()), "busy, but in time");
        let lossy = Verdict::Missed("99/s were reached; the ledger does not balance; 5 lost".to_owned());
        assert_eq!(verdict_of(&busy, false, &["5 lost".to_owned()], 200.0), lossy, "busy or not");
        let generator = Verdict::Generator("it was busy".to_owned());
        let slow = (Verdict::Missed("p99 is 9".to_owned()), true);
        let limited = (generator.clone(), true);
        assert_eq!(verdict_on(&[slow.clone(), limited.clone()]), generator);
        assert_eq!(verdict_on(&[slow, limited, (lossy.clone(), false)]), lossy);
        let broker = json!({"perSecond": 99.0, "storedPerSecond": 60.0, "loadS": 9.0, "lagS": 9.0, "storeBehind": "9 s behind",
                            "generatorLimit": "it was busy"});
        assert_eq!(verdict_of(&broker, true, &[], 100.0), Verdict::Missed("9 s behind".to_owned()));
        let short = json!({"perSecond": 99.0, "loadS": 1.0, "lagS": 0.1});
        assert_eq!(verdict_of(&short, true, &[], 100.0), Verdict::Kept, "a moment is no backlog");
        // One answer that came late makes the time longer, and not the rate lower.
        let tail = |reached: f64| json!({"perSecond": 80.0, "verdict": {"figures": {"reached": reached}}});
        assert_eq!(verdict_of(&tail(0.99), true, &[], 100.0), Verdict::Kept);
        assert_eq!(verdict_of(&tail(0.9), true, &[], 100.0), Verdict::Missed("90/s were reached".to_owned()));
        let persist = json!({"perSecond": 99.0, "storedPerSecond": 90.0, "lagS": 0.1, "storeS": 1.1});
        assert_eq!(verdict_of(&persist, true, &[], 100.0), Verdict::Missed("90/s were reached".to_owned()));
    }

    #[test]
    fn a_rate_that_is_swept_over_is_no_point() {
        let text = "title = 'x'\nworkload = 'http'\n[sweep]\nrate = [10, 20]\nconnections = [1, 2]\n";
        let points = points(&Scenario::parse(text, false).unwrap());
        let shown: Vec<String> = points.iter().map(|one| label(&one.point)).collect();
        assert_eq!(shown, ["connections 1", "connections 2"]);
        assert_eq!(label(&at_rate(&points[1], 1234.4).point), "connections 2, rate 1234");
    }
}
