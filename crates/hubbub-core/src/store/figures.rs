//! Figures of a store, for metrics.

/// Figures of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreFigures {
    /// Messages kept.
    pub messages: u64,
    /// Rooms known.
    pub rooms: u64,
    /// Queues known.
    pub queues: u64,
    /// Messages waiting in queues, in any state.
    pub queue_messages: u64,
    /// Bytes of their texts.
    pub queue_bytes: u64,
    /// Messages moved to dead-letter queues since the store was opened.
    pub queue_dead: u64,
    /// Queue messages that expired or were dropped from full queues, since the store was opened.
    pub queue_dropped: u64,
    /// Registered clients.
    pub clients: u64,
    /// Approximate number of keys: expired and overwritten ones may be counted until they are removed.
    pub keys: u64,
    /// Bytes on disk in total.
    pub disk_bytes: u64,
    /// Immutable segments.
    pub segments: u64,
    /// Full journal slots that are not sealed yet.
    pub unsealed_slots: u64,
    /// Duration of the last batch's data sync, in microseconds.
    pub sync_us_last: u64,
    /// Longest data sync since start, in microseconds.
    pub sync_us_max: u64,
    /// Failed reads of stored files since start. Anything but 0 needs an operator.
    pub unreadable: u64,
    /// Partitions that are due and could not be created. Anything but 0 needs an operator.
    pub partitions_missing: u64,
    /// Pool of connections; zero on a store without a database.
    pub pool: PoolFigures,
    /// Cache in front of the database; zero on a store without one.
    pub cache: CacheFigures,
    /// Requests to a database whose connections each carry many at once; `None` on other stores.
    pub requests: Option<RequestFigures>,
    /// Lease of keys; zero on a store that no others write to.
    pub lease: LeaseFigures,
}

/// The right of one server to be the only one that changes keys, since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseFigures {
    /// Times that this server lost it: it could not renew it in time, or others ended it.
    pub lost: u64,
    /// Batches with changes of keys that waited for the server that had it.
    pub waits: u64,
}

/// Requests to a database since the store was opened. Pages of long reads are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestFigures {
    /// Requests that were answered or failed.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// Statements in them.
    pub statements: u64,
    /// Total time they took, in microseconds.
    pub micros: u64,
    /// Requests under way.
    pub active: u64,
    /// Requests that wait because too many are under way.
    pub waiting: u64,
}

/// Cache in front of a database that other servers write to, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheFigures {
    /// Reads that the cache answered.
    pub hits: u64,
    /// Reads that queried the database.
    pub misses: u64,
    /// Queries that validate the cache; one serves all waiting reads.
    pub validations: u64,
    /// Bytes it uses.
    pub bytes: u64,
}

/// A pool of connections to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolFigures {
    /// Connections in use.
    pub active: u64,
    /// Idle connections.
    pub idle: u64,
    /// Requests that wait for a connection.
    pub waiting: u64,
    /// Connections requested since the store was opened.
    pub acquired: u64,
    /// Requests that timed out.
    pub timeouts: u64,
    /// Total time of the requests, in microseconds.
    pub acquire_us: u64,
    /// Longest request, in microseconds.
    pub acquire_us_max: u64,
    /// Statements sent, including `begin` and `commit`.
    pub statements: u64,
    /// Round trips: pipelined statements of a connection share one.
    pub round_trips: u64,
}
