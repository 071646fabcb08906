//! The start: topics, the attachment to the store, and the comparison of what both have.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hubbub_core::essential::{Essential, supervise};
use hubbub_core::log_position::Attached;
use hubbub_core::{LogIdentity, LogPosition, LogStore, Op, OpBatch, log_partition};
use rdkafka::consumer::BaseConsumer;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::address::KafkaError;
use super::bus::{self, Bus};
use super::faults::{Cause, Faults};
use super::identity::KnownBy;
use super::lost_records::{self, LostRecordCheck};
use super::producer::Producer;
use super::record::NOTHING;
use super::topics::Topics;
use super::unconfirmed::UnconfirmedRecords;
use super::{Core, Kafka, KafkaOptions, Threads};
use super::{attachment, committers, consumer, expiry, group, presence, topics};
use crate::batcher::Waiter;
use crate::log::body::answer;
use crate::pipeline::Pipeline;

const OFFSET_TIMEOUT: Duration = Duration::from_secs(10);

impl Kafka {
    /// Creates or checks the topics, attaches the log to the store, and starts.
    pub async fn start(options: KafkaOptions, pipeline: Pipeline) -> Result<Self, KafkaError> {
        let Pipeline { direct, store, hub, members, clock, random, metrics, .. } = pipeline;
        let Some(log_store) = store.log() else {
            let reason = "this store cannot take rooms from Kafka: use --store postgres://… or scylla://…, or --log direct";
            return Err(KafkaError(reason.to_owned()));
        };
        let topics = topics::prepare(&options).await?;
        let (identity, is_new) = attach(&options, log_store, &topics).await?;
        let gate = Arc::new(UnconfirmedRecords::new(options.queue, clock.clone(), metrics.clone()));
        let ends = Arc::new(LostRecordCheck::new(topics.partitions));
        let producer = Producer::new(&options, &topics.messages, topics.partitions, gate, ends.clone())?;
        metrics.log_partitions.set(i64::from(topics.partitions));
        let node = format!("{:016x}", random.next_u64());
        let bus = Bus::new(&options, &topics.live, &node, clock.clone(), metrics.clone())?;
        // By what the store knows, so that all servers on it make the same ids, whatever their brokers say.
        let id_seed = u64::from(log_partition::murmur2(identity.id.as_bytes())) << 16;
        let (changes, runtime) = (Default::default(), Handle::current());
        let (faults, alarm) = (Faults::new(topics.partitions, metrics.clone()), Default::default());
        if options.bus {
            hub.expect_bus();
        }
        let core = Core {
            options,
            topics,
            identity,
            direct,
            store,
            attachment: Default::default(),
            uncompared: Default::default(),
            storing: Default::default(),
            hub,
            members,
            producer,
            bus,
            changes,
            node,
            id_seed,
            ends,
            faults,
            alarm,
            runtime,
            clock,
            random,
            metrics,
        };
        let core = Arc::new(core);
        core.compare_all(is_new).await?;
        committers::expect_no_strangers(&core).await?;
        if core.options.bus {
            presence::enable(&core);
        }
        run(core)
    }
}

