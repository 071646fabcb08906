//! Reads the log as one of a consumer group, and stores it.
//!
//! One thread polls, and parses records into the buffer of their partition. A task for each partition stores its batches, one
//! after the other: that keeps the order of its rooms, and partitions go on in parallel. A partition starts where the store
//! says; the group's offsets follow the store, for tools.
//!
//! A buffer that is full holds up the thread, and pauses its partition if the store takes nothing. A partition that was taken
//! away is dropped with its buffer; its batch in flight goes on until it fails, and changes nothing if another node, or
//! this one when it has the partition again, has stored it. A server whose store has failed for good leaves the group.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hubbub_core::essential::{self, Essential};
use hubbub_core::invariant::saturate;
use hubbub_core::store::StoreHealth;
use hubbub_core::{LogPosition, Timestamp};
use parking_lot::Mutex;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError as LibraryError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Statistics};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::address::KafkaError;
use super::attachment::{Obstacle, Progress};
use super::buffer::{Buffer, Work};
use super::{Core, producer};

const CONSUMER: Essential = Essential::new("Kafka consumer");
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often buffers are looked at that have become empty.
const TEND_INTERVAL: Duration = Duration::from_millis(20);
/// How long going back in a partition may hold up all of them.
const SEEK_TIMEOUT: Duration = Duration::from_secs(1);
/// Batches in all buffers together, about; and in one of them. A partition whose buffer has its share is paused.
const BATCHES_MAX: usize = 48;
const BUFFER_BATCHES_MAX: usize = 8;

struct Assigned {
    buffer: Arc<Buffer>,
    task: JoinHandle<()>,
}

/// Of the consumer: its partitions.
pub(super) struct Context {
    pub(super) core: Arc<Core>,
    stop: watch::Receiver<bool>,
    assigned: Mutex<HashMap<u32, Assigned>>,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        producer::log(level, facility, text);
    }

    fn error(&self, error: LibraryError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka consumer");
        self.core.producer.gate.suspicion.notify_one();
    }

    fn stats(&self, statistics: Statistics) {
        // Not there any more after the server left the group.
        let topic = statistics.topics.get(&self.core.topics.messages);
        let (mut depth, mut unstored) = (0_i64, 0);
        for (partition, assigned) in &*self.assigned.lock() {
            let end = topic.and_then(|topic| topic.partitions.get(&saturate(*partition)));
            let end = end.filter(|_| !assigned.buffer.is_lost()).map_or(0, |partition| partition.hi_offset);
            let stored: i64 = saturate(assigned.buffer.progress.stored.load(Ordering::Acquire));
            depth += end.saturating_sub(stored).max(0);
            unstored += saturate::<u64, i64>(assigned.buffer.unstored.load(Ordering::Relaxed));
        }
        // Together they are what is not stored.
        self.core.metrics.log_depth.set(depth.saturating_sub(unstored).max(0));
        self.core.metrics.log_unacked.set(unstored);
        self.core.measure_lag();
        if depth == 0 && unstored == 0 {
            self.core.metrics.log_lag.set(0);
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, kind: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let done = if kind == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.assign(consumer, list)
        } else {
            self.revoke(consumer, list)
        };
        if let Err(error) = done {
            self.core.set_fault(Some(format!("taking over partitions failed: {error}")));
        }
    }
}

impl Context {
    fn assign(
        &self,
        consumer: &BaseConsumer<Self>,
        list: &mut TopicPartitionList,
    ) -> Result<(), LibraryError> {
        let core = &self.core;
        // Blocks the poll thread, which has nothing to do before. A store that goes back after the answer is compared.
        let attachment = core.runtime.block_on(core.attachment.number());
        let next = core.runtime.block_on(core.next_offsets()).unwrap_or_default();
        let partitions: Vec<i32> = list.elements().iter().map(|element| element.partition()).collect();
        let (topic, mut lost, mut is_known) = (&core.topics.messages, TopicPartitionList::new(), true);
        let mut begun = Vec::new();
        for partition in &partitions {
            let number: u32 = saturate(*partition);
            if number >= core.topics.partitions {
                is_known = false;
                core.set_fault(Some(format!(
                    "the topic {topic} has more partitions than the {} that the store knows: rooms would move to others; \
                     stop all servers, and see docs/kafka.md",
                    core.topics.partitions
                )));
                continue;
            }
            let next = next.get(number as usize).filter(|_| !core.uncompared.lock().contains(&number));
            let buffer = if let Some(Ok(next)) = next {
                list.set_partition_offset(topic, *partition, Offset::Offset(saturate(*next)))?;
                Buffer::new(Progress::new(*next, attachment))
            } else {
                // Any place will do. It is paused, and read from the right one later.
                list.set_partition_offset(topic, *partition, Offset::End)?;
                lost.add_partition(topic, *partition);
                Buffer::lost(attachment)
            };
            begun.push((number, buffer));
        }
        core.take_over(&begun.iter().map(|(number, _)| *number).collect::<Vec<_>>());
        begun.into_iter().for_each(|(number, buffer)| self.begin(number, buffer));
        self.count_partitions();
        self.tell_unreadable(&next);
        if !partitions.is_empty() {
            tracing::info!(?partitions, "committing further partitions of Kafka");
        }
        consumer.incremental_assign(list)?;
        consumer.resume(list)?;
        consumer.pause(&lost)?;
        if is_known {
            self.core.set_fault(None);
        }
        Ok(())
    }

