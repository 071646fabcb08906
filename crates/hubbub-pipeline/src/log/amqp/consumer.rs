//! Consumes the broker's queues and stores their messages. While one batch of a shard is stored, the next one fills. A
//! batch is acknowledged only once the store has it. One batch of a shard at a time keeps the order of its rooms. Dead letters that
//! the broker does not take now are put aside meanwhile ([`super::dead_letters`]); the prefetch bounds them.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::{BoxFuture, Fuse, FusedFuture};
use futures_util::{FutureExt, StreamExt};
use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, Consumer};
use tokio::sync::watch;

use super::Core;
use super::address::AmqpError;
use super::batch::Batch;
use super::dead_letters::DeadLetters;
use super::publication::PUBLISHED_AT;
use super::topology::inspect_queue;

const MEASURE_INTERVAL: Duration = Duration::from_secs(2);

pub(super) struct QueueConsumer {
    channel: Channel,
    deliveries: Consumer,
}

pub(super) async fn open(core: &Core, connection: &Connection) -> Result<Vec<QueueConsumer>, AmqpError> {
    let mut consumers = Vec::new();
    for shard in 0..core.options.shards {
        let queue = core.options.queue(shard);
        let opening = async {
            let channel = connection.create_channel().await?;
            channel.basic_qos(core.options.prefetch, BasicQosOptions::default()).await?;
            let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
            let deliveries =
                channel.basic_consume(queue.as_str().into(), "".into(), options, arguments).await?;
            Ok(QueueConsumer { channel, deliveries })
        };
        consumers.push(opening.await.map_err(|error| {
            core.options.address.explain(&format!("consuming from the queue {queue}"), &error)
        })?);
    }
    Ok(consumers)
}

/// Consumes all shards until the connection is lost, and returns the reason. `None` after an orderly stop: everything
/// consumed is stored and acknowledged.
pub(super) async fn run(
    core: &Core,
    connection: &Connection,
    consumers: Vec<QueueConsumer>,
    stop: &watch::Receiver<bool>,
) -> Option<String> {
    let shards = (0..).zip(consumers).map(|(number, consumer)| async move {
        let (stop, filling) = (stop.clone(), Batch::default());
        let (unacked, unwritten, is_writing) = Default::default();
        let mut shard = Shard { core, number, consumer, stop, filling, unacked, unwritten, is_writing };
        shard.run().await
    });
    let lost = tokio::select! {
        ended = futures_util::future::try_join_all(shards) => ended.err(),
        Err(error) = measure(core, connection) => Some(error),
    };
    lost.map(|error| error.to_string())
}

/// Measures the queues' lengths, and how far what is being stored lags, until a query fails.
async fn measure(core: &Core, connection: &Connection) -> lapin::Result<Infallible> {
    let channel = connection.create_channel().await?;
    let mut interval = tokio::time::interval(MEASURE_INTERVAL);
    loop {
        interval.tick().await;
        let mut depth = 0;
        for shard in 0..core.options.shards {
            depth += i64::from(inspect_queue(&channel, &core.options.queue(shard)).await?.message_count());
        }
        core.metrics.log_depth.set(depth);
        if core.metrics.log_unacked.get() == 0 {
            // What waits, if anything does, is stored by others, who tell how far it lags.
            core.metrics.log_lag.set(0);
        }
        core.measure_lag();
    }
}

struct Shard<'a> {
    core: &'a Core,
    number: u32,
    consumer: QueueConsumer,
    stop: watch::Receiver<bool>,
    filling: Batch,
    unacked: i64,
    /// Rejected messages that wait until they are published.
    unwritten: DeadLetters,
    /// Whether others are being published, or were not when the server began to stop.
    is_writing: bool,
}

