//! Operations that change a store, batches of them, and their outcomes.

use crate::apply_error::ApplyError;
use crate::change::{Change, EncodedChange, ReadMark};
use crate::kv::{KvOp, KvOutcome};
use crate::kv_encoded::EncodedKvOp;
use crate::log_position::LogPosition;
use crate::message::{EncodedSend, Send};
use crate::queue::{EncodedQueueOp, QueueOp, QueueOutcome};

use crate::time::Timestamp;
use crate::trace::TraceContext;

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// Store a message.
    Send(Send<'a>),
    /// Change a room, its members or their read marks.
    Change(Change<'a>),
    /// Change a queue, its messages or its clients.
    Queue(QueueOp<'a>),
    /// Change a key.
    Kv(KvOp<'a>),
}

/// An operation on rooms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoomOp<'a> {
    /// Store a message.
    Send(Send<'a>),
    /// Change a room, its members or their read marks.
    Change(Change<'a>),
}

impl<'a> RoomOp<'a> {
    /// The room, if the operation concerns a single one.
    pub fn room(&self) -> Option<&'a str> {
        match self {
            Self::Send(send) => Some(send.room),
            Self::Change(change) => change.room(),
        }
    }
}

/// The room, queue or key of an operation. Operations of one lane keep their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane<'a> {
    /// A room.
    Room(&'a str),
    /// A queue.
    Queue(&'a str),
    /// A key.
    Key(&'a [u8]),
    /// The operation concerns no single one.
    None,
}

impl<'a> Op<'a> {
    /// The room, if the operation concerns a single one.
    pub fn room(&self) -> Option<&'a str> {
        match self {
            Self::Send(send) => Some(send.room),
            Self::Change(change) => change.room(),
            Self::Queue(_) | Self::Kv(_) => None,
        }
    }

    /// The lane.
    pub fn lane(&self) -> Lane<'a> {
        match self {
            Self::Send(send) => Lane::Room(send.room),
            Self::Change(change) => change.room().map_or(Lane::None, Lane::Room),
            Self::Queue(op) => op.queue().map_or(Lane::None, Lane::Queue),
            Self::Kv(op) => op.key().map_or(Lane::None, Lane::Key),
        }
    }

    /// Whether it must be alone in its batch: it changes the state that other operations are decided by.
    pub fn is_exclusive(&self) -> bool {
        match self {
            Self::Send(_) | Self::Queue(_) | Self::Kv(_) => false,
            Self::Change(change) => change.is_exclusive(),
        }
    }
}

#[derive(Debug, Clone)]
enum EncodedOp {
    Send(EncodedSend),
    Change(EncodedChange),
    Queue(EncodedQueueOp),
    Kv(EncodedKvOp),
}

/// Operations in order, in a constant number of allocations. Batches are concatenated by copying.
#[derive(Debug, Clone, Default)]
pub struct OpBatch {
    ops: Vec<EncodedOp>,
    text: String,
    /// Keys and values: any bytes.
    raw: Vec<u8>,
    /// Positions in the log, of all operations or of none.
    positions: Vec<LogPosition>,
    /// Indexes of the operations that belong to traces, in order.
    traces: Vec<(usize, TraceContext)>,
}

impl OpBatch {
    /// Number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Bytes of all texts, ids, keys and values: the size of a batch.
    pub fn bytes(&self) -> usize {
        self.text.len() + self.raw.len()
    }

    /// Adds one operation.
    pub fn push(&mut self, op: &Op<'_>) {
        match op {
            Op::Send(send) => self.ops.push(EncodedOp::Send(EncodedSend::write(send, &mut self.text))),
            Op::Change(change) => {
                self.ops.push(EncodedOp::Change(EncodedChange::write(change, &mut self.text)))
            }
            Op::Queue(op) => self.ops.push(EncodedOp::Queue(EncodedQueueOp::write(op, &mut self.text))),
            Op::Kv(op) => self.ops.push(EncodedOp::Kv(EncodedKvOp::write(op, &mut self.raw))),
        }
    }

    /// Adds an operation from the log. A batch has only such operations or none.
    pub fn push_at(&mut self, op: &Op<'_>, position: LogPosition) {
        debug_assert_eq!(
            self.positions.len(),
            self.ops.len(),
            "a batch mixes operations with and without positions"
        );
        self.push(op);
        self.positions.push(position);
    }

    /// Where the operation at `index` stands in the log; `None` if it does not come from one.
    pub fn position(&self, index: usize) -> Option<LogPosition> {
        self.positions.get(index).copied()
    }

    /// Whether an operation names a key.
    pub fn names_keys(&self) -> bool {
        !self.raw.is_empty()
    }

    /// Whether the operations come from the log.
    pub fn is_from_log(&self) -> bool {
        !self.positions.is_empty()
    }

    /// Says that the last operation belongs to a trace, below a span.
    pub fn trace_last(&mut self, context: TraceContext) {
        if let Some(last) = self.len().checked_sub(1) {
            self.traces.push((last, context));
        }
    }

    /// The operations that belong to traces, by their indexes, in order. Mostly none.
    pub fn traces(&self) -> &[(usize, TraceContext)] {
        &self.traces
    }

    /// Adds all operations of `other`. Either both come from the log, or neither, or `self` is empty.
    pub fn append(&mut self, other: &Self) {
        debug_assert!(
            self.is_empty() || self.is_from_log() == other.is_from_log(),
            "a batch mixes its origins"
        );
        self.positions.extend_from_slice(&other.positions);
        let before = self.len();
        self.traces.extend(other.traces.iter().map(|(index, context)| (before + index, *context)));
        let (offset, raw_offset) = (self.text.len(), self.raw.len());
        self.text.push_str(&other.text);
        self.raw.extend_from_slice(&other.raw);
        self.ops.extend(other.ops.iter().map(|op| match op {
            EncodedOp::Send(send) => EncodedOp::Send(send.moved_by(offset)),
            EncodedOp::Change(change) => EncodedOp::Change(change.moved_by(offset)),
            EncodedOp::Queue(op) => EncodedOp::Queue(op.clone().moved_by(offset)),
            EncodedOp::Kv(op) => EncodedOp::Kv(op.moved_by(raw_offset)),
        }));
    }

    /// Removes the operations and keeps the memory.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.text.clear();
        self.raw.clear();
        self.positions.clear();
        self.traces.clear();
    }

    /// The operation at `index`.
    pub fn get(&self, index: usize) -> Option<Op<'_>> {
        match self.ops.get(index)? {
            EncodedOp::Send(op) => op.read(&self.text).map(Op::Send),
            EncodedOp::Change(op) => op.read(&self.text).map(Op::Change),
            EncodedOp::Queue(op) => op.read(&self.text).map(Op::Queue),
            EncodedOp::Kv(op) => op.read(&self.raw).map(Op::Kv),
        }
    }

    /// Whether it consists of one exclusive operation; see [`Op::is_exclusive`].
    pub fn is_exclusive(&self) -> bool {
        self.get(0).is_some_and(|op| op.is_exclusive())
    }

    /// All operations in order.
    pub fn iter(&self) -> impl Iterator<Item = Op<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// Number and time of a stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Number within the room.
    pub seq: u64,
    /// When the store numbered it.
    pub received_at: Timestamp,
    /// Numbers right before it that no message of the room ever had; 0 where numbers are dense, and of duplicates.
    pub gap: u64,
}

impl Receipt {
    /// Number of the room's message before this one, whether that is kept or not; 0 = it is the first. At least the true
    /// one where the gap is not known.
    pub fn prev(&self) -> u64 {
        self.seq.saturating_sub(1).saturating_sub(self.gap)
    }
}

/// The outcome of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The message is durable.
    Stored(Receipt),
    /// The same message was stored before. Nothing changed, and no number was used.
    Duplicate(Receipt),
    /// The message is durable in a broker, until the store has it. A store returns it only for an operation of the log
    /// that it has executed before; see [`crate::LogStore`].
    Accepted,
    /// The room has the settings, durably.
    Room {
        /// Whether it was created.
        created: bool,
    },
    /// The membership or deletion is durable.
    Changed {
        /// Whether anything changed.
        changed: bool,
    },
    /// The read mark is durable.
    Read(ReadMark),
    /// Messages of a user are erased, durably.
    Erased {
        /// Number erased by this operation. Where an attempt was cut and repeated, a store that does not lock rooms may count
        /// messages that had expired, too.
        messages: u64,
        /// Whether there are more: repeat the operation.
        more: bool,
    },
    /// The outcome of a queue operation, durable.
    Queue(QueueOutcome),
    /// The outcome of a key operation, durable.
    Kv(KvOutcome),
    /// Nothing changed. A retry cannot succeed, unless the refusal says otherwise.
    Refused(Refusal),
    /// The part of the batch that it was in failed; others were executed.
    Failed(Box<ApplyError>),
}

