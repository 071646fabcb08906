//! How a run of `bench persist` is shown: on the terminal, as JSON and CSV, and as a page with charts.

use std::fmt::Write as _;
use std::path::Path;

use super::outcome::{Asked, Batches, Outcome};
use crate::engine::Findings;
use crate::report::{Rooms, escape, grouped, over_time, retries, write_files, write_rooms};
use crate::sample::charts::is_detail;
use crate::sample::samples_csv;
use crate::sample::series::{SeriesSummary, Slope};

/// What is to be known of every interval of a slope.
const NARROW: &str = "optimistic, as samples are autocorrelated";

impl Findings for Outcome {
    fn terminal(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        let summary = serde_json::to_string_pretty(self)?;
        let files = [
            ("summary.json", summary),
            ("samples.csv", samples_csv(&self.persisted.samples)),
            ("report.html", self.page()),
        ];
        write_files(dir, files)?;
        Rooms::write_files(self.rooms.as_ref(), dir)?;
        self.analysis.write_files(dir)
    }
}

impl Outcome {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "persist on {}", self.origin.machine)?;
        let [sent, confirmed, stored] =
            [self.sent, self.confirmed, self.persisted.stored].map(|n| grouped(n as f64));
        writeln!(
            out,
            "  sent         {sent}, confirmed {confirmed}, refused {}, unconfirmed {}, stored {stored}: {}",
            self.refused,
            self.unconfirmed,
            if self.is_clean() { "the ledger balances" } else { "the ledger does not balance" }
        )?;
        writeln!(out, "  published    {}/s in {:.1} s", grouped(self.published_per_second), self.publish_s)?;
        writeln!(
            out,
            "  stored       {}/s in {:.1} s, {:.1} s after the last confirm",
            grouped(self.persisted.stored_per_second),
            self.persisted.store_s,
            (self.persisted.store_s - self.publish_s).max(0.0)
        )?;
        for (name, stats) in [("confirm ms", &self.confirm_latency), ("arrival ms", &self.arrival_latency)] {
            if stats.count > 0 {
                writeln!(
                    out,
                    "  {name:<12} p50 {:.2}, p95 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2}",
                    stats.median_ms, stats.p95_ms, stats.p99_ms, stats.p99_9_ms, stats.max_ms
                )?;
            }
        }
        write_rooms(self.rooms.as_ref(), out)?;
        writeln!(out, "  sent again   {}", retries(self.retries, &self.retries_by_cause))?;
        self.write_batches(out)?;
        write!(out, "{}", self.analysis)?;
        self.write_slopes(out)?;
        writeln!(out, "  {:<34}{:>12}{:>12}{:>12}{:>12}", "", "before", "average", "peak", "after")?;
        let shown = self.persisted.series.iter().filter(|series| !is_detail(&series.name));
        for SeriesSummary { name, before, average, peak, after } in shown {
            writeln!(out, "  {name:<34}{before:>12.2}{average:>12.2}{peak:>12.2}{after:>12.2}")?;
        }
        if let Some(verdict) = &self.verdict {
            write!(out, "{verdict}")?;
        }
        for note in &self.notes {
            writeln!(out, "  note: {note}")?;
        }
        for fault in &self.faults {
            writeln!(out, "  fault: {fault}")?;
        }
        Ok(())
    }

    fn write_batches(&self, out: &mut String) -> std::fmt::Result {
        let Batches { count, operations_mean, mean_ms, quantiles } = &self.persisted.batches;
        if *count > 0.0 {
            let quantiles: String =
                quantiles.iter().map(|q| format!(", p{} {:.1}", 100.0 * q.quantile, q.ms)).collect();
            writeln!(
                out,
                "  batches      {} of {operations_mean:.0} operations; ms: mean {mean_ms:.2}{quantiles} \
                 (within buckets that double)",
                grouped(*count)
            )?;
        }
        if let Some(Asked { statements, round_trips }) = self.persisted.asked {
            writeln!(
                out,
                "  database     {statements:.4} statements and {round_trips:.4} round trips for each message"
            )?;
        }
        Ok(())
    }

    fn write_slopes(&self, out: &mut String) -> std::fmt::Result {
        if let Some(maximum) = self.persisted.maximum_per_second {
            writeln!(out, "  endurance    at 80 % of {}/s, measured just before", grouped(maximum))?;
        }
        for (name, slope) in [("rate", &self.persisted.slope), ("batch time", &self.persisted.batch_slope)] {
            if let Some(slope) = slope {
                let [change, low, high] =
                    [slope.change, slope.low, slope.high].map(|value| slope.percent(value));
                writeln!(
                    out,
                    "  {name:<12} {change:+.2} % over the run (95 %: {low:+.2} to {high:+.2}; {NARROW})"
                )?;
            }
        }
        for (when, slope) in [
            ("over the run", &self.persisted.memory_slope),
            ("over its second half", &self.persisted.memory_slope_late),
        ] {
            if let Some(Slope { mean, change, low, high }) = slope {
                writeln!(
                    out,
                    "  memory       {change:+.2} MiB {when} (95 %: {low:+.2} to {high:+.2}; {NARROW}), mean {mean:.1} MiB, \
                     anonymous memory of the server"
                )?;
            }
        }
        Ok(())
    }

    fn page(&self) -> String {
        let names = self.persisted.series.iter().map(|series| series.name.as_str());
        let charts = over_time(&self.persisted.samples, names);
        crate::report::page(
            "hubbub bench persist",
            &format!("<pre>{}</pre>{}{charts}", escape(&self.terminal()), self.analysis.html()),
        )
    }
}
