//! The message log: fixes the order of operations before they are stored.
//!
//! `direct`: inside the process. A submission waits for the next batch, and its answer is the store's.
//!
//! `amqp`: RabbitMQ. Messages of rooms are published, and durable once the broker confirms them. Consumers in this or
//! another process submit them to the direct log, and acknowledge them once the store has them. All other operations
//! go to the direct log at once.

#[cfg(feature = "amqp")]
pub mod amqp;
#[cfg(any(feature = "amqp", feature = "kafka"))]
mod backoff;
#[cfg(any(feature = "amqp", feature = "kafka"))]
mod body;
mod direct;

use std::sync::Arc;

use hubbub_core::OpBatch;

use crate::batcher::{SubmitError, Ticket, Waiter};
use crate::consumers::WaitingConsumers;

pub use crate::batcher::LogOptions;
pub use direct::{DirectLog, StartError};

/// The message log, with or without a broker in front of the store.
pub struct Log {
    direct: Arc<DirectLog>,
    #[cfg(feature = "amqp")]
    broker: Option<amqp::Amqp>,
}

/// Whether the message log accepts messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHealth {
    /// `direct` or `amqp`.
    pub kind: &'static str,
    /// Why it accepts none; `None` = it does.
    pub fault: Option<String>,
    /// Messages in the broker that are not stored yet. `None` without a broker.
    pub depth: Option<u64>,
    /// Time from publishing to storing of the last stored message, in microseconds. `None` without a broker.
    pub lag_us: Option<u64>,
}

impl Log {
    /// A log without a broker.
    pub fn direct(direct: Arc<DirectLog>) -> Self {
        Self {
            direct,
            #[cfg(feature = "amqp")]
            broker: None,
        }
    }

    /// A log with a broker, whose consumers submit to `direct`.
    #[cfg(feature = "amqp")]
    pub fn amqp(direct: Arc<DirectLog>, broker: amqp::Amqp) -> Self {
        Self { direct, broker: Some(broker) }
    }

    /// Queues all operations or none, in order. `waiter` is woken when the ticket has its outcomes. If
    /// [`Log::parts_messages`] is true, a submission must not mix messages of rooms with other operations.
    ///
    /// Dropping the ticket abandons the wait, not the write.
    pub fn submit(&self, ops: &OpBatch, waiter: &Arc<Waiter>) -> Result<Ticket, SubmitError> {
        #[cfg(feature = "amqp")]
        if let Some(broker) = &self.broker
            && matches!(ops.get(0), Some(hubbub_core::Op::Send(_)))
        {
            return broker.submit(ops, waiter);
        }
        self.direct.submit(ops, waiter)
    }

    /// Whether messages of rooms must be submitted separately from other operations: they go through the broker.
    pub fn parts_messages(&self) -> bool {
        #[cfg(feature = "amqp")]
        return self.broker.is_some();
        #[cfg(not(feature = "amqp"))]
        return false;
    }

    /// The consumers that wait for messages of queues.
    pub fn consumers(&self) -> &Arc<WaitingConsumers> {
        self.direct.consumers()
    }

    /// Whether it accepts messages.
    pub fn health(&self) -> LogHealth {
        #[cfg(feature = "amqp")]
        if let Some(broker) = &self.broker {
            return broker.health();
        }
        LogHealth { kind: "direct", fault: None, depth: None, lag_us: None }
    }

    /// Refuses new submissions, and returns when all earlier ones are answered and published.
    pub async fn close(&self) {
        #[cfg(feature = "amqp")]
        if let Some(broker) = &self.broker {
            broker.close().await;
        }
        self.direct.close().await;
    }
}
