//! `hubbub bench publish`: a directory for readers, made of the results of a run: the scenario, a row for each measurement,
//! a chart, and a page of a few lines that says what was asked, what came out, what the bottleneck was, and what to do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;

use super::marks::stem;
use super::results::{FIGURES, PointRun, Results, label};
use crate::engine::Findings;
use crate::minutes::{self, Minute};
use crate::price::PriceArgs;
use crate::report::{Analysis, Axes, Table, bars, grouped, picture, write_files};
use crate::stages::{self, Stages, Way};

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
        results.set_price(&args.price).with_context(|| dir.display().to_string())?;
        let to = args.to.join(name_of(&results)?);
        let files = [
            ("scenario.toml", results.text.clone()),
            ("results.csv", csv(&results).csv()),
            ("chart.svg", chart(&results)),
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
    results.runs.first().map_or_else(Vec::new, |run| run.point.keys().map(String::as_str).collect())
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

fn chart(results: &Results) -> String {
    let rates = FIGURES.first().map(|rate| results.medians(rate)).unwrap_or_default();
    picture(&bars(&rates, Axes { x: "point", y: "per second, median" }))
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
        "{quick}{} measurements, {repetitions} of each point, {}, {}. {}\n\n![Medians of each point](chart.svg)\n\n\
         [The scenario](scenario.toml), [all measurements](results.csv). To repeat it: `hubbub bench run {}`.",
        results.runs.len(),
        results.machine,
        results.started.get(..10).unwrap_or(&results.started),
        cleanness(results),
        results.scenario
    );
    let _ = write!(out, "\n{}{}", results.median_table().markdown(), analysis(results));
    out
}

