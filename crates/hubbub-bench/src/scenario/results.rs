//! What the measurements of a scenario found: shown as a table, kept as `results.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, ensure};
use hubbub_core::url::masked;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RunArgs;
use super::file::{Measurement, Point, Scenario};
use super::page::page_of;
use super::scaling::Scaling;
use crate::engine::Findings;
use crate::limits::median;
use crate::machine::Machine;
use crate::report::{grouped, write_files};

/// Of the format of `results.json`.
const VERSION: u32 = 1;
const FILE: &str = "results.json";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Results {
    version: u32,
    pub(super) scenario: String,
    /// What servers of its own stored in, and behind what.
    #[serde(default)]
    pub(crate) store: String,
    #[serde(default)]
    pub(crate) log: String,
    pub(super) title: String,
    pub(super) about: String,
    pub(super) is_quick: bool,
    pub(crate) machine: String,
    pub(crate) started: String,
    /// The file as it was read, without passwords.
    pub(super) text: String,
    pub(crate) runs: Vec<PointRun>,
    /// Fitted to the runs, where they are a sweep that a law is about.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    scaling: Option<Scaling>,
}

/// One measurement.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PointRun {
    pub(crate) point: Point,
    pub(super) repetition: usize,
    pub(crate) is_clean: bool,
    /// Thresholds that were not kept.
    pub(super) faults: Vec<String>,
    /// As the workload reports it.
    pub(crate) summary: Value,
}

/// A figure that every workload reports, and where it stands in their summaries: the first that is there counts.
pub(super) struct Figure {
    pub(super) name: &'static str,
    places: &'static [&'static str],
}

/// In the order of the table.
pub(super) const FIGURES: [Figure; 4] = [
    Figure { name: "per second", places: &["/storedPerSecond", "/perSecond"] },
    Figure { name: "p50 ms", places: &["/confirmLatency/medianMs", "/latency/medianMs"] },
    Figure { name: "p99 ms", places: &["/confirmLatency/p99Ms", "/latency/p99Ms"] },
    Figure { name: "arrival p99 ms", places: &["/arrivalLatency/p99Ms", "/delivery/latency/p99Ms"] },
];

impl Figure {
    /// `None` where a workload does not have it, or measured nothing.
    pub(super) fn of(&self, summary: &Value) -> Option<f64> {
        let found = self.places.iter().find_map(|place| summary.pointer(place)?.as_f64());
        found.filter(|figure| *figure > 0.0)
    }
}

/// A point as it may be shown: without passwords.
pub(super) fn shown_point(measurement: &Measurement) -> Point {
    measurement.point.iter().map(|(key, value)| (key.clone(), masked(value))).collect()
}

pub(super) fn shown(measurement: &Measurement) -> String {
    label(&shown_point(measurement))
}

pub(crate) fn label(point: &Point) -> String {
    let parts: Vec<String> = point.iter().map(|(key, value)| format!("{key} {value}")).collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
}

impl Results {
    pub(super) fn new(args: &RunArgs, text: &str, scenario: &Scenario) -> Self {
        Self {
            version: VERSION,
            scenario: args.scenario.clone(),
            store: args.backends.store().to_owned(),
            log: args.backends.log().to_owned(),
            title: scenario.title.clone(),
            about: scenario.about.trim().to_owned(),
            is_quick: args.quick,
            machine: Machine::look().to_string(),
            started: crate::machine::now().to_string(),
            text: text.lines().map(|line| masked(line) + "\n").collect(),
            runs: Vec::new(),
            scaling: None,
        }
    }

    pub(super) fn add(&mut self, run: PointRun) {
        self.runs.push(run);
        self.fit();
    }

    /// Computes anew what follows from the runs: what thresholds say, and the law.
    pub(super) fn rebuild(&mut self) {
        // Quick runs, and a scenario that this program does not understand, keep what was said of them.
        if !self.is_quick
            && let Ok(scenario) = Scenario::parse(&self.text, false)
        {
            for run in &mut self.runs {
                run.faults = scenario.faults(&run.summary);
            }
        }
        self.fit();
    }

    fn fit(&mut self) {
        let rates = FIGURES.first().map(|rate| self.by_point(rate)).unwrap_or_default();
        self.scaling = Scaling::of(&rates);
    }

    /// Writes what is made of the results.
    pub(super) fn write_report(&self, dir: &Path) -> anyhow::Result<()> {
        write_files(dir, [("results.txt", self.terminal()), ("report.html", page_of(self))])
    }

