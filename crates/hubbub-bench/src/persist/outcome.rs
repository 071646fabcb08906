//! What a run found out, and how it is shown.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use super::PersistArgs;
use super::books::{Books, read};
use super::ear::Heard;
use super::watch::{Course, Look, Slope, courses, slope};
use crate::machine::Machine;
use crate::record::Stats;
use crate::report::{Axes, escape, grouped, line_chart};

/// Looks that make one point of the slope.
const SLOPE_LOOKS: usize = 10;

/// What was seen of a run.
pub(super) struct Seen<'a> {
    pub(super) args: &'a PersistArgs,
    pub(super) messages: u64,
    pub(super) books: &'a Books,
    pub(super) heard: Heard,
    pub(super) looks: Vec<Look>,
    /// Until the last message was confirmed, and until it was stored.
    pub(super) publish: Duration,
    pub(super) store: Duration,
    pub(super) stored: u64,
    pub(super) metrics: String,
}

/// A run of `bench persist`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    machine: Machine,
    started: String,
    version: &'static str,
    commit: Option<&'static str>,
    command: String,
    parameters: PersistArgs,
    pub(crate) messages: u64,
    pub(crate) sent: u64,
    pub(crate) confirmed: u64,
    pub(crate) refused: u64,
    pub(crate) unconfirmed: u64,
    pub(crate) stored: u64,
    /// Until the last confirm.
    pub(crate) publish_s: f64,
    /// Until everything was stored.
    pub(crate) store_s: f64,
    pub(crate) published_per_second: f64,
    pub(crate) stored_per_second: f64,
    /// From the intended send to the confirm.
    pub(crate) confirm_latency: Stats,
    /// From publishing to a subscriber.
    pub(crate) arrival_latency: Stats,
    misordered: u64,
    /// Operations of a batch, and milliseconds of a commit: upper bounds of the server's buckets, which double.
    batches: Vec<Quantile>,
    /// Change of the rate over the run, in shares of its mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slope: Option<Slope>,
    pub(crate) course: Vec<Course>,
    pub(crate) faults: Vec<String>,
    looks: Vec<Look>,
}

/// A quantile of the server's own histograms.
#[derive(Debug, Clone, Serialize)]
struct Quantile {
    quantile: f64,
    operations: f64,
    commit_ms: f64,
}

impl Outcome {
    pub(super) fn new(seen: Seen<'_>) -> Self {
        let Seen { args, messages, books, heard, looks, publish, store, stored, metrics } = seen;
        let (sent, confirmed) = (read(&books.sent), read(&books.confirmed));
        let (refused, unconfirmed) = (read(&books.refused), read(&books.unconfirmed));
        let mut faults = Vec::new();
        if sent != confirmed + refused + unconfirmed {
            faults.push(format!("sent {sent}, but {} came to an end", confirmed + refused + unconfirmed));
        }
        let (least, most) =
            if args.drain { (messages, messages) } else { (confirmed, confirmed + unconfirmed) };
        if !args.fill && (stored < least || stored > most) {
            faults.push(format!("{least} confirmed and {unconfirmed} unconfirmed, but {stored} stored"));
        }
        if refused > 0 {
            faults.push(format!("{refused} refused"));
        }
        if heard.misordered > 0 {
            faults.push(format!("{} arrived again or out of order", heard.misordered));
        }
        let rate = |count: u64, time: Duration| count as f64 / time.as_secs_f64().max(1e-6);
        let quantile = |quantile| Quantile {
            quantile,
            operations: histogram_quantile(&metrics, "hubbub_pipeline_batch_operations", quantile),
            commit_ms: 1e3 * histogram_quantile(&metrics, "hubbub_pipeline_store_seconds", quantile),
        };
        Self {
            machine: Machine::look(),
            started: crate::machine::now().to_string(),
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("HUBBUB_COMMIT"),
            command: shown_command(std::env::args()),
            parameters: args.clone(),
            messages,
            sent,
            confirmed,
            refused,
            unconfirmed,
            stored,
            publish_s: publish.as_secs_f64(),
            store_s: store.as_secs_f64(),
            published_per_second: rate(confirmed, publish),
            stored_per_second: rate(stored, store),
            confirm_latency: books.latency.lock().stats(),
            arrival_latency: heard.latency.stats(),
            misordered: heard.misordered,
            batches: [0.5, 0.95, 0.99, 0.999].map(quantile).into(),
            slope: slope(steady(&looks), "stored/s", SLOPE_LOOKS),
            course: courses(&looks),
            faults,
            looks,
        }
    }

