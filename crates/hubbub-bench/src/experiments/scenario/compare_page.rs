//! `compare.html`: two results side by side in one file, with bars of each figure at each point.

use super::compare::{Comparison, Row};
use crate::report::{Table, bar_rows, escape, figure, page};

pub(super) fn page_of(comparison: &Comparison) -> String {
    let Comparison { base, other, notes, rows } = comparison;
    let notes: String =
        notes.iter().map(|note| format!("<p class=\"note\">{}</p>\n", escape(note))).collect();
    let body = [
        "<h1>B against A</h1>".to_owned(),
        format!("<p class=\"soft\">A: {}<br>B: {}</p>\n", escape(base), escape(other)),
        notes,
        format!("<h2>Ratios of geometric means</h2>{}\n", table(rows).html()),
        charts(rows),
    ];
    page("hubbub bench compare", &body.concat())
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(["point", "figure", "A", "B", "B / A", "95 % interval", "B has"]);
    for row in rows {
        let [base, other] = row.medians.map(figure);
        let interval =
            row.ratio.interval.map_or_else(String::new, |[low, high]| format!("{low:.3} to {high:.3}"));
        let (figure, verdict) = (row.figure.to_owned(), row.ratio.verdict().to_owned());
        let ratio = format!("{:.3}", row.ratio.ratio);
        table.row([row.point.clone(), figure, base, other, ratio, interval, verdict]);
    }
    table
}

/// One for each figure, in the order of the rows: those of a figure stand together.
fn charts(rows: &[Row]) -> String {
    let of_figure = |rows: &[Row]| {
        let points: Vec<_> = rows.iter().map(|row| (row.point.clone(), row.medians.map(Some))).collect();
        let title =
            rows.first().map_or_else(String::new, |row| format!("{}, median of each point", row.figure));
        bar_rows(&title, ["A", "B"], &points)
    };
    rows.chunk_by(|row, next| row.figure == next.figure).map(of_figure).collect()
}
