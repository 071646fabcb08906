//! The contracts of every store. `hubbub-conformance` is written from them.

mod figures;
mod kv;
mod peers;
mod queues;
mod rooms;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use crate::apply_error::ApplyError;
use crate::backup::BackupStore;
use crate::clock::ClockAnomaly;
use crate::log_position::LogStore;
use crate::op::{OpBatch, Outcome};
use crate::replica::ReplicaStore;
use crate::stats::StatsStore;
pub use figures::{CacheFigures, LeaseFigures, PoolFigures, RequestFigures, StoreFigures};
pub use kv::KvStore;
pub use peers::PeerMessages;
pub use queues::QueueStore;
pub use rooms::{
    Access, Cursor, HistoryPage, HistoryQuery, LastMessages, MEMBERSHIPS_MAX, Member, Membership,
    RemoteChanges, RoomHead, RoomInfo, RoomStore, UserRoom, UserRooms,
};

/// A store. All changes go through [`Store::apply`].
pub trait Store: RoomStore + QueueStore + KvStore + StatsStore {
    /// Makes a batch durable, numbers new messages, and returns one outcome for each operation, in batch order.
    ///
    /// - **Ok means durable:** what is `Stored` or `Duplicate` is readable after a crash, at the durability the store was
    ///   opened with. Every read that begins after `apply` returned sees it.
    /// - **Err is classified:** see [`ApplyError`]; the caller may repeat the whole batch.
    /// - **Parts:** where a store commits parts of a batch apart and some of them fail, their operations are
    ///   [`Outcome::Failed`] and the others have their outcomes. Never in a batch from a log, which fails as a whole.
    /// - **Order:** the messages of one room get increasing numbers in batch order; `received_at` is the clock's
    ///   time or the room's last one, whichever is later.
    /// - **Idempotence:** by `(room, id)` for as long as the message is kept. A repeated id is a `Duplicate` with the
    ///   first one's receipt if user, text and type agree, else `IdReused`; of two equal ids in one batch the second
    ///   is the repeated one. Neither uses a number.
    /// - **Atomicity:** after a crash during `apply`, either the whole batch (or part, see above) is stored or none of it.
    /// - **Exclusive operations** ([`crate::Op::is_exclusive`]) are alone in their batch.
    /// - **Changes** ([`crate::Change`]) are decided by the state after all earlier operations, including those of the same
    ///   batch. A member's message moves the member's read mark if that was at the head.
    /// - **Queues** ([`crate::QueueOp`]): operations are decided and executed in batch order. A message is delivered to one
    ///   consumer at a time; after a final take it is never delivered again, after a leased one not before the lease ends.
    ///   A consumer gets messages in the order of their ids. None is delivered before it is due or after it expires.
    ///   Leases, delays and times to live survive a restart: the remaining time is the smaller of the requested time and
    ///   what the wall clock says.
    /// - **Keys** ([`crate::KvOp`]): executed in batch order; each change takes the store's next revision.
    /// - **Blocking:** blocks the calling thread until the batch is durable. `embedded` has one caller at a time.
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError>;

    /// As [`Self::apply`], in the history that `epoch` names. Where the store has begun another one, nothing is stored
    /// ([`ApplyError::Unavailable`]). A store that can begin one while it is open overrides this.
    fn apply_in(&self, epoch: &str, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        let _ = epoch;
        self.apply(batch)
    }

    /// The current size limit of batches; depends on the duration of syncs.
    fn batch_cap(&self) -> BatchCap;

    /// How many batches may be applied at the same time, each by a thread of its own. More than one only where all operations
    /// come from a log; then the pipeline makes batches of one partition each, so that none fails or waits with another.
    /// Two of those batches, or one, may hold the same records of a partition: a server that loses a partition and has it
    /// again submits them twice. The store keeps their order, and executes each once.
    fn batches_at_once(&self) -> usize {
        1
    }

    /// Whether it accepts writes, and if not, why. Cheap; never waits for the disk.
    fn health(&self) -> StoreHealth;

    /// Figures for metrics. Cheap; never waits for the disk.
    fn figures(&self) -> StoreFigures;

    /// Online backups; `None` for a store with tools of its own.
    fn backups(&self) -> Option<&dyn BackupStore> {
        None
    }

    /// Reads from replicas; `None` if there are none.
    fn replicas(&self) -> Option<&dyn ReplicaStore> {
        None
    }

    /// Taking operations from a log outside the process; `None` for a store that cannot.
    fn log(&self) -> Option<&dyn LogStore> {
        None
    }

    /// Messages to the other servers of the store; `None` if it carries none.
    fn peers(&self) -> Option<&dyn PeerMessages> {
        None
    }

    /// Whether other servers may write to the same data. Then no layer above may cache it without validating it against
    /// the store.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether it has queues and keys besides rooms. Nobody above calls it for them if it has not.
    fn has_queues_and_keys(&self) -> bool {
        true
    }

    /// What is wrong with the store's own wall clock, if it has one.
    fn clock_anomaly(&self) -> Option<ClockAnomaly> {
        None
    }

    /// Finishes background work (seals, table writes) and releases the data. No call may follow.
    fn close(&self);
}

/// The future result of a read.
pub type Read<'a, T> = Pin<Box<dyn Future<Output = Result<T, ReadError>> + Send + 'a>>;

/// Largest batch of one `apply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchCap {
    /// Operations.
    pub ops: usize,
    /// Bytes of texts and ids. A batch may contain one operation of any size.
    pub bytes: usize,
}

/// Why a server changes nothing any more when another one has brought the schema to a version that it does not know.
pub fn newer_schema(found: i64, known: i64) -> String {
    format!(
        "a newer program has brought the schema to version {found}, and this one knows {known} at most: stop this server, \
         and start the newer program"
    )
}

/// Why a read failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such room.
    #[error("there is no such room")]
    UnknownRoom,
    /// The medium or the backend failed.
    #[error("reading failed: {reason}")]
    Unavailable {
        /// What was attempted and how it failed.
        reason: String,
    },
    /// What was to be read is there, and is unreadable. Another attempt fails as well.
    #[error("reading failed: {reason}")]
    Damaged {
        /// What was attempted and how it failed.
        reason: String,
        /// Of a list of keys: the first key behind those that cannot be listed; `None` = it is not known.
        resume_at: Option<Arc<[u8]>>,
    },
}

/// [`Store::health`] tells of a write that is not finished after this time.
pub const HANGING: Duration = Duration::from_secs(5);

/// Health of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreHealth {
    /// Reads and writes.
    Up,
    /// Reads and writes work, but an operator must act.
    Alarm(String),
    /// Reads only, until space is freed.
    DiskFull(String),
    /// Reads only, until restarted.
    Failed(String),
    /// The database does not answer or refuses, or the disk does not finish a write; ends by itself when it answers again.
    Unreachable(String),
}
