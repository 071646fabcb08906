//! What was seen of a run, as the rules of the verdict look at it. What could not be seen is missing.

use serde::Serialize;

/// Figures of the measured phase; processors are averages over it.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Seen {
    /// Of the machine.
    pub(crate) cores: usize,
    /// The server, of several the one that is nearest to its limit.
    pub(crate) server: Option<Processors>,
    pub(crate) generator: Option<Processors>,
    pub(crate) generator_threads: usize,
    /// Share of the time for which the generator stood still.
    pub(crate) generator_stopped: Option<f64>,
    /// Processors that others used.
    pub(crate) others: Option<f64>,
    /// The mean, as the client has it.
    pub(crate) latency_ms: f64,
    /// Round trip of a request with nothing to do, before the load began.
    pub(crate) empty_ms: Option<f64>,
    /// Mean time of an operation in the server's pipeline, until its sender is notified.
    pub(crate) server_ms: Option<f64>,
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
    /// Share of the time in which a thread that commits had a batch in the store: the mean of all such threads.
    pub(crate) busy: f64,
    /// Processor time of such a thread, as a share of the time, and how long it waited for a processor.
    pub(crate) run: f64,
    pub(crate) waited: f64,
    pub(crate) batch_ms: f64,
    pub(crate) operations: f64,
    /// From submission until the batch began.
    pub(crate) wait_ms: f64,
}

/// Connections to the database.
#[derive(Debug, Clone, Serialize)]
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
