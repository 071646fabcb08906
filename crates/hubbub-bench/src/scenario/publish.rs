//! `hubbub bench publish`: a directory for readers, made of the results of a run: the scenario, a row for each measurement,
//! a chart, and a page of a few lines that says what was asked, what came out, what the bottleneck was, and what to do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::results::{FIGURES, Figure, PointRun, Results, label};
use crate::engine::Findings;
use crate::limits::median;
use crate::report::{Axes, bars, grouped, picture, write_files};

#[derive(Debug, Clone, Args)]
pub(crate) struct PublishArgs {
    /// Directories that `run --out` wrote
    #[arg(value_name = "DIR", required = true)]
    results: Vec<PathBuf>,
    /// Where each gets a directory of its own
    #[arg(long, default_value = "docs/experiments", value_name = "DIR")]
    to: PathBuf,
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
        let results = Results::read(dir)?;
        let to = args.to.join(name_of(&results)?);
        let files = [
            ("scenario.toml", results.text.clone()),
            ("results.csv", csv(&results)),
            ("chart.svg", chart(&results)),
            ("README.md", page(&results)),
        ];
        write_files(&to, files)?;
        written.push(to);
    }
    Ok(Published(written))
}

/// The scenario's, with what it was stored in where that is not the embedded store.
fn name_of(results: &Results) -> anyhow::Result<String> {
    let name = Path::new(&results.scenario).file_stem().and_then(|stem| stem.to_str());
    let mut name =
        name.with_context(|| format!("'{}' is no name of a scenario", results.scenario))?.to_owned();
    for (part, usual) in [(&results.store, "embedded"), (&results.log, "direct")] {
        if !part.is_empty() && part != usual {
            name = format!("{name}-{part}");
        }
    }
    Ok(name)
}

fn verdict<'r>(run: &'r PointRun, member: &str) -> Option<&'r str> {
    run.summary.pointer(&format!("/verdict/{member}"))?.as_str()
}

/// A row for each measurement.
fn csv(results: &Results) -> String {
    let keys: Vec<&String> = results.runs.first().map_or_else(Vec::new, |run| run.point.keys().collect());
    let cell = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut out: String = keys.iter().map(|key| cell(key) + ",").collect();
    out.push_str("repetition");
    FIGURES.iter().for_each(|figure| out.push_str(&format!(",{}", figure.name)));
    out.push_str(",bottleneck,clean\n");
    for run in &results.runs {
        keys.iter()
            .for_each(|key| out.push_str(&(cell(run.point.get(*key).map_or("", |value| value)) + ",")));
        out.push_str(&run.repetition.to_string());
        for figure in &FIGURES {
            out.push_str(&figure.of(&run.summary).map_or(",".to_owned(), |value| format!(",{value:.3}")));
        }
        let is_clean = run.is_clean && run.faults.is_empty();
        let _ = writeln!(out, ",{},{is_clean}", verdict(run, "bottleneck").unwrap_or_default());
    }
    out
}

fn medians(results: &Results, figure: &Figure) -> Vec<(String, f64)> {
    let points = results.by_point(figure).into_iter().filter(|(_, values)| !values.is_empty());
    points.map(|(point, values)| (label(point), median(&values))).collect()
}

fn chart(results: &Results) -> String {
    let rates = FIGURES.first().map(|rate| medians(results, rate)).unwrap_or_default();
    picture(&bars(&rates, Axes { x: "point", y: "per second, median" }))
}

fn page(results: &Results) -> String {
    let mut out = format!("# {}\n\n{}\n\n", results.title, results.about.replace('\n', " "));
    let rates = FIGURES.first().map(|rate| medians(results, rate)).unwrap_or_default();
    let by_rate = |one: &&(String, f64), other: &&(String, f64)| one.1.total_cmp(&other.1);
    // Writing to a String cannot fail.
    if let (Some(most), Some(least)) = (rates.iter().max_by(by_rate), rates.iter().min_by(by_rate)) {
        let [high, low] = [most.1, least.1].map(grouped);
        let _ = match rates.len() {
            1 => writeln!(out, "**Result:** {high} a second.\n"),
            _ => writeln!(out, "**Result:** {high} a second at {}; least {low} at {}.\n", most.0, least.0),
        };
    }
    if let Some((name, run, count)) = most_named(results) {
        let of = results.runs.len();
        let evidence = verdict(run, "evidence").unwrap_or_default();
        let next = verdict(run, "tryNext").unwrap_or_default();
        let _ = writeln!(
            out,
            "**Bottleneck:** {name} in {count} of {of} measurements. At {}: {evidence}.\n\n**What to do:** {next}.\n",
            label(&run.point)
        );
    }
    let faults = results.runs.iter().filter(|run| !run.is_clean || !run.faults.is_empty()).count();
    let repetitions = results.runs.iter().map(|run| run.repetition).max().unwrap_or(0);
    let quick = if results.is_quick { "A quick look, whose figures say little. " } else { "" };
    let clean =
        if faults == 0 { "All were clean.".to_owned() } else { format!("**{faults} were not clean.**") };
    let _ = writeln!(
        out,
        "{quick}{} measurements, {repetitions} of each point, {}, {}. {clean}\n\n![Medians of each point](chart.svg)\n\n\
         [The scenario](scenario.toml), [all measurements](results.csv). To repeat it: `hubbub bench run {}`.",
        results.runs.len(),
        results.machine,
        results.started.get(..10).unwrap_or(&results.started),
        results.scenario
    );
    out.push_str(&table(results));
    out
}

/// The bottleneck that was named most often, and the last run that has it.
fn most_named(results: &Results) -> Option<(&str, &PointRun, usize)> {
    let mut named: BTreeMap<&str, (usize, &PointRun)> = BTreeMap::new();
    for run in &results.runs {
        if let Some(name) = verdict(run, "bottleneck") {
            let one = named.entry(name).or_insert((0, run));
            *one = (one.0 + 1, run);
        }
    }
    let (name, (count, run)) = named.into_iter().max_by_key(|(_, (count, _))| *count)?;
    Some((name, run, count))
}

fn table(results: &Results) -> String {
    let columns: Vec<(&Figure, BTreeMap<String, f64>)> = FIGURES
        .iter()
        .map(|figure| (figure, medians(results, figure).into_iter().collect::<BTreeMap<_, _>>()))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let heads: String = columns.iter().map(|(figure, _)| format!(" {} |", figure.name)).collect();
    let rules: String = columns.iter().map(|_| " ---: |").collect();
    let mut out = format!("\n| median |{heads}\n| --- |{rules}\n");
    let points = FIGURES.first().map(|rate| results.by_point(rate)).unwrap_or_default();
    for (point, _) in points {
        let label = label(point);
        let cell = |(_, values): &(&Figure, BTreeMap<String, f64>)| match values.get(&label) {
            Some(value) if *value >= 1_000.0 => format!(" {} |", grouped(*value)),
            Some(value) => format!(" {value:.3} |"),
            None => " |".to_owned(),
        };
        let _ = writeln!(out, "| {label} |{}", columns.iter().map(cell).collect::<String>());
    }
    out
}

impl Findings for Published {
    fn terminal(&self) -> String {
        self.0.iter().map(|dir| format!("wrote {}\n", dir.display())).collect()
    }

    fn is_clean(&self) -> bool {
        true
    }
}
