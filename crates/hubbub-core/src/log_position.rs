//! Positions in an ordered log outside the process, and what a store must do to take operations from one exactly once.

use std::sync::Arc;

use crate::id::RoomId;
use crate::store::{ApplyError, Read, ReadError};
use crate::time::Timestamp;

/// The next offset that a store wants of a partition, or why it cannot be read.
pub type NextOffset = Result<u64, ReadError>;

/// Where a record of the log stands. All records of a room are in one partition, [`crate::log_partition::of_room`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// The partition, from 0.
    pub partition: u32,
    /// The record's number within the partition: strictly increasing, gaps allowed.
    pub offset: u64,
    /// When the log took it, by the log's clock. It replaces the store's clock as `received_at`.
    pub appended_at: Timestamp,
}

/// A log, as a store remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogIdentity {
    /// The cluster's id and the topic's id: a topic that was deleted and created again is another one. Brokers without ids of
    /// topics are told apart by names.
    pub id: String,
    /// Number of partitions. A changed number moves rooms to other partitions, and breaks their order.
    pub partitions: u32,
}

/// A store that takes operations from a log, in batches with positions ([`crate::OpBatch::push_at`]).
///
/// - **Exactly once:** [`crate::Store::apply`] skips an operation whose offset is below the partition's next offset in the
///   store, and makes the advance of the next offset durable together with the operations. A batch may be repeated by
///   anybody at any time: by a consumer that was restarted, and by one that lost its partition and does not know yet.
/// - **Outcomes:** that of a skipped operation is [`crate::Outcome::Accepted`]: it was executed before.
/// - **Order:** the positions of a batch increase within each partition.
/// - **Refusals are final:** a refused operation is executed, too, and its offset is passed.
/// - **Erasures** take several steps: the offset is passed with the last one. Until then the outcome says `more`, and the
///   caller repeats the record before it goes on. A record erases from the rooms of its partition only
///   ([`crate::log_partition::of_room`]), so the log has one in each: rooms of other partitions may be behind it, or ahead.
/// - **Histories:** positions are refused as [`ApplyError::Unattached`] before [`LogStore::attach`] was called on this
///   opening of the store, and again after a database was replaced by an older copy (the epoch changes). The caller then
///   attaches again and continues at [`LogStore::next_offsets`], which may be lower than before.
/// - **Other failures** concern the batch alone, which may be repeated without attaching again. A database that was away may
///   have lost what it had confirmed without any other sign, so the caller first compares [`LogStore::next_offset`].
/// - **Operations without a position** are refused for rooms as [`ApplyError::Unavailable`] once a log is attached: they
///   would change rooms past the log. Queues and keys take no part in this.
pub trait LogStore: Send + Sync {
    /// Attaches the log at the first call, and compares it with the attached one later.
    fn attach(&self, log: LogIdentity) -> Read<'_, Attached>;

    /// The attached log, if there is one: without it, rooms of this store cannot be changed.
    fn attached(&self) -> Read<'_, Option<LogIdentity>>;

    /// The next offset that the store wants of each partition; 0 for one it has nothing of. One that cannot be read does not
    /// hide the others.
    fn next_offsets(&self) -> Read<'_, Vec<NextOffset>>;

    /// The same of one partition.
    fn next_offset(&self, partition: u32) -> Read<'_, u64> {
        Box::pin(async move { self.next_offsets().await?.get(partition as usize).cloned().unwrap_or(Ok(0)) })
    }

    /// Where the store is, in letters, digits and `-`: the same for all its servers, and another one for a copy in another
    /// place. It changes only where the store is moved. Empty if that is not known.
    fn place(&self) -> Arc<str> {
        Arc::default()
    }

    /// Rooms of these partitions with messages that have outlived their retention by proven time; a bounded number. The
    /// log writes [`RoomChange::ExpireMessages`](crate::RoomChange::ExpireMessages) for each of them. Always empty for a
    /// store that removes them by itself.
    fn expired(&self, _partitions: &[u32]) -> Read<'_, Vec<ExpiredRoom>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// A room with messages that have outlived their retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredRoom {
    /// The room.
    pub room: RoomId,
    /// Messages received before have.
    pub before: Timestamp,
    /// The retention that they have outlived, in seconds.
    pub retention_s: u64,
    /// Whether it is the room's own, and not the default.
    pub is_own: bool,
}

/// What became of attaching a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attached {
    /// It was attached now.
    New,
    /// It was attached before.
    Same,
    /// Another one is attached. Nothing changed.
    Other(LogIdentity),
}

/// The refusal of a batch that would change rooms past the attached log.
pub fn past_the_log() -> ApplyError {
    let reason =
        "rooms of this store are changed through its log only; start the server with that log".to_owned();
    ApplyError::Unavailable { reason }
}

/// The refusal of operations of a log that was not attached since the store was opened.
pub fn not_attached() -> ApplyError {
    ApplyError::Unattached { reason: "it was not since the store was opened".to_owned() }
}
