//! Two results side by side: how many times as large each figure is, with a confidence interval.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use super::results::{FIGURES, Results, label};
use crate::engine::Findings;
use crate::others::marks;
use crate::statistics::{Moments, student_t_975};

#[derive(Debug, Clone, Args)]
pub(crate) struct CompareArgs {
    /// Directory of the results that are the base
    #[arg(value_name = "A")]
    base: PathBuf,
    /// Directory of the results to compare with them
    #[arg(value_name = "B")]
    other: PathBuf,
    /// Print the ratios as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    base: String,
    other: String,
    notes: Vec<&'static str>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    point: String,
    figure: &'static str,
    #[serde(flatten)]
    ratio: Ratio,
}

/// How many times as large the other's geometric mean is as the base's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Ratio {
    ratio: f64,
    /// Where it lies with a probability of 95 %; `None` where there are too few repetitions.
    interval: Option<[f64; 2]>,
}

impl Ratio {
    /// Of logarithms, so that twice and half as much are equally far: Student's t with the variance of both together.
    /// Figures are positive.
    fn of(base: &[f64], other: &[f64]) -> Self {
        let [base, other] =
            [base, other].map(|values| values.iter().map(|value| value.ln()).collect::<Moments>());
        let difference = other.mean - base.mean;
        let interval = (base.count >= 2 && other.count >= 2).then(|| {
            let [n, m] = [base.count, other.count].map(|count| count as f64);
            let freedom = n + m - 2.0;
            let variance = (base.squares + other.squares) / freedom;
            let spread = student_t_975(freedom) * (variance * (1.0 / n + 1.0 / m)).sqrt();
            [difference - spread, difference + spread].map(f64::exp)
        });
        Self { ratio: difference.exp(), interval }
    }
}

pub(crate) fn compare(args: &CompareArgs) -> anyhow::Result<Comparison> {
    let (base, other) = (Results::read(&args.base)?, Results::read(&args.other)?);
    let mut rows = Vec::new();
    for figure in &FIGURES {
        let others = other.by_point(figure);
        for (point, values) in base.by_point(figure) {
            let same = others.iter().find(|(other, _)| *other == point);
            if let Some((_, others)) = same.filter(|(_, others)| !others.is_empty() && !values.is_empty()) {
                rows.push(Row {
                    point: label(point),
                    figure: figure.name,
                    ratio: Ratio::of(&values, others),
                });
            }
        }
    }
    ensure!(!rows.is_empty(), "the two have no point in common: {} and {}", base.scenario, other.scenario);
    let mut notes = Vec::new();
    if base.machine != other.machine {
        notes.push("they ran on different machines");
    }
    if base.is_quick || other.is_quick {
        notes.push("quick looks say little");
    }
    if !base.is_clean() || !other.is_clean() {
        notes.push("not all measurements are clean");
    }
    if base.runs.iter().chain(&other.runs).any(|run| !marks(true, run.others).is_empty()) {
        notes.push("others were at work on the machine in some of them");
    }
    if base.runs.iter().chain(&other.runs).any(|run| run.others.is_none()) {
        notes.push("what others took of the machine is not known for some of them");
    }
    let shown = |path: &PathBuf| path.display().to_string();
    Ok(Comparison { base: shown(&args.base), other: shown(&args.other), notes, rows })
}

impl Findings for Comparison {
    fn is_clean(&self) -> bool {
        true
    }

    fn terminal(&self) -> String {
        let mut out = format!("{} against {}: ratio (95 % interval)\n", self.other, self.base);
        for Row { point, figure, ratio: Ratio { ratio, interval } } in &self.rows {
            let interval = match interval {
                Some([low, high]) if *low > 1.0 => format!("{low:.3} to {high:.3}, more"),
                Some([low, high]) if *high < 1.0 => format!("{low:.3} to {high:.3}, less"),
                Some([low, high]) => format!("{low:.3} to {high:.3}, no difference seen"),
                None => "too few repetitions".to_owned(),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  {point}, {figure}: {ratio:.3} ({interval})");
        }
        self.notes.iter().for_each(|note| out.push_str(&format!("  note: {note}\n")));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_textbook() {
        // Logarithms 0, 1, 2 and 2, 3, 4: difference 2, pooled variance 1, t(4) = 2.776, standard error 0.8165.
        let [base, other] = [[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]].map(|logs| logs.map(f64::exp));
        let Ratio { ratio, interval } = Ratio::of(&base, &other);
        let [low, high] = interval.unwrap().map(f64::ln);
        assert!((ratio.ln() - 2.0).abs() < 1e-9);
        assert!(
            (high - (2.0 + 2.776 * 0.816_5)).abs() < 0.02 && (low + high - 4.0).abs() < 1e-9,
            "{low} {high}"
        );
        assert_eq!(Ratio::of(&[2.0], &[3.0, 4.0]).interval, None);
        assert!((Ratio::of(&[2.0], &[3.0]).ratio - 1.5).abs() < 1e-9);
    }
}
