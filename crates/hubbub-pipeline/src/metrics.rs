//! Every metric of the server, declared once: field, kind, name and help text in `/metrics`.

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
    ($($field:ident: $kind:ident::$make:ident, $name:literal, $help:literal;)*) => {
        /// What the server counts and measures.
        #[derive(Debug)]
        pub struct Metrics { $(#[doc = $help] pub $field: $kind,)* rejected: Vec<AtomicU64>, }

        impl Default for Metrics {
            fn default() -> Self {
                Self {
                    $($field: $kind::$make(),)*
                    rejected: ErrorCode::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
                }
            }
        }

        impl Metrics {
            fn register(&self, registry: &mut Registry) {
                $(registry.register($name, $help.trim_end_matches('.'), self.$field.clone());)*
            }
        }
    };
}

metrics! {
    accepted: Counter::default, "messages_accepted",
        "Messages acknowledged as durable: stored now, or stored before.";
    stored: Counter::default, "messages_stored", "Messages made durable.";
    duplicate: Counter::default, "messages_duplicate", "Messages that were already stored under the same id.";
    changes: Counter::default, "changes", "Changes of rooms, members and read marks made durable.";
    unconfirmed: Counter::default, "messages_unconfirmed",
        "Messages without confirmation; they may be stored.";
    delivered: Counter::default, "messages_delivered", "Messages written to subscribers' sockets.";
    waiting: Gauge::default, "pipeline_waiting_operations", "Operations waiting for their batch.";
    in_flight: Gauge::default, "pipeline_in_flight_operations",
        "Operations in the batch that is being committed.";
    batch_size: Histogram::of_counts, "pipeline_batch_operations", "Number of operations in a batch.";
    wait_time: Histogram::of_micros, "pipeline_wait_seconds",
        "Time from submission until the commit thread took the batch.";
    store_time: Histogram::of_micros, "pipeline_store_seconds", "Time the store took to apply one batch.";
    fan_out_time: Histogram::of_micros, "pipeline_fan_out_seconds",
        "Time from durable until a batch was in the outboxes of all its subscribers.";
    total_time: Histogram::of_micros, "pipeline_total_seconds",
        "Time from submission until the sender's connection was notified.";
    websockets: Gauge::default, "websocket_connections", "Open WebSocket connections.";
    connections: Gauge::default, "connections", "Open connections of all kinds.";
    connections_refused: Counter::default, "connections_refused",
        "Connections refused because too many were open.";
    line_connections: Gauge::default, "line_connections", "Open connections of the line protocol.";
    line_commands: Counter::default, "line_commands", "Commands of the line protocol.";
    line_bad_requests: Counter::default, "line_bad_requests", "Invalid commands of the line protocol.";
    subscriptions: Gauge::default, "subscriptions", "Live subscriptions of rooms.";
    slow_subscribers: Counter::default, "slow_subscribers",
        "Subscribers disconnected because their send queue was full (close code 4409).";
    live_bytes: Gauge::default, "live_bytes", "Bytes of live messages that wait to be sent to subscribers.";
    live_evictions: Counter::default, "live_evictions",
        "Subscribers' backlogs dropped because live messages took too much memory.";
    members_hits: Counter::default, "members_cache_hits",
        "Checks of a user's access to a room that the cache answered.";
    members_misses: Counter::default, "members_cache_misses",
        "Checks of a user's access to a room that the store answered.";
    queue_sent: Counter::default, "queue_messages_sent",
        "Messages sent to queues; each copy of a message to everybody counts.";
    queue_taken: Counter::default, "queue_messages_taken", "Queue messages taken without a lease.";
    queue_leased: Counter::default, "queue_messages_leased", "Queue messages delivered on lease.";
    queue_acked: Counter::default, "queue_messages_acked", "Queue messages acknowledged.";
    queue_nacked: Counter::default, "queue_messages_nacked", "Queue messages given back.";
    queue_waiting_takers: Gauge::default, "queue_waiting_takers", "Requests that wait for queue messages.";
    kv_changes: Counter::default, "kv_changes", "Changes of keys made durable.";
    kv_hits: Counter::default, "kv_cache_hits", "Reads of values that the cache answered.";
    kv_misses: Counter::default, "kv_cache_misses", "Reads of values that the store answered.";
    kv_evictions: Counter::default, "kv_cache_evictions", "Values evicted from the cache.";
    kv_load_time: Histogram::of_micros, "kv_cache_load_seconds", "Time the store took to read one value.";
    kv_entries: Gauge::default, "kv_cache_entries", "Keys in the cache.";
    kv_bytes: Gauge::default, "kv_cache_bytes", "Bytes of the cached keys and values.";
    log_published: Counter::default, "log_messages_published", "Messages published to the broker.";
    log_confirmed: Counter::default, "log_messages_confirmed", "Messages the broker confirmed.";
    log_returned: Counter::default, "log_messages_returned",
        "Messages the broker returned because it has no queue for them.";
    log_unconfirmed: Counter::default, "log_messages_unconfirmed",
        "Messages the broker did not confirm; they may be stored.";
    log_confirm_time: Histogram::of_micros, "log_confirm_seconds",
        "Time from submission until the broker confirmed.";
    log_consumed: Counter::default, "log_messages_consumed", "Messages consumed from the broker.";
    log_redelivered: Counter::default, "log_messages_redelivered",
        "Messages consumed from the broker that it had delivered before.";
    log_nameless: Counter::default, "log_messages_without_id",
        "Messages consumed from the broker without an id, which may be stored more than once.";
    log_forwarded: Counter::default, "log_messages_forwarded",
        "Messages that another program wrote to a partition that is not their room's; they were written again.";
    bus_messages: Counter::default, "bus_messages_received",
        "Messages of followed rooms that other servers stored and sent over the bus.";
    log_dead: Counter::default, "log_messages_dead", "Messages published to the dead-letter queue.";
    log_batch_size: Histogram::of_counts, "log_batch_messages",
        "Number of messages in a batch from the broker.";
    log_retried: Counter::default, "log_batches_retried",
        "Attempts to store a batch from the broker that failed and were repeated.";
    log_broker_time: Histogram::of_micros, "log_way_seconds",
        "Time from publishing to a stored and acknowledged message, of messages published by Hubbub.";
    log_depth: Gauge::default, "log_depth", "Messages that wait in the broker.";
    log_unacked: Gauge::default, "log_unacked",
        "Messages consumed from the broker that are not acknowledged yet.";
    log_lag: Gauge::default, "log_lag_microseconds",
        "Time from publishing to storing of the last stored message, in microseconds.";
    http_requests: Counter::default, "http_requests", "HTTP requests answered.";
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

type Figure = (&'static str, &'static str, u64);

fn counters(figures: &StoreFigures) -> impl IntoIterator<Item = Figure> {
    let StoreFigures { pool, cache, .. } = figures;
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
        ("store_pool_acquired", "Connections requested from the pool", pool.acquired),
        ("store_pool_timeouts", "Requests for a connection that timed out", pool.timeouts),
        ("store_pool_statements", "Statements sent to the database", pool.statements),
        (
            "store_pool_round_trips",
            "Round trips to the database; pipelined statements share one",
            pool.round_trips,
        ),
        ("store_cache_hits", "Reads of rooms that the cache answered", cache.hits),
        ("store_cache_misses", "Reads of rooms that queried the database", cache.misses),
        (
            "store_cache_questions",
            "Queries that validate the cache; one serves all waiting reads",
            cache.questions,
        ),
        ("store_pool_acquire_microseconds", "Time spent waiting for connections", pool.acquire_us),
    ]
}

fn gauges(figures: &StoreFigures, is_up: bool) -> impl IntoIterator<Item = Figure> {
    let StoreFigures { pool, cache, .. } = figures;
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
        ("store_cache_bytes", "Bytes of recent messages in memory", cache.bytes),
        ("store_sync_last_microseconds", "Duration of the last data sync", figures.sync_us_last),
        ("store_sync_max_microseconds", "Longest data sync since start", figures.sync_us_max),
        ("store_pool_connections", "Connections to the database", pool.active + pool.idle),
        ("store_pool_active", "Connections to the database in use", pool.active),
        ("store_pool_idle", "Idle connections to the database", pool.idle),
        ("store_pool_waiting", "Requests that wait for a connection to the database", pool.waiting),
        (
            "store_pool_acquire_max_microseconds",
            "Longest wait for a connection since start",
            pool.acquire_us_max,
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
