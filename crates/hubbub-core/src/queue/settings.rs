//! Settings of a queue.

use std::sync::Arc;

/// Settings of a queue. `None` keeps the value, or sets the default in a new queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueSettings {
    /// Lease of takes that name none, in milliseconds. Default [`super::LEASE_MS`].
    pub lease_ms: Option<u64>,
    /// Number of unacknowledged deliveries after which a message moves to the dead-letter queue; 0 = never. Default 0.
    pub deliveries_max: Option<u32>,
    /// The dead-letter queue; empty = the queue's name with [`super::DEAD_LETTER_SUFFIX`]. Default empty.
    pub dead_letter: Option<Arc<str>>,
    /// Time to live of messages that have none of their own, in milliseconds; 0 = unlimited. Default 0.
    pub ttl_ms: Option<u64>,
    /// Most messages in the queue; 0 = unlimited. Default 0.
    pub messages_max: Option<u64>,
    /// Most bytes of texts in the queue; 0 = unlimited. Default 0.
    pub bytes_max: Option<u64>,
    /// What happens when the queue is full. Default [`WhenFull::Refuse`].
    pub when_full: Option<WhenFull>,
    /// First delay of a message that is given back without a delay, doubled each further time, in milliseconds.
    /// Default 0: no delay.
    pub backoff_ms: Option<u64>,
    /// Longest such delay, in milliseconds. Default 300,000 (5 minutes).
    pub backoff_max_ms: Option<u64>,
}

/// What happens when a message is sent to a full queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// It is refused, as [`crate::Refusal::QueueFull`].
    #[default]
    Refuse,
    /// The oldest messages that are not on lease are dropped.
    DropOldest,
}
