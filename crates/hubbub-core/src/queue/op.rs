//! The parts of queue operations: messages to send, takes, and what ends a lease.

use crate::id::{ClientId, QueueId};
use crate::time::Timestamp;

/// A message to send to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSend<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The sending client.
    pub sender: &'a str,
    /// Its receivers.
    pub audience: Audience<'a>,
    /// The text.
    pub text: &'a str,
    /// The sender's idempotency key, unique within the queue. Kept as long as the message, and
    /// [`super::ID_KEPT_MS`] longer.
    pub message_id: Option<&'a str>,
    /// The earliest time of its delivery.
    pub due: Due,
    /// Messages of one group and receiver are delivered one by one: the next one after the previous one is gone.
    pub group: Option<&'a str>,
    /// Time to live, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// Whether to register an unknown sender, if the store allows it.
    pub registers: bool,
}

impl<'a> QueueSend<'a> {
    /// What makes two messages with one id the same: the kind of audience, the sender, the receiver, the group, and the text.
    /// A delay or a time to live does not.
    pub fn identity(&self) -> [&'a str; 5] {
        let (audience, receiver) = match self.audience {
            Audience::Anyone => ("anyone", ""),
            Audience::One(receiver) => ("one", receiver),
            Audience::All => ("all", ""),
        };
        [audience, self.sender, receiver, self.group.unwrap_or_default(), self.text]
    }
}

/// The receivers of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience<'a> {
    /// Any one consumer.
    Anyone,
    /// One registered client.
    One(&'a str),
    /// Every registered client but the sender: a copy for each, in the order of their first registration.
    All,
}

/// The earliest time of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At once.
    Now,
    /// After this many milliseconds.
    In(u64),
    /// At this time; at once if it has passed.
    At(Timestamp),
}

/// A take of messages for `receiver` or for anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take<'a> {
    /// Which messages.
    pub wanted: TakeFilter<'a>,
    /// Maximum number of messages, at most [`super::TAKE_MAX`].
    pub max: usize,
    /// Finally, or on lease.
    pub how: TakeMode,
    /// Whether to register an unknown receiver, if the store allows it. Otherwise an unknown receiver gets messages for
    /// anybody.
    pub registers: bool,
}

/// Which messages a take or a read selects, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeFilter<'a> {
    /// Messages of this queue; `None` = of all.
    pub queue: Option<&'a str>,
    /// Messages for this client or for anybody; `None` = only for anybody.
    pub receiver: Option<&'a str>,
    /// Only messages of this sender.
    pub sender: Option<&'a str>,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
}

/// The messages that a waiting consumer accepts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitFilter {
    /// Messages of this queue; `None` = of all.
    pub queue: Option<QueueId>,
    /// Messages for this client or for anybody; `None` = only for anybody.
    pub receiver: Option<ClientId>,
    /// Only messages of this sender.
    pub sender: Option<ClientId>,
}

impl WaitFilter {
    /// The same filter, oldest messages first.
    pub fn wanted(&self) -> TakeFilter<'_> {
        TakeFilter {
            queue: self.queue.as_ref().map(QueueId::as_str),
            receiver: self.receiver.as_ref().map(ClientId::as_str),
            sender: self.sender.as_ref().map(ClientId::as_str),
            newest_first: false,
        }
    }
}

/// Whether a take is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeMode {
    /// The message is removed: at-most-once delivery.
    Away,
    /// The message is exclusive until it is acknowledged or given back, or the lease expires: at-least-once delivery.
    Lease {
        /// Duration in milliseconds; `None` = the queue's default.
        lease_ms: Option<u64>,
    },
}

/// How to end or extend a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// The message is processed, and deleted.
    Ack,
    /// The message is given back, or moves to the dead-letter queue if this was its last delivery.
    Nack {
        /// Delay until its next delivery, in milliseconds; `None` = the queue's backoff.
        delay_ms: Option<u64>,
    },
    /// The lease ends this long from now.
    Extend {
        /// Duration in milliseconds; `None` = the queue's default.
        lease_ms: Option<u64>,
    },
}
