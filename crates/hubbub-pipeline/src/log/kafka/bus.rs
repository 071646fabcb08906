//! The bus between nodes: what one commits, the others publish to their subscribers.
//!
//! A committer writes the messages it stored, its effective changes, and then the answers to those who wait for them, to the
//! partition of the bus with the same number, in the order of their commit. A node reads the partitions of the rooms that
//! somebody follows on it, of the users of whom a socket there follows all rooms, and of changes it waits for, from then on.
//! So it sees a change, such as a removal, between the messages before and after it, and has published it before the change is
//! answered here.
//!
//! The bus may lose and repeat: a gap is read from the store, and the hub compares heads with the store anyway. Changes are
//! numbered ([`numbers`]). What may have been missed, the hub compares with the store before it delivers anything more.

mod numbers;
mod write;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::essential::Essential;
use hubbub_core::invariant::saturate;
use hubbub_core::limits::MESSAGE_BYTES_MAX;
use hubbub_core::{Message, Op, OpBatch, Timestamp, log_partition};
use parking_lot::Mutex;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientContext, Statistics, statistics};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::address::KafkaError;
use super::presence::PRESENCE;
use super::record::{
    self, CHANGE, CHANGES, ChangeOutcome, Committed, NODE, REPLY_KEY, REQUEST, Request, TRACES,
};
use super::{Core, KafkaOptions, producer, topics};
use crate::log::body::{self, Envelope};
use crate::metrics::Metrics;
use numbers::ChangeNumbers;
pub(super) use write::{RECORD_BYTES, publish, write};

const BUS: Essential = Essential::new("Kafka bus");
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const OFFSET_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the partitions of what is followed are determined.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);
/// Pause between a room being followed and the look at what is.
const FOLLOW_DELAY: Duration = Duration::from_millis(20);
/// After such a look, the next one waits this many times as long as it took.
const FOLLOW_SHARE: u32 = 10;
/// How long a partition is read after nobody needs it.
const IDLE_MAX: Duration = Duration::from_secs(60);

pub(super) struct Context {
    topic: String,
    metrics: Arc<Metrics>,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        producer::log(level, facility, text);
    }

    fn error(&self, error: rdkafka::error::KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka bus");
    }

    fn stats(&self, statistics: Statistics) {
        let unread = |partition: &statistics::Partition| {
            // Negative until the first record was read.
            let read = if partition.app_offset < 0 { partition.next_offset } else { partition.app_offset };
            partition.hi_offset.saturating_sub(read).max(0)
        };
        let is_read = |partition: &&statistics::Partition| partition.fetch_state == "active";
        let partitions = statistics.topics.get(&self.topic).map(|topic| topic.partitions.values());
        let partitions: Vec<_> = partitions.into_iter().flatten().filter(is_read).collect();
        self.metrics.bus_partitions.set(saturate(partitions.len()));
        self.metrics.bus_depth.set(partitions.into_iter().map(unread).sum());
    }
}

impl ConsumerContext for Context {}

pub(super) struct Bus {
    consumer: Arc<BaseConsumer<Context>>,
    topic: String,
    /// When each partition that is read was needed last.
    reading: Mutex<HashMap<u32, Duration>>,
    /// Held while partitions are added or removed.
    assigning: tokio::sync::Mutex<()>,
    numbers: ChangeNumbers,
    clock: Arc<dyn Clock>,
}

impl Bus {
    pub(super) fn new(
        options: &KafkaOptions,
        topic: &str,
        node: &str,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, KafkaError> {
        let mut config = options.client();
        config
            .set("group.id", format!("{topic}.{node}")) // never joined
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "latest")
            // A partition that is added waits for the answer to the request before.
            .set("fetch.wait.max.ms", "100")
            .set("queued.max.messages.kbytes", "16384")
            .set("statistics.interval.ms", "1000");
        let consumer = config.create_with_context(Context { topic: topic.to_owned(), metrics });
        let consumer = consumer.map_err(|error| options.explain("starting the reader of the bus", &error))?;
        let (topic, consumer) = (topic.to_owned(), Arc::new(consumer));
        let (reading, assigning, numbers) = Default::default();
        Ok(Self { consumer, topic, reading, assigning, numbers, clock })
    }

