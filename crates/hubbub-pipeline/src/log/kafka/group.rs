//! The server's membership of the group of those that store what is in Kafka.
//!
//! Its client id says which store it has ([`super::committers`]). So it leaves and joins again when that has changed, and when
//! the library has given up a partition.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hubbub_core::essential::{self, Essential};
use hubbub_core::store::StoreHealth;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError as LibraryError;

use super::Core;
use super::address::KafkaError;
use super::consumer::{Context, PartitionCheck};

const CONSUMER: Essential = Essential::new("Kafka consumer");
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often buffers are looked at that have become empty.
const TEND_INTERVAL: Duration = Duration::from_millis(20);
/// How long a partition is given up by the library before the group is joined again: at first none is read yet.
const STUCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A member of the group.
pub(super) struct Membership {
    consumer: BaseConsumer<Context>,
    client_id: String,
}

/// How a membership ends.
#[derive(PartialEq, Eq)]
enum End {
    ForGood,
    ToJoinAgain,
}

/// Joins the group.
pub(super) fn join(context: &Context) -> Result<Membership, KafkaError> {
    let core = &context.core;
    let (mut config, session_timeout) = (core.options.client(), core.options.session_timeout);
    let client_id = core.client_id();
    config
        .set("client.id", &client_id)
        .set("group.id", core.options.group())
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("enable.auto.commit", "true")
        .set("auto.commit.interval.ms", "1000")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("session.timeout.ms", session_timeout.as_millis().to_string())
        .set("heartbeat.interval.ms", (session_timeout / 4).as_millis().to_string())
        .set("max.poll.interval.ms", "600000")
        .set("isolation.level", "read_committed")
        .set("fetch.wait.max.ms", "500")
        .set("queued.min.messages", "5000")
        .set("queued.max.messages.kbytes", "16384")
        .set("statistics.interval.ms", "1000");
    let explain = |error: LibraryError| core.options.explain("joining the committers", &error);
    let consumer: BaseConsumer<Context> = config.create_with_context(context.clone()).map_err(explain)?;
    consumer.subscribe(&[&core.topics.messages]).map_err(explain)?;
    Ok(Membership { consumer, client_id })
}

/// Consumes until the server stops. Blocks its thread.
pub(super) fn run(context: &Context, membership: Membership, is_stopping: &AtomicBool) {
    essential::run(CONSUMER, || {
        let mut membership = membership;
        loop {
            let end = membership.poll(context, is_stopping);
            // Only a shutdown ends tasks that wait for something else than the store.
            context.give_back(&membership.consumer, is_stopping.load(Ordering::Acquire));
            if end == End::ForGood {
                return;
            }
            drop(membership);
            membership = match join(context) {
                Ok(joined) => joined,
                Err(error) => {
                    tracing::error!(%error, "joining the committers again failed");
                    return;
                }
            };
        }
    });
}

impl Membership {
    fn poll(&self, context: &Context, is_stopping: &AtomicBool) -> End {
        let (core, consumer) = (&context.core, &self.consumer);
        let (mut tended_at, mut stuck_since, mut has_left) = (Duration::ZERO, None, false);
        while !is_stopping.load(Ordering::Acquire) {
            CONSUMER.step();
            match consumer.poll(POLL_INTERVAL) {
                Some(Ok(message)) => context.take(consumer, &message),
                Some(Err(error)) => context.note(consumer, &error),
                None => {}
            }
            let now = core.clock.monotonic();
            if now.saturating_sub(tended_at) < TEND_INTERVAL {
                continue;
            }
            tended_at = now;
            let PartitionCheck { has_died, is_stuck } = context.tend(consumer);
            if has_died {
                tracing::error!("a task that stores records of Kafka has died");
                return End::ForGood;
            }
            if !has_left && core.has_failed() {
                tracing::error!(
                    "the store takes nothing more from this server; its partitions go to the others"
                );
                consumer.unsubscribe();
                has_left = true;
            }
            stuck_since = is_stuck.then(|| stuck_since.unwrap_or(now));
            let is_given_up = stuck_since.is_some_and(|since| now.saturating_sub(since) > STUCK_TIMEOUT);
            if !has_left && (is_given_up || core.client_id() != self.client_id) {
                tracing::info!(is_given_up, "leaving the group of committers to join it again");
                return End::ToJoinAgain;
            }
        }
        End::ForGood
    }
}

impl Core {
    /// Whether the store takes nothing more from this server.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.store.health(), StoreHealth::Failed(_))
    }
}
