//! What was seen of a run, as the rules of the verdict look at it. What could not be seen is missing.

use serde::Serialize;

/// Share of the asked rate that counts as reached.
pub(crate) const REACHED: f64 = 0.95;

/// A share that does not count as reached, in words that cannot be taken for one that does.
pub(crate) fn percent_missed(share: f64) -> String {
    format!("{:.0} %", (100.0 * share).min(100.0 * REACHED - 1.0))
}

/// Figures of the measured phase; processors are averages over it.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figures {
    /// Of the machine.
    pub(crate) cores: usize,
    /// The server, of several the one that is nearest to its limit.
    pub(crate) server: Option<Processors>,
    pub(crate) generator: Option<Processors>,
    pub(crate) generator_threads: usize,
    /// Processors that all generators used, where they are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generators_run: Option<f64>,
    /// Share of the time for which the generator stood still.
    pub(crate) generator_stopped: Option<f64>,
    /// Processors that others used.
    pub(crate) others: Option<f64>,
    /// The mean, as the client has it; in an open loop it counts from the intended send.
    pub(crate) latency_ms: f64,
    /// The part of it before messages were sent: 0 in a closed loop.
    pub(crate) waited_ms: f64,
    /// What was answered in each second.
    pub(crate) per_second: f64,
    /// Round trip of a request with nothing to do, before the load began.
    pub(crate) empty_ms: Option<f64>,
    /// Clients' operations in the server's pipeline, from their submission until the sender is notified: the mean number at a time.
    pub(crate) in_pipeline: Option<f64>,
    pub(crate) commit: Option<Commit>,
    pub(crate) pool: Option<Pool>,
    pub(crate) database: Option<Database>,
    pub(crate) disk: Option<Disk>,
    /// Mean time until the broker confirmed.
    pub(crate) confirm_ms: Option<f64>,
    pub(crate) subscribers: Option<Subscribers>,
    /// Share of what a closed loop should have under way.
    pub(crate) under_way: Option<f64>,
    /// Share of the rate that an open loop asked for.
    pub(crate) reached: Option<f64>,
    /// Messages of an open loop that may be under way at most.
    pub(crate) window: Option<f64>,
    /// Seconds by which the store was behind a broker in the end, where it did not keep up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store_lag_s: Option<f64>,
}

impl Figures {
    /// From the send to the answer, the mean. Where an open loop falls behind, the latency grows for as long as the run
    /// lasts, and nearly all of it is the backlog in the generator: no part of the server is a share of that.
    pub(super) fn service_ms(&self) -> f64 {
        (self.latency_ms - self.waited_ms).max(0.0)
    }

    /// What was under way on average: Little's law.
    pub(super) fn in_flight(&self) -> f64 {
        self.per_second * self.service_ms() / 1e3
    }

    /// Share of the rate of an open loop, if it is less than what counts as reached.
    pub(super) fn missed(&self) -> Option<f64> {
        self.reached.filter(|share| *share < REACHED)
    }

    /// By how much an open loop fell behind, if it did.
    pub(super) fn behind(&self) -> Option<String> {
        let share = percent_missed(self.missed()?);
        let waited = match self.waited_ms {
            ms if ms < 1e3 => format!("{ms:.1} ms"),
            ms => format!("{:.1} s", ms / 1e3),
        };
        Some(format!(
            "{share} of the rate that was asked for was reached: messages waited {waited} on average in the generator"
        ))
    }
}

/// What a process did with processors.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Processors {
    /// Processors it used.
    pub(crate) run: f64,
    /// Threads that could have run, and waited for a processor.
    pub(crate) waited: f64,
    /// Processors it is allowed to use.
    pub(crate) may_use: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hottest: Option<Hot>,
}

/// The thread that wanted to run for most of the time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Hot {
    pub(crate) name: String,
    pub(crate) run: f64,
    pub(crate) waited: f64,
}

/// The server's batches.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Commit {
    /// Whether the servers write to disks of their own: else the store is a database.
    pub(crate) syncs: bool,
    /// Share of the time in which a thread that commits had a batch in the store: the mean of all such threads. `None` where it is
    /// not known how many there are.
    pub(crate) busy: Option<f64>,
    /// Of such a thread; `None` where the servers' processes are not known.
    #[serde(flatten)]
    pub(crate) on_processor: Option<OnProcessor>,
    pub(crate) batch_ms: f64,
    pub(crate) operations: f64,
    /// From submission until the batch began.
    pub(crate) wait_ms: f64,
}

/// Processor time of a thread, as a share of the time, and how long it waited for a processor.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct OnProcessor {
    pub(crate) run: f64,
    pub(crate) waited: f64,
}

/// Connections to the database.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pool {
    /// Requests that waited for one, on average.
    pub(crate) waiting: f64,
    /// As many as there were in the end.
    pub(crate) connections: f64,
    pub(crate) wait_ms: f64,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Database {
    pub(crate) processors: f64,
    pub(crate) may_use: f64,
    /// Sessions that waited for a lock, on average.
    pub(crate) lock_waiting: Option<f64>,
}

/// The disks of this machine, whoever used them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disk {
    /// Share of the time in which the busiest of them had something to do.
    pub(crate) busy: f64,
    /// The mean time of a flush of their caches, where they have some and flushed them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flush_ms: Option<f64>,
}

/// What evidence says of them.
impl std::fmt::Display for Disk {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "; the busiest disk was in use for {:.0} % of the time", 100.0 * self.busy)?;
        self.flush_ms.map_or(Ok(()), |ms| write!(out, ", a flush took {ms:.3} ms"))
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Subscribers {
    /// Messages that the slowest had less than half of all, on average.
    pub(crate) slowest_behind: Option<f64>,
    /// Messages that the senders may be ahead of the slowest.
    pub(crate) window: Option<f64>,
    /// Subscribers that the server cut off because they did not read.
    pub(crate) cut: f64,
}
