//! What a run found out.

use std::time::Duration;

use serde::Serialize;

use super::PersistArgs;
use super::buckets::Buckets;
use super::ledger::PublishLedger;
use super::subscriber::Heard;
use super::time_series::{SeriesSummary, Slope, Span, summaries};
use super::watch::{BATCH_MS, Look};
use crate::ledger::sum;
use crate::record::Stats;
use crate::report::Origin;

/// Looks that make one point of the slope.
const SLOPE_LOOKS: usize = 10;
/// What the memory of the server is called in looks.
const MEMORY: &str = "server MiB";

/// What was seen of a run besides what its publishers counted.
pub(super) struct Seen {
    pub(super) messages: u64,
    pub(super) heard: Heard,
    pub(super) looks: Vec<Look>,
    /// When there was something to do.
    pub(super) span: Span,
    /// Until the last message was confirmed, and until it was stored.
    pub(super) publish: Duration,
    pub(super) store: Duration,
    pub(super) stored: u64,
    /// What of it was stored before the time began.
    pub(super) stored_early: u64,
    /// The server's figures just before and just after.
    pub(super) metrics: [String; 2],
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    #[serde(flatten)]
    pub(super) origin: Origin,
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
    pub(crate) arrival_latency: Stats,
    misordered: u64,
    pub(crate) batches: Batches,
    /// Statements and round trips to the database for each message stored, everything the server asks included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<Asked>,
    /// The rate of which an endurance run keeps up a share, in messages per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maximum_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slope: Option<Slope>,
    /// How the mean time of a batch changed, in milliseconds: at a given rate it shows what the rate cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batch_slope: Option<Slope>,
    /// How the server's memory changed, in MiB: over the run, and over its second half, when its caches are full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_slope: Option<Slope>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_slope_late: Option<Slope>,
    pub(super) span: Span,
    #[serde(rename = "course")]
    pub(crate) series: Vec<SeriesSummary>,
    pub(crate) faults: Vec<String>,
    pub(super) looks: Vec<Look>,
}

/// Batches as the server counted them. Quantiles are interpolated within buckets that double.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Batches {
    pub(crate) count: f64,
    /// Operations of a batch, exact.
    pub(crate) operations_mean: f64,
    /// Milliseconds from the first statement to the commit, exact.
    pub(crate) mean_ms: f64,
    pub(crate) quantiles: [Quantile; 4],
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Quantile {
    pub(crate) quantile: f64,
    pub(crate) ms: f64,
}

impl Batches {
    fn between([before, after]: &[String; 2]) -> Self {
        let added = |name| Buckets::parse(after, name).since(&Buckets::parse(before, name));
        let (operations, seconds) =
            (added("hubbub_pipeline_batch_operations"), added("hubbub_pipeline_store_seconds"));
        Self {
            count: operations.count(),
            operations_mean: operations.mean(),
            mean_ms: 1e3 * seconds.mean(),
            quantiles: [0.5, 0.95, 0.99, 0.999]
                .map(|quantile| Quantile { quantile, ms: 1e3 * seconds.quantile(quantile) }),
        }
    }
}

/// What was asked of the database for each message.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Asked {
    pub(crate) statements: f64,
    pub(crate) round_trips: f64,
}

impl Asked {
    /// `None` where no database was asked.
    fn between([before, after]: &[String; 2]) -> Option<Self> {
        let grown = |name| Some(sum(after, name)?.saturating_sub(sum(before, name)?) as f64);
        let stored = grown("hubbub_messages_stored_total").filter(|stored| *stored > 0.0)?;
        let statements = grown("hubbub_store_pool_statements_total").filter(|count| *count > 0.0)?;
        let round_trips = grown("hubbub_store_pool_round_trips_total")?;
        Some(Self { statements: statements / stored, round_trips: round_trips / stored })
    }
}

impl Outcome {
    pub(super) fn new(args: &PersistArgs, ledger: &PublishLedger, seen: Seen) -> Self {
        let [sent, confirmed, refused, unconfirmed] = ledger.counts.totals();
        let rate = |count: u64, time: Duration| count as f64 / time.as_secs_f64().max(1e-6);
        let during = seen.span.of(&seen.looks);
        let slope = |looks: &[Look], name| Slope::of(looks, name, SLOPE_LOOKS);
        Self {
            origin: Origin::here(),
            parameters: args.clone(),
            messages: seen.messages,
            sent,
            confirmed,
            refused,
            unconfirmed,
            stored: seen.stored,
            publish_s: seen.publish.as_secs_f64(),
            store_s: seen.store.as_secs_f64(),
            published_per_second: rate(confirmed, seen.publish),
            stored_per_second: rate(seen.stored.saturating_sub(seen.stored_early), seen.store),
            confirm_latency: ledger.latency.lock().stats(),
            arrival_latency: seen.heard.latency.stats(),
            misordered: seen.heard.misordered,
            batches: Batches::between(&seen.metrics),
            asked: Asked::between(&seen.metrics),
            maximum_per_second: None,
            slope: slope(during, "stored/s"),
            batch_slope: slope(during, BATCH_MS),
            memory_slope: slope(during, MEMORY),
            memory_slope_late: slope(during.get(during.len() / 2..).unwrap_or_default(), MEMORY),
            series: summaries(&seen.looks, &seen.span),
            span: seen.span,
            faults: faults(args, ledger.counts.totals(), &seen),
            looks: seen.looks,
        }
    }
}

/// Where the ledger does not balance, and what was refused or repeated.
fn faults(args: &PersistArgs, totals: [u64; 4], seen: &Seen) -> Vec<String> {
    let [sent, confirmed, refused, unconfirmed] = totals;
    let (ended, stored) = (confirmed + refused + unconfirmed, seen.stored);
    let mut faults = Vec::new();
    if sent != ended {
        faults.push(format!("sent {sent}, but {ended} came to an end"));
    }
    let (least, most) =
        if args.drain { (seen.messages, seen.messages) } else { (confirmed, confirmed + unconfirmed) };
    if !args.fill && (stored < least || stored > most) {
        faults.push(format!("{least} confirmed and {unconfirmed} unconfirmed, but {stored} stored"));
    }
    if refused > 0 {
        faults.push(format!("{refused} refused"));
    }
    faults.extend(seen.heard.faults());
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_is_counted_for_each_message() {
        let metrics = |stored, statements, trips| {
            format!(
                "hubbub_messages_stored_total {stored}\nhubbub_store_pool_statements_total {statements}\n\
                 hubbub_store_pool_round_trips_total {trips}\n"
            )
        };
        let asked = Asked::between(&[metrics(100, 50, 40), metrics(300, 650, 440)]);
        assert_eq!(asked, Some(Asked { statements: 3.0, round_trips: 2.0 }));
        assert_eq!(Asked::between(&[metrics(1, 0, 0), metrics(2, 0, 0)]), None, "the embedded store");
    }
}
