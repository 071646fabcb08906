//! A batch of deliveries from the broker, stored and acknowledged together.

use std::sync::Arc;

use hubbub_core::{Op, OpBatch, Outcome, Timestamp};
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use tokio::sync::watch;

use super::Core;
use super::consumer::published_at;
use super::publication::{KEY_PREFIX, Publication};
use super::publisher::Origin;
use super::topology::DEAD_QUEUE;
use crate::batcher::Waiter;
use crate::log::backoff::Backoff;
use crate::log::body::{self, Envelope, Rejection, answer, rejection_of};

const BYTES_MAX: usize = 512 * 1024;

#[derive(Default)]
pub(super) struct Batch {
    deliveries: Vec<(Delivery, Option<Rejection>)>,
    /// The operations of the deliveries that are not rejected. They keep their generated ids when the batch is submitted
    /// again.
    ops: OpBatch,
    /// Bytes of the deliveries that are rejected.
    rejected_bytes: usize,
    /// Messages that a Hubbub server published, and when the newest of them was.
    pub(super) published: u64,
    pub(super) published_at: Option<Timestamp>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.deliveries.len()
    }

    pub(super) fn has_room(&self, messages_max: u16) -> bool {
        self.deliveries.len() < usize::from(messages_max)
            && self.ops.bytes() + self.rejected_bytes < BYTES_MAX
    }

    pub(super) fn last_tag(&self) -> Option<u64> {
        self.deliveries.last().map(|(delivery, _)| delivery.delivery_tag)
    }

    /// Adds a delivery, valid or not.
    pub(super) fn take(&mut self, core: &Core, delivery: Delivery) {
        core.metrics.log_consumed.inc();
        core.metrics.log_redelivered.inc_by(u64::from(delivery.redelivered));
        warn_of_limit(&delivery);
        if let Some(published_at) = published_at(&delivery) {
            self.published += 1;
            self.published_at = Some(published_at);
        }
        let now = core.clock.now();
        let message_id = delivery.properties.message_id().as_ref().map(|id| id.as_str());
        let room = delivery.routing_key.as_str().strip_prefix(KEY_PREFIX);
        let envelope = Envelope { body: &delivery.data, room, message_id };
        let mut made_id = String::new();
        if message_id.is_none() {
            hubbub_core::id::write_uuid_v7(now, &*core.random, &mut made_id);
        }
        let read = body::read(&envelope, &core.limits, now, &made_id, |send, is_nameless| {
            self.ops.push(&Op::Send(*send));
            core.metrics.log_nameless.inc_by(u64::from(is_nameless));
        });
        if read.is_err() {
            self.rejected_bytes += delivery.data.len();
        }
        self.deliveries.push((delivery, read.err()));
    }

    /// Stores the batch, with retries until it succeeds, then publishes rejected messages to the dead-letter queue.
    /// `None` when the server stops before that.
    pub(super) async fn commit(
        mut self,
        core: &Core,
        shard: u32,
        stop: watch::Receiver<bool>,
    ) -> Option<Self> {
        let _in_hand = self.published_at.map(|published_at| core.storing.begin(shard, published_at));
        core.metrics.log_batch_size.record(self.deliveries.len() as u64, 1);
        let mut backoff = Backoff::new(core.random.clone());
        while let Err(reason) = self.store(core).await {
            core.metrics.log_retried.inc();
            tracing::warn!(messages = self.len(), %reason, "storing a batch from the broker failed; retrying");
            backoff.pause_unless(&stop).await?;
        }
        backoff.reset();
        while let Err(reason) = self.dead_letter(core).await {
            tracing::warn!(%reason, "publishing to the dead-letter queue failed; retrying");
            backoff.pause_unless(&stop).await?;
        }
        core.measure_lag();
        Some(self)
    }

    /// Submits the batch once. Messages that are stored already are recognised by their ids.
    async fn store(&mut self, core: &Core) -> Result<(), String> {
        if self.ops.is_empty() {
            return Ok(());
        }
        let waiter = Arc::new(Waiter::of_log());
        let ticket = core.direct.submit(&self.ops, &waiter).map_err(|error| error.to_string())?;
        waiter.wait(&ticket).await;
        let outcomes = answer(&ticket)?;
        let accepted = self.deliveries.iter_mut().filter(|(_, rejection)| rejection.is_none());
        for ((_, rejection), outcome) in accepted.zip(outcomes) {
            if let Outcome::Refused(refusal) = outcome {
                *rejection = Some(rejection_of(*refusal));
            }
        }
        Ok(())
    }

    /// Publishes rejected messages to the dead-letter queue.
    async fn dead_letter(&self, core: &Core) -> Result<(), String> {
        let mut publication = Publication::default();
        for (delivery, rejection) in &self.deliveries {
            if let Some(rejection) = rejection {
                let properties = letter_properties(delivery, rejection, core);
                let write = |out: &mut Vec<u8>| out.extend_from_slice(&delivery.data);
                publication.push(None, DEAD_QUEUE.into(), properties, write);
            }
        }
        if publication.messages.is_empty() {
            return Ok(());
        }
        let (waiter, count) = (Arc::new(Waiter::default()), publication.messages.len() as u64);
        let submitted = core.publisher.submit(publication, &waiter, Origin::Server);
        let ticket = submitted.map_err(|error| error.to_string())?;
        waiter.wait(&ticket).await;
        answer(&ticket)?;
        core.metrics.log_dead.inc_by(count);
        tracing::warn!(
            messages = count,
            "messages from the broker cannot be stored; they are in the queue {DEAD_QUEUE}"
        );
        Ok(())
    }
}