impl<'a> Shard<'a> {
    async fn run(&mut self) -> lapin::Result<()> {
        let mut committing: Fuse<BoxFuture<'a, Option<Batch>>> = Fuse::terminated();
        let mut writing: Fuse<BoxFuture<'a, Option<DeadLetters>>> = Fuse::terminated();
        let mut is_stopping = *self.stop.borrow();
        loop {
            if committing.is_terminated() && !self.filling.is_empty() {
                let batch = std::mem::take(&mut self.filling);
                committing = batch.commit(self.core, self.number, self.stop.clone()).boxed().fuse();
            }
            // Letters that are not published stay in the broker, and come again.
            if is_stopping && committing.is_terminated() && writing.is_terminated() {
                return Ok(());
            }
            if writing.is_terminated() && !self.unwritten.0.is_empty() {
                let letters = std::mem::take(&mut self.unwritten);
                self.is_writing = true;
                writing = letters.publish_all(self.core, self.number, self.stop.clone()).boxed().fuse();
            }
            tokio::select! {
                biased;
                committed = &mut committing => match committed {
                    Some(batch) => self.acknowledge(batch).await?,
                    // The server stops and the store accepts nothing: the batch stays in the broker.
                    None => return Ok(()),
                },
                written = &mut writing => if let Some(letters) = written {
                    self.is_writing = false;
                    self.acknowledge_each(letters.0.iter().map(|(delivery, _)| delivery.delivery_tag)).await?;
                },
                _ = self.stop.changed(), if !is_stopping => is_stopping = true,
                delivery = self.consumer.deliveries.next(), if !is_stopping && self.filling.has_room(self.core.options.prefetch) => {
                    let Some(delivery) = delivery.transpose()? else {
                        return Err(std::io::Error::other("the broker cancelled the consumer; its queue may be gone").into());
                    };
                    self.take(delivery);
                    // Deliveries that have already arrived join the batch.
                    while self.filling.has_room(self.core.options.prefetch)
                        && let Some(Some(Ok(delivery))) = self.consumer.deliveries.next().now_or_never()
                    {
                        self.take(delivery);
                    }
                }
            }
        }
    }

    fn take(&mut self, delivery: Delivery) {
        self.unacked += 1;
        self.core.metrics.log_unacked.inc();
        self.filling.take(self.core, delivery);
    }

    async fn acknowledge(&mut self, mut batch: Batch) -> lapin::Result<()> {
        self.unwritten.0.extend(batch.take_unwritten().0);
        if self.is_writing || !self.unwritten.0.is_empty() {
            // What is put aside is no later one than the last of the batch.
            self.acknowledge_each(batch.tags()).await?;
        } else if let Some(tag) = batch.tags().last() {
            self.consumer.channel.basic_ack(tag, BasicAckOptions { multiple: true }).await?;
            self.forget(saturate(batch.len()));
        }
        if let Some(published_at) = batch.published_at {
            let took = self.core.clock.now().as_micros().saturating_sub(published_at.as_micros()).max(0);
            self.core.metrics.log_broker_time.record(took.unsigned_abs(), batch.published);
        }
        Ok(())
    }

    async fn acknowledge_each(&mut self, tags: impl Iterator<Item = u64>) -> lapin::Result<()> {
        for tag in tags {
            self.consumer.channel.basic_ack(tag, BasicAckOptions::default()).await?;
            self.forget(1);
        }
        Ok(())
    }

    fn forget(&mut self, count: i64) {
        self.unacked -= count;
        self.core.metrics.log_unacked.dec_by(count);
    }
}

/// The broker delivers unacknowledged messages again.
impl Drop for Shard<'_> {
    fn drop(&mut self) {
        self.core.metrics.log_unacked.dec_by(self.unacked);
    }
}

/// When a Hubbub server published the message, if one did.
pub(super) fn published_at(delivery: &Delivery) -> Option<Timestamp> {
    match delivery.properties.headers().as_ref()?.inner().get(PUBLISHED_AT)? {
        AMQPValue::LongLongInt(micros) => Some(Timestamp::from_micros(*micros)),
        _ => None,
    }
}
