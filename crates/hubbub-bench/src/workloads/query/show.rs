//! How answers are shown: on the terminal, as JSON and CSV, and as a page.

use std::fmt::Write as _;
use std::path::Path;

use super::{Answers, KINDS, QueryResult};
use crate::host::background_load::{NOT_KNOWN, marks};
use crate::report::{Table, bar_rows, escape, flags, grouped, page, preformatted, repeat, write_files};
use crate::results::record::Stats;
use crate::workloads::engine::Findings;

impl Findings for Answers {
    fn is_clean(&self) -> bool {
        self.failed == 0 && self.rows.iter().all(|row| row.is_met() && row.faults.is_empty())
    }

    fn terminal(&self) -> String {
        let mut out =
            format!("query on {}, {} messages\n", self.origin.machine, grouped(self.messages as f64));
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "  {:<16}{:<7}{:>9}{:>10}{:>10}{:>10}{:>10}",
            "", "", "count", "p50 ms", "p95 ms", "p99 ms", "target"
        );
        for row in &self.rows {
            let QueryResult { question, target_ms, latency, others, faults, .. } = row;
            let how = row.how();
            let Stats { count, median_ms, p95_ms, p99_ms, .. } = latency;
            let met = if row.is_met() { "" } else { "  missed" };
            let marks = flags(&marks(faults.is_empty(), *others));
            let _ = writeln!(
                out,
                "  {question:<16}{how:<7}{count:>9}{median_ms:>10.2}{p95_ms:>10.2}{p99_ms:>10.2}{target_ms:>10.0}{met}{marks}"
            );
        }
        if self.failed > 0 {
            let _ = writeln!(out, "  {} questions were not answered", self.failed);
        }
        if self.rows.iter().any(|row| row.others.is_none()) {
            let _ = writeln!(out, "  note: {NOT_KNOWN}");
        }
        for QueryResult { question, faults, .. } in &self.rows {
            for fault in faults {
                let _ = writeln!(out, "  fault: {question}: {fault}");
            }
        }
        out
    }

    fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        let files = [
            ("summary.json", serde_json::to_string_pretty(self)?),
            ("answers.csv", self.table().csv()),
            ("report.html", self.page()),
        ];
        write_files(dir, files)
    }
}

impl Answers {
    /// A row for each question, alone and beside messages.
    fn table(&self) -> Table {
        let mut table = Table::new([
            "question",
            "beside messages",
            "count",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "p99.9 ms",
            "max ms",
            "target p99 ms",
            "met",
        ]);
        let word = |is: bool| if is { "yes" } else { "no" }.to_owned();
        for row in &self.rows {
            let Stats { count, median_ms, p95_ms, p99_ms, p99_9_ms, max_ms, .. } = row.latency;
            let times = [median_ms, p95_ms, p99_ms, p99_9_ms, max_ms].map(|ms| format!("{ms:.3}"));
            let first = [row.question.to_owned(), word(row.is_mixed), count.to_string()];
            let last = [row.target_ms.to_string(), word(row.is_met())];
            table.row(first.into_iter().chain(times).chain(last));
        }
        table
    }

    fn page(&self) -> String {
        let title = "hubbub bench query";
        let of = |question: &str, is_mixed| {
            let row = self.rows.iter().find(|row| row.question == question && row.is_mixed == is_mixed);
            row.map(|row| row.latency.p99_ms)
        };
        let points: Vec<_> =
            KINDS.iter().map(|(name, _)| ((*name).to_owned(), [of(name, false), of(name, true)])).collect();
        let body = [
            format!(
                "<h1>{title}</h1><p class=\"soft\">{}, {}</p>",
                self.origin.started,
                escape(&self.origin.machine.to_string())
            ),
            preformatted(&self.terminal()),
            bar_rows("p99 in milliseconds, alone and beside messages", ["alone", "mixed"], &points),
            format!("<h2>Latency in milliseconds</h2>{}\n", self.table().html()),
            repeat(&self.origin, &self.parameters),
        ];
        page(title, &body.concat())
    }
}