    /// Begins to store a partition.
    fn begin(&self, partition: u32, buffer: Buffer) {
        let buffer = Arc::new(buffer);
        let storing = store_partition(self.core.clone(), partition, buffer.clone(), self.stop.clone());
        let task = self.core.runtime.spawn(storing);
        if let Some(before) = self.assigned.lock().insert(partition, Assigned { buffer, task }) {
            before.buffer.end();
        }
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) -> Result<(), LibraryError> {
        let partitions: Vec<i32> = list.elements().iter().map(|element| element.partition()).collect();
        let mut assigned = self.assigned.lock();
        for partition in &partitions {
            if let Some(revoked) = assigned.remove(&saturate(*partition)) {
                report(consumer, &self.core.topics.messages, saturate(*partition), &revoked.buffer);
                revoked.buffer.end();
            }
        }
        drop(assigned);
        self.core.forget_lag(partitions.iter().map(|partition| saturate(*partition)));
        self.count_partitions();
        tracing::info!(?partitions, "other servers commit these partitions of Kafka");
        consumer.incremental_unassign(list)
    }

    /// Reports stored offsets, and lets partitions go on whose buffers have room. Returns false when a task has died.
    fn tend(&self, consumer: &BaseConsumer<Self>) -> bool {
        let assigned = self.assigned.lock();
        for (partition, Assigned { buffer, task }) in &*assigned {
            report(consumer, &self.core.topics.messages, *partition, buffer);
            // Asked first: a partition that goes back has an empty buffer, and is resumed before.
            let seek_to = buffer.seek_to();
            if buffer.resumes() {
                let _ = consumer.resume(&self.partition(*partition));
            }
            if let Some(offset) = seek_to {
                match self.seek(consumer, *partition, offset) {
                    Ok(()) => buffer.sought(offset),
                    Err(error) => tracing::debug!(partition, %error, "going back in Kafka failed; retrying"),
                }
            }
            if task.is_finished() && !*self.stop.borrow() {
                return false;
            }
        }
        true
    }

    /// Reads the partition from `offset` again. What was fetched is dropped.
    fn seek(&self, consumer: &BaseConsumer<Self>, partition: u32, offset: u64) -> Result<(), LibraryError> {
        let mut list = TopicPartitionList::new();
        let offset = Offset::Offset(saturate(offset));
        list.add_partition_offset(&self.core.topics.messages, saturate(partition), offset)?;
        let sought = consumer.seek_partitions(list, SEEK_TIMEOUT)?;
        sought.elements().iter().try_for_each(|element| element.error())
    }

    fn count_partitions(&self) {
        self.core.metrics.log_committing.set(saturate(self.assigned.lock().len()));
    }

    /// How far each partition is stored.
    pub(super) fn stored(&self) -> Vec<(u32, u64)> {
        let stored = |buffer: &Buffer| buffer.progress.stored.load(Ordering::Acquire);
        self.assigned
            .lock()
            .iter()
            .map(|(partition, assigned)| (*partition, stored(&assigned.buffer)))
            .collect()
    }

    /// Has each partition compared with the store.
    pub(super) fn compare(&self) {
        self.assigned.lock().values().for_each(|assigned| assigned.buffer.compare());
    }

    fn partition(&self, partition: u32) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.core.topics.messages, saturate(partition));
        list
    }

    fn take(&self, consumer: &BaseConsumer<Self>, message: &BorrowedMessage<'_>) {
        let partition: u32 = saturate(message.partition());
        let assigned = self.assigned.lock();
        let batches_max = (BATCHES_MAX / assigned.len().max(1)).clamp(2, BUFFER_BATCHES_MAX);
        let Some(buffer) = assigned.get(&partition).map(|assigned| assigned.buffer.clone()) else { return };
        drop(assigned);
        self.core.metrics.log_consumed.inc();
        let millis = message.timestamp().to_millis().unwrap_or(0);
        let appended_at = Timestamp::from_micros(millis.saturating_mul(1_000));
        let position = LogPosition { partition, offset: saturate(message.offset()), appended_at };
        if buffer.take(&self.core, position, message, batches_max) {
            // Drops what the library has fetched; it is fetched again.
            let _ = consumer.pause(&self.partition(partition));
        }
    }
}

