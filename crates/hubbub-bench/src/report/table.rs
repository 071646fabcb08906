//! A table of figures: written once, shown in a page, on a terminal, in Markdown and as CSV.

use super::{escape, grouped};

/// A head for each column, and as many cells in each row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<S: Into<String>>(heads: impl IntoIterator<Item = S>) -> Self {
        Self { heads: heads.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// For a page. Where it is too wide, it scrolls; on paper each page has the heads again.
    pub(crate) fn html(&self) -> String {
        let row = |mark: &str, cells: &[String]| {
            let cells: String = cells.iter().map(|cell| format!("<{mark}>{}", escape(cell))).collect();
            format!("<tr>{cells}</tr>")
        };
        let rows: String = self.rows.iter().map(|cells| row("td", cells)).collect();
        let head = row("th", &self.heads);
        format!(
            "<div class=\"scroll\" tabindex=\"0\"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>"
        )
    }

    /// For a terminal; the first column stands left, the others right, here and in Markdown.
    pub(crate) fn text(&self) -> String {
        let lines = || std::iter::once(&self.heads).chain(&self.rows);
        let width = |column: usize| {
            let cells = lines().filter_map(|cells| cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let cells = cells.iter().zip(&widths).enumerate();
            let cell = |(column, (cell, width)): (usize, (&String, &usize))| match column {
                0 => format!("  {cell:<width$}"),
                _ => format!("{cell:>width$}", width = (width + 2).max(NUMBER)),
            };
            cells.map(cell).collect::<String>() + "\n"
        };
        lines().map(line).collect()
    }

    pub(crate) fn markdown(&self) -> String {
        let row = |cells: &[String]| {
            let cells: String = cells.iter().map(|cell| format!(" {cell} |").replace("  |", " |")).collect();
            format!("|{cells}\n")
        };
        let rules = self.heads.iter().skip(1).map(|_| " ---: |").collect::<String>();
        let rows: String = self.rows.iter().map(|cells| row(cells)).collect();
        format!("{}| --- |{rules}\n{rows}", row(&self.heads))
    }

    /// Cells that hold a comma or a quote are quoted.
    pub(crate) fn csv(&self) -> String {
        let is_plain = |text: &String| !text.contains([',', '"', '\n']);
        let quoted = |text: &String| format!("\"{}\"", text.replace('"', "\"\""));
        let cell = |text: &String| if is_plain(text) { text.clone() } else { quoted(text) };
        let row = |cells: &Vec<String>| cells.iter().map(cell).collect::<Vec<_>>().join(",") + "\n";
        std::iter::once(&self.heads).chain(&self.rows).map(row).collect()
    }
}

/// Characters of a column of figures on a terminal, at least.
const NUMBER: usize = 16;

/// A figure for people, with three digits at least.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => grouped(value),
        size if size >= 1.0 || size == 0.0 => format!("{value:.3}"),
        size => {
            let digits = 2 - size.log10().floor() as i32;
            format!("{value:.*}", usize::try_from(digits.clamp(3, 12)).unwrap_or(3))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_shown_in_four_ways() {
        let mut table = Table::new(["a <b>", "c"]);
        assert!(table.is_empty());
        table.row(["x, \"y\"".to_owned(), "1".to_owned()]);
        table.row([String::new(), "2".to_owned()]);
        assert_eq!(
            table.html(),
            "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th>a &lt;b&gt;<th>c</tr></thead>\
             <tbody><tr><td>x, &quot;y&quot;<td>1</tr><tr><td><td>2</tr></tbody></table></div>"
        );
        assert_eq!(table.markdown(), "| a <b> | c |\n| --- | ---: |\n| x, \"y\" | 1 |\n| | 2 |\n");
        assert_eq!(
            table.text(),
            "  a <b>                c\n  x, \"y\"               1\n                       2\n"
        );
        assert_eq!(table.csv(), "a <b>,c\n\"x, \"\"y\"\"\",1\n,2\n");
    }

    #[test]
    fn figures_keep_three_digits() {
        for (value, text) in [
            (12_345.6, "12,346"),
            (12.345_6, "12.346"),
            (0.5, "0.500"),
            (0.012_345, "0.0123"),
            (0.000_012_345, "0.0000123"),
            (0.0, "0.000"),
            (-0.001_234, "-0.00123"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(figure(value), text);
        }
    }
}
