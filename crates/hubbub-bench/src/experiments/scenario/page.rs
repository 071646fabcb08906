//! `report.html` of a scenario: one file with its table, charts of every figure, and all runs.

use super::results::{FIGURES, Figure, PointRun, Results, label};
use crate::report::{Analysis, Table, bar_rows, escape, figure, page, preformatted};
use crate::workloads::engine::Findings as _;

pub(super) fn page_of(results: &Results) -> String {
    let body = [
        format!("<h1>{}</h1>", escape(&results.title)),
        format!("<p class=\"soft\">{}, {}</p>", escape(&results.started), escape(&results.machine)),
        preformatted(&results.terminal()),
        FIGURES.iter().map(|figure| chart(results, figure)).collect(),
        results.last_of_each().map(analysis).collect(),
        format!("<h2>All measurements</h2>{}", table(results).html()),
        format!("<h2>The scenario</h2>{}", preformatted(&results.text)),
    ];
    page(&format!("hubbub bench run {}", results.scenario), &body.concat())
}

/// Medians by point; nothing where no run has the figure.
fn chart(results: &Results, figure: &Figure) -> String {
    let medians = results.medians(figure);
    if medians.is_empty() {
        return String::new();
    }
    let points: Vec<_> = medians.into_iter().map(|(point, median)| (point, [Some(median)])).collect();
    bar_rows(&format!("{}, median of each point", figure.name), [""], &points)
}

/// Of one run: nothing where it has none.
fn analysis(run: &PointRun) -> String {
    let html = Analysis::of(&run.summary).html();
    if html.is_empty() { html } else { format!("<h2>{}</h2>{html}", escape(&label(&run.point))) }
}

fn table(results: &Results) -> Table {
    let figures = FIGURES.iter().map(|figure| figure.name);
    let mut table = Table::new(["point", "repetition"].into_iter().chain(figures).chain(["faults"]));
    for run in &results.runs {
        let cells = FIGURES.iter().map(|one| one.of(&run.summary).map_or_else(String::new, figure));
        let mut faults = run.marks();
        let further = run.all_faults().into_iter();
        faults.extend(further.filter(|fault| !run.marks().contains(fault)));
        let faults = faults.join("; ");
        table.row([label(&run.point), run.repetition.to_string()].into_iter().chain(cells).chain([faults]));
    }
    table
}
