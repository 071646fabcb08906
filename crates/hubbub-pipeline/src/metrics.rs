//! Every metric of the server, declared once. The help text is what `/metrics` shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::ErrorCode;
use hubbub_core::invariant::broken_invariants;
use hubbub_core::replica::ReplicaFigures;
use hubbub_core::store::{Store, StoreHealth};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::histogram::Histogram;

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $field:ident: $kind:ty = $make:expr => $name:literal;)*) => {
        /// What the server counts and measures.
        #[derive(Debug)]
        pub struct Metrics { $($(#[doc = $help])+ pub $field: Arc<$kind>,)* rejected: Vec<AtomicU64>, }

        impl Default for Metrics {
            fn default() -> Self {
                Self {
                    $($field: Arc::new($make),)*
                    rejected: ErrorCode::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
                }
            }
        }

        impl Metrics {
            fn register(&self, registry: &mut Registry) {
                $(registry.register($name, concat!($($help),+).trim().trim_end_matches('.'), Shared(self.$field.clone()));)*
            }
        }
    };
}

metrics! {
    /// Messages acknowledged as durable: stored now, or known already.
    accepted: Counter = Counter::default() => "messages_accepted";
    /// Messages made durable.
    stored: Counter = Counter::default() => "messages_stored";
    /// Messages that were stored before under the same id.
    duplicate: Counter = Counter::default() => "messages_duplicate";
    /// Changes of rooms, members and read marks made durable.
    changes: Counter = Counter::default() => "changes";
    /// Messages without confirmation; they may be stored.
    unconfirmed: Counter = Counter::default() => "messages_unconfirmed";
    /// Messages handed to subscribers' sockets.
    delivered: Counter = Counter::default() => "messages_delivered";
    /// Operations waiting for their batch.
    waiting: Gauge = Gauge::default() => "pipeline_waiting_operations";
    /// Operations in the batch that is being committed.
    in_flight: Gauge = Gauge::default() => "pipeline_in_flight_operations";
    /// Operations of one batch.
    batch_size: Histogram = Histogram::of_counts() => "pipeline_batch_operations";
    /// Time from submission until the batch was taken.
    wait_time: Histogram = Histogram::of_micros() => "pipeline_wait_seconds";
    /// Time the store took for one batch.
    store_time: Histogram = Histogram::of_micros() => "pipeline_store_seconds";
    /// Time from durable until a batch was in the outboxes of all its subscribers.
    fan_out_time: Histogram = Histogram::of_micros() => "pipeline_fan_out_seconds";
    /// Time from submission until the sender's connection was told.
    total_time: Histogram = Histogram::of_micros() => "pipeline_total_seconds";
    /// Open WebSocket connections.
    websockets: Gauge = Gauge::default() => "websocket_connections";
    /// Open connections of all kinds.
    connections: Gauge = Gauge::default() => "connections";
    /// Connections refused because there were too many.
    connections_refused: Counter = Counter::default() => "connections_refused";
    /// Open connections of the line protocol.
    line_connections: Gauge = Gauge::default() => "line_connections";
    /// Commands of the line protocol.
    line_commands: Counter = Counter::default() => "line_commands";
    /// Commands of the line protocol that were none.
    line_bad_requests: Counter = Counter::default() => "line_bad_requests";
    /// Live subscriptions of rooms.
    subscriptions: Gauge = Gauge::default() => "subscriptions";
    /// Subscribers cut off because their backlog was full (close code 4409).
    slow_subscribers: Counter = Counter::default() => "slow_subscribers";
    /// Bytes that live messages on their way to subscribers take.
    live_bytes: Gauge = Gauge::default() => "live_bytes";
    /// Backlogs of subscribers given up because live messages took too much memory.
    live_evictions: Counter = Counter::default() => "live_evictions";
    /// Questions whether somebody may read a room, answered from memory.
    members_hits: Counter = Counter::default() => "members_cache_hits";
    /// Questions whether somebody may read a room, for which the store was asked.
    members_misses: Counter = Counter::default() => "members_cache_misses";
    /// Messages put into queues; of one to everybody each copy.
    queue_sent: Counter = Counter::default() => "queue_messages_sent";
    /// Messages of queues taken away.
    queue_taken: Counter = Counter::default() => "queue_messages_taken";
    /// Messages of queues delivered on lease.
    queue_leased: Counter = Counter::default() => "queue_messages_leased";
    /// Messages of queues acknowledged.
    queue_acked: Counter = Counter::default() => "queue_messages_acked";
    /// Messages of queues given back.
    queue_nacked: Counter = Counter::default() => "queue_messages_nacked";
    /// Requests that wait for messages of queues.
    queue_waiting_takers: Gauge = Gauge::default() => "queue_waiting_takers";
    /// Changes of keys made durable.
    kv_changes: Counter = Counter::default() => "kv_changes";
    /// Values asked for that were in memory.
    kv_hits: Counter = Counter::default() => "kv_cache_hits";
    /// Values asked for that were not in memory.
    kv_misses: Counter = Counter::default() => "kv_cache_misses";
    /// Values that had to leave memory for others.
    kv_evictions: Counter = Counter::default() => "kv_cache_evictions";
    /// Time the store took to give one value.
    kv_load_time: Histogram = Histogram::of_micros() => "kv_cache_load_seconds";
    /// Keys in memory.
    kv_entries: Gauge = Gauge::default() => "kv_cache_entries";
    /// Bytes that keys in memory are counted with.
    kv_bytes: Gauge = Gauge::default() => "kv_cache_bytes";
    /// Messages published to the broker.
    log_published: Counter = Counter::default() => "log_messages_published";
    /// Messages the broker confirmed.
    log_confirmed: Counter = Counter::default() => "log_messages_confirmed";
    /// Messages the broker returned, as it has no queue for them.
    log_returned: Counter = Counter::default() => "log_messages_returned";
    /// Messages the broker did not confirm; they may be stored.
    log_unconfirmed: Counter = Counter::default() => "log_messages_unconfirmed";
    /// Time from submission until the broker had confirmed.
    log_confirm_time: Histogram = Histogram::of_micros() => "log_confirm_seconds";
    /// Messages taken from the broker.
    log_consumed: Counter = Counter::default() => "log_messages_consumed";
    /// Messages taken from the broker that it had given out before.
    log_redelivered: Counter = Counter::default() => "log_messages_redelivered";
    /// Messages taken from the broker without an id of their own, which may be stored more than once.
    log_nameless: Counter = Counter::default() => "log_messages_without_id";
    /// Messages given to the dead-letter queue.
    log_dead: Counter = Counter::default() => "log_messages_dead";
    /// Messages of one batch from the broker.
    log_batch_size: Histogram = Histogram::of_counts() => "log_batch_messages";
    /// Batches from the broker that the store did not take at the first try.
    log_retried: Counter = Counter::default() => "log_batches_retried";
    /// Time from publishing until stored and acknowledged, of what this version published.
    log_broker_time: Histogram = Histogram::of_micros() => "log_way_seconds";
    /// Messages that wait in the broker.
    log_depth: Gauge = Gauge::default() => "log_depth";
    /// Messages taken from the broker that are not stored yet.
    log_unacked: Gauge = Gauge::default() => "log_unacked";
    /// How long the last message that was stored had been on its way.
    log_lag: Gauge = Gauge::default() => "log_lag_microseconds";
    /// HTTP requests answered.
    http_requests: Counter = Counter::default() => "http_requests";
}

impl Metrics {
    /// Counts `count` messages or requests refused with `code`.
    pub fn reject(&self, code: ErrorCode, count: u64) {
        let index = ErrorCode::ALL.iter().position(|c| *c == code);
        if let Some(counter) = index.and_then(|i| self.rejected.get(i)) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// All metrics in the OpenMetrics text format, with the figures of `store`.
    pub fn render(self: &Arc<Self>, store: &Arc<dyn Store>) -> String {
        let mut registry = Registry::with_prefix("hubbub");
        self.register(&mut registry);
        registry.register_collector(Box::new(Others { metrics: self.clone(), store: store.clone() }));
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

/// Shares a metric between the registry and whoever counts.
#[derive(Debug)]
struct Shared<M>(Arc<M>);

impl<M: EncodeMetric> EncodeMetric for Shared<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
}

/// What is not counted event by event: refusals by reason, and the store's own figures.
struct Others {
    metrics: Arc<Metrics>,
    store: Arc<dyn Store>,
}

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

impl Collector for Others {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Messages and requests refused, by reason";
        let mut family = encoder.encode_descriptor("messages_rejected", help, None, MetricType::Counter)?;
        for (code, count) in ErrorCode::ALL.iter().zip(&self.metrics.rejected) {
            let counter = ConstCounter::new(count.load(Ordering::Relaxed));
            counter.encode(family.encode_family(&[("reason", code.as_str())])?)?;
        }
        let figures = self.store.figures();
        for (name, help, value) in [
            ("queue_messages_dead", "Messages of queues given to dead-letter queues", figures.queue_dead),
            (
                "queue_messages_dropped",
                "Messages of queues that outlived their time or were too many",
                figures.queue_dropped,
            ),
            (
                "broken_invariants",
                "Bugs of the server that it noticed; its log names each",
                broken_invariants(),
            ),
            ("store_unreadable_reads", "Reads of stored files that failed", figures.unreadable),
            ("store_pool_acquired", "Connections asked for from the pool", figures.pool.acquired),
            ("store_pool_timeouts", "Connections that could not be had in time", figures.pool.timeouts),
            ("store_pool_statements", "Statements sent to the database", figures.pool.statements),
            (
                "store_pool_round_trips",
                "Round trips to the database; statements under way together share one",
                figures.pool.round_trips,
            ),
            ("store_cache_hits", "Reads of rooms answered from memory", figures.cache.hits),
            ("store_cache_misses", "Reads of rooms that had to fetch something", figures.cache.misses),
            (
                "store_cache_questions",
                "Questions whether what is in memory still holds, each for all reads that wait",
                figures.cache.questions,
            ),
            ("store_pool_acquire_microseconds", "Time connections were waited for", figures.pool.acquire_us),
        ] {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let up = u64::from(matches!(self.store.health(), StoreHealth::Up | StoreHealth::Alarm(_)));
        for (name, help, value) in [
            ("store_up", "Whether the store takes writes", up),
            ("store_messages", "Messages kept", figures.messages),
            ("store_rooms", "Rooms known", figures.rooms),
            ("store_queues", "Queues known", figures.queues),
            ("store_queue_messages", "Messages in queues, in any state", figures.queue_messages),
            ("store_queue_bytes", "Bytes of the texts of messages in queues", figures.queue_bytes),
            ("store_clients", "Registered clients", figures.clients),
            ("store_keys", "Keys, in about: some may have run out", figures.keys),
            ("store_disk_bytes", "Bytes on disk, everything included", figures.disk_bytes),
            ("store_segments", "Immutable segments", figures.segments),
            ("store_unsealed_slots", "Journal slots waiting for their seal", figures.unsealed_slots),
            (
                "store_partitions_missing",
                "Partitions that should be there and could not be made",
                figures.partitions_missing,
            ),
            ("store_cache_bytes", "Bytes of recent messages in memory", figures.cache.bytes),
            ("store_sync_last_microseconds", "Time the last data sync took", figures.sync_us_last),
            ("store_sync_max_microseconds", "Longest data sync since start", figures.sync_us_max),
            (
                "store_pool_connections",
                "Connections to the database",
                figures.pool.active + figures.pool.idle,
            ),
            ("store_pool_active", "Connections to the database in use", figures.pool.active),
            ("store_pool_idle", "Connections to the database that nobody uses", figures.pool.idle),
            ("store_pool_waiting", "Those who wait for a connection to the database", figures.pool.waiting),
            (
                "store_pool_acquire_max_microseconds",
                "Longest wait for a connection since start",
                figures.pool.acquire_us_max,
            ),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        match self.store.replicas() {
            Some(replicas) => encode_replicas(&replicas.replicas(), &mut encoder),
            None => Ok(()),
        }
    }
}

/// Labelled by where they are, as the configuration names them.
fn encode_replicas(
    replicas: &[ReplicaFigures],
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), std::fmt::Error> {
    type Value = fn(&ReplicaFigures) -> Option<u64>;
    let figures: [(&str, &str, MetricType, Value); 4] = [
        ("store_replica_up", "Whether the replica is read from", MetricType::Gauge, |replica| {
            Some(u64::from(replica.fault.is_none()))
        }),
        (
            "store_replica_lag_microseconds",
            "For how long the replica has lacked something; missing while it is away",
            MetricType::Gauge,
            |replica| replica.lag_us,
        ),
        ("store_replica_reads", "Reads the replica answered", MetricType::Counter, |replica| {
            Some(replica.reads)
        }),
        (
            "store_replica_fallbacks",
            "Reads that were meant for the replica and went to the primary",
            MetricType::Counter,
            |replica| Some(replica.fallbacks),
        ),
    ];
    for (name, help, kind, value) in figures {
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for replica in replicas {
            let Some(value) = value(replica) else { continue };
            let labels = [("replica", replica.place.as_str())];
            let metric = family.encode_family(&labels)?;
            match kind {
                MetricType::Counter => ConstCounter::new(value).encode(metric)?,
                _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)?,
            }
        }
    }
    Ok(())
}
