//! Writes records to Kafka: idempotent, confirmed by all replicas in sync. The library batches and repeats; what it has not
//! written in time may or may not be there. A thread of its own handles confirmations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hubbub_core::essential::{self, Essential};
use hubbub_core::invariant::saturate;
use hubbub_core::{Op, OpBatch, log_partition};
use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError as LibraryError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message as _, OwnedHeaders};
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig,
};
use tokio::sync::watch;

use super::KafkaOptions;
use super::address::KafkaError;
use super::lost_records::LostRecordCheck;
use super::record::TRACEPARENT;
use super::unconfirmed::{Failure, Origin, Submission, UnconfirmedRecords};
use crate::batcher::{Load, SubmitError, Ticket, Waiter, lane_loads};
use crate::log::body;

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often an unreachable cluster is asked again, and how long for an answer.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);
/// Records of the server itself that fit in besides those of clients.
const OWN_RECORDS: usize = 100_000;
const PRODUCER: Essential = Essential::new("Kafka producer");
/// Of a confirmation that is not believed.
const AGAIN: &str = "Kafka gave it the offset of an earlier record; it may have lost that one";

/// Passes the library's log lines on.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, text: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => {
            tracing::warn!(facility, "Kafka client: {text}");
        }
        _ => tracing::debug!(facility, "Kafka client: {text}"),
    }
}

pub(super) struct Context {
    gate: Arc<UnconfirmedRecords>,
    ends: Arc<LostRecordCheck>,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        log(level, facility, text);
    }

    fn error(&self, error: LibraryError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka producer");
        self.gate.suspicion.notify_one();
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Arc<Submission>;

    fn delivery(&self, result: &DeliveryResult<'_>, submission: Self::DeliveryOpaque) {
        let (Ok(message) | Err((_, message))) = result;
        let failure = match result {
            Err((error, _)) => Some(explain(error)),
            Ok(message) => {
                let is_new =
                    !submission.is_of_client() || self.ends.confirm(message.partition(), message.offset());
                (!is_new).then(|| Failure { reason: AGAIN.to_owned(), is_late: false })
            }
        };
        submission.confirm((1, message.payload_len()), failure);
    }
}

fn explain(error: &LibraryError) -> Failure {
    let code = error.rdkafka_error_code();
    let reason = match code {
        Some(RDKafkaErrorCode::MessageTimedOut) => "Kafka did not confirm it in time".to_owned(),
        Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) => {
            "Kafka did not confirm an earlier message in time".to_owned()
        }
        _ => format!("Kafka did not take it: {error}"),
    };
    Failure { reason, is_late: code == Some(RDKafkaErrorCode::MessageTimedOut) }
}

/// A record of the server itself.
pub(super) struct OwnRecord<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: u32,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: &'a [u8],
    pub(super) headers: Option<OwnedHeaders>,
}

pub(super) struct Producer {
    client: Arc<BaseProducer<Context>>,
    pub(super) gate: Arc<UnconfirmedRecords>,
    /// Of records that nobody waits for.
    nobody: Arc<Submission>,
    topic: String,
    partitions: u32,
    is_stopping: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Producer {
    pub(super) fn new(
        options: &KafkaOptions,
        topic: &str,
        partitions: u32,
        gate: Arc<UnconfirmedRecords>,
        ends: Arc<LostRecordCheck>,
    ) -> Result<Self, KafkaError> {
        let records_max = options.queue.ops.saturating_add(OWN_RECORDS).min(10_000_000);
        let mut config = options.client();
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "1")
            .set("compression.type", "lz4")
            .set("delivery.timeout.ms", options.delivery_timeout.as_millis().to_string())
            .set("request.timeout.ms", options.delivery_timeout.as_millis().min(30_000).to_string())
            .set("message.max.bytes", options.record_bytes_max().to_string())
            .set("queue.buffering.max.messages", records_max.to_string())
            // The gate bounds the bytes.
            .set("queue.buffering.max.kbytes", "2097151");
        let context = Context { gate: gate.clone(), ends };
        let client: BaseProducer<Context> = config
            .create_with_context(context)
            .map_err(|error| options.explain("starting the producer", &error))?;
        let (client, topic, nobody) = (Arc::new(client), topic.to_owned(), gate.nobody());
        let (is_stopping, thread) = Default::default();
        Ok(Self { client, gate, nobody, topic, partitions, is_stopping, thread })
    }

