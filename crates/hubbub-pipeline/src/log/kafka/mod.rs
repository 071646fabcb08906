//! Kafka as the log of rooms: everything that changes a room is a record of one topic, keyed by the room, so that one
//! partition orders all of a room.
//!
//! A submission of messages becomes records ([`producer`]); its sender is answered when Kafka has confirmed them ([`unconfirmed`]).
//! Changes of rooms, told apart by a header ([`record`]), also wait for their outcome ([`changes`]). → The nodes that commit
//! are one consumer group: each reads its partitions, from where the store says ([`consumer`]), and stores them in
//! [`batch`]es through the direct log. → What was stored is written to the [`bus`], from which the other nodes publish it to
//! their subscribers.
//!
//! Invariants
//! - Every record is an operation of the store, with its position; the store executes each position once
//!   ([`hubbub_core::LogStore`]). So it does not matter how often, and by whom, a record is read.
//! - All of a room is in the partition that its name's hash says ([`partition`]); other numbers of partitions are refused.
//!   So is a log that misses records which the store has not, or has.
//! - A store that goes back while the server runs is given again what it misses ([`attachment`]).
//! - Nothing is accepted for a partition that Kafka has lost the end of ([`lost_records`]), or beside servers of another store
//!   ([`committers`]).
//! - A batch that fails holds up its partition only, and so does a position of the store that cannot be read ([`positions`]).
//! - A store that removes nothing past its log is told by changes what has expired ([`expiry`]).
//! - A change is answered with its outcome or as `unconfirmed`. When the committer dies between the two, nobody knows the
//!   outcome any more, and it is `unconfirmed`.

mod address;
mod attachment;
mod batch;
mod buffer;
mod bus;
mod changes;
mod committers;
mod consumer;
mod expiry;
mod faults;
mod group;
mod identity;
mod lag;
mod lost_records;
mod positions;
mod presence;
mod producer;
mod record;
mod security;
mod settings;
mod start;
mod topic_id;
mod topics;
mod unconfirmed;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hubbub_core::clock::{Clock, RandomSource};
use hubbub_core::invariant::saturate;
use hubbub_core::store::Store;
use hubbub_core::{LogIdentity, Op, OpBatch, log_partition};
use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::lag::Storing;
use super::{DirectLog, LogHealth};
use crate::access_cache::AccessCache;
use crate::batcher::{Batch, QueueLimits, SubmitError, Ticket, Waiter};
use crate::committer::count_failures;
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::order::BROKER_BATCH;
use attachment::Attachment;
use bus::Bus;
use changes::WaitingChanges;
use faults::Faults;
use lost_records::LostRecordCheck;
use producer::Producer;
use topics::Topics;

pub use address::{Brokers, KafkaError};
pub use security::{KafkaSecurity, SaslMechanism};
pub use settings::RETENTION_MIN;

/// Options of Kafka.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaOptions {
    /// Where it is.
    pub brokers: Brokers,
    /// How connections are encrypted and authenticated.
    pub security: KafkaSecurity,
    /// Prefix of the topics' and the group's names.
    pub topic_prefix: String,
    /// Number of partitions of a topic that is created.
    pub partitions: u16,
    /// Copies of a topic that is created; 0 = three, or as many as there are brokers.
    pub replication: u16,
    /// How long a topic that is created keeps messages.
    pub retention: Duration,
    /// After this time without a confirmation a message is unconfirmed.
    pub delivery_timeout: Duration,
    /// A node that is silent for this long is replaced.
    pub session_timeout: Duration,
    /// Whether committed messages are written to the bus, for other nodes.
    pub bus: bool,
    /// Whether records that Kafka does not have any more are passed over at the start.
    pub skip_lost: bool,
    /// Whether this node commits; it always accepts and delivers.
    pub commits: bool,
    /// Largest text of a message in bytes.
    pub message_bytes: usize,
    /// Bound of messages that wait for Kafka.
    pub queue: QueueLimits,
}

impl KafkaOptions {
    /// The configuration that all clients share.
    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", self.brokers.bootstrap())
            .set("client.id", "hubbub")
            .set("socket.keepalive.enable", "true")
            .set("reconnect.backoff.max.ms", "2000")
            .set_log_level(RDKafkaLogLevel::Warning);
        self.security.apply(&self.brokers, &mut config);
        config
    }

    fn group(&self) -> String {
        format!("{}committers", self.topic_prefix)
    }
}

/// How long a shutdown waits for Kafka and the store.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(10);

