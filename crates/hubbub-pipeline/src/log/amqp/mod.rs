//! RabbitMQ as the log of room messages.
//!
//! A submission becomes a [`publication`] → the [`publisher`] publishes it on one channel without waiting, and answers
//! its sender when the broker has confirmed it ([`unconfirmed`]) → the exchange and queues of the [`topology`] → a
//! [`consumer`] for each queue, of which one in all servers is active → a [`batch`] parses the [`body`](super::body) of each message,
//! submits them together to the direct log, and publishes rejected ones to the dead-letter queue → the consumer
//! acknowledges the batch.
//!
//! Publishing and consuming use a connection each: a broker short of memory stops reading from publishing connections,
//! and would not see the acknowledgements that free its memory. Lost connections are made again without a limit.

mod address;
mod batch;
mod connect;
mod consumer;
mod dead_letters;
mod publication;
mod publisher;
mod topology;
mod unconfirmed;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{Clock, RandomSource};
use hubbub_core::essential::supervise;
use hubbub_core::invariant::saturate;
use hubbub_core::{Essential, OpBatch, Store};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::ShortString;
use lapin::{Channel, Connection};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lag::Storing;
use super::{DirectLog, LogHealth, attached};
use crate::batcher::{QueueLimits, SubmitError, Ticket, Waiter};
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use consumer::QueueConsumer;
use publication::Publication;
use publisher::{Origin, Publisher};

pub use address::{Address, AmqpError};

/// Options of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmqpOptions {
    /// Where it is.
    pub address: Address,
    /// PEM file of certificates to trust besides the system's.
    pub ca: Option<PathBuf>,
    /// Topic exchange that all messages are published to.
    pub exchange: String,
    /// Prefix of the queues' names; the number of the shard follows.
    pub queue_prefix: String,
    /// Number of queues that rooms are distributed over.
    pub shards: u16,
    /// Messages of a queue that may be delivered and not yet stored.
    pub prefetch: u16,
    /// Bound of messages that wait for the broker.
    pub queue: QueueLimits,
    /// Longest text that the store takes, in bytes.
    pub text_bytes_max: usize,
}

/// How long a shutdown waits for the broker and the store.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(10);

struct Core {
    options: AmqpOptions,
    tls: OwnedTLSConfig,
    exchange: ShortString,
    direct: Arc<DirectLog>,
    store: Arc<dyn Store>,
    publisher: Publisher,
    storing: Storing,
    /// Why nothing is consumed; `None` = consumers run.
    consumer_fault: Mutex<Option<String>>,
    /// Why the store takes no rooms from here any more: another server attached a log to it. `None` = it does.
    refusal: Mutex<Option<String>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    metrics: Arc<Metrics>,
}

impl Core {
    /// Leaves the lag as it is when nothing is being stored.
    fn measure_lag(&self) {
        self.storing.measure(self.clock.now(), &self.metrics.log_lag);
    }

    /// Looks why storing failed. Nothing more is accepted if it always will.
    async fn look_for_log(&self) {
        if let Ok(refusal) = attached::refusal(&*self.store).await {
            *self.refusal.lock() = refusal;
        }
    }
}

/// A broker in front of the direct log.
pub struct Amqp {
    core: Arc<Core>,
    stop_consuming: watch::Sender<bool>,
    stop_publishing: watch::Sender<bool>,
    /// Consuming and publishing.
    running: Mutex<Option<[JoinHandle<()>; 2]>>,
}

