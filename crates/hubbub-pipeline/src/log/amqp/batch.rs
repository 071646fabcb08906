//! A batch of deliveries from the broker, stored and acknowledged together.

use std::pin::pin;
use std::sync::Arc;

use hubbub_core::{Op, OpBatch, Outcome, Timestamp};
use lapin::message::Delivery;
use lapin::types::AMQPValue;
use tokio::sync::watch;

use super::Core;
use super::consumer::published_at;
use super::dead_letters::{self, DeadLetters};
use super::publication::KEY_PREFIX;
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
    /// Whether those could not be published to the dead-letter queue.
    is_unwritten: bool,
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
        let read = body::read(&envelope, core.options.text_bytes_max, now, &made_id, |send, is_nameless| {
            self.ops.push(&Op::Send(*send));
            core.metrics.log_nameless.inc_by(u64::from(is_nameless));
        });
        if read.is_err() {
            self.rejected_bytes += delivery.data.len();
        }
        self.deliveries.push((delivery, read.err()));
    }

    /// Stores the batch, with retries until it succeeds, then publishes rejected messages to the dead-letter queue, if the broker
    /// takes them now. `None` when the server stops before that.
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
            let mut pausing = pin!(backoff.pause_unless(&stop));
            tokio::select! {
                paused = &mut pausing => paused?,
                () = core.look_for_log() => pausing.await?,
            }
        }
        // Bad deliveries alone prove nothing of the store.
        if !self.ops.is_empty() {
            *core.refusal.lock() = None;
        }
        let rejected =
            self.deliveries.iter().filter_map(|(delivery, rejection)| Some((delivery, rejection.as_ref()?)));
        if let Err(reason) = dead_letters::publish(core, rejected).await {
            tracing::warn!(%reason, "publishing to the dead-letter queue failed; the messages are put aside");
            self.is_unwritten = true;
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

    /// Takes out what is rejected and not in the dead-letter queue.
    pub(super) fn take_unwritten(&mut self) -> DeadLetters {
        if !self.is_unwritten {
            return DeadLetters::default();
        }
        let (mut letters, mut others) = (DeadLetters::default(), Vec::with_capacity(self.deliveries.len()));
        for (delivery, rejection) in std::mem::take(&mut self.deliveries) {
            match rejection {
                Some(rejection) => letters.0.push((delivery, rejection)),
                None => others.push((delivery, None)),
            }
        }
        self.deliveries = others;
        letters
    }

    /// Of all deliveries, in order.
    pub(super) fn tags(&self) -> impl Iterator<Item = u64> {
        self.deliveries.iter().map(|(delivery, _)| delivery.delivery_tag)
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