/// Whether all measurements were clean, or which points have marks, and why.
fn cleanness(results: &Results) -> String {
    let marked = results.marked_points();
    let points: Vec<String> = marked.iter().map(|(point, reasons)| format!("{point} ({reasons})")).collect();
    let clean = if points.is_empty() {
        "All were clean.".to_owned()
    } else {
        format!("**Not all were clean.** Marked: {}.", points.join(", "))
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

/// Until the answer, or until subscribers have it.
type OneWay = fn(&Stages) -> Option<&Way>;

/// Where the time went at each point, how even the runs were, and what they cost; nothing of what older programs did not
/// measure.
fn analysis(results: &Results) -> String {
    let last: Vec<(String, Analysis)> =
        results.last_of_each().map(|run| (label(&run.point), Analysis::of(&run.summary))).collect();
    let mut out = String::new();
    let parts: [(&str, OneWay); 2] = [
        ("Where the time goes until the answer", |stages| stages.confirmed.as_ref()),
        ("Where the time goes until subscribers have it", |stages| stages.delivered.as_ref()),
    ];
    // Writing to a String cannot fail.
    for (title, of) in parts {
        let way = |(label, it): &(String, Analysis)| Some((label.clone(), of(&it.stages).cloned()?));
        let ways: Vec<(String, Way)> = last.iter().filter_map(way).collect();
        if !ways.is_empty() {
            let _ = writeln!(out, "\n## {title}\n\n{}", stages::table(&ways).markdown());
        }
        for (label, mark) in ways.iter().filter_map(|(label, way)| Some((label, way.mark()?))) {
            let _ = writeln!(out, "At {label}, {mark}.\n");
        }
    }
    for (label, Analysis { trends, .. }) in last.iter().filter(|(_, it)| !it.trends.is_empty()) {
        let _ = writeln!(out, "\n## From the beginning to the end: {label}\n\n{}", trends.table().markdown());
        trends.iter().for_each(|trend| out.push_str(&format!("- {trend}.\n")));
    }
    for (label, Analysis { minutes, .. }) in last.iter().filter(|(_, it)| !it.minutes.is_empty()) {
        let table = minutes::table(minutes).markdown();
        let _ = writeln!(out, "\n## Minute by minute: {label}\n\n{table}\n[All minutes](minutes.csv).");
    }
    for (label, cost) in last.iter().filter_map(|(label, it)| Some((label, it.cost.as_ref()?))) {
        let _ = writeln!(out, "\n**Price** of {label}: {cost}.");
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::page::page_of;
    use super::*;

    #[test]
    fn what_makes_a_point_worth_less_stands_in_every_table() {
        let run = |connections: &str, is_clean: bool, others: Option<f64>| {
            json!({
                "point": {"connections": connections}, "repetition": 1, "isClean": is_clean, "others": others,
                "faults": [], "summary": {"perSecond": 5.0},
            })
        };
        let results: Results = serde_json::from_value(json!({
            "version": 1, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
            "started": "2026-01-01T00:00:00Z", "limits": "limited by cgroups: cgroup.server.cpus = 1", "text": "",
            "runs": [
                run("1", true, Some(0.05)), run("2", true, Some(0.09)), run("2", true, Some(0.0)),
                run("3", false, Some(0.2)),
            ],
        }))
        .unwrap();
        let (terminal, published) = (results.terminal(), page(&results));
        let line = |text: &str, begins: &str| {
            text.lines().find(|line| line.starts_with(begins)).map(str::to_owned).unwrap_or_default()
        };
        let (others, ledger) = ("9 % of the machine taken by others", "ledger does not balance");
        assert!(line(&terminal, "  connections 1  ").contains("5.000"), "{terminal}");
        assert!(line(&terminal, &format!("  connections 2; {others}  ")).contains("5.000"), "{terminal}");
        let both = format!("{ledger}; 20 % of the machine taken by others");
        assert!(line(&published, "| connections 1 |").contains("5.000"), "{published}");
        assert!(line(&published, &format!("| connections 2; {others} |")).contains("5.000"), "{published}");
        for text in [&terminal, &published] {
            assert!(text.contains(&format!("connections 3; {both}")), "{text}");
        }
        let rows = csv(&results).csv();
        assert!(rows.lines().nth(2).unwrap().contains("0.090"), "{rows}");
        let html = page_of(&results);
        assert!(html.contains(&format!("<td>{others}</tr>")), "{html}");
        assert!(html.contains(&format!("<td>{both}</tr>")), "{html}");
        for text in [&terminal, &published, &html] {
            assert!(text.contains("limited by cgroups: cgroup.server.cpus = 1"), "{text}");
        }
    }

    /// What was measured at a number of connections: that, the rate, whether its ledger balances, what others took, its faults.
    type RunFigures<'f> = (u64, f64, bool, Option<f64>, &'f [&'f str]);

    fn results_of(runs: &[RunFigures<'_>]) -> Results {
        let run = |(connections, rate, is_clean, others, faults): &RunFigures<'_>| {
            json!({
                "point": {"connections": connections.to_string()}, "repetition": 1, "isClean": is_clean,
                "others": others, "faults": faults, "summary": {"perSecond": rate},
            })
        };
        serde_json::from_value(json!({
            "version": 1, "scenario": "x.toml", "title": "x", "about": "", "isQuick": false, "machine": "m",
            "started": "2026-01-01T00:00:00Z", "text": "", "runs": runs.iter().map(run).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    #[test]
    fn the_result_says_which_points_are_marked() {
        let clean = page(&results_of(&[(1, 5.0, true, Some(0.0), &[]), (2, 9.0, true, Some(0.01), &[])]));
        assert!(
            clean.contains("**Result:** 9 a second at connections 2; least 5 at connections 1.\n"),
            "{clean}"
        );
        assert!(clean.contains("All were clean.") && !clean.to_lowercase().contains("marked"), "{clean}");

        let results = results_of(&[
            (1, 5.0, true, Some(0.0), &["perSecond is 5, and should be more than 6"]),
            (2, 9.0, true, Some(0.2), &[]),
            (3, 7.0, false, Some(0.0), &[]),
            (4, 6.0, true, Some(0.0), &[]),
        ]);
        let (busy, late) =
            ("20 % of the machine taken by others", "perSecond is 5, and should be more than 6");
        let marked = page(&results);
        for part in [
            &format!(
                "**Result:** 9 a second at connections 2 (marked: {busy}); least 5 at connections 1 (marked: {late})."
            ),
            &format!(
                "**Not all were clean.** Marked: connections 1 ({late}), connections 2 ({busy}), connections 3 (ledger does \
                 not balance)."
            ),
        ] {
            assert!(marked.contains(part), "{part}: {marked}");
        }
        assert!(!marked.contains("All were clean"), "{marked}");
        let shown = results.terminal();
        assert!(shown.contains(&format!("  marked: connections 2: {busy}\n")), "{shown}");
        let alone = page(&results_of(&[(2, 9.0, true, Some(0.2), &[])]));
        assert!(alone.contains(&format!("**Result:** 9 a second (marked: {busy}).")), "{alone}");
    }

    #[test]
    fn an_open_loop_that_fell_behind_is_marked_and_not_clean_unless_it_looks_for_the_limit() {
        let results = |point: serde_json::Value, rate: serde_json::Value, reached: f64| {
            let summary = json!({
                "perSecond": 5.0, "parameters": {"rate": rate}, "verdict": {"figures": {"reached": reached}},
            });
            let mut results = results_of(&[(1, 5.0, true, Some(0.0), &[])]);
            results.text = "title = 'x'\nworkload = 'http'\n".to_owned();
            results.runs[0].summary = summary;
            results.runs[0].point = serde_json::from_value(point).unwrap();
            results.rebuild();
            results
        };
        let said = "only 84 % of the asked rate";
        let late = results(json!({}), json!("5000"), 0.837);
        assert_eq!((late.is_clean(), &late.runs[0].faults[..]), (false, &[said.to_owned()][..]));
        for text in [&page(&late), &page_of(&late), &late.terminal()] {
            assert!(text.contains(said) && !text.contains("All were clean"), "{text}");
        }
        assert!(page(&late).contains(&format!("**Not all were clean.** Marked: all ({said}).")));
        for looks_for_it in [
            results(json!({}), json!("1000..9000"), 0.837),
            results(json!({"rate": "5000"}), json!("5000"), 0.837),
        ] {
            assert!(looks_for_it.is_clean(), "{:?}", looks_for_it.runs);
            assert!(page(&looks_for_it).contains(said) && looks_for_it.terminal().contains(said));
        }
        let reached = results(json!({}), json!("5000"), 0.951);
        assert!(reached.is_clean() && page(&reached).contains("All were clean."), "{:?}", reached.runs);
    }

    #[test]
    fn an_endurance_run_is_judged_by_what_changes_over_it() {
        let results = |scenario: &str, change: f64| {
            let trend = json!({"figure": "rate", "mean": 100.0, "change": change, "low": change - 2.0, "high": change + 2.0});
            let mut results = results_of(&[(1, 5.0, true, Some(0.0), &[])]);
            scenario.clone_into(&mut results.scenario);
            results.text = "title = 'x'\nworkload = 'queue'\n".to_owned();
            results.runs[0].summary = json!({"perSecond": 5.0, "trends": [trend]});
            results.rebuild();
            results
        };
        let said = "rate -12.0 % over the run (95 %: -14.0 to -10.0): it falls";
        for judged in ["persist-endurance", "some/where/queue-stability.toml"] {
            let falling = results(judged, -12.0);
            assert_eq!((falling.is_clean(), &falling.runs[0].faults[..]), (false, &[said.to_owned()][..]));
            assert!(
                page(&falling).contains(&format!("Marked: connections 1 ({said}).")),
                "{}",
                page(&falling)
            );
            assert!(results(judged, -8.0).is_clean(), "less than a tenth");
        }
        let other = results("queue-clients", -12.0);
        assert!(other.is_clean() && page(&other).contains("All were clean."));
        for text in [page(&other), page_of(&other)] {
            assert!(text.contains("From the beginning to the end") && text.contains("it falls"), "{text}");
        }
        assert!(page(&other).contains(&format!("\n- {said}.\n")), "{}", page(&other));
    }

    #[test]
    fn what_befell_a_server_is_not_forgotten_by_a_new_report() {
        let mut results = results_of(&[(1, 5.0, false, Some(0.0), &["killed"])]);
        results.text = "title = 'x'\nworkload = 'chat'\nthresholds = ['perSecond > 6']\n".to_owned();
        results.runs.iter_mut().for_each(|run| run.mishaps = vec!["killed".to_owned()]);
        results.rebuild();
        assert_eq!(results.runs[0].faults, ["killed", "perSecond is 5, and should be more than 6"]);
    }

    #[test]
    fn what_is_not_known_is_a_note_and_no_mark() {
        let results = results_of(&[(1, 5.0, true, None, &[]), (2, 5.0, true, Some(0.0), &[])]);
        let note = "what others took of the machine is not known in 1 of 2 measurements";
        let (page, shown) = (page(&results), results.terminal());
        assert!(page.contains(&format!("All were clean. Note: {note}.")), "{page}");
        assert!(shown.contains(&format!("  note: {note}\n")) && !shown.contains("marked"), "{shown}");
        let rows = csv(&results).csv();
        assert!(rows.lines().nth(1).unwrap().ends_with("not known"), "{rows}");
    }
}
