//! From the broker's queues to the store. While one batch of a shard is stored the next one fills; the broker is told
//! only once the store has it. One batch of a shard at a time keeps the order of its rooms.

use std::pin::Pin;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, Consumer};
use tokio::sync::watch;

use super::Core;
use super::address::AmqpError;
use super::batch::Batch;
use super::mail::PUBLISHED_AT;
use super::topology::look;

/// How often the broker is asked how much waits.
const MEASURE_INTERVAL: Duration = Duration::from_secs(2);

/// A queue from which the broker delivers.
pub(super) struct Source {
    channel: Channel,
    consumer: Consumer,
}

/// Consumers of the queues of all shards.
pub(super) async fn open(core: &Core, connection: &Connection) -> Result<Vec<Source>, AmqpError> {
    let mut sources = Vec::new();
    for shard in 0..core.options.shards {
        let queue = core.options.queue(shard);
        let opened = Source::open(connection, &queue, core.options.prefetch).await;
        sources.push(
            opened.map_err(|error| {
                core.address.explain(&format!("consuming from the queue {queue}"), &error)
            })?,
        );
    }
    Ok(sources)
}

impl Source {
    async fn open(connection: &Connection, queue: &str, prefetch: u16) -> lapin::Result<Self> {
        let channel = connection.create_channel().await?;
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        let options = BasicConsumeOptions::default();
        let consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
        Ok(Self { channel, consumer })
    }
}

/// Takes from all shards until the connection is lost, and says why; `None` when it was told to stop, and everything
/// taken is stored and acknowledged.
pub(super) async fn run(
    core: &Core,
    connection: &Connection,
    sources: Vec<Source>,
    stop: &watch::Receiver<bool>,
) -> Option<String> {
    let shards = sources.into_iter().map(|source| async move {
        let (stop, filling) = (stop.clone(), Batch::default());
        let mut shard = Shard { core, source, stop, filling, unacked: 0 };
        shard.run().await
    });
    tokio::select! {
        ended = futures_util::future::try_join_all(shards) => ended.err().map(|error| error.to_string()),
        lost = measure(core, connection) => Some(lost),
    }
}

/// Looks at the queues now and then, until that fails.
async fn measure(core: &Core, connection: &Connection) -> String {
    let channel = match connection.create_channel().await {
        Ok(channel) => channel,
        Err(error) => return error.to_string(),
    };
    let mut interval = tokio::time::interval(MEASURE_INTERVAL);
    loop {
        interval.tick().await;
        let mut depth = 0;
        for shard in 0..core.options.shards {
            match look(&channel, &core.options.queue(shard)).await {
                Ok(queue) => depth += i64::from(queue.message_count()),
                Err(error) => return error.to_string(),
            }
        }
        core.metrics.log_depth.set(depth);
        if depth == 0 && core.metrics.log_unacked.get() == 0 {
            core.metrics.log_lag.set(0);
        }
    }
}

type Committing<'a> = Pin<Box<dyn Future<Output = Option<Batch>> + Send + 'a>>;

struct Shard<'a> {
    core: &'a Core,
    source: Source,
    stop: watch::Receiver<bool>,
    filling: Batch,
    /// Deliveries taken and not acknowledged.
    unacked: i64,
}

impl<'a> Shard<'a> {
    async fn run(&mut self) -> lapin::Result<()> {
        let mut committing: Option<Committing<'a>> = None;
        let mut is_stopping = *self.stop.borrow();
        loop {
            if committing.is_none() && !self.filling.is_empty() {
                let batch = std::mem::take(&mut self.filling);
                committing = Some(Box::pin(batch.commit(self.core, self.stop.clone())));
            }
            if is_stopping && committing.is_none() {
                return Ok(());
            }
            tokio::select! {
                biased;
                committed = through(&mut committing) => {
                    committing = None;
                    match committed {
                        Some(batch) => self.acknowledge(&batch).await?,
                        // The server stops, and the store takes nothing: the broker keeps it.
                        None => return Ok(()),
                    }
                }
                _ = self.stop.changed(), if !is_stopping => is_stopping = true,
                delivery = self.source.consumer.next(), if !is_stopping && self.filling.has_room(self.core.options.prefetch) => {
                    let Some(delivery) = delivery.transpose()? else {
                        return Err(std::io::Error::other("the broker ended the consumer, its queue may be gone").into());
                    };
                    self.take(delivery);
                    // Whatever else is here already comes along.
                    while self.filling.has_room(self.core.options.prefetch)
                        && let Some(Some(Ok(delivery))) = self.source.consumer.next().now_or_never()
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

    async fn acknowledge(&mut self, batch: &Batch) -> lapin::Result<()> {
        let Some(tag) = batch.last_tag() else { return Ok(()) };
        self.source.channel.basic_ack(tag, BasicAckOptions { multiple: true }).await?;
        let count = i64::try_from(batch.len()).unwrap_or(i64::MAX);
        self.unacked -= count;
        self.core.metrics.log_unacked.dec_by(count);
        if let Some(published_at) = batch.newest_stamp() {
            let way = self.core.clock.now().as_micros().saturating_sub(published_at).max(0);
            self.core.metrics.log_lag.set(way);
            self.core.metrics.log_broker_time.record(way.unsigned_abs(), 1);
        }
        Ok(())
    }
}

/// The broker gives out again what was not acknowledged.
impl Drop for Shard<'_> {
    fn drop(&mut self) {
        self.core.metrics.log_unacked.dec_by(self.unacked);
    }
}

async fn through(committing: &mut Option<Committing<'_>>) -> Option<Batch> {
    match committing {
        Some(committing) => committing.await,
        None => std::future::pending().await,
    }
}

/// When this server, or another of its kind, published a message.
pub(super) fn stamp(delivery: &Delivery) -> Option<i64> {
    match delivery.properties.headers().as_ref()?.inner().get(PUBLISHED_AT)? {
        AMQPValue::LongLongInt(micros) => Some(*micros),
        _ => None,
    }
}
