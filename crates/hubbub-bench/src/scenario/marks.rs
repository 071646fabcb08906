//! What makes the figures of a point worth less than they seem, for whoever shows them.

use super::file::Point;
use super::results::{PointRun, Results, label};
use crate::others::{NOT_KNOWN, largest, marks};
use crate::report::Analysis;
use crate::stages::Stages;

impl Results {
    fn runs_of(&self, point: &Point) -> impl Iterator<Item = &PointRun> {
        self.runs.iter().filter(move |run| run.point == *point)
    }

    /// What makes the figures of a point worth less than they seem: the worst of its repetitions counts.
    fn marks_of(&self, point: &Point) -> Vec<String> {
        let others = largest(self.runs_of(point).map(|run| run.others));
        marks(self.runs_of(point).all(|run| run.is_clean), others)
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
            for fault in self.runs_of(&run.point).flat_map(|run| &run.faults) {
                if !reasons.contains(fault) {
                    reasons.push(fault.clone());
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
        marks(self.is_clean, self.others)
    }
}
