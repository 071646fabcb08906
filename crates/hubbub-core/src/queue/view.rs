//! Messages and queues as reads return them.

use std::sync::Arc;

use super::LeaseReceipt;
use crate::queue_rules::QueueRules;
use crate::time::Timestamp;

/// A message as a take or a read returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its id, unique over all queues and never reused.
    pub id: u64,
    /// The queue.
    pub queue: Arc<str>,
    /// Its sender.
    pub sender: Arc<str>,
    /// Its receiver; `None` = anybody.
    pub receiver: Option<Arc<str>>,
    /// The text.
    pub text: String,
    /// Its group.
    pub group: Option<Arc<str>>,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// Deliveries on lease since it entered this queue, including this one.
    pub deliveries: u32,
    /// The proof of the lease, only for the consumer that holds it.
    pub receipt: Option<LeaseReceipt>,
    /// When the lease of this delivery ends; `None` = there is no lease.
    pub leased_until: Option<Timestamp>,
    /// For a dead letter: why and from which queue it was moved.
    pub dead: Option<DeadLetter>,
}

/// Why and from which queue a dead letter was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The queue it was in; a redrive moves it back there.
    pub origin: Arc<str>,
    /// How its last delivery ended.
    pub reason: DeadReason,
    /// Number of deliveries there.
    pub deliveries: u32,
}

/// How the last delivery of a dead letter ended. Stores keep the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadReason {
    /// It was given back.
    Rejected = 0,
    /// Its lease expired.
    LeaseExpired = 1,
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

/// A queue, its settings and its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its name.
    pub queue: Arc<str>,
    /// Its settings.
    pub settings: QueueRules,
    /// Available messages, including those that wait for an earlier one of their group.
    pub ready: u64,
    /// Delayed messages.
    pub delayed: u64,
    /// Messages on lease.
    pub leased: u64,
    /// Bytes of all their texts.
    pub bytes: u64,
    /// When the oldest of them was sent.
    pub oldest_sent_at: Option<Timestamp>,
    /// Messages sent to it since its creation; each copy counts.
    pub sent: u64,
    /// Messages taken finally or acknowledged since its creation.
    pub done: u64,
    /// Messages that expired or were dropped because it was full, since its creation.
    pub dropped: u64,
    /// Messages moved to its dead-letter queue since its creation.
    pub dead: u64,
    /// Whether it is the dead-letter queue of another one, and can be redriven.
    pub is_dead_letter: bool,
}

impl QueueInfo {
    /// Number of messages.
    pub fn messages(&self) -> u64 {
        self.ready + self.delayed + self.leased
    }
}

/// A message of a queue in any state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The message.
    pub delivery: Delivery,
    /// Its state.
    pub state: MessageState,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// State of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageState {
    /// It is available, once it is the first of its group.
    Ready,
    /// It becomes available at this time.
    Delayed(Timestamp),
    /// It is on lease until this time.
    Leased(Timestamp),
}