    /// Those that a run wrote into `dir`.
    pub(crate) fn read(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(FILE);
        let shown = path.display();
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        let results: Self =
            serde_json::from_str(&text).with_context(|| format!("{shown} holds no results"))?;
        ensure!(results.version == VERSION, "{shown} has version {}, not {VERSION}", results.version);
        Ok(results)
    }

    /// The figure of each repetition, by points in their order.
    pub(super) fn by_point(&self, figure: &Figure) -> Vec<(&Point, Vec<f64>)> {
        let mut points: Vec<(&Point, Vec<f64>)> = Vec::new();
        let mut places = BTreeMap::new();
        for run in &self.runs {
            let place = *places.entry(&run.point).or_insert_with(|| {
                points.push((&run.point, Vec::new()));
                points.len() - 1
            });
            if let Some((_, values)) = points.get_mut(place) {
                values.extend(figure.of(&run.summary));
            }
        }
        points
    }
}

/// What a run of a closed loop has under way; `None` where there is no loop.
fn little(run: &PointRun) -> Option<String> {
    let figure = |name: &str| run.summary.pointer(&format!("/little/{name}"))?.as_f64();
    let (concurrency, observed) = (figure("concurrency")?, figure("observed")?);
    let is_marked = run.summary.pointer("/little/marked").and_then(Value::as_bool).unwrap_or(false);
    let verdict = if is_marked { ", more than 5 % apart" } else { "" };
    let (label, repetition) = (label(&run.point), run.repetition);
    Some(format!(
        "  Little's law: {label}, repetition {repetition}: {concurrency} should be under way, {observed:.1} were{verdict}\n"
    ))
}

/// What limited a run, and by which figures.
fn bottleneck(run: &PointRun) -> Option<String> {
    let text = |name: &str| run.summary.pointer(&format!("/verdict/{name}"))?.as_str();
    let (label, repetition) = (label(&run.point), run.repetition);
    Some(format!(
        "  bottleneck: {label}, repetition {repetition}: {}: {}\n",
        text("bottleneck")?,
        text("evidence")?
    ))
}

impl Findings for Results {
    fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| run.is_clean && run.faults.is_empty())
    }

    fn terminal(&self) -> String {
        let mut out = format!("{}: {}\non {}\n", self.scenario, self.title, self.machine);
        self.about.lines().for_each(|line| out.push_str(&format!("  {line}\n")));
        if self.is_quick {
            out.push_str("a quick look: thresholds do not count, and the figures say little\n");
        }
        let columns: Vec<_> = FIGURES.iter().map(|figure| self.by_point(figure)).collect();
        let points = columns.first().into_iter().flatten().map(|(point, _)| label(point));
        let labels: Vec<String> = points.collect();
        let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let heads: String = FIGURES.iter().map(|figure| format!("{:>16}", figure.name)).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {:<width$}{heads}", "median");
        for (row, label) in labels.iter().enumerate() {
            let cell = |column: &Vec<(&Point, Vec<f64>)>| {
                let values = column.get(row).map_or(&[][..], |(_, values)| values);
                let middle = median(values);
                match values {
                    [] => format!("{:>16}", ""),
                    _ if middle >= 1_000.0 => format!("{:>16}", grouped(middle)),
                    _ => format!("{middle:>16.3}"),
                }
            };
            let _ = writeln!(out, "  {label:<width$}{}", columns.iter().map(cell).collect::<String>());
        }
        if let Some(scaling) = &self.scaling {
            // Writing to a String cannot fail.
            let _ = write!(out, "{scaling}");
        }
        self.runs.iter().filter_map(little).for_each(|line| out.push_str(&line));
        self.runs.iter().filter_map(bottleneck).for_each(|line| out.push_str(&line));
        for run in self.runs.iter().filter(|run| !run.is_clean || !run.faults.is_empty()) {
            let books = (!run.is_clean).then_some("it is not clean, see above").into_iter();
            let faults: Vec<&str> = books.chain(run.faults.iter().map(String::as_str)).collect();
            let _ = writeln!(
                out,
                "  fault: {}, repetition {}: {}",
                label(&run.point),
                run.repetition,
                faults.join("; ")
            );
        }
        out
    }

    fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        write_files(dir, [(FILE, serde_json::to_string_pretty(self)?)])?;
        self.write_report(dir)
    }
}
