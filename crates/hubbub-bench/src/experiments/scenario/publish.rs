//! `hubbub bench publish`: a directory for readers, made of the results of a run: the scenario, a row for each measurement,
//! a chart, and a page of a few lines that says what was asked, what came out, what the bottleneck was, and what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;

use super::chart::chart;
use super::conclusion::conclusion;
use super::marks::stem;
use super::results::{FIGURES, PointRun, Results, label};
use super::sections::sections;
use crate::analysis::price::PriceArgs;
use crate::report::{Analysis, Table, grouped, write_files};
use crate::results::minutes::Minute;
use crate::workloads::engine::Findings;

#[derive(Debug, Clone, Args)]
pub(crate) struct PublishArgs {
    /// Directories that `run --out` wrote
    #[arg(value_name = "DIR", required = true)]
    results: Vec<PathBuf>,
    /// Where each gets a directory of its own
    #[arg(long, default_value = "docs/experiments", value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    price: PriceArgs,
    /// Print what was written as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Directories that were written.
#[derive(Debug, Serialize)]
pub(crate) struct Published(Vec<PathBuf>);

pub(crate) fn publish(args: &PublishArgs) -> anyhow::Result<Published> {
    let mut written = Vec::new();
    for dir in &args.results {
        let mut results = Results::read(dir)?;
        results.rebuild();
        results.set_price(&args.price).with_context(|| dir.display().to_string())?;
        let to = args.to.join(name_of(&results)?);
        let files = [
            ("scenario.toml", results.text.clone()),
            ("results.csv", csv(&results).csv()),
            ("chart.svg", chart(&results).0),
            ("README.md", page(&results)),
        ];
        write_files(&to, files)?;
        let minutes = minutes_csv(&results);
        if !minutes.is_empty() {
            write_files(&to, [("minutes.csv", minutes.csv())])?;
        }
        written.push(to);
    }
    Ok(Published(written))
}

/// The scenario's, with what it was stored in where that is not the embedded store.
fn name_of(results: &Results) -> anyhow::Result<String> {
    let mut name = stem(&results.scenario).to_owned();
    ensure!(!name.is_empty(), "'{}' is no name of a scenario", results.scenario);
    for (part, usual) in [(&results.store, "embedded"), (&results.log, "direct")] {
        if !part.is_empty() && part != usual {
            name = format!("{name}-{part}");
        }
    }
    Ok(name)
}

/// A row for each measurement.
fn csv(results: &Results) -> Table {
    let keys = keys(results);
    let figures = FIGURES.iter().map(|figure| figure.name);
    let heads = keys.iter().copied().chain(["repetition"]).chain(figures);
    let mut table = Table::new(heads.chain(["bottleneck", "clean", "taken by others"]));
    for run in &results.runs {
        let figures = FIGURES.iter().map(|figure| figure.of(&run.summary));
        let figures = figures.map(|figure| figure.map_or_else(String::new, |figure| figure.to_string()));
        let is_clean = run.is_clean && run.faults.is_empty();
        let verdict = run.verdict("bottleneck").unwrap_or_default().to_owned();
        table.row(which(&keys, run).chain(figures).chain([
            verdict,
            is_clean.to_string(),
            run.others.map_or_else(|| "not known".to_owned(), |share| format!("{share:.3}")),
        ]));
    }
    table
}

/// What the points are told apart by.
fn keys(results: &Results) -> Vec<&str> {
    // A point has only those that are its own.
    let keys: BTreeSet<&str> =
        results.runs.iter().flat_map(|run| run.point.keys().map(String::as_str)).collect();
    keys.into_iter().collect()
}

/// The cells that say which run it is.
fn which(keys: &[&str], run: &PointRun) -> impl Iterator<Item = String> {
    let values = keys.iter().map(move |key| run.point.get(*key).cloned().unwrap_or_default());
    values.chain([run.repetition.to_string()])
}

/// A row for each minute of each measurement; empty where none took two.
fn minutes_csv(results: &Results) -> Table {
    let keys = keys(results);
    let mut table = Table::new(keys.iter().copied().chain(["repetition"]).chain(Minute::COLUMNS));
    for run in &results.runs {
        for minute in Analysis::of(&run.summary).minutes {
            table.row(which(&keys, run).chain(minute.cells()));
        }
    }
    table
}

fn page(results: &Results) -> String {
    let mut out = format!("# {}\n\n{}\n\n", results.title, results.about.replace('\n', " "));
    let rates = FIGURES.first().map(|rate| results.medians(rate)).unwrap_or_default();
    let by_rate = |one: &&(String, f64), other: &&(String, f64)| one.1.total_cmp(&other.1);
    // Writing to a String cannot fail.
    if let (Some(most), Some(least)) = (rates.iter().max_by(by_rate), rates.iter().min_by(by_rate)) {
        let marked: BTreeMap<String, String> = results.marked_points().into_iter().collect();
        let mark = |(point, _): &(String, f64)| {
            marked.get(point).map_or_else(String::new, |reasons| format!(" (marked: {reasons})"))
        };
        let ([high, low], [of_most, of_least]) = ([most.1, least.1].map(grouped), [most, least].map(mark));
        let _ = match rates.len() {
            1 => writeln!(out, "**Result:** {high} a second{of_most}.\n"),
            _ => writeln!(
                out,
                "**Result:** {high} a second at {}{of_most}; least {low} at {}{of_least}.\n",
                most.0, least.0
            ),
        };
    }
    if let Some(said) = conclusion(results) {
        let _ = writeln!(out, "**Conclusion:** {said}\n");
    }
    if let Some((name, run, count)) = most_named(results) {
        let of = results.runs.len();
        let evidence = run.verdict("evidence").unwrap_or_default();
        let next = run.verdict("tryNext").unwrap_or_default();
        let _ = writeln!(
            out,
            "**Bottleneck:** {name} in {count} of {of} measurements. At {}: {evidence}.\n\n**What to do:** {next}.\n",
            label(&run.point)
        );
    }
    let repetitions = results.runs.iter().map(|run| run.repetition).max().unwrap_or(0);
    let quick = if results.is_quick { "A quick look, whose figures say little. " } else { "" };
    if !results.limits.is_empty() {
        let _ = writeln!(out, "**Conditions:** {}.\n", results.limits);
    }
    let _ = writeln!(
        out,
        "{quick}{} measurements, {repetitions} of each point, {}, {}. {}\n\n![{}](chart.svg)\n\n\
         [The scenario](scenario.toml), [all measurements](results.csv). To repeat it: `hubbub bench run {}`.",
        results.runs.len(),
        results.machine,
        results.started.get(..10).unwrap_or(&results.started),
        cleanness(results),
        chart(results).1,
        results.scenario
    );
    let _ = write!(out, "\n{}{}", results.median_table().markdown(), sections(results));
    out
}

/// Whether all measurements were clean, or which points have marks, and why.
fn cleanness(results: &Results) -> String {
    let marked = results.marked_points();
    let points: Vec<String> = marked.iter().map(|(point, reasons)| format!("{point} ({reasons})")).collect();
    let clean = match points.join(", ") {
        none if none.is_empty() => "All were clean.".to_owned(),
        some if results.runs.iter().all(PointRun::is_undisturbed) => {
            format!("All were clean. More was asked for than could be reached at: {some}.")
        }
        some => format!("**Not all were clean.** Marked: {some}."),
    };
    match results.not_known() {
        Some(note) => format!("{clean} Note: {note}."),
        None => clean,
    }
}

/// The bottleneck that was named most often, and the last run that has it.
fn most_named(results: &Results) -> Option<(&str, &PointRun, usize)> {
    let mut named: BTreeMap<&str, (usize, &PointRun)> = BTreeMap::new();
    for run in &results.runs {
        if let Some(name) = run.verdict("bottleneck") {
            let one = named.entry(name).or_insert((0, run));
            *one = (one.0 + 1, run);
        }
    }
    let (name, (count, run)) = named.into_iter().max_by_key(|(_, (count, _))| *count)?;
    Some((name, run, count))
}

impl Findings for Published {
    fn terminal(&self) -> String {
        self.0.iter().map(|dir| format!("wrote {}\n", dir.display())).collect()
    }

    fn is_clean(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
