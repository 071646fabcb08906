//! What the consumer notices besides records: errors, statistics, and records that nobody is shown.

use std::sync::atomic::Ordering;

use hubbub_core::invariant::saturate;
use rdkafka::Statistics;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError as LibraryError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::Offset;

use super::super::faults::Cause;
use super::Context;

impl Context {
    /// Notes an error of the consumer.
    pub(in super::super) fn note(&self, consumer: &BaseConsumer<Self>, error: &LibraryError) {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::InvalidSessionTimeout) => {
                let reason = format!(
                    "Kafka refuses kafka.session_timeout = {} ms: raise it, or lower group.min.session.timeout.ms of the \
                     brokers",
                    self.core.options.session_timeout.as_millis()
                );
                self.core.faults.set(Cause::Joining, reason);
            }
            // Kafka does not have what the store needs next of some partition; the library does not say which.
            Some(RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset) => {
                tracing::warn!(%error, "records that the store needs are not in Kafka; comparing the partitions");
                for (partition, assigned) in &*self.assigned.lock() {
                    self.core.must_compare(*partition);
                    if assigned.buffer.lose() {
                        let _ = consumer.pause(&self.partition(*partition));
                    }
                }
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::GroupAuthorizationFailed) => {
                let reason = format!(
                    "Kafka does not let this server read the topic {} as a member of the group {} ({error}): messages are \
                     accepted, and wait in Kafka; give its user both rights",
                    self.core.topics.messages,
                    self.core.options.group()
                );
                self.core.faults.set(Cause::Reading, reason);
                self.is_refused.store(true, Ordering::Release);
            }
            // They come in crowds while Kafka is away, which is told otherwise.
            Some(
                RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::OperationTimedOut,
            ) => tracing::debug!(%error, "reading Kafka"),
            _ => tracing::warn!(%error, "reading Kafka failed; the library tries again"),
        }
    }

    /// A record came, or the group was joined: Kafka lets the server read.
    pub(super) fn is_let_in(&self) {
        if self.is_refused.load(Ordering::Relaxed) && self.is_refused.swap(false, Ordering::AcqRel) {
            self.core.faults.clear(Cause::Reading);
        }
    }

    /// Measures what is not stored, and how far it lags.
    pub(super) fn measure(&self, statistics: &Statistics) {
        // Not there any more after the server left the group.
        let topic = statistics.topics.get(&self.core.topics.messages);
        let (mut depth, mut unstored, mut waits_since) = (0_i64, 0, None);
        let now = self.core.clock.now();
        for (partition, assigned) in &*self.assigned.lock() {
            let buffer = &assigned.buffer;
            let end = topic.and_then(|topic| topic.partitions.get(&saturate(*partition)));
            let end = end.filter(|_| !buffer.is_lost()).map_or(0, |partition| partition.hi_offset);
            let stored: i64 = saturate(buffer.progress.stored.load(Ordering::Acquire));
            let behind = end.saturating_sub(stored).max(0);
            depth += behind;
            unstored += saturate::<u64, i64>(buffer.unstored.load(Ordering::Relaxed));
            if let Some(since) = buffer.wait(behind > 0, now) {
                waits_since = Some(waits_since.map_or(since, |earlier| since.min(earlier)));
            }
        }
        // Together they are what is not stored.
        self.core.metrics.log_depth.set(depth.saturating_sub(unstored).max(0));
        self.core.metrics.log_unacked.set(unstored);
        self.core.storing.set_waiting(waits_since);
        self.core.measure_lag();
        if depth == 0 && unstored == 0 {
            self.core.metrics.log_lag.set(0);
        }
    }

    /// Has a partition pass over what comes before the next record and is shown to nobody. At the end of a partition the store would
    /// wait for it for ever, and miss it once retention has removed it.
    pub(super) fn pass_over(&self, consumer: &BaseConsumer<Self>, partitions: &[u32]) {
        let Ok(positions) = consumer.position() else { return };
        let now = self.core.clock.now();
        for partition in partitions {
            let found = positions.find_partition(&self.core.topics.messages, saturate(*partition));
            // Everything before it was taken, if it could be; nothing is known after going back until something was.
            let Some(Offset::Offset(next)) = found.map(|found| found.offset()) else { continue };
            if let Some(assigned) = self.assigned.lock().get(partition) {
                assigned.buffer.pass_over(*partition, saturate(next), now);
            }
        }
    }
}
