//! What makes the figures of a point worth less than they seem, for whoever shows them.

use std::path::Path;

use serde::Deserialize as _;
use serde_json::Value;

use super::file::Point;
use super::find_max::RATE;
use super::results::{PointRun, Results, label};
use crate::models::little::Little;
use crate::others::{NOT_KNOWN, largest, marks};
use crate::report::Analysis;
use crate::stages::Stages;
use crate::verdict::{REACHED, percent_missed};

/// Scenarios that measure whether anything changes that should not.
const NOTHING_CHANGES: [&str; 2] = ["persist-endurance", "queue-stability"];

impl Results {
    fn runs_of(&self, point: &Point) -> impl Iterator<Item = &PointRun> {
        self.runs.iter().filter(move |run| run.point == *point)
    }

    /// What makes the figures of a point worth less than they seem: the worst of its repetitions counts.
    pub(super) fn marks_of(&self, point: &Point) -> Vec<String> {
        let others = largest(self.runs_of(point).map(|run| run.others));
        let mut marks = marks(self.runs_of(point).all(|run| run.is_clean), others);
        let missed = self.runs_of(point).filter_map(PointRun::missed);
        marks.extend(missed.min_by(f64::total_cmp).map(missed_rate));
        marks.extend(self.runs_of(point).find_map(PointRun::never_sent));
        marks
    }

    /// A point in words, with its marks.
    pub(super) fn marked(&self, point: &Point) -> String {
        let stages = Stages::worst(self.runs_of(point).map(|run| Analysis::of(&run.summary).stages));
        let marks = self.marks_of(point).into_iter().chain(stages.marks());
        std::iter::once(label(point)).chain(marks).collect::<Vec<_>>().join("; ")
    }

    /// The points with marks or faults, and these, in words.
    pub(super) fn marked_points(&self) -> Vec<(String, String)> {
        let mut marked = Vec::new();
        for run in self.last_of_each() {
            let mut reasons = self.marks_of(&run.point);
            for fault in self.runs_of(&run.point).flat_map(PointRun::all_faults) {
                if !reasons.contains(&fault) {
                    reasons.push(fault);
                }
            }
            if !reasons.is_empty() {
                marked.push((label(&run.point), reasons.join("; ")));
            }
        }
        marked
    }

    /// In how many runs it is not known what others took; `None` where that is always known.
    pub(super) fn not_known(&self) -> Option<String> {
        let count = self.runs.iter().filter(|run| run.others.is_none()).count();
        (count > 0).then(|| format!("{NOT_KNOWN} in {count} of {} measurements", self.runs.len()))
    }
}

impl PointRun {
    /// What makes its figures worth less than they seem.
    pub(super) fn marks(&self) -> Vec<String> {
        let missed = self.missed().map(missed_rate).into_iter().chain(self.never_sent());
        marks(self.is_clean, self.others).into_iter().chain(missed).collect()
    }

    /// Whether its figures are those of a clean run that nothing disturbed; a rate that was too much does not count.
    pub(super) fn is_undisturbed(&self) -> bool {
        marks(self.is_clean, self.others).is_empty() && self.faults.is_empty()
    }

    /// What is wrong with it: why its workload calls it not clean, and its faults.
    pub(super) fn all_faults(&self) -> Vec<String> {
        let reasons = self.summary.get("faults").and_then(Value::as_array).filter(|_| !self.is_clean);
        let reasons = reasons.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        reasons.chain(self.faults.iter().cloned()).collect()
    }

    /// Its closed loop, audited by the figures that are shown of it; `None` where there is no loop.
    pub(super) fn little(&self) -> Option<Little> {
        let figure = |place: &str| self.summary.pointer(place)?.as_f64();
        let audited = Little::deserialize(self.summary.get("little")?).ok()?;
        let shown = figure("/perSecond").zip(figure("/latency/meanMs"));
        Some(shown.map_or_else(
            || audited.clone(),
            |(per_second, mean_ms)| Little::audit(audited.concurrency, per_second, mean_ms, audited.think_ms),
        ))
    }

    /// Share of the rate that its open loop asked for, where that was not reached.
    pub(super) fn missed(&self) -> Option<f64> {
        self.reached().filter(|reached| *reached < REACHED)
    }

    /// Share of the rate that its open loop asked for; `None` where it does not say.
    pub(super) fn reached(&self) -> Option<f64> {
        self.summary.pointer("/verdict/figures/reached")?.as_f64()
    }

    /// What of its steps nobody took in time.
    fn never_sent(&self) -> Option<String> {
        let count: u64 = Analysis::of(&self.summary).steps.iter().map(|step| step.never_sent).sum();
        (count > 0).then(|| format!("{count} of its steps were never sent"))
    }

    /// What is wrong with it besides what befell its servers, and thresholds.
    pub(super) fn own_faults(&self, scenario: &str) -> Vec<String> {
        let is_judged = NOTHING_CHANGES.contains(&stem(scenario));
        let trends = Analysis::of(&self.summary).trends;
        self.rate_fault().into_iter().chain(trends.faults().filter(|_| is_judged)).collect()
    }

    /// The same as a fault. Where points differ in their rates, as in a search for the highest, or the rate rises, some of it
    /// is meant to be too much: that is a mark only.
    fn rate_fault(&self) -> Option<String> {
        let rate = self.summary.pointer("/parameters/rate").and_then(Value::as_str).unwrap_or_default();
        let finds_limit = self.point.contains_key(RATE) || rate.contains("..") || rate.contains(',');
        self.missed().filter(|_| !finds_limit).map(missed_rate)
    }
}

/// The name of a scenario without where its file is.
pub(super) fn stem(scenario: &str) -> &str {
    Path::new(scenario).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

fn missed_rate(share: f64) -> String {
    format!("only {} of the asked rate", percent_missed(share))
}