/// From which delivery on the log warns: RabbitMQ 4 drops what a quorum queue has delivered 20 times, unless it is told not to.
const DELIVERIES_MANY: i64 = 10;

fn warn_of_limit(delivery: &Delivery) {
    let headers = delivery.properties.headers().as_ref();
    let count = headers.and_then(|headers| headers.inner().get("x-delivery-count"));
    if let Some(AMQPValue::LongLongInt(count)) = count
        && *count >= DELIVERIES_MANY
    {
        tracing::warn!(count, "a message was delivered many times; give its queue the delivery limit -1");
    }
}

/// Properties of a dead letter: those of the message that say what it is, and headers that say why it is dead. Whose message it was,
/// and when it would have expired, are headers, too: a broker refuses what is published under another user's name and closes the
/// channel, and it would remove the letter. Nor is it copied to where the message was.
fn letter_properties(delivery: &Delivery, rejection: &Rejection, core: &Core) -> BasicProperties {
    let from = &delivery.properties;
    let mut headers = FieldTable::default();
    for (name, value) in from.headers().iter().flat_map(|headers| headers.inner()) {
        if !matches!(name.as_str(), "CC" | "BCC") {
            headers.insert(name.clone(), value.clone());
        }
    }
    let text = |property: &Option<ShortString>| property.as_ref().map(|text| text.as_str().to_owned());
    for (name, value) in [
        ("hubbub-code", Some(rejection.code.as_str().to_owned())),
        ("hubbub-reason", Some(rejection.reason.clone())),
        ("hubbub-exchange", Some(delivery.exchange.as_str().to_owned())),
        ("hubbub-routing-key", Some(delivery.routing_key.as_str().to_owned())),
        ("hubbub-rejected-at", Some(core.clock.now().to_string())),
        ("hubbub-user-id", text(from.user_id())),
        ("hubbub-expiration", text(from.expiration())),
    ] {
        if let Some(value) = value {
            headers.insert(name.into(), AMQPValue::LongString(value.into()));
        }
    }
    let mut letter = BasicProperties::default().with_headers(headers);
    for (value, set) in [
        (from.content_type(), BasicProperties::with_content_type as fn(_, _) -> _),
        (from.content_encoding(), BasicProperties::with_content_encoding),
        (from.correlation_id(), BasicProperties::with_correlation_id),
        (from.message_id(), BasicProperties::with_message_id),
        (from.kind(), BasicProperties::with_type),
        (from.app_id(), BasicProperties::with_app_id),
    ] {
        if let Some(value) = value {
            letter = set(letter, value.clone());
        }
    }
    match from.timestamp() {
        Some(timestamp) => letter.with_timestamp(*timestamp),
        None => letter,
    }
}
