//! Reads from replicas of a store.

use crate::id::RoomId;
use crate::stats::StatsStore;
use crate::store::{HistoryPage, HistoryQuery, Read};

/// Reads a store's history and statistics from a suitable replica, or else from the store itself.
///
/// - **The same results:** each method has the contract of the store's own. A replica answers only once it has
///   everything that was acknowledged before the call.
/// - **No additional failures:** if a replica cannot answer, the store does.
pub trait ReplicaStore: StatsStore {
    /// As [`crate::RoomStore::history`].
    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage>;

    /// State of the replicas, in the order of the configuration. Cheap; never waits.
    fn replicas(&self) -> Vec<ReplicaFigures>;
}

/// State and figures of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaFigures {
    /// Its address, as `host:port`.
    pub place: String,
    /// Why it is not used; `None` = it is.
    pub fault: Option<String>,
    /// How long it has been behind, in microseconds; 0 = it is current, `None` = it does not answer.
    pub lag_us: Option<u64>,
    /// Reads it answered since the store was opened.
    pub reads: u64,
    /// Reads meant for it that the store itself answered, since the store was opened.
    pub fallbacks: u64,
}