fn run(core: Arc<Core>) -> Result<Kafka, KafkaError> {
    let (stop, stopped) = watch::channel(false);
    let (is_consuming_over, is_bus_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let failed = |error: std::io::Error| KafkaError(format!("cannot start a thread: {error}"));
    core.producer.start().map_err(failed)?;
    let bus = {
        let (core, is_over, runtime) = (core.clone(), is_bus_over.clone(), core.runtime.clone());
        let run = move || bus::run(&core, &runtime, &is_over);
        std::thread::Builder::new().name("kafka-bus".into()).spawn(run).map_err(failed)?
    };
    let consumer = if core.options.commits {
        let (context, is_over) =
            (consumer::Context::new(core.clone(), stopped.clone()), is_consuming_over.clone());
        let membership = group::join(&context)?;
        let watching = attachment::watch(context.clone(), stopped.clone());
        core.runtime.spawn(supervise(Essential::new("Kafka attachment"), watching));
        let expiring = expiry::watch(context.clone(), stopped.clone());
        core.runtime.spawn(supervise(Essential::new("Kafka expiry"), expiring));
        let run = move || group::run(&context, membership, &is_over);
        Some(std::thread::Builder::new().name("kafka-consumer".into()).spawn(run).map_err(failed)?)
    } else {
        None
    };
    let watching = committers::watch(core.clone(), stopped.clone());
    core.runtime.spawn(supervise(Essential::new("Kafka committers"), watching));
    let comparing = lost_records::watch(core.clone(), stopped.clone());
    core.runtime.spawn(supervise(Essential::new("Kafka ends"), comparing));
    let comparing = lost_records::watch_topic(core.clone(), stopped.clone());
    core.runtime.spawn(supervise(Essential::new("Kafka topic"), comparing));
    let watching = {
        let (core, stopped) = (core.clone(), stopped.clone());
        let compare = {
            let core = core.clone();
            move || core.clone().compare_after_outage()
        };
        async move { core.producer.watch(stopped, compare).await }
    };
    core.runtime.spawn(supervise(Essential::new("Kafka watch"), watching));
    let telling = presence::run(core.clone(), stopped.clone());
    core.runtime.spawn(supervise(Essential::new("presence"), telling));
    core.runtime.spawn(supervise(Essential::new("Kafka follower"), Bus::follow(core.clone(), stopped)));
    let threads = Threads { consumer, bus: Some(bus) };
    Ok(Kafka { core, is_consuming_over, is_bus_over, stop, threads: threads.into() })
}

/// Attaches the topic to the store. Returns what the store knows it by, and whether it did not know it before.
async fn attach(
    options: &KafkaOptions,
    store: &dyn LogStore,
    topics: &Topics,
) -> Result<(LogIdentity, bool), KafkaError> {
    let Topics { messages: topic, partitions, identity, .. } = topics;
    let attach = async |identity: LogIdentity| {
        let attached = store.attach(identity).await;
        attached.map_err(|error| KafkaError(format!("attaching Kafka to the store: {error}")))
    };
    let mut known = LogIdentity { id: identity.id.clone(), partitions: *partitions };
    let mut attached = attach(known.clone()).await?;
    if let Attached::Other(other) = &attached
        && identity.is_known_as(&other.id)
        && other.partitions == *partitions
    {
        known = other.clone();
        attached = attach(known.clone()).await?;
    }
    let Attached::Other(other) = attached else {
        if let Some(warning) = KnownBy::of(&known).warning(topic) {
            tracing::warn!("{warning}");
        }
        return Ok((known, attached == Attached::New));
    };
    Err(KafkaError(if identity.is_known_as(&other.id) {
        format!(
            "the topic {topic} has {partitions} partitions, but the store knows it with {}: rooms would move to other \
             partitions and lose their order; see docs/kafka.md for how to move to a new topic",
            other.partitions
        )
    } else {
        format!(
            "the store takes its rooms from another log ({}, {} partitions), not from the topic {topic} of {} ({}): \
             correct log.url or kafka.topic_prefix, or use another store; a topic that was deleted and created again is \
             another log, see docs/kafka.md",
            other.id, other.partitions, options.brokers, identity.id
        )
    }))
}

impl Core {
    pub(super) fn log_store(&self) -> Result<&dyn LogStore, String> {
        self.store.log().ok_or_else(|| "the store takes nothing from a log".to_owned())
    }

    /// Refuses to start when the log or the store misses what the other has.
    async fn compare_all(&self, is_new: bool) -> Result<(), KafkaError> {
        let Topics { messages, live, partitions, live_partitions, .. } = &self.topics;
        if live_partitions != partitions {
            return Err(KafkaError(format!(
                "the topic {live} has {live_partitions} partitions, but {messages} has {partitions}: delete {live} while \
                 no server runs; the next start creates it again"
            )));
        }
        let next = self.next_offsets().await.map_err(KafkaError)?;
        // A first start may have been cut before it passed over what is gone.
        let is_new = is_new || next.iter().all(|next| matches!(next, Ok(0)));
        for (partition, in_kafka) in (0_u32..).zip(self.offsets_in_kafka(0..*partitions).await?) {
            match next.get(partition as usize).cloned().unwrap_or(Ok(0)) {
                Ok(next) => {
                    self.ends.begin(partition, next);
                    self.compare(partition, next, in_kafka, is_new).await?;
                }
                Err(reason) if self.has_failed() => return Err(KafkaError(reason)),
                // It is compared before more of it is stored.
                Err(_) => drop(self.uncompared.lock().insert(partition)),
            }
        }
        Ok(())
    }

    /// From the oldest offset to the end of each of these partitions.
    pub(super) async fn offsets_in_kafka(
        &self,
        partitions: Range<u32>,
    ) -> Result<Vec<Range<u64>>, KafkaError> {
        let (config, topic) = (self.options.client(), self.topics.messages.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let client: BaseConsumer = config.create()?;
            let offsets = partitions.map(|partition| {
                let (oldest, end) = topics::offsets(&client, &topic, partition, OFFSET_TIMEOUT)?;
                Ok(oldest..end)
            });
            offsets.collect::<Result<Vec<_>, rdkafka::error::KafkaError>>()
        });
        let explain =
            |error: &dyn std::fmt::Display| self.options.explain("asking Kafka for its offsets", error);
        reading.await.map_err(|error| explain(&error))?.map_err(|error| explain(&error))
    }

    /// Compares the offset that the store wants of a partition with those that Kafka has, and returns where to read it from.
    pub(super) async fn compare(
        &self,
        partition: u32,
        next: u64,
        kafka: Range<u64>,
        is_new: bool,
    ) -> Result<u64, KafkaError> {
        let topic = &self.topics.messages;
        if kafka.end < next {
            let reason = self.lost_end(partition, kafka.end, next);
            self.faults.set(Cause::LostEnd(partition), reason.clone());
            return Err(KafkaError(reason));
        }
        if kafka.start <= next {
            self.faults.clear(Cause::Removed(partition));
            return Ok(next);
        }
        let lost = kafka.start - next;
        if !is_new && !self.options.skip_lost {
            let reason = format!(
                "partition {partition} of the topic {topic} begins at {}, but the store has its records only up to {next}: \
                 {lost} were removed by retention before they were stored; accept the loss with --set \
                 kafka.skip_lost=true, or restore a newer backup of the store",
                kafka.start
            );
            self.faults.set(Cause::Removed(partition), reason.clone());
            return Err(KafkaError(reason));
        }
        tracing::warn!(partition, lost, "records that Kafka does not have any more are passed over");
        self.skip_to(partition, kafka.start).await?;
        Ok(kafka.start)
    }

    /// Moves the store's next offset of a partition.
    async fn skip_to(&self, partition: u32, offset: u64) -> Result<(), KafkaError> {
        let mut ops = OpBatch::default();
        let appended_at = self.clock.now();
        let position = LogPosition { partition, offset: offset.saturating_sub(1), appended_at };
        ops.push_at(&Op::Change(NOTHING), position);
        let waiter = Arc::new(Waiter::of_log());
        let failed = |reason: String| KafkaError(format!("passing over lost records: {reason}"));
        let ticket = self.direct.submit(&ops, &waiter).map_err(|error| failed(error.to_string()))?;
        waiter.wait(&ticket).await;
        answer(&ticket).map(drop).map_err(failed)
    }

    /// Attaches the log again, unless somebody replaced the attachment `seen`: the store may have been opened again.
    pub(super) async fn reattach(&self, seen: u64) {
        let attach = async || {
            let attached = self.log_store()?.attach(self.identity.clone()).await;
            if let Attached::Other(other) = attached.map_err(|error| error.to_string())? {
                let reason = format!(
                    "the store takes its rooms from another log now ({}): it was replaced; restart the server",
                    other.id
                );
                self.faults.set(Cause::OtherLog, reason.clone());
                return Err(reason);
            }
            self.faults.clear(Cause::OtherLog);
            Ok(())
        };
        if let Err(reason) = self.attachment.renew(seen, attach).await {
            tracing::debug!(reason, "attaching Kafka to the store failed; retrying");
        }
    }
}