impl Amqp {
    /// Connects, declares the topology, checks permissions, and starts publishing and consuming. Refuses a store that takes its
    /// rooms from another log: nothing that the broker confirms would ever be stored.
    pub async fn start(options: AmqpOptions, pipeline: Pipeline) -> Result<Self, AmqpError> {
        let Pipeline { direct, store, clock, random, metrics, .. } = pipeline;
        let refusal = attached::refusal(&*store).await;
        let refusal = refusal.map_err(|error| AmqpError(format!("asking the store for its log: {error}")))?;
        if let Some(reason) = refusal {
            return Err(AmqpError(reason));
        }
        let tls = connect::tls(options.ca.as_deref())?;
        let publisher = Publisher::new(options.queue, clock.clone(), metrics.clone());
        let exchange = options.exchange.as_str().into();
        let (storing, consumer_fault, refusal) = Default::default();
        let core = Core {
            options,
            tls,
            exchange,
            direct,
            store,
            publisher,
            storing,
            consumer_fault,
            refusal,
            clock,
            random,
            metrics,
        };
        let core = Arc::new(core);
        let publishing = core.connect_publishing().await?;
        let consuming = core.connect_consuming().await?;
        let (stop_consuming, consuming_stop) = watch::channel(false);
        let (stop_publishing, publishing_stop) = watch::channel(false);
        let consuming = run_consumers(core.clone(), consuming, consuming_stop);
        let publishing = run_publisher(core.clone(), publishing, publishing_stop);
        let running = [
            tokio::spawn(supervise(Essential::new("broker consumer"), consuming)),
            tokio::spawn(supervise(Essential::new("broker publisher"), publishing)),
        ];
        Ok(Self { core, stop_consuming, stop_publishing, running: Mutex::new(Some(running)) })
    }

    pub(super) fn submit(&self, ops: &OpBatch, waiter: &Arc<Waiter>) -> Result<Ticket, SubmitError> {
        if self.core.refusal.lock().is_some() {
            return Err(SubmitError::Unavailable);
        }
        let publication = Publication::of_messages(ops, &self.core.exchange, self.core.clock.now());
        self.core.publisher.submit(publication, waiter, Origin::Client)
    }

    pub(super) fn health(&self) -> LogHealth {
        let metrics = &self.core.metrics;
        let core = &self.core;
        let refusal = core.refusal.lock().clone();
        let fault = refusal.or_else(|| core.publisher.fault()).or_else(|| core.consumer_fault.lock().clone());
        let depth = metrics.log_depth.get().saturating_add(metrics.log_unacked.get());
        let figure = |value: i64| Some(saturate(value));
        LogHealth {
            kind: "amqp",
            bus: "local",
            fault,
            alarm: None,
            depth: figure(depth),
            lag_us: figure(metrics.log_lag.get()),
        }
    }

    /// Refuses new messages, stores what was consumed, and waits for the broker's confirmations. Messages that are not
    /// stored in time stay in the broker.
    pub(super) async fn close(&self) {
        let Some([mut consuming, mut publishing]) = self.running.lock().take() else { return };
        self.core.publisher.begin_close();
        let _ = self.stop_consuming.send(true);
        let orderly = async {
            let _ = (&mut consuming).await;
            while !self.core.publisher.is_idle() {
                tokio::time::sleep(IDLE_CHECK_INTERVAL).await;
            }
            let _ = self.stop_publishing.send(true);
            let _ = (&mut publishing).await;
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, orderly).await.is_err() {
            tracing::warn!(
                "the broker or the store did not answer in time; messages that are not stored stay in the broker"
            );
            consuming.abort();
            publishing.abort();
        }
    }
}

async fn run_publisher(core: Arc<Core>, first: (Connection, Channel), stop: watch::Receiver<bool>) {
    let (core, stop) = (&*core, &stop);
    let set_fault = |reason: Option<String>| reason.into_iter().for_each(|r| core.publisher.suspend(&r));
    let publish = |connection: Arc<Connection>, channel| async move {
        let (channel, mut stopped) = (Arc::new(channel), stop.clone());
        tokio::select! {
            reason = core.publisher.run(&connection, &channel) => Some(reason),
            _ = stopped.wait_for(|is_stopping| *is_stopping) => None,
        }
    };
    core.keep_connected("publishing", stop, first, move || core.connect_publishing(), publish, set_fault)
        .await;
}

async fn run_consumers(
    core: Arc<Core>,
    first: (Connection, Vec<QueueConsumer>),
    stop: watch::Receiver<bool>,
) {
    let (core, stop) = (&*core, &stop);
    let set_fault = |reason| *core.consumer_fault.lock() = reason;
    let consume = |connection: Arc<Connection>, consumers| async move {
        consumer::run(core, &connection, consumers, stop).await
    };
    core.keep_connected("consuming", stop, first, move || core.connect_consuming(), consume, set_fault).await;
}