    /// Returns when these partitions are read: everything written to them from now on will arrive. Returns those that were
    /// not read before; `begin` gets them first, once it is known from where on they are read.
    pub(super) async fn read(
        &self,
        partitions: &[u32],
        begin: impl FnOnce(&HashSet<u32>),
    ) -> Result<HashSet<u32>, String> {
        if self.touch(partitions).is_empty() {
            return Ok(HashSet::new());
        }
        let _assigning = self.assigning.lock().await;
        let missing = self.touch(partitions);
        if missing.is_empty() {
            return Ok(missing);
        }
        let (consumer, topic, wanted) = (self.consumer.clone(), self.topic.clone(), missing.clone());
        let located = tokio::task::spawn_blocking(move || {
            // Else a leader that died is asked.
            consumer.fetch_metadata(Some(&topic), OFFSET_TIMEOUT)?;
            let mut offsets = TopicPartitionList::new();
            for partition in wanted {
                let (_, end) = topics::offsets(&consumer, &topic, partition, OFFSET_TIMEOUT)?;
                offsets.add_partition_offset(&topic, saturate(partition), Offset::Offset(saturate(end)))?;
            }
            Ok::<_, rdkafka::error::KafkaError>(offsets)
        });
        let explain = |error: &dyn std::fmt::Display| format!("Kafka does not answer: {error}");
        let offsets = located.await.map_err(|error| explain(&error))?.map_err(|error| explain(&error))?;
        self.numbers.forget(|partition| missing.contains(&partition));
        begin(&missing);
        self.consumer.incremental_assign(&offsets).map_err(|error| explain(&error))?;
        let now = self.clock.monotonic();
        self.reading.lock().extend(missing.iter().map(|partition| (*partition, now)));
        Ok(missing)
    }

    /// For questions about any topic.
    pub(super) fn client(&self) -> Arc<BaseConsumer<Context>> {
        self.consumer.clone()
    }

    /// Whether the partition is read.
    pub(super) fn reads(&self, partition: u32) -> bool {
        self.reading.lock().contains_key(&partition)
    }

    /// Those of `partitions` that are not read yet. The others are needed now.
    fn touch(&self, partitions: &[u32]) -> HashSet<u32> {
        let (now, mut reading) = (self.clock.monotonic(), self.reading.lock());
        let mut missing = HashSet::new();
        for partition in partitions {
            match reading.get_mut(partition) {
                Some(needed_at) => *needed_at = now,
                None => drop(missing.insert(*partition)),
            }
        }
        missing
    }

    async fn drop_idle(&self) {
        let _assigning = self.assigning.lock().await;
        let now = self.clock.monotonic();
        let is_idle = |_: &u32, needed_at: &mut Duration| now.saturating_sub(*needed_at) > IDLE_MAX;
        let idle: Vec<u32> =
            self.reading.lock().extract_if(is_idle).map(|(partition, _)| partition).collect();
        if !idle.is_empty() {
            let mut partitions = TopicPartitionList::new();
            for partition in &idle {
                partitions.add_partition(&self.topic, saturate(*partition));
            }
            if let Err(error) = self.consumer.incremental_unassign(&partitions) {
                tracing::warn!(%error, "ending to read partitions of the bus failed; they are read on");
                self.reading.lock().extend(idle.iter().map(|partition| (*partition, now)));
            }
        }
    }

    /// Reads the partitions of followed rooms and users, until the server stops.
    pub(super) async fn follow(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
        let mut interval = tokio::time::interval(FOLLOW_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let is_followed = tokio::select! {
                _ = interval.tick() => false,
                () = core.hub.follows_more() => true,
                _ = stop.wait_for(|is_stopping| *is_stopping) => return,
            };
            if is_followed {
                // Many may follow one after the other.
                tokio::time::sleep(FOLLOW_DELAY).await;
            }
            let (began, mut partitions) = (core.clock.monotonic(), HashSet::new());
            core.hub.each_followed(|id| {
                partitions.insert(log_partition::of_room(id, core.topics.partitions));
            });
            let took = core.clock.monotonic().saturating_sub(began);
            let partitions: Vec<u32> = partitions.into_iter().collect();
            if let Err(reason) = core.read_bus(&partitions).await {
                tracing::debug!(reason, "the bus cannot be read; the hub compares heads with the store");
            }
            core.bus.drop_idle().await;
            tokio::time::sleep(took * FOLLOW_SHARE).await;
        }
    }
}

impl Core {
    /// This server begins to commit these partitions, from where the store has them: changes that another one committed just
    /// before may be unknown here, and to those who read the bus.
    pub(super) fn take_over(&self, partitions: &[u32]) {
        partitions.iter().for_each(|partition| self.bus.numbers.count(*partition));
        self.members.clear();
        self.may_have_missed(|partition| partitions.contains(&partition));
    }

    /// Changes of these partitions may be unknown here.
    fn may_have_missed(&self, is_partition: impl Fn(u32) -> bool) {
        self.hub.may_have_missed(|room| {
            is_partition(log_partition::of_room(room.as_str(), self.topics.partitions))
        });
    }

    /// Returns when these partitions of the bus are read, too. Asks who is in the rooms of those that are new.
    pub(super) async fn read_bus(&self, partitions: &[u32]) -> Result<(), String> {
        let begin = |new: &HashSet<u32>| self.may_have_missed(|partition| new.contains(&partition));
        let new = self.bus.read(partitions, begin).await?;
        if self.options.bus {
            self.hub.begin_partitions(&new);
        }
        Ok(())
    }
}

