//! RabbitMQ as the log of room messages.
//!
//! A submission becomes [`mail`] → [`publisher`], which publishes it on one channel without waiting, and answers when
//! the broker has confirmed ([`flights`]) → the exchange and the queues of [`topology`] → [`consumer`], one for each
//! queue, of which one in all servers is active → [`batch`] reads the [`body`] of each message, submits them together
//! to the direct log, and gives what cannot be stored to the dead-letter queue → the broker is told.
//!
//! Publishing and consuming have a connection each: a broker short of memory stops reading from who publishes, and would
//! else not hear the acknowledgements that relieve it. A connection that is lost is made again for ever.

mod address;
mod backoff;
mod batch;
mod body;
mod connect;
mod consumer;
mod flights;
mod mail;
mod publisher;
mod topology;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{Clock, RandomSource};
use hubbub_core::essential::supervise;
use hubbub_core::limits::Limits;
use hubbub_core::{Essential, OpBatch};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::ShortString;
use lapin::{Channel, Connection};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{DirectLog, LogHealth};
use crate::batcher::{QueueLimits, SubmitError, Ticket, Waiter};
use crate::metrics::Metrics;
use connect::close;
use consumer::Source;
use mail::Mail;
use publisher::Publisher;

pub use address::{Address, AmqpError};

/// How the broker is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmqpOptions {
    /// File of certificates to trust besides those of the system, as PEM.
    pub ca: Option<PathBuf>,
    /// The topic exchange that all messages are published to.
    pub exchange: String,
    /// What the names of the queues begin with; the number of the shard follows.
    pub queue_prefix: String,
    /// Over how many queues rooms are spread.
    pub shards: u16,
    /// Messages of a queue that may be taken and not stored yet.
    pub prefetch: u16,
    /// How much may wait for the broker.
    pub queue: QueueLimits,
}

/// How long a stop waits for the broker and the store.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_LOOK: Duration = Duration::from_millis(10);

/// What all parts share.
struct Core {
    address: Address,
    tls: OwnedTLSConfig,
    options: AmqpOptions,
    exchange: ShortString,
    limits: Limits,
    direct: Arc<DirectLog>,
    publisher: Publisher,
    /// Why nothing is consumed, if so.
    consumer_fault: Mutex<Option<String>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    metrics: Arc<Metrics>,
}

/// A broker in front of the direct log.
pub struct Amqp {
    core: Arc<Core>,
    stop_consuming: watch::Sender<bool>,
    stop_publishing: watch::Sender<bool>,
    running: Mutex<Option<Running>>,
}

struct Running {
    consuming: JoinHandle<()>,
    publishing: JoinHandle<()>,
}

/// What a log with a broker is made of.
pub struct AmqpParts {
    /// Where the broker is.
    pub address: Address,
    /// How it is used.
    pub options: AmqpOptions,
    /// What messages may be.
    pub limits: Limits,
    /// The way to the store.
    pub direct: Arc<DirectLog>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// For ids and pauses.
    pub random: Arc<dyn RandomSource>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Amqp {
    /// Connects, makes sure that everything is there and bound and that the user may use it, and begins to publish and to
    /// consume.
    pub async fn start(parts: AmqpParts) -> Result<Self, AmqpError> {
        let AmqpParts { address, options, limits, direct, clock, random, metrics } = parts;
        let tls = connect::tls(options.ca.as_deref())?;
        let publisher = Publisher::new(options.queue, clock.clone(), metrics.clone());
        let exchange = options.exchange.as_str().into();
        let consumer_fault = Mutex::new(None);
        let core = Arc::new(Core {
            address,
            tls,
            options,
            exchange,
            limits,
            direct,
            publisher,
            consumer_fault,
            clock,
            random,
            metrics,
        });
        let publishing = core.connect_publishing().await?;
        let consuming = core.connect_consuming().await?;
        let (stop_consuming, consuming_stop) = watch::channel(false);
        let (stop_publishing, publishing_stop) = watch::channel(false);
        let running = Running {
            consuming: tokio::spawn(supervise(
                Essential::new("broker consumer"),
                keep_consuming(core.clone(), consuming, consuming_stop),
            )),
            publishing: tokio::spawn(supervise(
                Essential::new("broker publisher"),
                keep_publishing(core.clone(), publishing, publishing_stop),
            )),
        };
        Ok(Self { core, stop_consuming, stop_publishing, running: Mutex::new(Some(running)) })
    }

    pub(super) fn submit(&self, ops: &OpBatch, waiter: &Arc<Waiter>) -> Result<Ticket, SubmitError> {
        let mail = Mail::of_messages(ops, &self.core.exchange, self.core.clock.now());
        self.core.publisher.submit(mail, waiter)
    }

    pub(super) fn health(&self) -> LogHealth {
        let metrics = &self.core.metrics;
        let fault = self.core.publisher.fault().or_else(|| self.core.consumer_fault.lock().clone());
        let depth = metrics.log_depth.get().saturating_add(metrics.log_unacked.get());
        let whole = |value: i64| Some(u64::try_from(value).unwrap_or(0));
        LogHealth { kind: "amqp", fault, depth: whole(depth), lag_us: whole(metrics.log_lag.get()) }
    }

    /// Refuses what senders still bring, stores what was taken from the broker, and waits for the broker's
    /// confirmations. What does not come in time stays in the broker.
    pub(super) async fn close(&self) {
        let Some(Running { mut consuming, mut publishing }) = self.running.lock().take() else { return };
        self.core.publisher.begin_close();
        let _ = self.stop_consuming.send(true);
        let orderly = async {
            let _ = (&mut consuming).await;
            while !self.core.publisher.is_idle() {
                tokio::time::sleep(IDLE_LOOK).await;
            }
            let _ = self.stop_publishing.send(true);
            let _ = (&mut publishing).await;
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, orderly).await.is_err() {
            tracing::warn!(
                "the broker or the store did not answer in time; what is not stored stays in the broker"
            );
            consuming.abort();
            publishing.abort();
        }
    }
}

async fn keep_publishing(
    core: Arc<Core>,
    (mut connection, channel): (Connection, Channel),
    stop: watch::Receiver<bool>,
) {
    let (core, mut channel) = (&*core, Arc::new(channel));
    loop {
        let mut stopped = stop.clone();
        let reason = tokio::select! {
            reason = core.publisher.run(&connection, &channel) => Some(reason),
            _ = stopped.wait_for(|is_stopping| *is_stopping) => None,
        };
        let Some(reason) = reason else { return close(&connection).await };
        tracing::warn!(reason, "the connection to the broker for publishing is lost");
        close(&connection).await;
        let note = |reason: String| core.publisher.shut(&reason);
        match core.again("publishing", &stop, move || core.connect_publishing(), note).await {
            Some(again) => (connection, channel) = (again.0, Arc::new(again.1)),
            None => return,
        }
    }
}

async fn keep_consuming(
    core: Arc<Core>,
    (mut connection, mut sources): (Connection, Vec<Source>),
    stop: watch::Receiver<bool>,
) {
    let core = &*core;
    loop {
        let Some(reason) = consumer::run(core, &connection, sources, &stop).await else {
            return close(&connection).await;
        };
        tracing::warn!(reason, "the connection to the broker for consuming is lost");
        *core.consumer_fault.lock() = Some(reason);
        close(&connection).await;
        let note = |reason| *core.consumer_fault.lock() = Some(reason);
        match core.again("consuming", &stop, move || core.connect_consuming(), note).await {
            Some(again) => (connection, sources) = again,
            None => return,
        }
        *core.consumer_fault.lock() = None;
    }
}
