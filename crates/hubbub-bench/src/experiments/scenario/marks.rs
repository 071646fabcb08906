//! What makes the figures of a point worth less than they seem, for whoever shows them.

use std::cmp::Ordering;
use std::path::Path;

use serde::Deserialize as _;
use serde_json::Value;

use super::file::Point;
use super::find_max::RATE;
use super::results::{PointRun, Results, label};
use crate::analysis::stages::Stages;
use crate::analysis::verdict::{REACHED, percent_missed};
use crate::host::background_load::{NOT_KNOWN, largest, marks};
use crate::report::Analysis;
use crate::statistics::models::little::Little;

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
            .extend(self.runs_of(point).filter_map(PointRun::store_lag).max_by(by_lag).map(|(_, said)| said));
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
        let missed = missed.chain(self.store_lag().map(|(_, said)| said));
        marks(self.is_clean, self.others).into_iter().chain(missed).collect()
    }

    /// Whether its figures are those of a clean run that nothing disturbed; a rate that was too much does not count.
    pub(super) fn is_undisturbed(&self) -> bool {
        marks(self.is_clean, self.others).is_empty() && self.faults.is_empty()
    }

    /// Whether anything follows from it: a run that is not clean, or whose servers something befell, says nothing of what it
    /// measured. Missed thresholds do not count.
    pub(super) fn is_sound(&self) -> bool {
        self.is_clean && self.mishaps.is_empty()
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

    /// Share of the rate that its open loop asked for; `None` where it does not say. Where the store fell behind a broker, what
    /// counts is what was stored.
    pub(super) fn reached(&self) -> Option<f64> {
        let figure = |place: &str| self.summary.pointer(place)?.as_f64();
        let answered = figure("/verdict/figures/reached")?;
        let times = figure("/loadS").zip(figure("/lagS")).filter(|_| self.store_lag().is_some());
        // Of the time that it took, the load had so much.
        Some(times.map_or(answered, |(load_s, lag_s)| answered * load_s / (load_s + lag_s)))
    }

    /// By how many seconds the store was behind in the end, and that in words, where it did not keep up.
    fn store_lag(&self) -> Option<(f64, String)> {
        let lag_s = self.summary.get("lagS").and_then(Value::as_f64).unwrap_or(0.0);
        Some((lag_s, store_behind(&self.summary)?.to_owned()))
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

/// That the store did not keep up with its broker, in words, as a summary says it.
pub(super) fn store_behind(summary: &Value) -> Option<&str> {
    summary.get("storeBehind")?.as_str()
}

fn by_lag(one: &(f64, String), other: &(f64, String)) -> Ordering {
    one.0.total_cmp(&other.0)
}

/// The name of a scenario without where its file is.
pub(super) fn stem(scenario: &str) -> &str {
    Path::new(scenario).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

fn missed_rate(share: f64) -> String {
    format!("only {} of the asked rate", percent_missed(share))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// All answers of an open loop came in time. Where the store is `behind`, it stored four of five.
    fn run(repetition: usize, lag_s: f64, is_behind: bool) -> Value {
        let behind = is_behind.then(|| format!("the store was {lag_s:.1} s behind"));
        let summary = json!({"perSecond": 100.0, "loadS": 4.0 * lag_s, "lagS": lag_s, "storeBehind": behind,
                             "parameters": {"rate": "100"}, "verdict": {"figures": {"reached": 0.99}}});
        json!({"point": {}, "repetition": repetition, "isClean": true, "others": 0.0, "faults": [],
               "summary": summary})
    }

    #[test]
    fn a_point_whose_store_fell_behind_is_marked() {
        let results = |runs: &[Value]| -> Results {
            serde_json::from_value(json!({
                "version": 1, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
                "started": "2026-01-01T00:00:00Z", "text": "", "runs": runs,
            }))
            .unwrap()
        };
        let behind = results(&[run(1, 2.0, true), run(2, 12.0, true), run(3, 0.1, false)]);
        let marks = behind.marks_of(&Point::new());
        assert_eq!(marks, ["only 79 % of the asked rate", "the store was 12.0 s behind"], "the worst counts");
        assert_eq!(behind.runs[0].marks(), ["only 79 % of the asked rate", "the store was 2.0 s behind"]);
        assert_eq!(behind.runs[0].own_faults("x"), ["only 79 % of the asked rate"], "as of any other rate");
        let in_time = results(&[run(1, 0.1, false)]);
        assert_eq!(in_time.marks_of(&Point::new()), [""; 0]);
        assert_eq!(in_time.runs[0].reached(), Some(0.99));
    }
}
