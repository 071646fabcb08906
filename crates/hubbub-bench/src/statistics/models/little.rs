//! Little's law in a closed loop: concurrency = throughput × (mean latency + mean think time).

use serde::{Deserialize, Serialize};

/// Share of the concurrency that may stay unaccounted for: latency leaves out what the generator does between an answer and
/// the next message, and the ends of a run, where less is under way.
const TOLERANCE: f64 = 0.05;

/// What the law predicts, and what was observed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Little {
    /// Messages that were to be under way at any time; those that are thought about count, too.
    pub(crate) concurrency: f64,
    /// Messages that were under way on average, or thought about, as rate, latency and think time say.
    pub(crate) observed: f64,
    /// Mean think time for each message, in milliseconds.
    #[serde(default)]
    pub(crate) think_ms: f64,
    /// The rate at which that many under way would be answered in that time.
    pub(crate) predicted_per_second: f64,
    /// The measured rate as a share of it.
    pub(crate) efficiency: f64,
    /// Share of the concurrency that latency does not account for.
    pub(crate) unaccounted: f64,
    /// That is more than the method allows, 5 %.
    pub(crate) marked: bool,
}

impl Little {
    /// `mean_ms` from the send to the answer, and then `think_ms` until the next.
    pub(crate) fn audit(concurrency: f64, per_second: f64, mean_ms: f64, think_ms: f64) -> Self {
        let each_ms = mean_ms + think_ms;
        let observed = per_second * each_ms / 1e3;
        let efficiency = observed / concurrency;
        let unaccounted = 1.0 - efficiency;
        Self {
            concurrency,
            observed,
            think_ms,
            predicted_per_second: if each_ms > 0.0 { concurrency * 1e3 / each_ms } else { 0.0 },
            efficiency,
            unaccounted,
            marked: unaccounted.is_nan() || unaccounted.abs() > TOLERANCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_marks_what_latency_does_not_explain() {
        assert!(!Little::audit(128.0, 100_000.0, 1.25, 0.0).marked);
        let idle = Little::audit(128.0, 100_000.0, 1.0, 0.0);
        assert!(idle.marked && (idle.unaccounted - 0.21875).abs() < 1e-9);
    }

    #[test]
    fn think_time_is_a_part_of_the_cycle() {
        // Each of 50 clients: 10 ms until the answer, 90 ms until it asks again.
        let little = Little::audit(50.0, 500.0, 10.0, 90.0);
        assert!(!little.marked && (little.observed - 50.0).abs() < 1e-9, "{little:?}");
        assert!((little.predicted_per_second - 500.0).abs() < 1e-9, "{little:?}");
        assert!(Little::audit(50.0, 500.0, 10.0, 0.0).marked);
    }

    /// Tables as reports print them: connections, mean ms, messages/s. In the second one the client waited elsewhere.
    #[test]
    fn a_table_that_breaks_the_law_is_flagged() {
        for (connections, mean_ms, per_second) in
            [(32.0, 16.0, 2_000.0), (64.0, 20.0, 3_200.0), (128.0, 32.0, 4_000.0)]
        {
            let little = Little::audit(connections, per_second, mean_ms, 0.0);
            assert!(!little.marked && (little.predicted_per_second - per_second).abs() < 1e-6, "{little:?}");
        }
        for (connections, mean_ms, per_second) in
            [(32.0, 16.0, 1_300.0), (64.0, 20.0, 4_100.0), (128.0, 0.0, 4_000.0)]
        {
            assert!(Little::audit(connections, per_second, mean_ms, 0.0).marked, "{connections}");
        }
        let low = Little::audit(32.0, 1_300.0, 16.0, 0.0);
        assert!((low.efficiency - 0.65).abs() < 1e-9 && (low.predicted_per_second - 2_000.0).abs() < 1e-9);
    }
}
