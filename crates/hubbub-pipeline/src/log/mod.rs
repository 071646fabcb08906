//! The message log: fixes the order of operations before they are stored.
//!
//! `direct`: inside the process. A submission waits for the next batch, and its answer is the store's.
//!
//! `amqp`: RabbitMQ. Messages of rooms are published, and durable once the broker confirms them. Consumers in this or
//! another process submit them to the direct log, and acknowledge them once the store has them. All other operations
//! go to the direct log at once.
//!
//! `kafka`: Kafka. The same, but everything that changes a room goes through it, and the store knows each record's position.

#[cfg(any(feature = "amqp", feature = "kafka"))]
mod admission;
#[cfg(feature = "amqp")]
pub mod amqp;
mod attached;
pub mod backoff;
#[cfg(any(feature = "amqp", feature = "kafka", feature = "fuzzing"))]
#[cfg_attr(feature = "fuzzing", allow(dead_code, reason = "fuzzers have no broker"))]
mod body;
mod direct;
#[cfg(feature = "fuzzing")]
#[allow(dead_code, reason = "what decodes is used, what writes is not")]
pub mod fuzzing;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(any(feature = "amqp", feature = "kafka"))]
mod lag;

use std::sync::Arc;

use hubbub_core::OpBatch;

use crate::batcher::{SubmitError, Ticket, Waiter};
use crate::consumers::WaitingConsumers;
use crate::pipeline::Pipeline;

pub use crate::batcher::LogOptions;
pub use direct::{DirectLog, StartError};

/// The message log, with or without a broker in front of the store.
pub struct Log {
    direct: Arc<DirectLog>,
    broker: Broker,
    /// Why the store takes no rooms from a server without a broker.
    refusal: Option<String>,
}

enum Broker {
    None,
    #[cfg(feature = "amqp")]
    Amqp(amqp::Amqp),
    #[cfg(feature = "kafka")]
    Kafka(kafka::Kafka),
}

/// Whether the message log accepts messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHealth {
    /// `direct`, `amqp` or `kafka`.
    pub kind: &'static str,
    /// What carries committed messages to other servers: `local` (nothing does), or `kafka`.
    pub bus: &'static str,
    /// Why it accepts none; `None` = it does.
    pub fault: Option<String>,
    /// Why some of what it is sent is refused, or what it accepts is not stored for now.
    pub alarm: Option<String>,
    /// Messages in the broker that are not stored yet. `None` without a broker.
    pub depth: Option<u64>,
    /// Time from publishing to storing of the last stored message, or until now of the one that is being stored for longest, in
    /// microseconds. `None` without a broker.
    pub lag_us: Option<u64>,
}

impl Log {
    /// A log without a broker.
    pub fn direct(direct: Arc<DirectLog>) -> Self {
        Self { direct, broker: Broker::None, refusal: None }
    }

    /// The same. It has a fault if the store takes its rooms from Kafka only; they can still be read.
    pub async fn without_broker(pipeline: &Pipeline) -> Self {
        let refusal = attached::refusal(&*pipeline.store).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "whether a log is attached to the store cannot be read");
            None
        });
        if let Some(reason) = &refusal {
            tracing::warn!("{reason}");
        }
        Self { refusal, ..Self::direct(pipeline.direct.clone()) }
    }

    /// A log with RabbitMQ, whose consumers submit to `direct`.
    #[cfg(feature = "amqp")]
    pub fn amqp(direct: Arc<DirectLog>, broker: amqp::Amqp) -> Self {
        Self { broker: Broker::Amqp(broker), ..Self::direct(direct) }
    }

    /// A log with Kafka, whose consumers submit to `direct`.
    #[cfg(feature = "kafka")]
    pub fn kafka(direct: Arc<DirectLog>, broker: kafka::Kafka) -> Self {
        Self { broker: Broker::Kafka(broker), ..Self::direct(direct) }
    }

    /// Queues all operations or none, in order. `waiter` is woken when the ticket has its outcomes. If
    /// [`Log::parts_messages`] is true, a submission must not mix messages of rooms with other operations.
    ///
    /// Dropping the ticket abandons the wait, not the write.
    pub fn submit(&self, ops: &OpBatch, waiter: &Arc<Waiter>) -> Result<Ticket, SubmitError> {
        match &self.broker {
            #[cfg(feature = "amqp")]
            Broker::Amqp(broker) if matches!(ops.get(0), Some(hubbub_core::Op::Send(_))) => {
                broker.submit(ops, waiter)
            }
            #[cfg(feature = "kafka")]
            Broker::Kafka(broker)
                if matches!(ops.get(0), Some(hubbub_core::Op::Send(_) | hubbub_core::Op::Change(_))) =>
            {
                broker.submit(ops, waiter)
            }
            _ => self.direct.submit(ops, waiter),
        }
    }

    /// Whether messages of rooms must be submitted separately from other operations: they go through the broker, which keeps
    /// them while the store is away.
    pub fn parts_messages(&self) -> bool {
        !matches!(self.broker, Broker::None)
    }

    /// The consumers that wait for messages of queues.
    pub fn consumers(&self) -> &Arc<WaitingConsumers> {
        self.direct.consumers()
    }

    /// Whether it accepts messages.
    pub fn health(&self) -> LogHealth {
        match &self.broker {
            Broker::None => LogHealth {
                kind: "direct",
                bus: "local",
                fault: self.refusal.clone(),
                alarm: None,
                depth: None,
                lag_us: None,
            },
            #[cfg(feature = "amqp")]
            Broker::Amqp(broker) => broker.health(),
            #[cfg(feature = "kafka")]
            Broker::Kafka(broker) => broker.health(),
        }
    }

    /// Refuses new submissions, and returns when all earlier ones are answered and published.
    pub async fn close(&self) {
        match &self.broker {
            Broker::None => {}
            #[cfg(feature = "amqp")]
            Broker::Amqp(broker) => broker.close().await,
            #[cfg(feature = "kafka")]
            Broker::Kafka(broker) => broker.close().await,
        }
        self.direct.close().await;
    }
}