    /// Starts the thread that handles confirmations.
    pub(super) fn start(&self) -> std::io::Result<()> {
        let (client, gate) = (self.client.clone(), self.gate.clone());
        let is_stopping = self.is_stopping.clone();
        let poll = move || essential::run(PRODUCER, || poll(&client, &gate, &is_stopping));
        let thread = std::thread::Builder::new().name("kafka-producer".into()).spawn(poll)?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Queues the messages of `ops`, all or none.
    pub(super) fn submit(&self, ops: &OpBatch, waiter: &Arc<Waiter>) -> Result<Ticket, SubmitError> {
        let sends = ops.iter().filter_map(|op| if let Op::Send(send) = op { Some(send) } else { None });
        let rooms = ops.iter().filter_map(|op| op.room());
        let rooms: Vec<&str> = rooms.collect();
        let (load, lanes) = (Load { ops: rooms.len(), bytes: ops.bytes() }, lane_loads(ops));
        let (submission, ticket) =
            self.gate.admit(load, lanes, rooms.iter().copied(), waiter, Origin::Client)?;
        let mut value = Vec::new();
        let mut traces = ops.traces().iter().peekable();
        for (index, send) in sends.enumerate() {
            value.clear();
            body::write(&send, &mut value);
            let mut record = BaseRecord::with_opaque_to(&self.topic, submission.clone())
                .partition(saturate(log_partition::of_room(send.room, self.partitions)))
                .key(send.room)
                .payload(value.as_slice());
            if let Some((_, context)) = traces.next_if(|(traced, _)| *traced == index) {
                let header = Header { key: TRACEPARENT, value: Some(&context.to_string()) };
                record = record.headers(OwnedHeaders::new().insert(header));
            }
            if let Err((error, _)) = self.client.send(record) {
                // The rest may not overtake it.
                submission.confirm((rooms.len() - index, 0), Some(explain(&error)));
                break;
            }
        }
        Ok(ticket)
    }

    /// Queues records of the server; the ticket has their confirmation.
    pub(super) fn submit_own(
        &self,
        records: Vec<OwnRecord<'_>>,
        waiter: &Arc<Waiter>,
        origin: Origin,
    ) -> Result<Ticket, SubmitError> {
        let bytes = records.iter().map(|record| record.value.len()).sum();
        let count = records.len();
        let load = Load { ops: count, bytes };
        let (submission, ticket) = self.gate.admit(load, Vec::new(), std::iter::empty(), waiter, origin)?;
        for (index, record) in records.into_iter().enumerate() {
            if let Err(error) = self.send(record, submission.clone()) {
                submission.confirm((count - index, 0), Some(explain(&error)));
                break;
            }
        }
        Ok(ticket)
    }

    /// Queues a record that nobody waits for. Returns whether it did; it may be lost anyway.
    pub(super) fn send_unconfirmed(&self, record: OwnRecord<'_>) -> bool {
        let bytes = record.value.len();
        if !self.gate.admit_unawaited(bytes) {
            return false;
        }
        if let Err(error) = self.send(record, self.nobody.clone()) {
            self.gate.release_unawaited(bytes, false);
            tracing::debug!(%error, "a record of the bus was dropped");
            return false;
        }
        true
    }

    fn send(&self, record: OwnRecord<'_>, submission: Arc<Submission>) -> Result<(), LibraryError> {
        let OwnRecord { topic, partition, key, value, headers } = record;
        let mut record =
            BaseRecord::with_opaque_to(topic, submission).partition(saturate(partition)).payload(value);
        (record.key, record.headers) = (key, headers);
        self.client.send(record).map_err(|(error, _)| error)
    }

    /// Asks for the cluster whenever something failed, and refuses submissions while it does not answer, and until it was
    /// compared then.
    pub(super) async fn watch<Comparison: Future<Output = ()> + Send>(
        &self,
        mut stop: watch::Receiver<bool>,
        compare: impl Fn() -> Comparison + Send + Sync,
    ) {
        loop {
            tokio::select! {
                () = self.gate.suspicion.notified() => {}
                () = tokio::time::sleep(CHECK_INTERVAL), if self.gate.fault().is_some() => {}
                _ = stop.wait_for(|is_stopping| *is_stopping) => return,
            }
            let client = self.client.clone();
            let asked = tokio::task::spawn_blocking(move || {
                client.client().fetch_metadata(None, CHECK_TIMEOUT).map(drop)
            });
            match asked.await {
                Ok(Ok(())) => {
                    if self.gate.fault().is_some() {
                        compare().await;
                    }
                    self.gate.resume();
                }
                Ok(Err(error)) => self.gate.suspend(&format!("Kafka does not answer: {error}")),
                Err(error) => self.gate.suspend(&error.to_string()),
            }
            // Errors come in crowds; one question answers them.
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// The client ids of the members of a group of consumers. Blocks.
    pub(super) fn members_of(&self, group: &str, patience: Duration) -> Result<Vec<String>, LibraryError> {
        let groups = self.client.client().fetch_group_list(Some(group), patience)?;
        let found = groups.groups().iter().filter(|found| found.name() == group);
        Ok(found.flat_map(|found| found.members()).map(|member| member.client_id().to_owned()).collect())
    }

    /// Ends the thread. What is unconfirmed fails.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the Kafka producer panicked");
        }
    }
}

/// Handles confirmations until the server stops, or the producer cannot go on.
fn poll(client: &BaseProducer<Context>, gate: &UnconfirmedRecords, is_stopping: &AtomicBool) {
    while !is_stopping.load(Ordering::Acquire) {
        PRODUCER.step();
        client.poll(POLL_INTERVAL);
        if gate.take_purge() {
            client.purge(PurgeConfig::default().queue().inflight());
        }
        if let Some((code, reason)) = client.client().fatal_error() {
            // Only a new producer can go on; the supervisor starts the server again.
            tracing::error!(%code, reason, "the Kafka producer failed");
            return;
        }
    }
    client.purge(PurgeConfig::default().queue().inflight());
    client.poll(POLL_INTERVAL);
}
