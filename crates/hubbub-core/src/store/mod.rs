//! What every store promises. The conformance suite in `hubbub-store` is written from these contracts.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backup::BackupStore;
use crate::clock::ClockDoubt;
use crate::id::{ClientId, QueueId, RoomId, UserId};
use crate::kv::{KeyInfo, KvEntry, KvHistory};
use crate::message::MessageRun;
use crate::op::{OpBatch, Outcome};
use crate::queue::{Delivery, QueueInfo, Waiting, Wanted, Wants};
use crate::replica::ReplicaStore;
use crate::stats::StatsStore;
use crate::time::Timestamp;

/// The one way into a store. Everything that changes goes through [`Store::apply`].
pub trait Store: RoomStore + QueueStore + KvStore + StatsStore {
    /// Makes a batch durable, numbers what is new, and answers one outcome for each operation, in batch order.
    ///
    /// - **Ok means survived:** whatever is `Stored` or `Duplicate` is readable after a crash, at the durability
    ///   the store was opened with, and is seen by every read that begins after `apply` returned.
    /// - **Err means classified:** see [`ApplyError`]; the caller may repeat the whole batch.
    /// - **Order:** the messages of one room get increasing numbers in batch order; `received_at` is the clock's
    ///   time or the room's last one, whichever is later.
    /// - **Idempotence:** by `(room, id)` for as long as the message is kept. A repeated id is a `Duplicate` with the
    ///   first one's receipt if user, text and type agree, else `IdReused`; of two equal ids in one batch the second
    ///   is the repeated one. Neither uses a number.
    /// - **Atomicity:** after a crash during `apply` either the whole batch is there or nothing of it.
    /// - **Company:** an operation that is exclusive ([`crate::Op::is_exclusive`]) stands alone in its batch.
    /// - **Changes** ([`crate::Change`]) are judged by what all operations before them left, those of the same batch
    ///   included. A message by a member moves the member's read mark if it stood at the head.
    /// - **Queues** ([`crate::QueueOp`]): operations are judged and done in batch order. A message is delivered to one
    ///   taker at a time; taken away it is never delivered again, on lease not before the lease ended. Among what a taker
    ///   may have, ids give the order. Nothing is delivered before it is due or after its time. Leases, delays and times
    ///   to live go on over a restart: what remains is the smaller of what was asked for and what the wall clock says.
    /// - **Keys** ([`crate::KvOp`]): done in batch order; each change takes the next revision of the store.
    /// - **Blocking:** blocks the calling thread until durable. Called by one lane at a time on `embedded`.
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError>;

    /// How large a batch the store wants now; follows the time its syncs take.
    fn batch_cap(&self) -> BatchCap;

    /// Whether it takes writes, and if not, why. Cheap; never waits for the disk.
    fn health(&self) -> StoreHealth;

    /// What it holds and does, for metrics. Cheap; never waits for the disk.
    fn figures(&self) -> StoreFigures;

    /// How to copy it while it is written to; `None` for a store that has tools of its own for that.
    fn backups(&self) -> Option<&dyn BackupStore> {
        None
    }

    /// The way to its replicas; `None` when there are none.
    fn replicas(&self) -> Option<&dyn ReplicaStore> {
        None
    }

    /// Whether other servers may write to the same data: nothing of it may be remembered above the store unless it is
    /// compared with the store again.
    fn is_shared(&self) -> bool {
        false
    }

    /// What is wrong with the wall clock of the store, where it has one of its own.
    fn clock_doubt(&self) -> Option<ClockDoubt> {
        None
    }

    /// Finishes what is under way (seals, table writes) and lets go of the data. No call may follow.
    fn close(&self);
}

/// What a read answers, when it comes.
pub type Read<'a, T> = Pin<Box<dyn Future<Output = Result<T, ReadError>> + Send + 'a>>;