struct Core {
    options: KafkaOptions,
    topics: Topics,
    /// What the store knows the topic by.
    identity: LogIdentity,
    direct: Arc<DirectLog>,
    store: Arc<dyn Store>,
    attachment: Attachment,
    /// Partitions that are compared with Kafka before more of them is read.
    uncompared: Mutex<BTreeSet<u32>>,
    storing: Storing,
    hub: Arc<Hub>,
    members: Arc<AccessCache>,
    producer: Producer,
    bus: Bus,
    changes: WaitingChanges,
    /// Names this process, for answers.
    node: String,
    /// Makes the ids of messages without one differ from those of other logs.
    id_seed: u64,
    /// What Kafka confirmed.
    ends: Arc<LostRecordCheck>,
    faults: Faults,
    /// Why records are accepted, but not stored by anybody.
    alarm: Mutex<Option<String>>,
    runtime: Handle,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    metrics: Arc<Metrics>,
}

/// Kafka in front of the direct log.
pub struct Kafka {
    core: Arc<Core>,
    is_consuming_over: Arc<AtomicBool>,
    is_bus_over: Arc<AtomicBool>,
    stop: watch::Sender<bool>,
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    consumer: Option<JoinHandle<()>>,
    bus: Option<JoinHandle<()>>,
}

impl Kafka {
    pub(super) fn submit(&self, ops: &OpBatch, waiter: &Arc<Waiter>) -> Result<Ticket, SubmitError> {
        if matches!(ops.get(0), Some(Op::Send(_))) {
            let rooms = ops.iter().filter_map(|op| op.room());
            let mut partitions = rooms.map(|room| log_partition::of_room(room, self.core.topics.partitions));
            if self.core.faults.refusal(&mut partitions).is_some() {
                return Err(SubmitError::Unavailable);
            }
            drop(partitions);
            return self.core.producer.submit(ops, waiter);
        }
        self.core.producer.gate.check()?;
        self.core.changes.admit()?;
        let batch = Batch::new(BROKER_BATCH);
        let ticket = Ticket::new(batch.clone(), 0, ops.len());
        let (core, ops, waiter) = (self.core.clone(), ops.clone(), waiter.clone());
        self.core.runtime.spawn(async move {
            let outcomes = changes::execute(&core, &ops).await;
            if let Err(error) = &outcomes {
                count_failures(error, ops.len() as u64, &core.metrics);
            }
            batch.set(outcomes);
            batch.make_visible();
            waiter.wake();
        });
        Ok(ticket)
    }

    pub(super) fn health(&self) -> LogHealth {
        let metrics = &self.core.metrics;
        let fault = self.core.faults.fault().or_else(|| self.core.producer.gate.fault());
        let depth = metrics.log_depth.get().saturating_add(metrics.log_unacked.get());
        let figure = |value: i64| Some(saturate(value));
        let bus = if self.core.options.bus { "kafka" } else { "local" };
        let alarm = self.core.faults.alarm().or_else(|| self.core.alarm.lock().clone());
        let lag_us = figure(metrics.log_lag.get());
        LogHealth { kind: "kafka", bus, fault, alarm, depth: figure(depth), lag_us }
    }

    /// Refuses new messages, stores the batches in flight, leaves the group, and waits for Kafka's confirmations.
    pub(super) async fn close(&self) {
        if *self.stop.borrow() {
            return;
        }
        self.core.producer.gate.begin_close();
        let waiting = async {
            while !self.core.changes.is_empty() {
                tokio::time::sleep(IDLE_CHECK_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, waiting).await;
        self.is_consuming_over.store(true, Ordering::Release);
        let _ = self.stop.send(true);
        let Threads { consumer, bus } = std::mem::take(&mut *self.threads.lock());
        join(consumer).await;
        self.core.hub.announce_shutdown();
        let confirming = async {
            while !self.core.producer.gate.is_idle() {
                tokio::time::sleep(IDLE_CHECK_INTERVAL).await;
            }
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, confirming).await.is_err() {
            tracing::warn!("Kafka did not confirm in time; messages may or may not be there");
        }
        self.is_bus_over.store(true, Ordering::Release);
        join(bus).await;
        let core = self.core.clone();
        let _ = tokio::task::spawn_blocking(move || core.producer.stop()).await;
    }
}

async fn join(thread: Option<JoinHandle<()>>) {
    let Some(thread) = thread else { return };
    let joining = tokio::task::spawn_blocking(move || thread.join().is_err());
    match tokio::time::timeout(CLOSE_TIMEOUT, joining).await {
        Ok(Ok(false)) => {}
        Ok(_) => tracing::error!("a thread of the log panicked"),
        Err(_) => tracing::warn!("the store or Kafka did not answer in time; records stay in Kafka"),
    }
}
