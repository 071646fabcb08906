//! Operations that change a store, batches of them, and their outcomes.

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
        /// Number erased by this operation.
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
    /// The sender or consumer is not registered, and this operation does not register it.
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
mod tests {
    use super::*;
    use crate::change::{RoomChange, RoomSettings};
    use crate::message::MessageType;
    use proptest::prelude::*;

    fn strings() -> impl Strategy<Value = (String, String, String, Option<String>, String)> {
        ("[a-z]{1,64}", "[a-z]{1,8}", "[a-z]{1,64}", proptest::option::of("\\PC{0,20}"), "\\PC{0,99}")
    }

    fn changes(room: &str, user: &str, title: Option<&str>, seq: u64) -> Vec<Op<'static>> {
        let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let (room, user, title) = (leak(room), leak(user), title.map(leak));
        let settings = RoomSettings {
            title,
            members_only: Some(seq.is_multiple_of(2)),
            retention_s: title.map(|_| seq),
        };
        [
            RoomChange::PutRoom { room, settings },
            RoomChange::DeleteRoom { room },
            RoomChange::AddMember { room, user },
            RoomChange::RemoveMember { room, user },
            RoomChange::MarkRead { room, user, seq },
            RoomChange::EraseUser { user },
        ]
        .into_iter()
        .map(|what| Op::Change(Change { by: (!seq.is_multiple_of(3)).then_some(user), what }))
        .collect()
    }

    fn others(name: &str, text: &str, number: u64) -> Vec<Op<'static>> {
        use crate::kv::Condition;
        use crate::queue::*;
        let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let (name, text) = (leak(name), leak(text));
        let settings: &'static QueueSettings =
            Box::leak(Box::new(QueueSettings { ttl_ms: Some(number), ..QueueSettings::default() }));
        let maybe = number.is_multiple_of(2).then_some(name);
        let audience = match maybe {
            Some(name) => Audience::One(name),
            None if number.is_multiple_of(3) => Audience::All,
            None => Audience::Anyone,
        };
        let send = QueueSend {
            queue: name,
            sender: name,
            audience,
            text,
            message_id: maybe,
            due: Due::In(number),
            group: maybe,
            ttl_ms: maybe.map(|_| number),
            registers: maybe.is_none(),
        };
        let wanted =
            TakeFilter { queue: maybe, receiver: Some(name), sender: maybe, newest_first: maybe.is_some() };
        let receipt = LeaseReceipt { id: number, delivery: 7, epoch: number };
        let queues = [
            QueueOp::Put { queue: name, settings },
            QueueOp::PutNumbered,
            QueueOp::Delete { queue: name, force: maybe.is_some() },
            QueueOp::Register { client: name },
            QueueOp::Unregister { client: name },
            QueueOp::Send(send),
            QueueOp::Take(Take {
                wanted,
                max: 3,
                how: TakeHow::Lease { lease_ms: Some(number) },
                registers: true,
            }),
            QueueOp::Settle { queue: name, receipt, how: Settle::Nack { delay_ms: Some(number) } },
            QueueOp::Remove { queue: name, id: number },
            QueueOp::Redrive { queue: name, id: maybe.map(|_| number) },
            QueueOp::Sweep,
        ];
        let (key, condition) = (name.as_bytes(), Condition::Is(number));
        let keys = [
            KvOp::Put { key, value: text.as_bytes(), ttl_ms: maybe.map(|_| number), condition },
            KvOp::Delete { key, condition },
            KvOp::Sweep,
        ];
        queues.map(Op::Queue).into_iter().chain(keys.map(Op::Kv)).collect()
    }

    #[test]
    fn appended_operations_keep_their_traces() {
        let context = |span| TraceContext { trace: 1, span };
        let (mut all, mut part) = (OpBatch::default(), OpBatch::default());
        part.trace_last(context(9));
        for span in 1..=3 {
            part.push(&Op::Kv(KvOp::Sweep));
            if span != 2 {
                part.trace_last(context(span));
            }
        }
        all.push(&Op::Kv(KvOp::Sweep));
        all.append(&part);
        all.append(&part);
        assert_eq!(all.traces(), [(1, context(1)), (3, context(3)), (4, context(1)), (6, context(3))]);
        all.clear();
        assert_eq!(all.traces(), []);
    }

    proptest! {
        #[test]
        fn appended_batches_read_as_their_parts(parts in proptest::collection::vec(proptest::collection::vec(strings(), 0..5), 0..5)) {
            let mut all = OpBatch::default();
            let mut expected = Vec::new();
            for part in &parts {
                let mut batch = OpBatch::default();
                for (room, user, id, username, text) in part {
                    let op = Op::Send(Send { room, user, id, username: username.as_deref(), text, kind: MessageType::Join, timestamp: Timestamp::from_micros(5) });
                    batch.push(&op);
                    expected.push(op);
                    let number = text.len() as u64;
                    let more = changes(room, user, username.as_deref(), number);
                    for op in more.into_iter().chain(others(room, text, number)) {
                        batch.push(&op);
                        expected.push(op);
                    }
                }
                all.append(&batch);
            }
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), expected);
        }
    }
}