/// Reading rooms. Reads never wait for writes, and see everything acknowledged before they began.
pub trait RoomStore: Send + Sync + 'static {
    /// The id of this history; another one after a restore. Cursors of another epoch are meaningless.
    fn epoch(&self) -> Arc<str>;

    /// A page of a room's messages, oldest first; see [`HistoryQuery`]. An unknown room is
    /// [`ReadError::UnknownRoom`]; a window without messages is an empty page.
    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage>;

    /// One room, `None` when there is none of that name.
    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>>;

    /// Up to `limit` rooms in the order of their ids, beginning behind `after`.
    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>>;

    /// How a user stands to a room.
    fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access>;

    /// Up to `limit` members in the order of their ids, beginning behind `after`; none when there is no such room.
    fn members(&self, room: RoomId, after: Option<UserId>, limit: usize) -> Read<'_, Vec<Member>>;

    /// How those of these rooms stand that are there, in any order. Asked many times a second by whoever follows what
    /// other servers do.
    fn heads(&self, rooms: Vec<RoomId>) -> Read<'_, Vec<RoomHead>> {
        Box::pin(async move {
            let mut heads = Vec::with_capacity(rooms.len());
            for room in rooms {
                if let Some(RoomInfo { room, head, members_only, .. }) = self.room(room).await? {
                    heads.push(RoomHead { room, head, members_only, changes: 0 });
                }
            }
            Ok(heads)
        })
    }

    /// Up to `limit` rooms that the user is a member of, in the order of their ids, beginning behind `after`.
    fn user_rooms(&self, user: UserId, after: Option<RoomId>, limit: usize) -> Read<'_, UserRooms>;
}

/// Reading queues. Reads never wait for writes, and see everything acknowledged before they began; of what is being
/// written they may see what is taken as gone already, and nothing that is not durable yet as there.
pub trait QueueStore: Send + Sync + 'static {
    /// One queue, `None` when there is none of that name.
    fn queue(&self, queue: QueueId) -> Read<'_, Option<QueueInfo>>;

    /// Up to `limit` queues in the order of their names, beginning behind `after`.
    fn queues(&self, after: Option<QueueId>, limit: usize) -> Read<'_, Vec<QueueInfo>>;

    /// Names of up to `limit` queues in their order, beginning behind `after`, from which `receiver` could take
    /// something now; what waits for anybody counts.
    fn queues_holding(
        &self,
        receiver: ClientId,
        after: Option<QueueId>,
        limit: usize,
    ) -> Read<'_, Vec<Arc<str>>>;

    /// Names of up to `limit` registered clients in their order, beginning behind `after`.
    fn clients(&self, after: Option<ClientId>, limit: usize) -> Read<'_, Vec<ClientId>>;

    /// Whether a client is registered. Never waits for the disk.
    fn is_client(&self, client: &str) -> bool;

    /// What a take of up to `max` would give now, without taking it; `None` when there is no such queue.
    fn look(&self, wanted: Wanted<'_>, max: usize) -> Read<'_, Option<Vec<Delivery>>>;

    /// Places of those in `wants` for whom there is something to take, or whose queue is gone. For whoever waits where
    /// other servers write to the same store; what is due by now may be left out until a sweep has seen to it.
    fn found_for(&self, wants: Vec<Wants>) -> Read<'_, Vec<usize>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for (place, wants) in wants.iter().enumerate() {
                if self.look(wants.wanted(), 1).await?.is_none_or(|seen| !seen.is_empty()) {
                    found.push(place);
                }
            }
            Ok(found)
        })
    }

    /// Up to `limit` messages of a queue in any state, whomever they wait for, in the order of their ids, beginning
    /// behind `after`; `None` when there is no such queue. A list ends before its texts exceed
    /// [`crate::queue::TAKE_BYTES_MAX`], but holds at least one message.
    fn waiting(&self, queue: QueueId, after: u64, limit: usize) -> Read<'_, Option<Vec<Waiting>>>;

    /// How long until a [`crate::QueueOp::Sweep`] has something to do, or something may be taken that may not now;
    /// `None` = nothing of that kind is known. Never waits for the disk.
    fn queue_due_in(&self) -> Option<Duration>;
}

