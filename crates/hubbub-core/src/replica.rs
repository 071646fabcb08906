//! Reading from replicas of a store.

use crate::id::RoomId;
use crate::stats::StatsStore;
use crate::store::{HistoryPage, HistoryQuery, Read};

/// A store's history and statistics, read from replicas where there is one that will do, else from the store itself.
///
/// - **The same answers:** each method promises what the store's own does. A replica answers only once it holds
///   everything that was acknowledged before the call.
/// - **No more failures:** what a replica cannot answer the store itself does.
pub trait ReplicaStore: StatsStore {
    /// As [`crate::RoomStore::history`].
    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage>;

    /// How the replicas stand, in the order of the configuration. Cheap; never waits for anything.
    fn replicas(&self) -> Vec<ReplicaFigures>;
}

/// What is known of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaFigures {
    /// Where it is, as `host:port`.
    pub place: String,
    /// Why it is not read from; `None` = it is.
    pub fault: Option<String>,
    /// For how long it has not held everything there is, in microseconds; 0 when it does, `None` when it does not answer.
    pub lag_us: Option<u64>,
    /// Reads it answered since the store was opened.
    pub reads: u64,
    /// Reads that were meant for it and went to the store itself, since the store was opened.
    pub fallbacks: u64,
}
