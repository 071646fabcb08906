//! Outcomes of queue operations.

use std::sync::Arc;

use super::Delivery;
use crate::time::Timestamp;

/// The outcome of an operation that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueOutcome {
    /// The queue has the settings.
    Queue {
        /// Its name, given or generated.
        queue: Arc<str>,
        /// Whether it was created.
        created: bool,
    },
    /// The queue, or the message, is gone.
    Deleted {
        /// Number of deleted messages.
        messages: u64,
        /// Messages that become available: the next ones of the groups of deleted leased messages.
        ready: Box<[Freed]>,
    },
    /// The client is registered or unregistered.
    Client {
        /// Whether anything changed.
        changed: bool,
    },
    /// The message is stored, or was stored before.
    Sent {
        /// Its id. For a message to everybody the first copy's id; the others follow in steps of one.
        id: u64,
        /// Number of copies: 1, or for a message to everybody the number of receivers, which may be 0.
        copies: u32,
        /// When the store accepted it.
        sent_at: Timestamp,
        /// Whether it was stored before; then nothing changed.
        duplicate: bool,
    },
    /// Messages are taken away or on lease.
    Taken {
        /// Those, in the requested order; may be empty.
        messages: Box<[Delivery]>,
        /// Messages that become available: the next ones of the groups of messages that were taken away.
        ready: Box<[Freed]>,
    },
    /// The lease was ended or extended.
    Settled {
        /// When the lease ends, or the message becomes available again; `None` if it is gone.
        until: Option<Timestamp>,
        /// Messages that become available: the message itself, in its queue or in the dead-letter queue, or the next one
        /// of its group.
        ready: Box<[Freed]>,
    },
    /// Dead letters are back in their queues.
    Redriven {
        /// Number of messages moved.
        messages: u64,
        /// Whether there are more: repeat the operation.
        more: bool,
        /// Queues they moved to.
        ready: Box<[Arc<str>]>,
    },
    /// Passed deadlines were processed.
    Swept {
        /// Whether there is more: repeat the operation.
        more: bool,
        /// Queues in which messages may have become available.
        ready: Box<[Arc<str>]>,
    },
}

impl QueueOutcome {
    /// The messages that become available, of an outcome that names them. The store says which, once the effects of the operation
    /// are applied.
    pub fn freed_mut(&mut self) -> Option<&mut Box<[Freed]>> {
        match self {
            Self::Deleted { ready, .. } | Self::Taken { ready, .. } | Self::Settled { ready, .. } => {
                Some(ready)
            }
            _ => None,
        }
    }
}

/// A message that becomes available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// Its queue.
    pub queue: Arc<str>,
    /// Its id.
    pub id: u64,
    /// Its sender.
    pub sender: Arc<str>,
    /// Its receiver; `None` = anybody.
    pub receiver: Option<Arc<str>>,
}