/// Reading keys. Reads never wait for writes, see everything acknowledged before they began, and nothing that has run
/// out.
pub trait KvStore: Send + Sync + 'static {
    /// The value of a key; `None` when it is not there.
    fn value(&self, key: &[u8]) -> Read<'_, Option<KvEntry>>;

    /// Up to `limit` keys that begin with `prefix`, in the order of their bytes, beginning behind `after`.
    fn keys(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Read<'_, Vec<KeyInfo>>;

    /// Up to `limit` changes behind the revision `after` of keys that begin with `prefix`, oldest first. The last
    /// [`crate::kv::CHANGES_KEPT`] changes of the store are kept, over restarts too.
    fn changes(&self, prefix: &[u8], after: u64, limit: usize) -> Read<'_, KvHistory>;

    /// Revision of the last change that is durable; 0 when there was none. Asked after a read was answered, it is not
    /// before any change which that read saw. Never waits for the disk.
    fn revision(&self) -> u64;

    /// How long until a [`crate::KvOp::Sweep`] has something to do; `None` = nothing runs out. Never waits for the
    /// disk.
    fn kv_due_in(&self) -> Option<Duration>;
}

/// What tells whether something happened in a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomHead {
    /// Its name.
    pub room: RoomId,
    /// Seq of its newest message; 0 when there never was one.
    pub head: u64,
    /// Whether only members may read and write.
    pub members_only: bool,
    /// Another number after each change of the room, its members, or messages it had. Always the same on a store that
    /// only one server writes to.
    pub changes: u64,
}

/// How a user stands to a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// There is no such room.
    Unknown,
    /// The room is open, and the user no member.
    Open,
    /// The room is for members only, and the user none.
    Closed,
    /// The user is a member.
    Member {
        /// The user's read mark.
        read_seq: u64,
    },
}

/// A member of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub user: UserId,
    /// The member's read mark.
    pub read_seq: u64,
}

/// The rooms of a user.
#[derive(Debug, Clone, Default)]
pub struct UserRooms {
    /// The rooms, in the order of their ids.
    pub rooms: Vec<UserRoom>,
    /// The newest message of each room that has any, in the same order.
    pub last: MessageRun,
}

/// A room as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRoom {
    /// The room.
    pub info: RoomInfo,
    /// Everything up to here is read.
    pub read_seq: u64,
    /// Messages kept that are not: `info.head` minus the mark, minus what was erased in between.
    pub unread: u64,
}

/// Which end of the window a page is cut from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    /// The oldest messages with a greater seq. `After(0)` begins with the oldest kept.
    After(u64),
    /// The newest messages with a smaller seq. `Before(u64::MAX)` ends with the newest.
    Before(u64),
}

/// Which messages of a room are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Where the page begins or ends.
    pub cursor: Cursor,
    /// Only messages received at or after this.
    pub from: Option<Timestamp>,
    /// Only messages received before this.
    pub to: Option<Timestamp>,
    /// At most so many messages, at least 1.
    pub limit: usize,
    /// The page ends before the message that would bring its texts over this, but holds at least one.
    pub bytes_max: usize,
}

/// A page of history, oldest first.
#[derive(Debug, Clone, Default)]
pub struct HistoryPage {
    /// The messages.
    pub messages: MessageRun,
    /// Seq of the room's newest message when the page was read; 0 when there never was one.
    pub head: u64,
    /// Seq of the oldest message still kept; `head + 1` when none is.
    pub oldest: u64,
    /// Whether the window holds more in the direction of the cursor.
    pub more: bool,
}

/// A room, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomInfo {
    /// Its name.
    pub room: RoomId,
    /// Seq of its newest message; 0 when there never was one.
    pub head: u64,
    /// Seq of the oldest message still kept; `head + 1` when none is.
    pub oldest: u64,
    /// Messages kept.
    pub messages: u64,
    /// When the newest message was received.
    pub last_received_at: Option<Timestamp>,
    /// A name for people.
    pub title: Option<String>,
    /// Whether only members may read and write.
    pub members_only: bool,
    /// How long its messages are kept, in seconds; `None` = as those of other rooms.
    pub retention_s: Option<u64>,
    /// How many members it has.
    pub members: u64,
}

