//! `report.html` of a scenario: one file with its table, charts of every figure, and all runs.

use super::results::{FIGURES, Figure, Results, label};
use crate::engine::Findings as _;
use crate::limits::median;
use crate::report::{Axes, bars, escape, page};

pub(super) fn page_of(results: &Results) -> String {
    let body = [
        format!("<h1>{}</h1>", escape(&results.title)),
        format!("<p class=\"soft\">{}, {}</p>", escape(&results.started), escape(&results.machine)),
        format!("<pre>{}</pre>", escape(&results.terminal())),
        FIGURES.iter().map(|figure| chart(results, figure)).collect(),
        format!("<h2>All measurements</h2>{}", table(results)),
        format!("<h2>The scenario</h2><pre>{}</pre>", escape(&results.text)),
    ];
    page(&format!("hubbub bench run {}", results.scenario), &body.concat())
}

/// Medians by point; nothing where no run has the figure.
fn chart(results: &Results, figure: &Figure) -> String {
    let points = results.by_point(figure).into_iter().filter(|(_, values)| !values.is_empty());
    let medians: Vec<(String, f64)> = points.map(|(point, values)| (label(point), median(&values))).collect();
    if medians.is_empty() {
        return String::new();
    }
    let axes = Axes { x: "point", y: figure.name };
    format!("<h2>{}, median of each point</h2>{}\n", figure.name, bars(&medians, axes))
}

fn table(results: &Results) -> String {
    let heads: String = FIGURES.iter().map(|figure| format!("<th>{}", figure.name)).collect();
    let rows: String = results
        .runs
        .iter()
        .map(|run| {
            let cell = |figure: &Figure| {
                figure.of(&run.summary).map_or_else(|| "<td>".to_owned(), |value| format!("<td>{value:.3}"))
            };
            let cells: String = FIGURES.iter().map(cell).collect();
            let books = if run.is_clean { "" } else { "the books do not balance " };
            let faults = escape(&run.faults.join("; "));
            format!(
                "<tr><td>{}<td>{}{cells}<td>{books}{faults}</tr>",
                escape(&label(&run.point)),
                run.repetition
            )
        })
        .collect();
    format!("<table><tr><th>point<th>repetition{heads}<th>faults</tr>{rows}</table>")
}
