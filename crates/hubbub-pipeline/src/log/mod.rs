//! What orders messages before they are stored.
//!
//! `direct`: the process itself. Everything submitted waits for the next batch, and the answer is the store's.
//!
//! `amqp`: RabbitMQ. Messages of rooms are published, and durable once the broker has confirmed them; consumers of this
//! or another process take them from there to the direct log, and acknowledge them once the store has them. Whatever
//! else changes the store goes to the direct log at once.

#[cfg(feature = "amqp")]
pub mod amqp;
mod direct;

use std::sync::Arc;

use hubbub_core::OpBatch;

use crate::batcher::{SubmitError, Ticket, Waiter};
use crate::takers::Takers;

pub use direct::{DirectLog, LogOptions, StartError};

/// The way to the store, with a broker in front or without.
pub struct Log {
    direct: Arc<DirectLog>,
    #[cfg(feature = "amqp")]
    broker: Option<amqp::Amqp>,
}

/// Whether a log takes messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHealth {
    /// Which log it is.
    pub kind: &'static str,
    /// Why it takes none.
    pub fault: Option<String>,
    /// Messages in the broker that are not stored yet; `None` without a broker.
    pub depth: Option<u64>,
    /// How long the last message that was stored had been on its way, in microseconds; `None` without a broker.
    pub lag_us: Option<u64>,
}

impl Log {
    /// Without a broker.
    pub fn direct(direct: Arc<DirectLog>) -> Self {
        Self {
            direct,
            #[cfg(feature = "amqp")]
            broker: None,
        }
    }

    /// With a broker in front, which submits to the same direct log.
    #[cfg(feature = "amqp")]
    pub fn amqp(direct: Arc<DirectLog>, broker: amqp::Amqp) -> Self {
        Self { direct, broker: Some(broker) }
    }

    /// Queues all operations or none, in order; `waiter` is woken when the ticket has its outcomes. Where
    /// [`Log::parts_messages`] says so, messages must not be mixed with other operations.
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

    /// Whether messages go another way than other operations, so that a submission holds only the one or the other.
    pub fn parts_messages(&self) -> bool {
        #[cfg(feature = "amqp")]
        return self.broker.is_some();
        #[cfg(not(feature = "amqp"))]
        return false;
    }

    /// Who waits for messages of queues.
    pub fn takers(&self) -> &Arc<Takers> {
        self.direct.takers()
    }

    /// Whether it takes messages.
    pub fn health(&self) -> LogHealth {
        #[cfg(feature = "amqp")]
        if let Some(broker) = &self.broker {
            return broker.health();
        }
        LogHealth { kind: "direct", fault: None, depth: None, lag_us: None }
    }

    /// Refuses what comes from now on, and returns when everything queued before is answered and published.
    pub async fn close(&self) {
        #[cfg(feature = "amqp")]
        if let Some(broker) = &self.broker {
            broker.close().await;
        }
        self.direct.close().await;
    }
}
