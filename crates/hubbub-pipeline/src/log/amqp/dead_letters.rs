//! Messages that cannot be stored: published to the dead-letter queue, and acknowledged only then.
//!
//! A broker that is short of memory or disk may take nothing before its queues are shorter. So what cannot be written at once is
//! put aside, unacknowledged, and everything else is stored and acknowledged meanwhile.

use std::sync::Arc;

use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use tokio::sync::watch;

use super::Core;
use super::consumer::published_at;
use super::publication::Publication;
use super::publisher::Origin;
use super::topology::DEAD_QUEUE;
use crate::batcher::Waiter;
use crate::log::backoff::Backoff;
use crate::log::body::{Rejection, answer};

/// Rejected messages that are not acknowledged.
#[derive(Debug, Default)]
pub(super) struct DeadLetters(pub(super) Vec<(Delivery, Rejection)>);

impl DeadLetters {
    /// Publishes them, with retries until the broker has them. `None` when the server stops before.
    pub(super) async fn publish_all(
        self,
        core: &Core,
        shard: u32,
        stop: watch::Receiver<bool>,
    ) -> Option<Self> {
        // They wait, and perhaps others behind them.
        let oldest = self.0.iter().filter_map(|(delivery, _)| published_at(delivery)).min();
        let _in_hand = oldest.map(|published_at| core.storing.begin(shard, published_at));
        let mut backoff = Backoff::new(core.random.clone());
        loop {
            // The first attempt has failed already.
            backoff.pause_unless(&stop).await?;
            match publish(core, self.0.iter().map(|(delivery, rejection)| (delivery, rejection))).await {
                Ok(()) => return Some(self),
                Err(reason) => tracing::warn!(
                    messages = self.0.len(), %reason, "publishing to the dead-letter queue failed; retrying"
                ),
            }
        }
    }
}

/// Publishes rejected messages to the dead-letter queue.
pub(super) async fn publish(
    core: &Core,
    rejected: impl Iterator<Item = (&Delivery, &Rejection)>,
) -> Result<(), String> {
    let mut publication = Publication::default();
    for (delivery, rejection) in rejected {
        let properties = letter_properties(delivery, rejection, core);
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&delivery.data);
        publication.push(None, DEAD_QUEUE.into(), properties, write);
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
