//! Publishing to RabbitMQ as any other program would, and what RabbitMQ does alone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::StreamExt;
use lapin::options::*;

use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, PublisherConfirm};

use super::PersistArgs;
use crate::host::temporary::{Remove, Temporary};
use crate::load::in_flight::{Answer, InFlight};
use crate::load::message_plan::Job;
use crate::load::run::Counts;
use crate::options::arguments;
use crate::workloads::engine::{self, Loading};

/// How long the broker may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// As the server's own consumers have it.
const PREFETCH: u16 = 1_000;
/// Deliveries acknowledged at once by the bare consumer.
const ACK_EVERY: u64 = 500;

pub(crate) async fn connect(url: &str) -> anyhow::Result<Connection> {
    // The driver takes a slash at the end for a virtual host without a name.
    let connecting = Connection::connect(url.trim_end_matches('/'), ConnectionProperties::default());
    let connected = tokio::time::timeout(PATIENCE, connecting).await.context("RabbitMQ does not answer")?;
    // The driver's words do not hold the URL.
    connected.context("connecting to RabbitMQ")
}

/// Publishes all messages that `in_flight` takes. One after another, so that each counts from when it goes out.
pub(super) async fn publish(url: String, exchange: String, mut in_flight: InFlight) -> anyhow::Result<()> {
    let connection = connect(&url).await?;
    Counts::add(&in_flight.run.counts.opened, 1);
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (run, exchange) = (Arc::clone(&in_flight.run), ShortString::from(exchange));
    let mut under_way = VecDeque::new();
    loop {
        let mut message = None;
        let write = |job: &Job| {
            let (mut body, mut now) = (Vec::new(), Vec::new());
            crate::host::machine::now().write(&mut now);
            run.shape.write_bulk(job, &now, &mut body);
            message = Some((format!("room.{}", run.shape.room_name(job.room)), body));
        };
        tokio::select! {
            biased;
            confirmed = next_confirm(&mut under_way), if !under_way.is_empty() => {
                under_way.pop_front();
                note(&mut in_flight, confirmed?)?;
            }
            is_filled = in_flight.filled(1, write) => if !is_filled { break },
        }
        let Some((key, body)) = message else { continue };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let properties = BasicProperties::default().with_delivery_mode(2);
        let publishing = channel.basic_publish(exchange.clone(), key.into(), options, &body, properties);
        // A broker without memory or space reads no more.
        let published = tokio::time::timeout(PATIENCE, publishing).await;
        under_way.push_back(published.context("the broker takes no messages, see its alarms")??);
    }
    in_flight.hand_over();
    connection.close(200, "done".into()).await.context("closing the connection to RabbitMQ")
}

async fn next_confirm(
    under_way: &mut VecDeque<PublisherConfirm>,
) -> anyhow::Result<lapin::Result<Confirmation>> {
    let Some(confirm) = under_way.front_mut() else { return std::future::pending().await };
    tokio::time::timeout(PATIENCE, confirm).await.context("no confirm in time")
}

fn note(in_flight: &mut InFlight, confirmed: lapin::Result<Confirmation>) -> anyhow::Result<()> {
    in_flight.begin_read();
    let answer = match confirmed {
        Ok(Confirmation::Ack(None)) => Answer::Confirmed,
        refused => Answer::Refused { retryable: refused.is_err() },
    };
    in_flight.on_answer(&answer).map_err(|_| anyhow::anyhow!("a confirm of nothing"))
}

pub(crate) async fn depth(channel: &Channel, queue: &str) -> anyhow::Result<u64> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare(queue.into(), options, FieldTable::default()).await?;
    Ok(queue.message_count().into())
}

const BARE: &str = "hubbub.bench.bare";
const EXCHANGE: &str = "hubbub.bench";

/// What RabbitMQ does alone, in messages per second: everything published before it is consumed (`drain`), or both at
/// the same time. Consumed means acknowledged, many at once.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only rows about databases measure it"))]
pub(crate) async fn bare(url: &str, messages: u64, is_drain: bool) -> anyhow::Result<f64> {
    let connection = connect(url).await?;
    let channel = connection.create_channel().await?;
    let made = Temporary::new(BareQueue { url: url.to_owned() });
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(BARE.into(), durable, FieldTable::default()).await?;
    channel.queue_purge(BARE.into(), QueuePurgeOptions::default()).await?;
    let lasting = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel
        .exchange_declare(EXCHANGE.into(), lapin::ExchangeKind::Topic, lasting, FieldTable::default())
        .await?;
    let bind = QueueBindOptions::default();
    channel.queue_bind(BARE.into(), EXCHANGE.into(), "room.#".into(), bind, FieldTable::default()).await?;

    let publish_all = async || {
        let count = messages.to_string();
        let line = ["--quiet", "--fill", "--log", url, "--exchange", EXCHANGE, "-n", &count];
        let published = engine::measure(&arguments::<Loading<PersistArgs>>("persist", &line)?).await?;
        published.must_be_clean("publishing")
    };
    if is_drain {
        publish_all().await?;
    }
    let begun = Instant::now();
    let consumed = consume(&channel, messages);
    if is_drain {
        consumed.await?;
    } else {
        tokio::try_join!(publish_all(), consumed)?;
    }
    let rate = messages as f64 / begun.elapsed().as_secs_f64();
    connection.close(200, "done".into()).await.context("closing the connection to RabbitMQ")?;
    made.remove().await?;
    Ok(rate)
}

/// The queue of [`bare`], and its exchange.
struct BareQueue {
    url: String,
}

impl Remove for BareQueue {
    async fn remove(&self) -> anyhow::Result<()> {
        let connection = connect(&self.url).await?;
        let channel = connection.create_channel().await?;
        channel.queue_delete(BARE.into(), QueueDeleteOptions::default()).await?;
        channel.exchange_delete(EXCHANGE.into(), ExchangeDeleteOptions::default()).await?;
        // Nothing is left to be lost with it.
        let _ = connection.close(200, "done".into()).await;
        Ok(())
    }
}

async fn consume(channel: &Channel, messages: u64) -> anyhow::Result<()> {
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let mut consumer =
        channel.basic_consume(BARE.into(), "bench".into(), options, FieldTable::default()).await?;
    for count in 1..=messages {
        let delivery =
            tokio::time::timeout(PATIENCE, consumer.next()).await.context("no delivery in time")?;
        let delivery = delivery.context("the consumer was cancelled")??;
        ensure!(!delivery.data.is_empty(), "an empty message");
        if count % ACK_EVERY == 0 || count == messages {
            delivery.ack(BasicAckOptions { multiple: true }).await?;
        }
    }
    channel.basic_cancel("bench".into(), BasicCancelOptions::default()).await?;
    Ok(())
}
