//! Two results side by side: how many times as large each figure is, with a confidence interval.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use super::compare_page::page_of;
use super::results::{FIGURES, Results, label};
use crate::host::background_load::marks;
use crate::report::write_files;
use crate::statistics::{Moments, median, student_t_975};
use crate::workloads::engine::Findings;

#[derive(Debug, Clone, Args)]
pub(crate) struct CompareArgs {
    /// Directory of the results that are the base
    #[arg(value_name = "A")]
    base: PathBuf,
    /// Directory of the results to compare with them
    #[arg(value_name = "B")]
    other: PathBuf,
    /// Write compare.html into this directory: the ratios, and charts of all points
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the ratios as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(super) base: String,
    pub(super) other: String,
    pub(super) notes: Vec<&'static str>,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) point: String,
    pub(super) figure: &'static str,
    #[serde(flatten)]
    pub(super) ratio: Ratio,
    /// Of the base, and of the other.
    #[serde(skip)]
    pub(super) medians: [f64; 2],
}

/// How many times as large the other's geometric mean is as the base's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) ratio: f64,
    /// Where it lies with a probability of 95 %; `None` where there are too few repetitions.
    pub(super) interval: Option<[f64; 2]>,
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

    /// What the interval says.
    pub(super) fn verdict(&self) -> &'static str {
        match self.interval {
            Some([low, _]) if low > 1.0 => "more",
            Some([_, high]) if high < 1.0 => "less",
            Some(_) => "no difference seen",
            None => "too few repetitions",
        }
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
                    medians: [median(&values), median(others)],
                });
            }
        }
    }
    ensure!(!rows.is_empty(), "the two have no point in common: {} and {}", base.scenario, other.scenario);
    let mut notes = differences(&base, &other);
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

/// What else differs between them than what is compared, as a rule.
fn differences(base: &Results, other: &Results) -> Vec<&'static str> {
    let differs = [
        (base.text != other.text, "their scenarios differ"),
        (base.store != other.store, "their servers stored in different stores, or one does not say in what"),
        (base.log != other.log, "their servers were behind different logs, or one does not say which"),
        (base.limits != other.limits, "their servers and databases had different limits"),
    ];
    differs.into_iter().filter(|(is_so, _)| *is_so).map(|(_, said)| said).collect()
}

impl Findings for Comparison {
    fn is_clean(&self) -> bool {
        true
    }

    fn terminal(&self) -> String {
        let mut out = format!("{} against {}: ratio (95 % interval)\n", self.other, self.base);
        for Row { point, figure, ratio, .. } in &self.rows {
            let interval = ratio.interval.map(|[low, high]| format!("{low:.3} to {high:.3}, "));
            let (interval, verdict, ratio) = (interval.unwrap_or_default(), ratio.verdict(), ratio.ratio);
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  {point}, {figure}: {ratio:.3} ({interval}{verdict})");
        }
        self.notes.iter().for_each(|note| out.push_str(&format!("  note: {note}\n")));
        out
    }

    fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        write_files(dir, [("compare.html", page_of(self))])
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

    #[test]
    fn what_makes_two_runs_unlike_is_noted() {
        let notes = |member: &str, value: &str| {
            let results = |member: &str, value: &str| {
                let dir = tempfile::tempdir().unwrap();
                let mut results = serde_json::json!({
                    "version": 1, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
                    "started": "2026-01-01T00:00:00Z", "text": "title = 'x'\n", "store": "embedded", "log": "direct",
                    "limits": "", "runs": [{"point": {}, "repetition": 1, "isClean": true, "others": 0.0,
                    "faults": [], "summary": {"perSecond": 5.0}}],
                });
                results[member] = value.into();
                std::fs::write(dir.path().join("results.json"), results.to_string()).unwrap();
                dir
            };
            let (base, other) = (results("title", "x"), results(member, value));
            let [base, other] = [&base, &other].map(|dir| dir.path().to_owned());
            compare(&CompareArgs { base, other, out: None, json: false }).unwrap().notes.join("; ")
        };
        assert_eq!(notes("title", "x"), "", "they are alike");
        for (member, value, said) in [
            ("text", "title = 'y'\n", "scenarios"),
            ("store", "postgres", "stores"),
            ("log", "kafka", "logs"),
            ("limits", "server: 1 processor", "limits"),
        ] {
            let noted = notes(member, value);
            assert!(noted.contains(said) && !noted.contains(';'), "{member}: {noted}");
        }
    }

    #[test]
    fn a_comparison_is_shown_in_words_and_as_a_page() {
        let row = |point: &str, figure, base: &[f64], other: &[f64]| Row {
            point: point.to_owned(),
            figure,
            ratio: Ratio::of(base, other),
            medians: [median(base), median(other)],
        };
        let comparison = Comparison {
            base: "results/<a>".to_owned(),
            other: "results/b".to_owned(),
            notes: vec!["quick looks say little"],
            rows: vec![
                row("clients 40", "per second", &[100.0, 101.0, 102.0], &[200.0, 201.0, 202.0]),
                row("clients 80", "per second", &[100.0, 300.0], &[110.0, 310.0]),
                row("clients 40", "p50 ms", &[2.0], &[1.0]),
            ],
        };
        let shown = comparison.terminal();
        assert!(shown.contains("  clients 40, per second: 1.990 (1.9"), "{shown}");
        assert!(shown.contains(", more)\n") && shown.contains(", no difference seen)\n"), "{shown}");
        assert!(shown.contains("  clients 40, p50 ms: 0.500 (too few repetitions)\n"), "{shown}");
        let dir = tempfile::tempdir().unwrap();
        comparison.write_files(dir.path()).unwrap();
        let page = std::fs::read_to_string(dir.path().join("compare.html")).unwrap();
        for part in ["A: results/&lt;a&gt;", "<td>1.990<td>1.9", "<td>more", "<p class=\"note\">quick looks"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(page.matches(", median of each point</h2>").count(), 2, "a chart for each figure: {page}");
        assert_eq!(page.matches("class=\"fill\"").count(), 6, "both of each point: {page}");
        assert_eq!(serde_json::to_value(&comparison).unwrap()["rows"][2].get("medians"), None);
    }
}
