//! A table for people: columns are as wide as the widest cell so far, so that long names do not push the others away.

/// Narrowest column of names, so that pages of short and of long ones look alike.
const NAME_WIDTH: usize = 32;

/// A name, numbers, and a last column that is as wide as it is.
pub(super) struct Table<const N: usize> {
    /// Written before the first rows.
    head: Option<[&'static str; N]>,
    widths: [usize; N],
}

impl<const N: usize> Table<N> {
    pub(super) fn new(head: [&'static str; N]) -> Self {
        let mut widths = head.map(|title| title.len().max(10));
        if let Some(name) = widths.first_mut() {
            *name = NAME_WIDTH;
        }
        Self { head: Some(head), widths }
    }

    /// The lines of further rows.
    pub(super) fn add(&mut self, rows: impl Iterator<Item = [String; N]>) -> String {
        let head = self.head.take().map(|head| head.map(str::to_owned));
        let rows: Vec<[String; N]> = head.into_iter().chain(rows).collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        rows.iter().map(|row| self.line(row)).collect()
    }

    fn line(&self, row: &[String; N]) -> String {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(self.widths).enumerate() {
            line.push_str(&match index {
                0 => format!("{cell:<width$}"),
                index if index + 1 == N && N > 2 => format!("  {cell}"),
                _ => format!(" {cell:>width$}"),
            });
        }
        // The only column needs no width.
        line.truncate(line.trim_end().len());
        line + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_the_columns() {
        let mut table = Table::new(["room", "messages", "last"]);
        let row = |name: &str, count: &str| [name.to_owned(), count.to_owned(), "now".to_owned()];
        let long = "x".repeat(64);
        let text = table.add([row("r", "1"), row(&long, "123456789012")].into_iter());
        let ends: Vec<usize> = text.lines().map(|line| line.rfind("  ").unwrap()).collect();
        assert_eq!(ends, [77; 3], "{text}");
        // Further rows stand below the first ones, without another head.
        let text = table.add([row("s", "2")].into_iter());
        assert_eq!((text.lines().count(), text.rfind("  ")), (1, Some(77)), "{text}");
    }
}
