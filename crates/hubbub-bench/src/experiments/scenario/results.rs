//! What the measurements of a scenario found: shown as a table, kept as `results.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, ensure};
use hubbub_core::url::masked;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conclusion::conclusion;
use super::file::{Measurement, Point, Scenario};
use super::page::page_of;
use super::scaling::Scaling;
use super::{RunArgs, batches};
use crate::analysis::price::PriceArgs;
use crate::host::machine::Machine;
use crate::report::{Analysis, Table, figure, write_files};
use crate::statistics::models::little::Little;
use crate::statistics::{Moments, half_width, median};
use crate::workloads::engine::Findings;

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
    /// What limited its parts, or why what the scenario asks for did not; empty where it asks for nothing.
    #[serde(default)]
    pub(super) limits: String,
    /// The file as it was read, without passwords.
    pub(super) text: String,
    pub(crate) runs: Vec<PointRun>,
    /// Fitted to the runs, where they are a sweep that a law is about.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub(super) scaling: Option<Scaling>,
}

/// One measurement.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PointRun {
    pub(crate) point: Point,
    pub(super) repetition: usize,
    pub(crate) is_clean: bool,
    /// Share of the machine that others took, from its preparation to its end, where it is known.
    #[serde(default)]
    pub(super) others: Option<f64>,
    /// What befell its servers, thresholds that were not kept, a rate that was not reached, and what got worse meanwhile.
    pub(super) faults: Vec<String>,
    /// What befell its servers, such as that one was killed for its memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) mishaps: Vec<String>,
    /// As the workload reports it.
    pub(crate) summary: Value,
}

impl PointRun {
    /// What is wrong with it by the thresholds of the scenario of this name, by the rate that it asks for, and by what changes
    /// over its time. A quick look is there to try things, at whatever rate.
    pub(super) fn find_faults(&mut self, name: &str, scenario: &Scenario, is_quick: bool) {
        let own = if is_quick { Vec::new() } else { self.own_faults(name) };
        let faults = self.mishaps.iter().cloned().chain(scenario.faults(&self.summary));
        self.faults = faults.chain(own).collect();
    }

    /// What its verdict says under this name.
    pub(super) fn verdict(&self, member: &str) -> Option<&str> {
        self.summary.pointer(&format!("/verdict/{member}"))?.as_str()
    }
}

/// A figure that every workload reports, and where it stands in their summaries, those of older programs too: the first that is
/// there counts.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) places: &'static [&'static str],
}