    /// Whether nothing was lost, refused or repeated.
    pub(crate) fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// The summary for people.
    pub(crate) fn terminal(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "persist on {}", self.machine)?;
        let [sent, confirmed, stored] = [self.sent, self.confirmed, self.stored].map(|n| grouped(n as f64));
        writeln!(
            out,
            "  sent         {sent}, confirmed {confirmed}, refused {}, unconfirmed {}, stored {stored}: {}",
            self.refused,
            self.unconfirmed,
            if self.is_clean() { "the books agree" } else { "the books do not agree" }
        )?;
        writeln!(out, "  published    {}/s in {:.1} s", grouped(self.published_per_second), self.publish_s)?;
        writeln!(
            out,
            "  stored       {}/s in {:.1} s, {:.1} s after the last confirm",
            grouped(self.stored_per_second),
            self.store_s,
            (self.store_s - self.publish_s).max(0.0)
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
        for Quantile { quantile, operations, commit_ms } in &self.batches {
            writeln!(
                out,
                "  batches p{:<4} ≤ {operations} operations, ≤ {commit_ms:.2} ms",
                100.0 * quantile
            )?;
        }
        if let Some(Slope { share, low, high }) = &self.slope {
            let [share, low, high] = [share, low, high].map(|share| 100.0 * share);
            writeln!(out, "  slope        {share:+.2} % over the run (95 %: {low:+.2} to {high:+.2})")?;
        }
        writeln!(out, "  {:<24}{:>12}{:>12}{:>12}{:>12}", "", "before", "average", "peak", "after")?;
        for Course { name, before, average, peak, after } in &self.course {
            writeln!(out, "  {name:<24}{before:>12.2}{average:>12.2}{peak:>12.2}{after:>12.2}")?;
        }
        for fault in &self.faults {
            writeln!(out, "  fault: {fault}")?;
        }
        Ok(())
    }

    /// Writes `summary.json`, `looks.csv` and `report.html`.
    pub(crate) fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        let write = |name: &str, text: String| {
            let path = dir.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        write("summary.json", serde_json::to_string_pretty(self)?)?;
        write("looks.csv", self.csv())?;
        write("report.html", self.page())
    }

    fn csv(&self) -> String {
        let names: Vec<&str> = self.course.iter().map(|course| course.name.as_str()).collect();
        let mut out = format!("seconds,{}\n", names.join(","));
        for look in &self.looks {
            let values =
                names.iter().map(|name| look.values.get(*name).map_or(String::new(), f64::to_string));
            let _ = writeln!(out, "{:.3},{}", look.at_s, values.collect::<Vec<_>>().join(","));
        }
        out
    }

    fn page(&self) -> String {
        let charts: String = self
            .course
            .iter()
            .map(|course| {
                let points: Vec<(f64, f64)> = self
                    .looks
                    .iter()
                    .filter_map(|look| Some((look.at_s, *look.values.get(&course.name)?)))
                    .collect();
                let axes = Axes { x: "seconds", y: &course.name };
                format!("<h2>{}</h2>{}\n", escape(&course.name), line_chart(&points, axes))
            })
            .collect();
        crate::report::page(
            "hubbub bench persist",
            &format!("<pre>{}</pre>{charts}", escape(&self.terminal())),
        )
    }
}

/// Without the first and the last look, which are of times when less was under way.
fn steady(looks: &[Look]) -> &[Look] {
    looks.get(1..looks.len().saturating_sub(2)).unwrap_or_default()
}

/// A command line as it may be shown: URLs can hold passwords.
fn shown_command(words: impl Iterator<Item = String>) -> String {
    let shown = words.map(|word| match word.split_once("://") {
        Some((before, rest)) => match rest.split_once('@') {
            Some((_, after)) => format!("{before}://…@{after}"),
            None => word,
        },
        None => word,
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The upper bound of the bucket in which a quantile lies; 0 when nothing was counted.
fn histogram_quantile(metrics: &str, name: &str, quantile: f64) -> f64 {
    let start = format!("{name}_bucket{{le=\"");
    let buckets: Vec<(f64, f64)> = metrics
        .lines()
        .filter_map(|line| {
            let (bound, count) = line.strip_prefix(&start)?.split_once("\"} ")?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound, count.split(' ').next()?.parse().ok()?))
        })
        .collect();
    let total = buckets.last().map_or(0.0, |bucket| bucket.1);
    if total <= 0.0 {
        return 0.0;
    }
    buckets.iter().find(|bucket| bucket.1 >= quantile * total).map_or(0.0, |bucket| bucket.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let metrics = "x_bucket{le=\"1.0\"} 2\nx_bucket{le=\"2.0\"} 6\nx_bucket{le=\"+Inf\"} 10\nx_sum 9\n";
        assert_eq!(histogram_quantile(metrics, "x", 0.2), 1.0);
        assert_eq!(histogram_quantile(metrics, "x", 0.5), 2.0);
        assert_eq!(histogram_quantile(metrics, "x", 0.99), f64::INFINITY);
        assert_eq!(histogram_quantile(metrics, "y", 0.5), 0.0);
    }

    #[test]
    fn passwords_are_not_shown() {
        let words = ["bench", "--log", "amqp://guest:secret@host/v"].map(str::to_owned);
        assert_eq!(shown_command(words.into_iter()), "bench --log amqp://…@host/v");
    }
}
