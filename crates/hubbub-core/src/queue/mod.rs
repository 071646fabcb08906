//! Queues: what may be done to them, and what comes back.
//!
//! A message waits for one receiver, for whoever takes it first, or for everybody: one copy for each client registered
//! when it was sent, each copy with an id of its own. Whatever runs out with time (leases, delays, times to live) is
//! counted from the store's clock; see [`QueueOp::Sweep`].

use std::sync::Arc;

use crate::id::{ClientId, QueueId};
pub use crate::lease_receipt::{LeaseReceipt, epoch_number};
use crate::time::Timestamp;

/// Longest time of anything about a queue: a hundred years, in milliseconds.
pub const DURATION_MS_MAX: u64 = 100 * 365 * 24 * 3_600 * 1_000;

/// Time after which a message to everybody is gone when its sender set none: 7 days, in milliseconds.
pub const BROADCAST_TTL_MS: u64 = 7 * 24 * 3_600 * 1_000;

/// How long an id is remembered after its message is gone: 10 minutes, in milliseconds.
pub const ID_KEPT_MS: u64 = 10 * 60 * 1_000;

/// Lease of a taker that asked for none where the queue has none set: 30 seconds, in milliseconds.
pub const LEASE_MS: u64 = 30_000;

/// Most messages one operation takes or moves.
pub const TAKE_MAX: usize = 1_000;

/// A take ends before the message that would bring its texts over this, in bytes, but holds at least one.
pub const TAKE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What follows the name of a queue in that of its dead-letter queue, unless told otherwise.
pub const DEAD_LETTER_SUFFIX: &str = ".dead";

/// A change of queues, their messages, or who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOp<'a> {
    /// Makes a queue, or changes what is given. With deliveries limited, its dead-letter queue is made too.
    Put {
        /// The queue.
        queue: &'a str,
        /// What it shall be.
        settings: &'a QueueSettings,
    },
    /// Makes a queue named by the next free number: above every number that ever named one.
    PutNumbered,
    /// Deletes a queue; one that holds messages only with `force`, and they with it.
    Delete {
        /// The queue.
        queue: &'a str,
        /// Whether its messages may go too.
        force: bool,
    },
    /// Registers a client.
    Register {
        /// The client.
        client: &'a str,
    },
    /// Takes a registration back, and with it the client's copies of what was sent to everybody.
    Unregister {
        /// The client.
        client: &'a str,
    },
    /// Adds a message.
    Send(QueueSend<'a>),
    /// Takes messages: away, or on lease.
    Take(Take<'a>),
    /// Ends or extends one lease. Refused as stale when the lease ran out, another took its place, or the store's
    /// history is another one by now.
    Settle {
        /// The queue.
        queue: &'a str,
        /// What lease.
        receipt: LeaseReceipt,
        /// What becomes of it.
        how: Settle,
    },
    /// Deletes one message, whoever it waits for, leased or not.
    Remove {
        /// The queue.
        queue: &'a str,
        /// The message.
        id: u64,
    },
    /// Moves messages out of a dead-letter queue, back to where they came from, oldest first, [`TAKE_MAX`] at most.
    /// Those whose queue is gone stay. Deliveries are counted from the beginning for the limit of the queue; receipts
    /// count on.
    Redrive {
        /// The dead-letter queue.
        queue: &'a str,
        /// Only this message.
        id: Option<u64>,
    },
    /// Ends what has run out, a bounded number of messages for each operation: takes away what outlived its time, and
    /// moves what was delivered too often to dead-letter queues. Takes see to it themselves that nothing is delivered
    /// that has run out.
    Sweep,
}

/// What a queue shall be; `None` leaves it as it is, or at its default in a new one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueSettings {
    /// Lease of takers that ask for none, in milliseconds. Default [`LEASE_MS`].
    pub lease_ms: Option<u64>,
    /// After so many deliveries on lease that were not acknowledged, a message goes to the dead-letter queue; 0 = it
    /// never does. Default 0.
    pub deliveries_max: Option<u32>,
    /// Where such messages go; empty = the queue's own name with [`DEAD_LETTER_SUFFIX`]. Default empty.
    pub dead_letter: Option<Arc<str>>,
    /// How long a message waits at most that was sent without a limit of its own, in milliseconds; 0 = for ever.
    /// Default 0.
    pub ttl_ms: Option<u64>,
    /// Messages it may hold; 0 = any number. Default 0.
    pub messages_max: Option<u64>,
    /// Bytes of texts it may hold; 0 = any number. Default 0.
    pub bytes_max: Option<u64>,
    /// What becomes of a message that would be too many. Default [`WhenFull::Refuse`].
    pub when_full: Option<WhenFull>,
    /// How long a message given back without a delay waits the first time, doubled each further time, in milliseconds.
    /// Default 0: not at all.
    pub backoff_ms: Option<u64>,
    /// The longest such wait, in milliseconds. Default 300,000 (5 minutes).
    pub backoff_max_ms: Option<u64>,
}

