//! What became of messages behind the server's answers: the part of a report that only this workload has.

use std::fmt::{self, Display};
use std::time::Duration;

use serde::Serialize;

use crate::host::sample::buckets::Buckets;
use crate::report::grouped;
use crate::results::ledger::{exact_sum, sum};

/// Messages that were stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    /// How many there should be.
    pub(super) wanted: u64,
    pub(super) stored: u64,
    /// How many of these were stored before the time began.
    pub(super) early: u64,
    /// Until the last message was stored.
    pub(super) after: Duration,
    /// The same until the last confirm.
    pub(super) confirmed_after: Duration,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Persisted {
    pub(crate) messages: u64,
    pub(crate) stored: u64,
    /// Until everything was stored.
    pub(crate) store_s: f64,
    /// The same from the last confirm.
    lag_s: f64,
    pub(crate) stored_per_second: f64,
    pub(crate) batches: Batches,
    /// Statements and round trips to the database for each message stored, everything the server asks included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<StatementCounts>,
    /// What the servers counted for each message stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    per_message: Option<PerMessage>,
    /// The rate of which an endurance run keeps up a share, in messages per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum_per_second: Option<f64>,
    /// Less or more was drained than there was.
    #[serde(skip)]
    pub(crate) fault: Option<String>,
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
pub(crate) struct StatementCounts {
    pub(crate) statements: f64,
    pub(crate) round_trips: f64,
}

impl StatementCounts {
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
    /// By the servers' figures just before and just after; `questions` are requests in between that only asked about
    /// messages.
    pub(super) fn new(stored: Stored, metrics: &[String; 2], questions: u64) -> Self {
        let Stored { wanted, stored, early, after, confirmed_after } = stored;
        Self {
            messages: wanted,
            stored,
            store_s: after.as_secs_f64(),
            lag_s: after.saturating_sub(confirmed_after).as_secs_f64(),
            stored_per_second: stored.saturating_sub(early) as f64 / after.as_secs_f64().max(1e-6),
            batches: Batches::between(metrics),
            asked: StatementCounts::between(metrics),
            per_message: PerMessage::between(metrics, questions),
            maximum_per_second: None,
            fault: None,
        }
    }

    /// The same of an endurance run.
    pub(super) fn of_maximum(self, maximum_per_second: Option<f64>) -> Self {
        Self { maximum_per_second, ..self }
    }

    /// The same with all that is stored in the end. Time and rate stay those until what was waited for was there.
    pub(super) fn with_stored(self, stored: u64) -> Self {
        Self { stored, ..self }
    }

    /// The same where all of them were to be drained.
    pub(super) fn drained(self) -> Self {
        let Self { messages, stored, .. } = self;
        let fault =
            (stored != messages).then(|| format!("{messages} were to be drained, but {stored} stored"));
        Self { fault, ..self }
    }

    /// Messages stored while there was something to do.
    pub(crate) fn stored_meanwhile(&self) -> f64 {
        self.stored_per_second * self.store_s
    }
}

/// Lines of a summary.
impl Display for Persisted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [stored, messages] = [self.stored, self.messages].map(|count| grouped(count as f64));
        writeln!(
            out,
            "  stored       {stored} of {messages}, {}/s in {:.1} s, {:.1} s after the last confirm",
            grouped(self.stored_per_second),
            self.store_s,
            self.lag_s
        )?;
        let Batches { count, operations_mean, mean_ms, quantiles } = &self.batches;
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
        if let Some(StatementCounts { statements, round_trips }) = self.asked {
            writeln!(
                out,
                "  database     {statements:.4} statements and {round_trips:.4} round trips for each message"
            )?;
        }
        self.maximum_per_second.map_or(Ok(()), |maximum| {
            writeln!(out, "  endurance    at 80 % of {}/s, measured just before", grouped(maximum))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::{Delivery, MESSAGES, Report};
    use crate::workloads::engine::Findings as _;

    /// Of a run that drained, or published, 5 messages, of which 4 were stored.
    fn report(is_drained: bool) -> Report {
        let (after, confirmed_after) = (Duration::from_secs(2), Duration::from_millis(500));
        let stored = Stored { wanted: 5, stored: 4, early: 1, after, confirmed_after };
        let persisted = Persisted::new(stored, &Default::default(), 0);
        let mut report = Report::new("persist", MESSAGES, Value::Null);
        report.persisted = Some(if is_drained { persisted.drained() } else { persisted });
        report
    }

    #[test]
    fn it_is_a_part_of_the_report() {
        let report = report(false);
        let summary = serde_json::to_value(&report).unwrap();
        assert_eq!((&summary["storedPerSecond"], &summary["lagS"]), (&1.5.into(), &1.5.into()));
        assert_eq!((&summary["stored"], &summary["batches"]["count"]), (&4.into(), &0.0.into()));
        assert!(summary.get("persisted").is_none() && summary.get("asked").is_none(), "{summary}");
        assert_eq!(report.rate(), 1.5, "not that of the answers");
        let shown = report.terminal();
        assert!(
            shown.contains("  stored       4 of 5, 2/s in 2.0 s, 1.5 s after the last confirm\n"),
            "{shown}"
        );
        assert!(!shown.contains("batches"), "there were none: {shown}");
    }

    #[test]
    fn a_listener_that_was_cut_off_is_a_fault() {
        let faults = |is_drained, lost_connections| {
            let mut report = report(is_drained);
            report.delivery = Some(Delivery { lost_connections, ..Delivery::default() });
            report.faults()
        };
        assert_eq!(faults(false, 0), [""; 0]);
        assert_eq!(faults(false, 1), ["listeners lost 1 connections, and took them up again"]);
        assert_eq!(faults(true, 0), ["5 were to be drained, but 4 stored"]);
    }

    #[test]
    fn what_was_asked_is_counted_for_each_message() {
        let metrics = |stored, statements, trips| {
            format!(
                "hubbub_messages_stored_total {stored}\nhubbub_store_pool_statements_total {statements}\n\
                 hubbub_store_pool_round_trips_total {trips}\n"
            )
        };
        let asked = StatementCounts::between(&[metrics(100, 50, 40), metrics(300, 650, 440)]);
        assert_eq!(asked, Some(StatementCounts { statements: 3.0, round_trips: 2.0 }));
        assert_eq!(
            StatementCounts::between(&[metrics(1, 0, 0), metrics(2, 0, 0)]),
            None,
            "the embedded store"
        );

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
