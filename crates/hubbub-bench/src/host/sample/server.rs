//! What servers say of themselves at `/metrics`.

use super::raw::Raw;
use crate::results::ledger::{exact_sum, values_of};

/// What the mean time of the server's batches is called in samples, from the first statement to the commit.
pub(crate) const BATCH_MS: &str = "batch ms";

/// Counters of the server: how each is shown, and what the server calls it.
const COUNTERS: [(&str, &str); 5] = [
    ("stored/s", "hubbub_messages_stored_total"),
    ("batches/s", "hubbub_pipeline_batch_operations_count"),
    ("statements/s", "hubbub_store_pool_statements_total"),
    ("round trips/s", "hubbub_store_pool_round_trips_total"),
    ("pool timeouts/s", "hubbub_store_pool_timeouts_total"),
];

/// Its figures that stand as they are; those of several servers are added.
const FIGURES: [(&str, &str); 6] = [
    ("pool active", "hubbub_store_pool_active"),
    ("pool connections", "hubbub_store_pool_connections"),
    ("pool waiting", "hubbub_store_pool_waiting"),
    ("waiting for the store", "hubbub_pipeline_waiting_operations"),
    ("in the store", "hubbub_pipeline_in_flight_operations"),
    ("waiting for queue messages", "hubbub_queue_waiting_consumers"),
];

/// Figures of which the highest counts, and by how much it is multiplied: servers may share what they are about.
const HIGHEST: [(&str, &str, f64); 2] = [
    ("queue messages", "hubbub_store_queue_messages", 1.0),
    ("replica lag ms", "hubbub_store_replica_lag_seconds", 1e3),
];

/// The same, of what a server without a journal shows as 0.
const OF_A_JOURNAL: (&str, &str, f64) = ("sync ms", "hubbub_store_sync_last_seconds", 1e3);

/// The same, of what a server without a broker shows as 0.
const OF_A_BROKER: [(&str, &str, f64); 2] =
    [("log depth messages", "hubbub_log_depth", 1.0), ("log lag ms", "hubbub_log_lag_seconds", 1e3)];

/// Counters that only grow with a broker.
const BROKER_COUNTERS: [&str; 2] =
    ["hubbub_log_messages_published_total", "hubbub_log_messages_consumed_total"];

/// Histograms whose mean of each second is shown, and by how much it is multiplied.
const MEANS: [(&str, &str, f64); 7] = [
    ("operations/batch", "hubbub_pipeline_batch_operations", 1.0),
    ("wait ms", "hubbub_pipeline_wait_seconds", 1e3),
    (BATCH_MS, "hubbub_pipeline_store_seconds", 1e3),
    ("answer ms", "hubbub_pipeline_answer_seconds", 1e3),
    ("fan-out ms", "hubbub_pipeline_fan_out_seconds", 1e3),
    ("delivery ms", "hubbub_delivery_seconds", 1e3),
    ("confirm ms", "hubbub_log_confirm_seconds", 1e3),
];

impl Raw {
    /// Adds the metrics of all servers, as Prometheus text.
    pub(super) fn take(&mut self, metrics: &str) {
        let sum = |(shown, name): (&str, &str)| Some((shown.to_owned(), exact_sum(metrics, name)?));
        let highest = |(shown, name, times): (&str, &str, f64)| {
            Some((shown.to_owned(), times * values_of(metrics, name).reduce(f64::max)?))
        };
        self.counters.extend(COUNTERS.into_iter().filter_map(sum));
        self.figures.extend(FIGURES.into_iter().filter_map(sum));
        self.figures.extend(HIGHEST.into_iter().filter_map(highest));
        self.figures.extend(highest(OF_A_JOURNAL).filter(|(_, ms)| *ms > 0.0));
        let has_broker = |name: &&str| exact_sum(metrics, name).is_some_and(|count| count > 0.0);
        if BROKER_COUNTERS.iter().any(has_broker) {
            self.figures.extend(OF_A_BROKER.into_iter().filter_map(highest));
        }
        for (shown, name, times) in MEANS {
            let [sum, count] = ["sum", "count"].map(|part| exact_sum(metrics, &format!("{name}_{part}")));
            self.ratio(shown, sum.map(|sum| times * sum), count);
        }
        let [waited, acquired] =
            ["hubbub_store_pool_acquire_seconds_total", "hubbub_store_pool_acquired_total"]
                .map(|name| exact_sum(metrics, name));
        self.ratio("pool wait ms", waited.map(|seconds| 1e3 * seconds), acquired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> Vec<(String, f64)> {
        let [before, after] = [(0.0, before), (2.0, after)].map(|(at_s, metrics)| {
            let mut raw = Raw { at_s, ..Raw::default() };
            raw.take(metrics);
            raw
        });
        after.since(&before).values.into_iter().map(|(name, value)| (name, value.mean())).collect()
    }

    fn metrics(stored: u32, batches: u32, seconds: f64) -> String {
        format!(
            "# TYPE hubbub_messages_stored counter\nhubbub_messages_stored_total {stored}\n\
             hubbub_pipeline_batch_operations_sum {stored}\nhubbub_pipeline_batch_operations_count {batches}\n\
             hubbub_pipeline_store_seconds_sum {seconds}\nhubbub_pipeline_store_seconds_count {batches}\n\
             hubbub_store_queue_messages 7\nhubbub_store_sync_last_seconds 0.0\n\
             hubbub_log_depth 0\nhubbub_log_lag_seconds 0.0\nhubbub_log_messages_published_total 0\n"
        )
    }

    #[test]
    fn each_second_has_its_own_means() {
        let shown = shown(&metrics(1_000, 100, 3.0), &metrics(1_600, 120, 3.5));
        let shown: Vec<(&str, f64)> = shown.iter().map(|(name, value)| (&**name, *value)).collect();
        assert_eq!(
            shown,
            [
                (BATCH_MS, 25.0),
                ("batches/s", 10.0),
                ("operations/batch", 30.0),
                ("queue messages", 7.0),
                ("stored/s", 300.0),
            ],
            "what a server without journal and broker shows as 0 is not known"
        );
    }

    #[test]
    fn servers_that_share_a_broker_and_replicas_count_them_once() {
        let broker = "hubbub_log_depth 40\nhubbub_log_lag_seconds 0.25\nhubbub_log_messages_consumed_total 9\n\
            hubbub_store_replica_lag_seconds{replica=\"a:1\"} 0.5\nhubbub_store_replica_lag_seconds{replica=\"b:1\"} 1.5\n\
            hubbub_pipeline_waiting_operations 3\nhubbub_store_sync_last_seconds 0.002\n";
        let both = [broker, &broker.replace("0.25", "0.125")].concat();
        let wanted = [
            ("log depth messages", 40.0),
            ("log lag ms", 250.0),
            ("replica lag ms", 1_500.0),
            ("sync ms", 2.0),
            ("waiting for the store", 6.0),
        ];
        assert_eq!(shown(&both, &both), wanted.map(|(name, value)| (name.to_owned(), value)));
    }
}