/// What becomes of a message that would be too many for its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// It is refused, as [`crate::Refusal::QueueFull`].
    #[default]
    Refuse,
    /// The oldest ones that are not on lease go.
    DropOldest,
}

/// A message on its way into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSend<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The client that sends.
    pub sender: &'a str,
    /// Whom it waits for.
    pub audience: Audience<'a>,
    /// The text.
    pub text: &'a str,
    /// The sender's idempotency key, unique within the queue; remembered while the message waits and
    /// [`ID_KEPT_MS`] after.
    pub message_id: Option<&'a str>,
    /// When it may be taken first.
    pub due: Due,
    /// Messages of one group for one receiver are delivered one after another: the next when the one before is gone.
    pub group: Option<&'a str>,
    /// How long it waits at most, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// Whether an unknown sender is registered, if the store does so at all.
    pub registers: bool,
}

/// Whom a message waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience<'a> {
    /// Whoever takes it first.
    Anyone,
    /// One client, registered before.
    One(&'a str),
    /// Every client registered now, the sender excepted: a copy for each, in the order in which they first registered.
    All,
}

/// When something may be taken first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At once.
    Now,
    /// So many milliseconds from now.
    In(u64),
    /// At this time; at once if it is past.
    At(Timestamp),
}

/// What is to be taken: messages that wait for `receiver` or for anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take<'a> {
    /// Which messages.
    pub wanted: Wanted<'a>,
    /// At most so many, and at most [`TAKE_MAX`].
    pub max: usize,
    /// What becomes of them.
    pub how: TakeHow,
    /// Whether an unknown receiver is registered, if the store does so at all. Otherwise an unknown receiver gets what
    /// waits for anybody.
    pub registers: bool,
}

/// Which messages are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Of this queue; `None` = of all.
    pub queue: Option<&'a str>,
    /// Waiting for this client, or for anybody; `None` = for anybody alone.
    pub receiver: Option<&'a str>,
    /// Sent by this client only.
    pub sender: Option<&'a str>,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
}

/// What somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wants {
    /// Messages of this queue; `None` = of all.
    pub queue: Option<QueueId>,
    /// For this client, or for anybody; `None` = for anybody alone.
    pub receiver: Option<ClientId>,
    /// Sent by this client only.
    pub sender: Option<ClientId>,
}

impl Wants {
    /// The same, to look for the oldest.
    pub fn wanted(&self) -> Wanted<'_> {
        Wanted {
            queue: self.queue.as_ref().map(QueueId::as_str),
            receiver: self.receiver.as_ref().map(ClientId::as_str),
            sender: self.sender.as_ref().map(ClientId::as_str),
            newest_first: false,
        }
    }
}

/// What becomes of what is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeHow {
    /// It is gone: delivered once at most.
    Away,
    /// It is nobody else's until acknowledged, given back, or the lease runs out: delivered once at least.
    Lease {
        /// How long, in milliseconds; `None` = as the queue has it set.
        lease_ms: Option<u64>,
    },
}

/// What becomes of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// The message is done, and gone.
    Ack,
    /// The message waits again, or goes to the dead-letter queue when that was its last delivery.
    Nack {
        /// How long until it may be taken, in milliseconds; `None` = as the queue's backoff says.
        delay_ms: Option<u64>,
    },
    /// The lease ends so much later than now.
    Extend {
        /// In milliseconds; `None` = as the queue has it set.
        lease_ms: Option<u64>,
    },
}

