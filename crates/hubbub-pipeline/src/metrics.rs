//! Every metric of the server, declared once. Its comment is its help text in `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::ErrorCode;
use hubbub_core::invariant::{broken_invariants, saturate};
use hubbub_core::replica::ReplicaFigures;
use hubbub_core::store::{Store, StoreFigures, StoreHealth};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::histogram::Histogram;

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $field:ident: $kind:ty = $make:expr => $name:literal;)*) => {
        /// What the server counts and measures.
        #[derive(Debug)]
        pub struct Metrics { $($(#[doc = $help])+ pub $field: $kind,)* rejected: Vec<AtomicU64>, }

        impl Default for Metrics {
            fn default() -> Self {
                Self {
                    $($field: $make,)*
                    rejected: ErrorCode::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
                }
            }
        }

        impl Metrics {
            fn register(&self, registry: &mut Registry) {
                $(registry.register($name, concat!($($help),+).trim().trim_end_matches('.'), self.$field.clone());)*
            }
        }
    };
}

metrics! {
    /// Messages acknowledged as durable: stored now, or stored before.
    accepted: Counter = Counter::default() => "messages_accepted";
    /// Messages made durable.
    stored: Counter = Counter::default() => "messages_stored";
    /// Messages that were already stored under the same id.
    duplicate: Counter = Counter::default() => "messages_duplicate";
    /// Changes of rooms, members and read marks made durable.
    changes: Counter = Counter::default() => "changes";
    /// Messages without confirmation; they may be stored.
    unconfirmed: Counter = Counter::default() => "messages_unconfirmed";
    /// Messages written to subscribers' sockets.
    delivered: Counter = Counter::default() => "messages_delivered";
    /// Operations waiting for their batch.
    waiting: Gauge = Gauge::default() => "pipeline_waiting_operations";
    /// Operations in the batch that is being committed.
    in_flight: Gauge = Gauge::default() => "pipeline_in_flight_operations";
    /// Number of operations in a batch.
    batch_size: Histogram = Histogram::of_counts() => "pipeline_batch_operations";
    /// Time from submission until the commit thread took the batch.
    wait_time: Histogram = Histogram::of_micros() => "pipeline_wait_seconds";
    /// Time the store took to apply one batch.
    store_time: Histogram = Histogram::of_micros() => "pipeline_store_seconds";
    /// Time from durable until a batch was in the outboxes of all its subscribers.
    fan_out_time: Histogram = Histogram::of_micros() => "pipeline_fan_out_seconds";
    /// Time from submission until the sender's connection was notified.
    total_time: Histogram = Histogram::of_micros() => "pipeline_total_seconds";
    /// Open WebSocket connections.
    websockets: Gauge = Gauge::default() => "websocket_connections";
    /// Open connections of all kinds.
    connections: Gauge = Gauge::default() => "connections";
    /// Connections refused because too many were open.
    connections_refused: Counter = Counter::default() => "connections_refused";
    /// Open connections of the line protocol.
    line_connections: Gauge = Gauge::default() => "line_connections";
    /// Commands of the line protocol.
    line_commands: Counter = Counter::default() => "line_commands";
    /// Invalid commands of the line protocol.
    line_bad_requests: Counter = Counter::default() => "line_bad_requests";
    /// Live subscriptions of rooms.
    subscriptions: Gauge = Gauge::default() => "subscriptions";
    /// Subscribers disconnected because their send queue was full (close code 4409).
    slow_subscribers: Counter = Counter::default() => "slow_subscribers";
    /// Bytes of live messages that wait to be sent to subscribers.
    live_bytes: Gauge = Gauge::default() => "live_bytes";
    /// Subscribers' backlogs dropped because live messages took too much memory.
    live_evictions: Counter = Counter::default() => "live_evictions";
    /// Checks of a user's access to a room that the cache answered.
    members_hits: Counter = Counter::default() => "members_cache_hits";
    /// Checks of a user's access to a room that the store answered.
    members_misses: Counter = Counter::default() => "members_cache_misses";
    /// Messages sent to queues; each copy of a message to everybody counts.
    queue_sent: Counter = Counter::default() => "queue_messages_sent";
    /// Queue messages taken without a lease.
    queue_taken: Counter = Counter::default() => "queue_messages_taken";
    /// Queue messages delivered on lease.
    queue_leased: Counter = Counter::default() => "queue_messages_leased";
    /// Queue messages acknowledged.
    queue_acked: Counter = Counter::default() => "queue_messages_acked";
    /// Queue messages given back.
    queue_nacked: Counter = Counter::default() => "queue_messages_nacked";
    /// Requests that wait for queue messages.
    queue_waiting_takers: Gauge = Gauge::default() => "queue_waiting_takers";
    /// Changes of keys made durable.
    kv_changes: Counter = Counter::default() => "kv_changes";
    /// Reads of values that the cache answered.
    kv_hits: Counter = Counter::default() => "kv_cache_hits";
    /// Reads of values that the store answered.
    kv_misses: Counter = Counter::default() => "kv_cache_misses";
    /// Values evicted from the cache.
    kv_evictions: Counter = Counter::default() => "kv_cache_evictions";
    /// Time the store took to read one value.
    kv_load_time: Histogram = Histogram::of_micros() => "kv_cache_load_seconds";
    /// Keys in the cache.
    kv_entries: Gauge = Gauge::default() => "kv_cache_entries";
    /// Bytes of the cached keys and values.
    kv_bytes: Gauge = Gauge::default() => "kv_cache_bytes";
    /// Messages published to the broker.
    log_published: Counter = Counter::default() => "log_messages_published";
    /// Messages the broker confirmed.
    log_confirmed: Counter = Counter::default() => "log_messages_confirmed";
    /// Messages the broker returned because it has no queue for them.
    log_returned: Counter = Counter::default() => "log_messages_returned";
    /// Messages the broker did not confirm; they may be stored.
    log_unconfirmed: Counter = Counter::default() => "log_messages_unconfirmed";
    /// Time from submission until the broker confirmed.
    log_confirm_time: Histogram = Histogram::of_micros() => "log_confirm_seconds";
    /// Messages consumed from the broker.
    log_consumed: Counter = Counter::default() => "log_messages_consumed";
    /// Messages consumed from the broker that it had delivered before.
    log_redelivered: Counter = Counter::default() => "log_messages_redelivered";
    /// Messages consumed from the broker without an id, which may be stored more than once.
    log_nameless: Counter = Counter::default() => "log_messages_without_id";
    /// Messages published to the dead-letter queue.
    log_dead: Counter = Counter::default() => "log_messages_dead";
    /// Number of messages in a batch from the broker.
    log_batch_size: Histogram = Histogram::of_counts() => "log_batch_messages";
    /// Attempts to store a batch from the broker that failed and were repeated.
    log_retried: Counter = Counter::default() => "log_batches_retried";
    /// Time from publishing to a stored and acknowledged message, of messages published by Hubbub.
    log_broker_time: Histogram = Histogram::of_micros() => "log_way_seconds";
    /// Messages that wait in the broker.
    log_depth: Gauge = Gauge::default() => "log_depth";
    /// Messages consumed from the broker that are not acknowledged yet.
    log_unacked: Gauge = Gauge::default() => "log_unacked";
    /// Time from publishing to storing of the last stored message, in microseconds.
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
    pub fn render(&self, store: &dyn Store) -> String {
        let mut registry = Registry::with_prefix("hubbub");
        self.register(&mut registry);
        let codes = ErrorCode::ALL.iter().zip(&self.rejected);
        let values =
            codes.map(|(code, count)| (code.as_str().to_owned(), count.load(Ordering::Relaxed))).collect();
        let rejected = Labelled { label: "reason", kind: MetricType::Counter, values };
        registry.register("messages_rejected", "Messages and requests refused, by reason", rejected);
        let figures = store.figures();
        for (name, help, value) in counters(&figures) {
            registry.register(name, help, ConstCounter::new(value));
        }
        let is_up = matches!(store.health(), StoreHealth::Up | StoreHealth::Alarm(_));
        for (name, help, value) in gauges(&figures, is_up) {
            registry.register(name, help, ConstGauge::new(saturate::<_, i64>(value)));
        }
        if let Some(replicas) = store.replicas() {
            register_replicas(&replicas.replicas(), &mut registry);
        }
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

/// The values of one metric, by a label.
#[derive(Debug)]
struct Labelled {
    label: &'static str,
    kind: MetricType,
    values: Vec<(String, u64)>,
}

impl EncodeMetric for Labelled {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (text, value) in &self.values {
            let labels = [(self.label, text.as_str())];
            let metric = encoder.encode_family(&labels)?;
            match self.kind {
                MetricType::Counter => ConstCounter::new(*value).encode(metric)?,
                _ => ConstGauge::new(saturate::<_, i64>(*value)).encode(metric)?,
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

/// Name, help text and value of a metric.
type Figure = (&'static str, &'static str, u64);

fn counters(figures: &StoreFigures) -> impl IntoIterator<Item = Figure> {
    [
        ("queue_messages_dead", "Queue messages moved to dead-letter queues", figures.queue_dead),
        (
            "queue_messages_dropped",
            "Queue messages that expired or were dropped from full queues",
            figures.queue_dropped,
        ),
        (
            "broken_invariants",
            "Broken invariants: bugs of the server; its log names each",
            broken_invariants(),
        ),
        ("store_unreadable_reads", "Reads of stored files that failed", figures.unreadable),
        ("store_pool_acquired", "Connections requested from the pool", figures.pool.acquired),
        ("store_pool_timeouts", "Requests for a connection that timed out", figures.pool.timeouts),
        ("store_pool_statements", "Statements sent to the database", figures.pool.statements),
        (
            "store_pool_round_trips",
            "Round trips to the database; pipelined statements share one",
            figures.pool.round_trips,
        ),
        ("store_cache_hits", "Reads of rooms that the cache answered", figures.cache.hits),
        ("store_cache_misses", "Reads of rooms that queried the database", figures.cache.misses),
        (
            "store_cache_questions",
            "Queries that validate the cache; one serves all waiting reads",
            figures.cache.questions,
        ),
        ("store_pool_acquire_microseconds", "Time spent waiting for connections", figures.pool.acquire_us),
    ]
}

fn gauges(figures: &StoreFigures, is_up: bool) -> impl IntoIterator<Item = Figure> {
    [
        ("store_up", "Whether the store accepts writes", u64::from(is_up)),
        ("store_messages", "Messages kept", figures.messages),
        ("store_rooms", "Rooms known", figures.rooms),
        ("store_queues", "Queues known", figures.queues),
        ("store_queue_messages", "Messages in queues, in any state", figures.queue_messages),
        ("store_queue_bytes", "Bytes of queue messages' texts", figures.queue_bytes),
        ("store_clients", "Registered clients", figures.clients),
        ("store_keys", "Approximate number of keys: some may have expired", figures.keys),
        ("store_disk_bytes", "Bytes on disk in total", figures.disk_bytes),
        ("store_segments", "Immutable segments", figures.segments),
        ("store_unsealed_slots", "Full journal slots that are not sealed yet", figures.unsealed_slots),
        (
            "store_partitions_missing",
            "Partitions that are due and could not be created",
            figures.partitions_missing,
        ),
        ("store_cache_bytes", "Bytes of recent messages in memory", figures.cache.bytes),
        ("store_sync_last_microseconds", "Duration of the last data sync", figures.sync_us_last),
        ("store_sync_max_microseconds", "Longest data sync since start", figures.sync_us_max),
        ("store_pool_connections", "Connections to the database", figures.pool.active + figures.pool.idle),
        ("store_pool_active", "Connections to the database in use", figures.pool.active),
        ("store_pool_idle", "Idle connections to the database", figures.pool.idle),
        ("store_pool_waiting", "Requests that wait for a connection to the database", figures.pool.waiting),
        (
            "store_pool_acquire_max_microseconds",
            "Longest wait for a connection since start",
            figures.pool.acquire_us_max,
        ),
    ]
}

/// Figures of each replica, labelled by its address in the configuration.
fn register_replicas(replicas: &[ReplicaFigures], registry: &mut Registry) {
    type Value = fn(&ReplicaFigures) -> Option<u64>;
    let (gauge, counter) = (MetricType::Gauge, MetricType::Counter);
    let lag = "How long the replica has been behind; absent while it does not answer";
    let fallbacks = "Reads meant for the replica that the primary answered";
    let figures: [(&str, &str, MetricType, Value); 4] = [
        ("up", "Whether reads go to the replica", gauge, |replica| Some(replica.fault.is_none().into())),
        ("lag_microseconds", lag, gauge, |replica| replica.lag_us),
        ("reads", "Reads the replica answered", counter, |replica| Some(replica.reads)),
        ("fallbacks", fallbacks, counter, |replica| Some(replica.fallbacks)),
    ];
    for (name, help, kind, value) in figures {
        let values = replicas.iter().filter_map(|replica| Some((replica.place.clone(), value(replica)?)));
        let metric = Labelled { label: "replica", kind, values: values.collect() };
        registry.register(format!("store_replica_{name}"), help, metric);
    }
}
