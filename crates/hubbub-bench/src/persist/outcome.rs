//! What a run found out.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::PersistArgs;
use crate::ledger::{exact_sum, sum};
use crate::record::Stats;
use crate::report::{Analysis, Origin, Report, Rooms};
use crate::sample::SystemSample;
use crate::sample::buckets::Buckets;
use crate::sample::series::{SeriesSummary, Span, summaries};
use crate::timing::GeneratorTiming;
use crate::verdict::Verdict;

/// What was seen of a run besides what the engine records.
pub(super) struct Seen {
    pub(super) samples: Vec<SystemSample>,
    /// When there was something to do.
    pub(super) span: Span,
    /// Until the last message was stored.
    pub(super) store: Duration,
    /// The server's figures just before and just after.
    pub(super) metrics: [String; 2],
    /// Requests in between that only asked about messages.
    pub(super) questions: u64,
}

/// A report of the engine, under the names of this workload, with what was seen.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    #[serde(flatten)]
    pub(super) origin: Origin,
    pub(super) parameters: Value,
    pub(crate) sent: u64,
    pub(crate) confirmed: u64,
    pub(crate) refused: u64,
    pub(crate) unconfirmed: u64,
    /// Until the last confirm.
    pub(crate) publish_s: f64,
    pub(crate) published_per_second: f64,
    /// From the intended send to the confirm.
    pub(crate) confirm_latency: Stats,
    /// The same from the actual send, at a given rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) confirm_latency_from_send: Option<Stats>,
    pub(crate) arrival_latency: Stats,
    misordered: u64,
    /// Of the messages that were published, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rooms: Option<Rooms>,
    pub(super) retries: u64,
    pub(super) retries_by_cause: BTreeMap<&'static str, u64>,
    /// In what way the load generator was the limit, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    generator_limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) generator: Option<GeneratorTiming>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<Verdict>,
    /// Its minutes are those of the confirms.
    #[serde(flatten)]
    pub(super) analysis: Analysis,
    #[serde(flatten)]
    pub(crate) persisted: Persisted,
    /// What a reader of these figures should know.
    pub(super) notes: Vec<String>,
    pub(crate) faults: Vec<String>,
}

/// What became of the messages behind the server's answers.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Persisted {
    pub(crate) messages: u64,
    pub(crate) stored: u64,
    /// Until everything was stored.
    pub(crate) store_s: f64,
    pub(crate) stored_per_second: f64,
    pub(crate) batches: Batches,
    /// Statements and round trips to the database for each message stored, everything the server asks included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<Asked>,
    /// What the servers counted for each message stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) per_message: Option<PerMessage>,
    /// The rate of which an endurance run keeps up a share, in messages per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maximum_per_second: Option<f64>,
    /// Microseconds of processor time for each message stored, by who used it: `server`, `generator`, what is watched.
    pub(crate) cpu_us: BTreeMap<String, f64>,
    pub(super) span: Span,
    #[serde(rename = "timeSeries")]
    pub(crate) series: Vec<SeriesSummary>,
    pub(super) samples: Vec<SystemSample>,
    /// Less or more was drained than there was.
    #[serde(skip)]
    fault: Option<String>,
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

/// What servers did for each message that was stored, as they counted it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PerMessage {
    /// HTTP requests, without those that followed messages.
    pub(crate) requests: f64,
    /// Batches of the store.
    pub(crate) batches: f64,
    /// Copies written to subscribers.
    pub(crate) deliveries: f64,
    /// Copies that other servers got over the bus; 0 where there is none.
    pub(crate) over_bus: f64,
}

impl PerMessage {
    /// `None` where nothing was stored.
    fn between([before, after]: &[String; 2], questions: u64) -> Option<Self> {
        let grown = |name| exact_sum(after, name).unwrap_or(0.0) - exact_sum(before, name).unwrap_or(0.0);
        let stored = grown("hubbub_messages_stored_total");
        (stored > 0.0).then(|| Self {
            requests: (grown("hubbub_http_requests_total") - questions as f64).max(0.0) / stored,
            batches: grown("hubbub_pipeline_batch_operations_count") / stored,
            deliveries: grown("hubbub_messages_delivered_total") / stored,
            over_bus: grown("hubbub_bus_messages_received_total") / stored,
        })
    }
}

impl Persisted {
    /// Messages stored while there was something to do.
    pub(crate) fn stored_meanwhile(&self) -> f64 {
        self.stored_per_second * self.store_s
    }

    /// The samples while there was something to do.
    pub(crate) fn during(&self) -> &[SystemSample] {
        self.span.of(&self.samples)
    }

    /// `stored` messages, of which `early` ones were stored before the time began.
    pub(super) fn new(args: &PersistArgs, messages: u64, stored: u64, early: u64, seen: Seen) -> Self {
        let stored_per_second = stored.saturating_sub(early) as f64 / seen.store.as_secs_f64().max(1e-6);
        let series = summaries(&seen.samples, &seen.span);
        let cpu_us = |one: &SeriesSummary| {
            let name = one.name.strip_suffix(" CPU")?;
            Some((name.to_owned(), 1e6 * one.average / stored_per_second.max(1.0)))
        };
        Self {
            messages,
            stored,
            store_s: seen.store.as_secs_f64(),
            stored_per_second,
            cpu_us: series.iter().filter_map(cpu_us).collect(),
            batches: Batches::between(&seen.metrics),
            asked: Asked::between(&seen.metrics),
            per_message: PerMessage::between(&seen.metrics, seen.questions),
            maximum_per_second: args.maximum,
            series,
            span: seen.span,
            samples: seen.samples,
            fault: (args.drain && stored != messages)
                .then(|| format!("{messages} were to be drained, but {stored} stored")),
        }
    }
}