/// Tells the library what is stored; it commits that from time to time.
fn report(consumer: &BaseConsumer<Context>, topic: &str, partition: u32, buffer: &Buffer) {
    let stored = buffer.progress.stored.load(Ordering::Acquire);
    if buffer.reported.swap(stored, Ordering::AcqRel) != stored {
        let mut list = TopicPartitionList::new();
        let added = list.add_partition_offset(topic, saturate(partition), Offset::Offset(saturate(stored)));
        // Fails when the partition was taken away meanwhile.
        let _ = added.and_then(|()| consumer.store_offsets(&list));
    }
}

/// Stores the batches of a partition until it is taken away, or the server stops.
async fn store_partition(core: Arc<Core>, partition: u32, buffer: Arc<Buffer>, stop: watch::Receiver<bool>) {
    let progress = &buffer.progress;
    if buffer.is_lost() && core.locate(partition, &buffer, &stop).await.is_none() {
        return;
    }
    while let Some(work) = buffer.next().await {
        let wanted = match work {
            Work::Compare => match core.hold(partition, progress).await {
                Err(Obstacle::WentBack(offset)) => offset,
                _ => continue,
            },
            Work::Batch(batch) => {
                let (records, end) = (batch.len() as u64, batch.end());
                match batch.commit(&core, partition, &buffer, &stop).await {
                    None => return,
                    Some(Err(offset)) => offset,
                    Some(Ok(())) => {
                        progress.stored.store(end, Ordering::Release);
                        buffer.unstored.fetch_sub(records, Ordering::Relaxed);
                        continue;
                    }
                }
            }
        };
        core.metrics.log_went_back.inc();
        tracing::warn!(
            partition,
            offset = wanted,
            "the store went back: it lost what it had confirmed, or is an older copy; reading Kafka again from there"
        );
        buffer.go_back(wanted);
    }
}

/// Joins the group.
pub(super) fn open(
    core: &Arc<Core>,
    stop: watch::Receiver<bool>,
) -> Result<BaseConsumer<Context>, KafkaError> {
    let (mut config, session_timeout) = (core.options.client(), core.options.session_timeout);
    config
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
    let context = Context { core: core.clone(), stop, assigned: Mutex::default() };
    let explain = |error: LibraryError| core.options.explain("joining the committers", &error);
    let consumer: BaseConsumer<Context> = config.create_with_context(context).map_err(explain)?;
    consumer.subscribe(&[&core.topics.messages]).map_err(explain)?;
    Ok(consumer)
}

/// Consumes until the server stops. Blocks its thread.
pub(super) fn run(consumer: &BaseConsumer<Context>, is_stopping: &AtomicBool) {
    essential::run(CONSUMER, || {
        let context = consumer.context();
        let (mut tended_at, mut has_left) = (Duration::ZERO, false);
        while !is_stopping.load(Ordering::Acquire) {
            CONSUMER.step();
            match consumer.poll(POLL_INTERVAL) {
                Some(Ok(message)) => context.take(consumer, &message),
                Some(Err(error)) => context.core.note(&error),
                None => {}
            }
            let now = context.core.clock.monotonic();
            if now.saturating_sub(tended_at) < TEND_INTERVAL {
                continue;
            }
            tended_at = now;
            if !context.tend(consumer) {
                tracing::error!("a task that stores records of Kafka has died");
                return;
            }
            if !has_left && context.core.has_failed() {
                tracing::error!(
                    "the store takes nothing more from this server; its partitions go to the others"
                );
                consumer.unsubscribe();
                has_left = true;
            }
        }
        let assigned: Vec<(u32, Assigned)> = context.assigned.lock().drain().collect();
        context.count_partitions();
        assigned.iter().for_each(|(_, assigned)| assigned.buffer.end());
        for (partition, Assigned { buffer, task }) in assigned {
            // It stores its batch in flight, or gives up at once if the store fails.
            let _ = context.core.runtime.block_on(task);
            report(consumer, &context.core.topics.messages, partition, &buffer);
        }
    });
}

impl Core {
    /// Whether the store takes nothing more from this server.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.store.health(), StoreHealth::Failed(_))
    }

    /// Notes an error of the consumer that an operator must know of.
    fn note(&self, error: &LibraryError) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::InvalidSessionTimeout) {
            self.set_fault(Some(format!(
                "Kafka refuses kafka.session_timeout = {} ms: raise it, or lower group.min.session.timeout.ms of the brokers",
                self.options.session_timeout.as_millis()
            )));
        }
        let lost = [RDKafkaErrorCode::OffsetOutOfRange, RDKafkaErrorCode::AutoOffsetReset];
        if error.rdkafka_error_code().is_some_and(|code| lost.contains(&code)) {
            self.set_fault(Some(format!(
                "records of {} that the store needs are gone ({error}); stop all servers, and see docs/kafka.md",
                self.topics.messages
            )));
        }
    }
}
