//! The partitions that this server reads and stores, as one of a consumer group ([`super::group`]).
//!
//! One thread polls, and parses records into the buffer of their partition. A task for each partition stores its batches, one
//! after the other: that keeps the order of its rooms, and partitions go on in parallel. A partition starts where the store
//! says, if Kafka has that; the group's offsets follow the store, for tools.
//!
//! A buffer that is full holds up the thread, and pauses its partition if the store takes nothing. A partition that was taken
//! away is dropped with its buffer; its batch in flight goes on until it fails, and changes nothing if another node, or
//! this one when it has the partition again, has stored it. A server whose store has failed for good leaves the group.

mod events;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hubbub_core::invariant::saturate;
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

use super::attachment::{NotStored, Progress};
use super::buffer::{Buffer, Work};
use super::faults::Cause;
use super::{Core, producer};

/// How long a server that takes over partitions waits for Kafka to say where they end.
const END_TIMEOUT: Duration = Duration::from_secs(2);
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
#[derive(Clone)]
pub(super) struct Context {
    pub(super) core: Arc<Core>,
    stop: watch::Receiver<bool>,
    assigned: Arc<Mutex<HashMap<u32, Assigned>>>,
    /// Whether Kafka does not let it read.
    is_refused: Arc<AtomicBool>,
}

/// What was found when the partitions were looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PartitionCheck {
    /// A task has died.
    pub(super) has_died: bool,
    /// The library has given up a partition, which cannot be read from another place then.
    pub(super) is_stuck: bool,
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
        self.measure(&statistics);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, kind: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let done = if kind == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.assign(consumer, list)
        } else {
            self.revoke(consumer, list)
        };
        if let Err(error) = &done {
            tracing::warn!(%error, "taking over partitions, or giving them back, failed");
        }
        for element in list.elements() {
            let cause = Cause::TakingOver(saturate(element.partition()));
            match &done {
                Ok(()) => self.core.faults.clear(cause),
                Err(error) => self.core.faults.set(cause, format!("taking over partitions failed: {error}")),
            }
        }
    }
}

impl Context {
    pub(super) fn new(core: Arc<Core>, stop: watch::Receiver<bool>) -> Self {
        Self { core, stop, assigned: Arc::default(), is_refused: Arc::default() }
    }

    fn assign(
        &self,
        consumer: &BaseConsumer<Self>,
        list: &mut TopicPartitionList,
    ) -> Result<(), LibraryError> {
        let core = &self.core;
        core.faults.clear(Cause::Joining);
        self.is_let_in();
        // Blocks the poll thread, which has nothing to do before. A store that goes back after the answer is compared.
        let attachment = core.runtime.block_on(core.attachment.number());
        let next = core.runtime.block_on(core.next_offsets()).unwrap_or_default();
        let partitions: Vec<i32> = list.elements().iter().map(|element| element.partition()).collect();
        let known = partitions.iter().map(|partition| saturate(*partition));
        let known: Vec<u32> = known.filter(|number| *number < core.topics.partitions).collect();
        let ends = core.runtime.block_on(core.ends_in_kafka(&known, END_TIMEOUT)).unwrap_or_default();
        let (topic, mut lost) = (&core.topics.messages, TopicPartitionList::new());
        let mut begun = Vec::new();
        for partition in &partitions {
            let number: u32 = saturate(*partition);
            if number >= core.topics.partitions {
                let reason = format!(
                    "the topic {topic} has more partitions than the {} that the store knows: rooms would move to others; \
                     stop all servers, and see docs/kafka.md",
                    core.topics.partitions
                );
                core.faults.set(Cause::MorePartitions, reason);
                continue;
            }
            let is_there = |next: u64| ends.get(&number).is_some_and(|end| next <= *end);
            let next = next.get(number as usize).filter(|_| !core.uncompared.lock().contains(&number));
            let buffer = if let Some(Ok(next)) = next
                && is_there(*next)
                && core.faults.stop_of(number).is_none()
            {
                list.set_partition_offset(topic, *partition, Offset::Offset(saturate(*next)))?;
                Buffer::new(Progress::new(*next, attachment))
            } else {
                core.must_compare(number);
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
        consumer.pause(&lost)
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
            // Whoever has it now tells.
            self.core.faults.clear(Cause::Removed(saturate(*partition)));
        }
        drop(assigned);
        self.core.forget_lag(partitions.iter().map(|partition| saturate(*partition)));
        self.count_partitions();
        tracing::info!(?partitions, "other servers commit these partitions of Kafka");
        consumer.incremental_unassign(list)
    }

    /// Reports stored offsets, and lets partitions go on whose buffers have room.
    pub(super) fn tend(&self, consumer: &BaseConsumer<Self>) -> PartitionCheck {
        let (assigned, mut tended) = (self.assigned.lock(), PartitionCheck::default());
        let mut waiting = Vec::new();
        for (partition, Assigned { buffer, task }) in &*assigned {
            report(consumer, &self.core.topics.messages, *partition, buffer);
            if self.core.faults.stop_of(*partition).is_some() && buffer.lose() {
                let _ = consumer.pause(&self.partition(*partition));
            }
            // Asked first: a partition that goes back has an empty buffer, and is resumed before.
            let seek_to = buffer.seek_to();
            if buffer.resumes() {
                let _ = consumer.resume(&self.partition(*partition));
            }
            if let Some(offset) = seek_to {
                match self.seek(consumer, *partition, offset) {
                    Ok(()) => buffer.sought(offset),
                    Err(error) => {
                        tended.is_stuck |= error.rdkafka_error_code() == Some(RDKafkaErrorCode::State);
                        tracing::debug!(partition, %error, "going back in Kafka failed; retrying");
                    }
                }
            }
            tended.has_died |= task.is_finished() && !*self.stop.borrow();
            if buffer.must_look() {
                waiting.push(*partition);
            }
        }
        drop(assigned);
        if !waiting.is_empty() {
            self.pass_over(consumer, &waiting);
        }
        tended
    }

    /// Gives back all partitions. At a shutdown, once their batches in flight are stored, or have failed; these go on otherwise,
    /// as where another server gets a partition.
    pub(super) fn give_back(&self, consumer: &BaseConsumer<Self>, is_stopping: bool) {
        let assigned: Vec<(u32, Assigned)> = self.assigned.lock().drain().collect();
        self.count_partitions();
        assigned.iter().for_each(|(_, assigned)| assigned.buffer.end());
        for (partition, Assigned { buffer, task }) in assigned {
            if is_stopping {
                // It stores its batch in flight, or gives up at once if the store fails.
                let _ = self.core.runtime.block_on(task);
            }
            report(consumer, &self.core.topics.messages, partition, &buffer);
        }
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

    pub(super) fn take(&self, consumer: &BaseConsumer<Self>, message: &BorrowedMessage<'_>) {
        let partition: u32 = saturate(message.partition());
        let assigned = self.assigned.lock();
        let batches_max = (BATCHES_MAX / assigned.len().max(1)).clamp(2, BUFFER_BATCHES_MAX);
        let Some(buffer) = assigned.get(&partition).map(|assigned| assigned.buffer.clone()) else { return };
        drop(assigned);
        self.is_let_in();
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
    while let Some(work) = buffer.next().await {
        let wanted = match work {
            Work::Locate => match core.locate(partition, &buffer, &stop).await {
                Some(()) => continue,
                None => return,
            },
            Work::Compare => match core.hold(partition, progress).await {
                Err(NotStored::WentBack(offset)) => offset,
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