impl Outcome {
    /// Fails for a report of another workload.
    pub(super) fn of(report: Report) -> anyhow::Result<Self> {
        let mut faults = report.faults();
        let (Some(persisted), Some(ledger), Some(delivery)) =
            (report.persisted, report.ledger, report.delivery)
        else {
            anyhow::bail!("this is no report of messages persisted");
        };
        let lost = delivery.lost_connections;
        faults
            .extend((lost > 0).then(|| format!("listeners lost {lost} connections, and took them up again")));
        faults.extend(persisted.fault.clone());
        Ok(Self {
            origin: report.origin,
            parameters: report.parameters,
            sent: ledger.sent,
            confirmed: ledger.accepted,
            refused: ledger.rejected,
            unconfirmed: ledger.unconfirmed,
            publish_s: report.elapsed_s,
            published_per_second: report.per_second,
            confirm_latency: report.latency,
            confirm_latency_from_send: report.latency_from_send,
            arrival_latency: delivery.latency,
            misordered: delivery.misordered,
            rooms: report.rooms,
            retries: report.retries,
            retries_by_cause: report.retries_by_cause,
            generator_limit: report.generator_limit,
            generator: report.generator,
            verdict: report.verdict,
            analysis: report.analysis,
            notes: report.notes,
            persisted,
            faults,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Findings as _;
    use crate::job::Shape;
    use crate::ledger::Ledger;
    use crate::options::arguments;
    use crate::report::Delivery;
    use crate::statistics::Moments;

    /// Of a run with these options, of which nothing was seen.
    fn report(own: &[&str]) -> Report {
        let args = arguments::<PersistArgs>("persist", own).unwrap();
        let (samples, span) = (Vec::new(), Span { from_s: 0.0, to_s: 0.0 });
        let seen = Seen { samples, span, store: Duration::ZERO, metrics: Default::default(), questions: 0 };
        let mut report = Report::new("persist", "messages", Value::Null);
        report.persisted = Some(Persisted::new(&args, 5, 4, 0, seen));
        report.ledger = Some(Ledger::default());
        report.delivery = Some(Delivery::default());
        report
    }

    #[test]
    fn rooms_and_retries_are_written_as_other_workloads_do() {
        let mut report = report(&[]);
        let by_room = [Moments::default(), [2e3].into_iter().collect()];
        report.rooms = Rooms::of(&by_room, &Shape::new(1, 10, None, "r-").of_rooms(2));
        (report.retries, report.retries_by_cause) = (3, [("refused", 3)].into());
        let outcome = Outcome::of(report).unwrap();
        let dir = tempfile::tempdir().unwrap();
        outcome.write_files(dir.path()).unwrap();
        let written = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(written("rooms.csv"), "roomId,messages,meanMs,varianceMs2\nr-1,1,2,0\nr-2,0,,\n");
        let summary: Value = serde_json::from_str(&written("summary.json")).unwrap();
        assert_eq!(summary["schemaVersion"], 1);
        assert_eq!(summary["rooms"]["count"], 2);
        assert_eq!((&summary["retries"], &summary["retriesByCause"]["refused"]), (&3.into(), &3.into()));
        assert!(summary["samples"].is_array() && summary["timeSeries"].is_array(), "{summary}");
        assert!(written("samples.csv").starts_with("seconds\n"));
        let shown = outcome.terminal();
        assert!(shown.contains("  rooms        2 with 0 to 1 messages"), "{shown}");
        assert!(shown.contains("  sent again   3 retries, 3 refused\n"), "{shown}");
    }

    #[test]
    fn a_listener_that_was_cut_off_is_a_fault() {
        let faults = |own: &[&str], lost_connections| {
            let mut report = report(own);
            report.delivery = Some(Delivery { lost_connections, ..Delivery::default() });
            Outcome::of(report).unwrap().faults
        };
        assert_eq!(faults(&[], 0), [""; 0]);
        assert_eq!(faults(&[], 1), ["listeners lost 1 connections, and took them up again"]);
        assert_eq!(faults(&["--drain"], 0), ["5 were to be drained, but 4 stored"]);
    }

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

        let metrics = |stored, rest: [u32; 4]| {
            let [requests, batches, delivered, bus] = rest;
            format!(
                "hubbub_messages_stored_total {stored}\nhubbub_http_requests_total {requests}\n\
                 hubbub_pipeline_batch_operations_count {batches}\nhubbub_messages_delivered_total {delivered}\n\
                 hubbub_bus_messages_received_total {bus}\n"
            )
        };
        let counted =
            PerMessage::between(&[metrics(100, [7, 9, 0, 5]), metrics(300, [12, 109, 600, 105])], 3);
        let wanted = PerMessage { requests: 0.01, batches: 0.5, deliveries: 3.0, over_bus: 0.5 };
        assert_eq!(counted, Some(wanted));
        assert_eq!(PerMessage::between(&[metrics(1, [0; 4]), metrics(1, [9; 4])], 0), None);
    }
}