/// Largest batch a store takes in one `apply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchCap {
    /// Operations.
    pub ops: usize,
    /// Bytes of texts and ids. A batch holds at least one operation whatever its size.
    pub bytes: usize,
}

/// Why a batch was not confirmed. Coarse, and each says what the caller may do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Nothing was stored; retry later.
    #[error("the store takes no writes: {reason}; nothing was stored")]
    Unavailable {
        /// What stands in the way.
        reason: String,
    },
    /// Nothing was stored; heals by itself when space comes back.
    #[error("the disk is full ({reason}); nothing was stored")]
    DiskFull {
        /// What was attempted.
        reason: String,
    },
    /// Nothing was stored; background work is behind. Retry after a moment.
    #[error("the store is behind with its background work; nothing was stored")]
    Overloaded,
    /// It may be stored. Retry with the same ids only.
    #[error("the write was not confirmed ({reason}); it may be stored")]
    Unconfirmed {
        /// What was attempted and how it failed.
        reason: String,
    },
}

/// Why a read was not answered.
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
}

/// Whether a store works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreHealth {
    /// Reads and writes.
    Up,
    /// Reads and writes, but not for ever: somebody has to see to it.
    Alarm(String),
    /// Reads only, until space comes back.
    DiskFull(String),
    /// Reads only, until restarted.
    Failed(String),
    /// A database does not answer, or refuses; heals by itself when it does again.
    Unreachable(String),
}

/// What a store tells about itself.
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
    /// Messages given to dead-letter queues since the store was opened.
    pub queue_dead: u64,
    /// Messages of queues that outlived their time, or went as the oldest of too many, since the store was opened.
    pub queue_dropped: u64,
    /// Registered clients.
    pub clients: u64,
    /// Keys, in about: what ran out or was overwritten may be counted until it is cleared away.
    pub keys: u64,
    /// Bytes on disk, everything included.
    pub disk_bytes: u64,
    /// Immutable segments.
    pub segments: u64,
    /// Journal slots waiting for their seal.
    pub unsealed_slots: u64,
    /// Time the last batch's data sync took, in microseconds.
    pub sync_us_last: u64,
    /// Longest data sync since start, in microseconds.
    pub sync_us_max: u64,
    /// Reads of stored files that failed since start. Anything but 0 needs somebody.
    pub unreadable: u64,
    /// Partitions that should be there by now and could not be made. Anything but 0 needs somebody.
    pub partitions_missing: u64,
    /// Connections to a database; none on a store that needs none.
    pub pool: PoolFigures,
    /// What is kept in memory of a database; nothing on a store that is none.
    pub cache: CacheFigures,
}

/// What is kept in memory of a database that others write to as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheFigures {
    /// Reads answered from memory.
    pub hits: u64,
    /// Reads for which something had to be fetched.
    pub misses: u64,
    /// Questions to the database whether what is in memory still holds; one serves all reads that wait for it.
    pub questions: u64,
    /// Bytes it takes.
    pub bytes: u64,
}

/// A pool of connections to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolFigures {
    /// Connections in use.
    pub active: u64,
    /// Open connections that nobody uses.
    pub idle: u64,
    /// Those who wait for a connection.
    pub waiting: u64,
    /// How often one was asked for since the store was opened.
    pub acquired: u64,
    /// How often none could be had in time.
    pub timeouts: u64,
    /// Time all that took, in microseconds.
    pub acquire_us: u64,
    /// Longest time one took, in microseconds.
    pub acquire_us_max: u64,
    /// Statements that were sent, `begin` and `commit` included.
    pub statements: u64,
    /// How often answers were waited for: statements that are under way together on a connection share a round trip.
    pub round_trips: u64,
}
