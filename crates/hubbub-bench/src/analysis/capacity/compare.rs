//! The model against what was measured: processor time for a message, by part.

use std::path::Path;

use serde::Serialize;

use super::costs::{Costs, Part, SERVER};
use super::measured::{self, MeasuredRun};
use crate::experiments::scenario::label;
use crate::statistics::median;

/// Runs beside what the costs say of them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Compared {
    pub(super) points: Vec<ComparedPoint>,
    /// The mean of the sizes of all errors in the sum of servers, database and broker.
    pub(super) mean_error: f64,
    /// They do not have the processors of their database.
    pub(super) lacks_database: bool,
}

/// Medians of the repetitions of a point.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ComparedPoint {
    pub(super) point: String,
    pub(super) nodes: u32,
    pub(super) per_second: f64,
    /// Microseconds of processor time for a message.
    pub(super) server: Pair,
    pub(super) database: Pair,
    pub(super) broker: Pair,
    /// Without the load generator.
    pub(super) all: Pair,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Pair {
    pub(super) measured: f64,
    pub(super) model: f64,
}

impl Pair {
    /// By what share the model says more; 0 where nothing was measured.
    pub(super) fn error(self) -> f64 {
        if self.measured > 0.0 { self.model / self.measured - 1.0 } else { 0.0 }
    }
}

impl Compared {
    /// The load of each run is what the run says of itself, the size of its batches included.
    pub(super) fn with(dir: &Path, costs: &Costs) -> anyhow::Result<Self> {
        let (origin, runs) = measured::read(dir)?;
        let database = Part::Database.name();
        let lacks_database =
            origin.has_database() && runs.iter().any(|run| !run.seen.cpu_us.contains_key(&database));
        let mut points: Vec<(String, Vec<MeasuredRun>)> = Vec::new();
        for run in runs {
            let name = label(&run.point);
            match points.iter_mut().find(|(other, _)| *other == name) {
                Some((_, repetitions)) => repetitions.push(run),
                None => points.push((name, vec![run])),
            }
        }
        let points: Vec<ComparedPoint> =
            points.into_iter().map(|(name, runs)| ComparedPoint::of(name, &runs, costs)).collect();
        let errors: f64 = points.iter().map(|point| point.all.error().abs()).sum();
        Ok(Self { mean_error: errors / points.len().max(1) as f64, points, lacks_database })
    }
}

impl ComparedPoint {
    fn of(point: String, runs: &[MeasuredRun], costs: &Costs) -> Self {
        let middle =
            |figure: &dyn Fn(&MeasuredRun) -> f64| median(&runs.iter().map(figure).collect::<Vec<_>>());
        let pair = |parts: &[Part]| Pair {
            measured: middle(&|run| {
                parts.iter().map(|part| run.seen.cpu_us.get(&part.name()).copied().unwrap_or(0.0)).sum()
            }),
            model: middle(&|run| parts.iter().map(|part| costs.us(*part, &run.seen.share)).sum()),
        };
        Self {
            point,
            nodes: runs.first().map_or(1, |run| run.nodes),
            per_second: middle(&|run| run.per_second),
            server: pair(&SERVER),
            database: pair(&[Part::Database]),
            broker: pair(&[Part::Broker]),
            all: pair(&[&SERVER[..], &[Part::Database, Part::Broker]].concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::tests::{origin, runs};
    use super::*;
    use crate::experiments::scenario::Point;

    #[test]
    fn what_costs_were_fitted_to_has_no_error() {
        let costs = Costs::fit(origin("postgres", "kafka"), &runs()).unwrap();
        let run = |seen| MeasuredRun { point: Point::new(), nodes: 2, per_second: 5.0, seen };
        let last = runs().pop().unwrap();
        let mut dear = last.clone();
        dear.cpu_us.values_mut().for_each(|us| *us *= 2.0);
        let same = ComparedPoint::of("all".to_owned(), &[run(last)], &costs);
        assert!(same.all.error().abs() < 1e-6 && same.server.error().abs() < 1e-6, "{same:?}");
        let half = ComparedPoint::of("all".to_owned(), &[run(dear)], &costs);
        assert!(
            (half.all.error() + 0.5).abs() < 1e-6 && (half.broker.error() + 0.5).abs() < 1e-6,
            "{half:?}"
        );
        assert_eq!(Pair { measured: 0.0, model: 1.0 }.error(), 0.0);
    }
}
