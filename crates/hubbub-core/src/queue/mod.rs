//! Queues: operations, outcomes, and what reads return.
//!
//! A message waits for one receiver, for any consumer, or for everybody: one copy for each client that was registered when
//! it was sent, each copy with its own id. Leases, delays and times to live run by the store's clock; see
//! [`QueueOp::Sweep`].

mod encoded;
mod op;
mod outcome;
mod receipt;
mod view;

pub use crate::queue_rules::{QueueSettings, WhenFull};
pub(crate) use encoded::EncodedQueueOp;
pub use op::{Audience, Due, QueueSend, Settle, Take, TakeFilter, TakeMode, WaitFilter};
pub use outcome::{Freed, QueueOutcome};
pub use receipt::{LeaseReceipt, NotAReceipt, epoch_number};
pub use view::{DeadLetter, DeadReason, Delivery, MessageState, QueueInfo, Waiting};

/// Longest duration of a queue's settings and operations, in milliseconds: 100 years.
pub const DURATION_MS_MAX: u64 = 100 * 365 * 24 * 3_600 * 1_000;

/// Default time to live of a message to everybody, in milliseconds: 7 days.
pub const BROADCAST_TTL_MS: u64 = 7 * 24 * 3_600 * 1_000;

/// How long a message id is kept after its message is gone, in milliseconds: 10 minutes.
pub const ID_KEPT_MS: u64 = 10 * 60 * 1_000;

/// Default lease, in milliseconds: 30 seconds.
pub const LEASE_MS: u64 = 30_000;

/// Most messages one operation takes or moves.
pub const TAKE_MAX: usize = 1_000;

/// Most bytes of texts in one take, which contains at least one message.
pub const TAKE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Most bytes of payloads that the takes of one batch hold in memory; behind it, each gets one message.
pub const PAYLOADS_MAX: u64 = 64 << 20;

/// Default suffix of a dead-letter queue's name, behind the name of its queue.
pub const DEAD_LETTER_SUFFIX: &str = ".dead";

/// An operation on queues, their messages or their clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the comment of an operation says what most of its fields are")]
pub enum QueueOp<'a> {
    /// Creates a queue, or changes the given settings. If deliveries are limited, creates its dead-letter queue, too.
    Put { queue: &'a str, settings: &'a QueueSettings },
    /// Creates a queue named by a number greater than every number that ever named one.
    PutNumbered,
    /// Deletes a queue; one that holds messages only with `force`, together with its messages.
    Delete { queue: &'a str, force: bool },
    /// Registers a client.
    Register { client: &'a str },
    /// Unregisters a client, and deletes its copies of messages to everybody.
    Unregister { client: &'a str },
    /// Adds a message.
    Send(QueueSend<'a>),
    /// Takes messages, finally or on lease.
    Take(Take<'a>),
    /// Ends or extends one lease. Refused as stale if the lease expired or was replaced, or the store's history was
    /// replaced.
    Settle { queue: &'a str, receipt: LeaseReceipt, how: Settle },
    /// Deletes one message, whatever its receiver and state.
    Remove { queue: &'a str, id: u64 },
    /// Moves messages of a dead-letter queue, or the one of an `id`, back to their queues, oldest first, at most
    /// [`TAKE_MAX`]. Messages whose queue is gone stay. The deliveries that count for the queue's limit start from 0; the
    /// delivery numbers in receipts continue.
    Redrive { queue: &'a str, id: Option<u64> },
    /// Processes passed deadlines, a bounded number of messages with each operation: deletes expired messages, and moves
    /// those that were delivered too often to dead-letter queues. Takes never deliver an expired message, even before a
    /// sweep.
    Sweep,
}