/// What became of an operation that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueOutcome {
    /// The queue is as wanted.
    Queue {
        /// Its name, as it is or as it was made.
        queue: Arc<str>,
        /// Whether it is new.
        created: bool,
    },
    /// The queue, or the message, is gone.
    Deleted {
        /// Messages that went.
        messages: u64,
        /// What may be taken now and could not before: the next of the group of one that was on lease.
        ready: Box<[Freed]>,
    },
    /// The registration is as wanted.
    Client {
        /// Whether it was otherwise before.
        changed: bool,
    },
    /// The message waits, or waited before.
    Sent {
        /// Its id; of the first copy if it is for everybody, the others follow in steps of one.
        id: u64,
        /// How many wait: 1, or the clients a message for everybody is for, which may be none.
        copies: u32,
        /// When it was taken in.
        sent_at: Timestamp,
        /// Whether the same was sent before; nothing changed.
        duplicate: bool,
    },
    /// What was taken, in the order asked for; none when there was none.
    Taken(Box<[Delivery]>),
    /// The lease has ended, or ends then.
    Settled {
        /// When the lease ends, or the message may be taken again; `None` when it is gone.
        until: Option<Timestamp>,
        /// What may be taken now and could not before: the message itself, in its queue or in the dead-letter queue, or
        /// the next of its group.
        ready: Box<[Freed]>,
    },
    /// Messages wait again in the queues they came from.
    Redriven {
        /// How many.
        messages: u64,
        /// Whether there are more: repeat the operation until there are none.
        more: bool,
        /// Queues they went to.
        ready: Box<[Arc<str>]>,
    },
    /// What had run out has ended.
    Swept {
        /// Whether there is more: repeat the operation.
        more: bool,
        /// Queues that may have something new to take.
        ready: Box<[Arc<str>]>,
    },
}

/// A message that waits and may be taken from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// The queue it is in.
    pub queue: Arc<str>,
    /// Its id.
    pub id: u64,
    /// Who sent it.
    pub sender: Arc<str>,
    /// Whom it waits for; `None` = anybody.
    pub receiver: Option<Arc<str>>,
}

/// A message as a taker gets it, or a look shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its id, unique over all queues of the server and never used again.
    pub id: u64,
    /// The queue.
    pub queue: Arc<str>,
    /// Who sent it.
    pub sender: Arc<str>,
    /// Whom it waited for; `None` = anybody.
    pub receiver: Option<Arc<str>>,
    /// The text.
    pub text: String,
    /// Its group.
    pub group: Option<Arc<str>>,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// Deliveries on lease since it came into this queue, this one included.
    pub deliveries: u32,
    /// What ends or extends the lease, for whoever took the message on lease; `None` for all others.
    pub receipt: Option<LeaseReceipt>,
    /// When the lease of this delivery ends; `None` when there is none.
    pub leased_until: Option<Timestamp>,
    /// Why and from where it came into a dead-letter queue.
    pub dead: Option<DeadLetter>,
}

/// Why and from where a message came into a dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The queue it was in; where it goes when it is redriven.
    pub origin: Arc<str>,
    /// What its last delivery ended with.
    pub reason: DeadReason,
    /// Deliveries it had there.
    pub deliveries: u32,
}

/// What the last delivery of a dead letter ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadReason {
    /// It was given back.
    Rejected,
    /// Its lease ran out.
    LeaseExpired,
}

impl DeadReason {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::LeaseExpired => "lease_expired",
        }
    }
}

/// A queue, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its name.
    pub queue: Arc<str>,
    /// What is set; every field has a value.
    pub settings: QueueSettings,
    /// Messages that may be taken now, those behind others of their group included.
    pub ready: u64,
    /// Messages that may not be taken yet.
    pub delayed: u64,
    /// Messages on lease.
    pub leased: u64,
    /// Bytes of all their texts.
    pub bytes: u64,
    /// When the oldest of them was sent.
    pub oldest_sent_at: Option<Timestamp>,
    /// Messages sent to it since it was made, copies counted each.
    pub sent: u64,
    /// Messages taken away or acknowledged since it was made.
    pub done: u64,
    /// Messages that outlived their time, or went as the oldest of too many, since it was made.
    pub dropped: u64,
    /// Messages it gave to its dead-letter queue since it was made.
    pub dead: u64,
    /// Whether it holds messages that another queue gave up; such a queue can be redriven.
    pub is_dead_letter: bool,
}

impl QueueInfo {
    /// Messages altogether.
    pub fn messages(&self) -> u64 {
        self.ready + self.delayed + self.leased
    }
}

/// A message of a queue in any state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The message.
    pub delivery: Delivery,
    /// How it stands.
    pub state: WaitingState,
    /// When it goes if nobody takes it.
    pub expires_at: Option<Timestamp>,
}

/// How a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingState {
    /// It may be taken, once it is the first of its group.
    Ready,
    /// It may not be taken before this.
    Delayed(Timestamp),
    /// It is on lease until then.
    Leased(Timestamp),
}