/// In the order of the table.
pub(super) const FIGURES: [Figure; 5] = [
    Figure { name: "per second", places: &["/storedPerSecond", "/perSecond"] },
    Figure { name: "p50 ms", places: &["/confirmLatency/medianMs", "/latency/medianMs"] },
    Figure { name: "p99 ms", places: &["/confirmLatency/p99Ms", "/latency/p99Ms"] },
    Figure { name: "arrival p99 ms", places: &["/arrivalLatency/p99Ms", "/delivery/latency/p99Ms"] },
    Figure { name: "cost a million", places: &["/cost/perMillion"] },
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
    pub(super) fn new(args: &RunArgs, text: &str, scenario: &Scenario, limits: String) -> Self {
        Self {
            version: VERSION,
            scenario: args.scenario.clone(),
            store: args.backends.store().to_owned(),
            log: args.backends.log().to_owned(),
            title: scenario.title.clone(),
            about: scenario.about.trim().to_owned(),
            is_quick: args.quick,
            machine: Machine::look().to_string(),
            started: crate::host::machine::now().to_string(),
            limits,
            text: text.lines().map(|line| masked(line) + "\n").collect(),
            runs: Vec::new(),
            scaling: None,
        }
    }

    pub(super) fn add(&mut self, run: PointRun) {
        self.runs.push(run);
        self.fit();
    }

    /// Computes anew what follows from the runs: what is wrong with them, and the law.
    pub(super) fn rebuild(&mut self) {
        // Quick runs, and a scenario that this program does not understand, keep what was said of them.
        if !self.is_quick
            && let Ok(scenario) = Scenario::parse(&self.text, false)
        {
            for run in &mut self.runs {
                run.find_faults(&self.scenario, &scenario, false);
            }
        }
        self.fit();
    }

    fn fit(&mut self) {
        let rates =
            FIGURES.first().map(|rate| self.by_point_of(rate, PointRun::is_sound)).unwrap_or_default();
        let scaling = Scaling::of(&rates);
        let sound = self.runs.iter().filter(|run| run.is_sound()).count();
        self.scaling = scaling.map(|law| law.of_runs(sound, self.runs.len()));
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

    /// Says what the runs cost, where prices are given. Fails where none of them says what was used.
    pub(super) fn set_price(&mut self, PriceArgs { price }: &PriceArgs) -> anyhow::Result<()> {
        let Some(price) = *price else { return Ok(()) };
        let mut is_known = false;
        for run in &mut self.runs {
            let mut analysis = Analysis::of(&run.summary);
            analysis.set_price(price);
            if let (Some(cost), Some(summary)) = (analysis.cost, run.summary.as_object_mut()) {
                summary.insert("cost".to_owned(), serde_json::to_value(cost)?);
                is_known = true;
            }
        }
        ensure!(is_known, "--price: these results do not say what the servers used; measure again");
        Ok(())
    }

    /// The median of a figure at each point that has it.
    pub(super) fn medians(&self, figure: &Figure) -> Vec<(String, f64)> {
        let points = self.by_point(figure).into_iter().filter(|(_, values)| !values.is_empty());
        points.map(|(point, values)| (label(point), median(&values))).collect()
    }

    /// A row for each point, a column for each figure that one of them has, and how sure the rate is, where it was repeated.
    pub(super) fn median_table(&self) -> Table {
        let medians = FIGURES.iter().map(|figure| (figure.name, self.medians(figure)));
        let columns: Vec<(&str, BTreeMap<String, f64>)> = medians
            .map(|(name, medians)| (name, medians.into_iter().collect::<BTreeMap<_, _>>()))
            .filter(|(_, medians)| !medians.is_empty())
            .collect();
        let points = FIGURES.first().map(|rate| self.by_point(rate)).unwrap_or_default();
        let is_repeated = points.iter().any(|(_, rates)| rates.len() > 1);
        let heads = std::iter::once("median").chain(columns.iter().map(|(name, _)| *name));
        let mut table = Table::new(heads.chain(is_repeated.then_some("mean rate, 95 %")));
        for (point, rates) in points {
            let label = label(point);
            let cell = |(_, medians): &(&str, BTreeMap<String, f64>)| {
                medians.get(&label).map_or_else(String::new, |it| figure(*it))
            };
            let cells = std::iter::once(self.marked(point)).chain(columns.iter().map(cell));
            table.row(cells.chain(is_repeated.then(|| interval(&rates))));
        }
        table
    }

    /// The last repetition of each point.
    pub(super) fn last_of_each(&self) -> impl Iterator<Item = &PointRun> {
        let runs = &self.runs;
        let is_last = move |(index, run): &(usize, &PointRun)| {
            let later = runs.get(index + 1..).unwrap_or_default();
            later.iter().all(|other| other.point != run.point)
        };
        runs.iter().enumerate().filter(is_last).map(|(_, run)| run)
    }

    /// The figure of each repetition, by points in their order.
    pub(super) fn by_point(&self, figure: &Figure) -> Vec<(&Point, Vec<f64>)> {
        self.by_point_of(figure, |_| true)
    }

    /// The same of some runs; points of which none is meant have no figures.
    pub(super) fn by_point_of(
        &self,
        figure: &Figure,
        is_meant: fn(&PointRun) -> bool,
    ) -> Vec<(&Point, Vec<f64>)> {
        let mut points: Vec<(&Point, Vec<f64>)> = Vec::new();
        let mut places = BTreeMap::new();
        for run in &self.runs {
            let place = *places.entry(&run.point).or_insert_with(|| {
                points.push((&run.point, Vec::new()));
                points.len() - 1
            });
            if let Some((_, values)) = points.get_mut(place) {
                values.extend(figure.of(&run.summary).filter(|_| is_meant(run)));
            }
        }
        points
    }
}

/// Where the mean of repetitions lies with a probability of 95 %, if they tell.
pub(super) fn bounds(values: &[f64]) -> Option<[f64; 2]> {
    let mean = values.iter().copied().collect::<Moments>().mean;
    half_width(values, 0.0).map(|half| [(mean - half).max(0.0), mean + half])
}

fn interval(values: &[f64]) -> String {
    let bounds = bounds(values).map(|bounds| bounds.map(figure));
    bounds.map_or_else(String::new, |[low, high]| format!("{low} to {high}"))
}

/// What a run of a closed loop has under way; `None` where there is no loop.
fn little(run: &PointRun) -> Option<String> {
    let Little { concurrency, observed, marked, .. } = run.little()?;
    let verdict = if marked { ", more than 5 % apart" } else { "" };
    let (label, repetition) = (label(&run.point), run.repetition);
    Some(format!(
        "  Little's law: {label}, repetition {repetition}: {concurrency} should be under way, {observed:.1} were{verdict}\n"
    ))
}

/// What is to be known of where the time of its messages went.
fn stage_marks(run: &PointRun) -> String {
    let (label, repetition) = (label(&run.point), run.repetition);
    let marks = Analysis::of(&run.summary);
    marks.marks().map(|mark| format!("  stages: {label}, repetition {repetition}: {mark}\n")).collect()
}

/// What limited a run, and by which figures.
fn bottleneck(run: &PointRun) -> Option<String> {
    let (name, evidence) = (run.verdict("bottleneck")?, run.verdict("evidence")?);
    let (label, repetition) = (label(&run.point), run.repetition);
    Some(format!("  bottleneck: {label}, repetition {repetition}: {name}: {evidence}\n"))
}

impl Findings for Results {
    fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| run.is_clean && run.faults.is_empty())
    }

    fn terminal(&self) -> String {
        let mut out = format!("{}: {}\non {}\n", self.scenario, self.title, self.machine);
        self.about.lines().for_each(|line| out.push_str(&format!("  {line}\n")));
        if !self.limits.is_empty() {
            out.push_str(&format!("  {}\n", self.limits));
        }
        if self.is_quick {
            out.push_str("a quick look: thresholds do not count, and the figures say little\n");
        }
        out.push_str(&self.median_table().text());
        let batches = batches::table(self);
        if !batches.is_empty() {
            out.push_str(&batches.text());
        }
        if let Some(said) = conclusion(self) {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  conclusion: {said}");
        }
        if let Some(scaling) = &self.scaling {
            let _ = write!(out, "{scaling}");
        }
        self.runs.iter().filter_map(little).for_each(|line| out.push_str(&line));
        self.runs.iter().for_each(|run| out.push_str(&stage_marks(run)));
        self.runs.iter().filter_map(bottleneck).for_each(|line| out.push_str(&line));
        // `scripts/experiments.sh` shows these lines.
        for (point, reasons) in self.marked_points() {
            let _ = writeln!(out, "  marked: {point}: {reasons}");
        }
        if let Some(note) = self.not_known() {
            let _ = writeln!(out, "  note: {note}");
        }
        for run in self.runs.iter().filter(|run| !run.is_clean || !run.faults.is_empty()) {
            let faults = run.all_faults();
            let faults =
                if faults.is_empty() { "it is not clean, see above".to_owned() } else { faults.join("; ") };
            let _ = writeln!(out, "  fault: {}, repetition {}: {faults}", label(&run.point), run.repetition);
        }
        out
    }

    fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        write_files(dir, [(FILE, serde_json::to_string_pretty(self)?)])?;
        self.write_report(dir)
    }
}

#[cfg(test)]
mod tests;