impl Outcome {
    /// The receipt of a message, and whether it was stored before; `None` when it is not stored.
    pub fn receipt(&self) -> Option<(&Receipt, bool)> {
        match self {
            Self::Stored(receipt) => Some((receipt, false)),
            Self::Duplicate(receipt) => Some((receipt, true)),
            _ => None,
        }
    }

    /// Whether a room's settings, its members or what they may read changed, or may have changed before where the operation
    /// is a repetition. What is cached of these is invalid then.
    pub const fn may_change_access(&self) -> bool {
        match self {
            Self::Accepted | Self::Room { .. } | Self::Changed { .. } | Self::Erased { .. } => true,
            Self::Stored(_) | Self::Duplicate(_) | Self::Read(_) => false,
            Self::Queue(_) | Self::Kv(_) | Self::Refused(_) | Self::Failed(_) => false,
        }
    }

    /// The same, or whether a read mark moved.
    pub const fn may_change_rooms(&self) -> bool {
        matches!(self, Self::Read(_)) || self.may_change_access()
    }

    /// Why the part of the batch that it was in failed.
    pub fn failure(&self) -> Option<&ApplyError> {
        match self {
            Self::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the part of the batch that it was in failed.
    pub fn is_failed(&self) -> bool {
        self.failure().is_some()
    }

    /// Whether anything of the operation is or may be stored.
    pub fn may_be_stored(&self) -> bool {
        match self {
            Self::Refused(_) => false,
            Self::Failed(error) => matches!(**error, ApplyError::Unconfirmed { .. }),
            _ => true,
        }
    }

    /// [`Self::failure`], to be changed.
    pub fn failure_mut(&mut self) -> Option<&mut ApplyError> {
        match self {
            Self::Failed(error) => Some(error),
            _ => None,
        }
    }
}

/// Why one operation of a batch was refused; the others were executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The room has a message with this id from another user, or with another text or type.
    IdReused {
        /// Number of the message that has the id.
        seq: u64,
    },
    /// There is no such room, and this operation does not create one, or `rooms.autocreate = false`.
    UnknownRoom,
    /// Only members of the room may do this, and the sender or caller is not a member.
    NotMember,
    /// There is no such queue.
    UnknownQueue,
    /// The queue holds messages, and the deletion was not forced.
    QueueNotEmpty {
        /// Number of messages.
        messages: u64,
    },
    /// The queue is full. A retry can succeed later.
    QueueFull,
    /// No number is left for a queue that is to be named by the next one: the highest is, or was, a queue's.
    NoQueueNumber,
    /// The sender is not registered, and this operation does not register it.
    UnknownClient,
    /// The receiver is not registered.
    UnknownReceiver,
    /// The maximum number of clients (`queues.clients_max`) is registered.
    TooManyClients,
    /// Too many messages to everybody are still being delivered. A retry can succeed later.
    TooManyBroadcasts,
    /// The id belongs to another message of the queue.
    MessageIdReused {
        /// Id of that message.
        id: u64,
    },
    /// The lease has expired or was replaced.
    StaleReceipt,
    /// There is no such message in the queue.
    UnknownMessage,
    /// The key does not meet the condition.
    Condition {
        /// Its revision; `None` = there is no such key.
        revision: Option<u64>,
    },
    /// Stored data that the operation needs cannot be read; the store's health names the file. Nothing changed.
    Unreadable,
    /// A bug of the server: an invariant did not hold. It is counted and logged. Nothing changed.
    Internal,
    /// An earlier message of the same connection to the same room or queue was not stored, and the connection had not
    /// acknowledged that. Returned by the pipeline, never by a store. A retry can succeed later.
    OutOfOrder,
}

#[cfg(test)]
mod tests;