/// Publishes what arrives on the bus. Blocks its thread until the server stops.
pub(super) fn run(core: &Core, runtime: &Handle, is_stopping: &AtomicBool) {
    hubbub_core::essential::run(BUS, || {
        while !is_stopping.load(Ordering::Acquire) {
            BUS.step();
            match core.bus.consumer.poll(POLL_INTERVAL) {
                Some(Ok(record)) => receive(core, runtime, &record),
                Some(Err(error)) => {
                    tracing::debug!(%error, "reading the bus failed");
                }
                None => {}
            }
        }
    });
}

fn header<'a>(record: &'a BorrowedMessage<'_>, name: &str) -> Option<&'a [u8]> {
    record.headers()?.iter().find(|header| header.key == name)?.value
}

fn receive(core: &Core, runtime: &Handle, record: &BorrowedMessage<'_>) {
    let (key, value) = (record.key().unwrap_or_default(), record.payload().unwrap_or_default());
    if let Some(node) = key.strip_prefix(REPLY_KEY.as_bytes()) {
        if node == core.node.as_bytes()
            && let Ok(reply) = serde_json::from_slice(value)
        {
            core.changes.answer(reply);
        }
        return;
    }
    let here: u32 = saturate(record.partition());
    if header(record, PRESENCE).is_some() {
        return core.hub.apply_record(here, value, core.clock.monotonic());
    }
    if header(record, NODE) == Some(core.node.as_bytes()) {
        // Published when it was committed. Whoever commits next may have changed something before that.
        return core.bus.numbers.forget(|partition| partition == here);
    }
    let outcome: Option<Option<ChangeOutcome>> =
        header(record, CHANGE).map(|outcome| serde_json::from_slice(outcome).ok());
    let is_counted = outcome.is_some_and(|outcome| !matches!(outcome, Some(ChangeOutcome::Read { .. })));
    let mut is_missed = has_missed(core, record, is_counted);
    if let Some(outcome) = outcome {
        let request = header(record, REQUEST).and_then(Request::parse);
        let is_awaited = request.is_some_and(|request| request.node == core.node);
        is_missed |= receive_change(core, runtime, value, outcome, is_awaited).is_none();
    }
    if is_missed {
        tracing::debug!(
            partition = here,
            "a change on the bus was missed; its rooms are compared with the store"
        );
        core.may_have_missed(|partition| partition == here);
    }
    if outcome.is_some() {
        return;
    }
    let Ok(room) = str::from_utf8(key) else { return };
    if core.hub.is_followed(room)
        && let Ok(messages) = serde_json::from_slice::<Vec<Committed<'_>>>(value)
    {
        let count = messages.len() as u64;
        core.metrics.bus_messages.inc_by(count);
        if let (Some(tracer), Some(traces)) = (core.hub.timeline().tracer(), header(record, TRACES)) {
            record::read_traces(traces).for_each(|(seq, context)| tracer.arrived(room, seq, context));
        }
        core.hub.publish_remote(room, |publish| {
            for Committed { seq, gap, us, message } in messages {
                let prev = seq.saturating_sub(1).saturating_sub(gap);
                let (body, received_at) = (message.get().as_bytes(), Timestamp::from_micros(us));
                let envelope = Envelope { body, room: Some(room), message_id: None };
                let published = body::read(&envelope, MESSAGE_BYTES_MAX, received_at, "", |sent, _| {
                    publish(prev, &Message { seq, received_at, sent: *sent });
                });
                if published.is_err() {
                    // What follows lies behind a gap, and is read from the store with it.
                    tracing::debug!(room, seq, "a message on the bus is malformed");
                }
            }
        });
        let sent_at = record.timestamp().to_millis().unwrap_or(0).saturating_mul(1_000);
        let took = core.clock.now().as_micros().saturating_sub(sent_at).max(0);
        core.metrics.bus_time.record(took.unsigned_abs(), count);
    }
}

/// Whether a change may have been missed before this record.
fn has_missed(core: &Core, record: &BorrowedMessage<'_>, is_counted: bool) -> bool {
    let text = |name| header(record, name).and_then(|value| str::from_utf8(value).ok());
    let node = text(NODE).and_then(|node| u64::from_str_radix(node, 16).ok()).unwrap_or_default();
    let number = text(CHANGES).and_then(|number| number.parse().ok());
    core.bus.numbers.has_missed(saturate(record.partition()), node, number, is_counted)
}

/// `None` = this server does not know such changes. `is_awaited`: it waits for the outcome, which comes behind the change.
fn receive_change(
    core: &Core,
    runtime: &Handle,
    value: &[u8],
    outcome: Option<ChangeOutcome>,
    is_awaited: bool,
) -> Option<()> {
    let outcomes = [outcome?.outcome()?];
    let mut ops = OpBatch::default();
    record::read_change(value, |change| ops.push(&Op::Change(*change))).ok()?;
    core.members.apply_committed(&ops, &outcomes);
    let access = |room, user| core.members.access(room, user);
    for (op, outcome) in ops.iter().zip(&outcomes) {
        if let Op::Change(change) = op {
            runtime.block_on(core.hub.publish_remote_change(&change, outcome, is_awaited, &access));
        }
    }
    Some(())
}
