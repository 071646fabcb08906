//! Publishing to RabbitMQ as any other program would, and what RabbitMQ does alone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::StreamExt;
use lapin::options::*;

use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, PublisherConfirm};

use super::ledger::PublishLedger;
use super::preset::Plan;
use super::texts::Texts;
use crate::phase::join;
use crate::run::Counts;

/// How long the broker may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages that a publisher numbers at once.
const CHUNK: u64 = 100;
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

/// Publishes until the ledger has given out every number.
pub(crate) async fn publish(
    url: String,
    exchange: String,
    window: usize,
    ledger: Arc<PublishLedger>,
) -> anyhow::Result<()> {
    let connection = connect(&url).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let mut under_way: VecDeque<(Instant, PublisherConfirm)> = VecDeque::with_capacity(window);
    let exchange = ShortString::from(exchange);
    loop {
        let numbers = ledger.take(CHUNK);
        if numbers.is_empty() {
            break;
        }
        for index in numbers {
            let due = due(&ledger, index, &mut under_way).await;
            let body = ledger.texts.body(index, &crate::machine::now().to_string());
            let key = ShortString::from(format!("room.{}", ledger.texts.room(index)));
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let properties = BasicProperties::default().with_delivery_mode(2);
            let publishing = channel.basic_publish(exchange.clone(), key, options, &body, properties);
            // A broker without memory or space reads no more.
            let published = tokio::time::timeout(PATIENCE, publishing).await;
            let confirm = published.context("the broker takes no messages, see its alarms")??;
            Counts::add(&ledger.counts.sent, 1);
            under_way.push_back((due, confirm));
            if under_way.len() >= window {
                settle(&ledger, &mut under_way, window / 2).await?;
            }
        }
    }
    settle(&ledger, &mut under_way, 0).await?;
    connection.close(200, "done".into()).await.context("closing the connection to RabbitMQ")
}

/// Waits until message `index` is to be sent, and meanwhile notes confirms when they come.
async fn due(
    ledger: &PublishLedger,
    index: u64,
    under_way: &mut VecDeque<(Instant, PublisherConfirm)>,
) -> Instant {
    let mut due = std::pin::pin!(ledger.due(index));
    while let Some((sent, confirm)) = under_way.front_mut() {
        tokio::select! {
            biased;
            confirmed = confirm => {
                note(ledger, *sent, confirmed);
                under_way.pop_front();
            }
            due = &mut due => return due,
        }
    }
    due.await
}

/// Waits until only `left` are unanswered.
async fn settle(
    ledger: &PublishLedger,
    under_way: &mut VecDeque<(Instant, PublisherConfirm)>,
    left: usize,
) -> anyhow::Result<()> {
    while under_way.len() > left {
        let Some((due, confirm)) = under_way.pop_front() else { break };
        note(ledger, due, tokio::time::timeout(PATIENCE, confirm).await.context("no confirm in time")?);
    }
    Ok(())
}

fn note(ledger: &PublishLedger, due: Instant, confirmed: lapin::Result<Confirmation>) {
    let counter = match confirmed {
        Ok(Confirmation::Ack(None)) => &ledger.counts.accepted,
        Ok(_) => &ledger.counts.rejected,
        Err(_) => &ledger.counts.unconfirmed,
    };
    ledger.answered(counter, due, 1);
}

pub(crate) async fn depth(channel: &Channel, queue: &str) -> anyhow::Result<u64> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare(queue.into(), options, FieldTable::default()).await?;
    Ok(queue.message_count().into())
}

const BARE: &str = "hubbub.bench.bare";

/// What RabbitMQ does alone, in messages per second: everything published before it is consumed (`drain`), or both at
/// the same time. Consumed means acknowledged, many at once.
pub(crate) async fn bare(
    url: &str,
    texts: &Arc<Texts>,
    messages: u64,
    publishers: usize,
    window: usize,
    is_drain: bool,
) -> anyhow::Result<f64> {
    let connection = connect(url).await?;
    let channel = connection.create_channel().await?;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(BARE.into(), durable, FieldTable::default()).await?;
    channel.queue_purge(BARE.into(), QueuePurgeOptions::default()).await?;
    let exchange = "hubbub.bench";
    let lasting = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel
        .exchange_declare(exchange.into(), lapin::ExchangeKind::Topic, lasting, FieldTable::default())
        .await?;
    let bind = QueueBindOptions::default();
    channel.queue_bind(BARE.into(), exchange.into(), "room.#".into(), bind, FieldTable::default()).await?;

    let publish_all = async || {
        let ledger = PublishLedger::new(Plan::all(messages), texts.clone());
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..publishers.max(1) {
            tasks.spawn(publish(url.to_owned(), exchange.to_owned(), window, ledger.clone()));
        }
        join(tasks).await
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
    channel.queue_delete(BARE.into(), QueueDeleteOptions::default()).await?;
    channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await?;
    connection.close(200, "done".into()).await.context("closing the connection to RabbitMQ")?;
    Ok(rate)
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
