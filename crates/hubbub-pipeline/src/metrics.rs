//! Every metric of the server, declared once: field, kind, name and help text in `/metrics`.

mod program;
mod reading;
mod seconds;
mod text;

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::ErrorCode;
use hubbub_core::invariant::{broken_invariants, saturate};
use hubbub_core::replica::ReplicaFigures;
use hubbub_core::store::{RequestFigures, Store, StoreFigures, StoreHealth};
use prometheus_client::encoding::{self, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;

use crate::histogram::Histogram;
use crate::log::LogHealth;

pub use program::{ProcessFigures, Program};
pub use reading::Readable;
pub use seconds::MicrosGauge;
pub use text::MEDIA_TYPE;

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

        /// What [`Metrics`] were at one moment; times of gauges in microseconds.
        #[derive(Debug, Clone)]
        pub struct Reading {
            $(#[doc = $help] pub $field: <$kind as Readable>::Value,)*
            /// Messages and requests refused, in the order of [`ErrorCode::ALL`].
            pub rejected: Vec<u64>,
        }

        impl Metrics {
            /// All of them now. Takes no lock; counters that belong together may be a moment apart.
            pub fn read(&self) -> Reading {
                Reading {
                    $($field: self.$field.read(),)*
                    rejected: self.rejected.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
                }
            }

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
    delivery_time: Histogram::of_micros, "delivery_seconds",
        "Time that live messages waited until a subscriber's connection took them; of some of them.";
    waiting: Gauge::default, "pipeline_waiting_operations", "Operations waiting for their batch.";
    in_flight: Gauge::default, "pipeline_in_flight_operations",
        "Operations in the batch that is being committed.";
    batch_size: Histogram::of_counts, "pipeline_batch_operations", "Number of operations in a batch.";
    wait_time: Histogram::of_micros, "pipeline_wait_seconds",
        "Time from submission until a commit thread took the batch.";
    store_time: Histogram::of_micros, "pipeline_store_seconds", "Time the store took to apply one batch.";
    answer_time: Histogram::of_micros, "pipeline_answer_seconds",
        "Time from durable until the sender's connection was notified.";
    fan_out_time: Histogram::of_micros, "pipeline_fan_out_seconds",
        "Time from durable until a batch was in the outboxes of all its subscribers.";
    total_time: Histogram::of_micros, "pipeline_total_seconds",
        "Time from submission until the sender's connection was notified.";
    client_time: Histogram::of_micros, "pipeline_client_seconds",
        "Time from submission until the sender's connection was notified, without what comes from a broker.";
    websockets: Gauge::default, "websocket_connections", "Open WebSocket connections.";
    connections: Gauge::default, "connections", "Open connections of all kinds.";
    connections_refused: Counter::default, "connections_refused",
        "Connections refused because too many were open.";
    connections_refused_by_address: Counter::default, "connections_refused_by_address",
        "Connections refused because their address had too many open.";
    connections_timed_out: Counter::default, "connections_timed_out",
        "Connections closed because a request's header did not come in time, idle ones included.";
    websocket_bad_frames: Counter::default, "websocket_bad_frames",
        "WebSockets closed because of a frame that was too large, binary or invalid (1009, 4400, 1002, 1007).";
    unfinished_bytes: Gauge::default, "unfinished_bytes",
        "Bytes of requests, frames and commands that have not arrived whole, beyond 16 KiB of each.";
    unfinished_refused: Counter::default, "unfinished_refused",
        "Requests and sockets refused because too much had not arrived whole.";
    unread_bytes: Gauge::default, "unread_bytes",
        "Bytes of answers that clients have not taken, beyond 16 KiB of each.";
    unread_given_up: Counter::default, "unread_given_up",
        "Connections closed because their clients took nothing of their answers, and others needed the memory.";
    flooding_sockets: Counter::default, "flooding_sockets",
        "Sockets closed because too many requests in a row were beyond a rate (close code 4429).";
    tls_handshakes: Counter::default, "tls_handshakes", "TLS handshakes completed.";
    tls_handshakes_failed: Counter::default, "tls_handshakes_failed",
        "TLS handshakes that failed, timed out, or were given up because others waited.";
    tls_reloads_failed: Counter::default, "tls_reloads_failed",
        "Changes of the certificate's files that could not be used.";
    line_connections: Gauge::default, "line_connections", "Open connections of the line protocol.";
    line_commands: Counter::default, "line_commands", "Commands of the line protocol.";
    line_time: Histogram::of_micros, "line_command_seconds",
        "Time from the read that completed a command of the line protocol until its answer was written to the connection's buffer.";
    line_bad_requests: Counter::default, "line_bad_requests", "Invalid commands of the line protocol.";
    subscriptions: Gauge::default, "subscriptions", "Live subscriptions of rooms.";
    slow_subscribers: Counter::default, "slow_subscribers",
        "Subscribers disconnected because their send queue was full (close code 4409).";
    live_bytes: Gauge::default, "live_bytes", "Bytes of live messages that wait to be sent to subscribers.";
    live_evictions: Counter::default, "live_evictions",
        "Subscribers' backlogs dropped because live messages took too much memory.";
    live_read_backs: Counter::default, "live_read_backs",
        "Pages of followed rooms read from the store because messages that other servers stored had not come otherwise.";
    presence_remote: Gauge::default, "presence_remote_users",
        "Users of other servers in rooms that are followed here, counted for each room and server.";
    presence_records: Counter::default, "presence_records_received",
        "Records about presence, typing and read marks that other servers sent.";
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
    queue_waiting_consumers: Gauge::default, "queue_waiting_consumers", "Requests that wait for queue messages.";
    kv_changes: Counter::default, "kv_changes", "Changes of keys made durable.";
    kv_hits: Counter::default, "kv_cache_hits", "Reads of values that the cache answered.";
    kv_misses: Counter::default, "kv_cache_misses", "Reads of values that the store answered.";
    kv_validations: Counter::default, "kv_cache_validations", "Queries that validate cached keys; one serves all waiting reads.";
    kv_exclusive: Gauge::default, "kv_exclusive", "1 while this server is the only one that changes the keys of a database, and answers reads of them without a question.";
    kv_evictions: Counter::default, "kv_cache_evictions", "Values evicted from the cache.";
    kv_load_time: Histogram::of_micros, "kv_cache_load_seconds", "Time the store took to read one value.";
    kv_entries: Gauge::default, "kv_cache_entries", "Keys in the cache.";
    kv_bytes: Gauge::default, "kv_cache_bytes", "Bytes of the cached keys and values.";
    log_published: Counter::default, "log_messages_published",
        "Messages published to the broker; with Kafka, changes of rooms, too.";
    log_confirmed: Counter::default, "log_messages_confirmed",
        "Messages the broker confirmed; with Kafka, changes of rooms, too.";
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
    bus_time: Histogram::of_micros, "bus_seconds",
        "Time until messages that other servers sent over the bus were published here.";
    bus_sent: Counter::default, "bus_records_sent", "Records written to the bus, for other servers.";
    bus_dropped: Counter::default, "bus_records_dropped",
        "Records of the bus that the broker did not take; other servers read the store instead.";
    bus_partitions: Gauge::default, "bus_partitions",
        "Partitions of the bus that this server reads: those of rooms that are followed here, or were a minute ago, and of changes that it waits for.";
    bus_depth: Gauge::default, "bus_depth", "Records of the bus that this server has still to read.";
    log_dead: Counter::default, "log_messages_dead", "Messages published to the dead-letter queue.";
    log_batch_size: Histogram::of_counts, "log_batch_messages",
        "Number of messages in a batch from the broker.";
    log_retried: Counter::default, "log_batches_retried",
        "Attempts to store a batch from the broker, or to write its dead letters, that failed and were repeated.";
    log_went_back: Counter::default, "log_rewinds",
        "Partitions of Kafka that were read again from an earlier record, because the store had gone back.";
    log_broker_time: Histogram::of_micros, "log_end_to_end_seconds",
        "Time from publishing to a stored and acknowledged message, of messages published by Hubbub.";
    log_depth: Gauge::default, "log_depth", "Messages that wait in the broker.";
    log_partitions: Gauge::default, "log_partitions", "Partitions of Kafka's topic of messages.";
    log_committing: Gauge::default, "log_partitions_committed",
        "Partitions of Kafka's topic of messages that this server stores.";
    log_unreadable: Gauge::default, "log_partitions_unreadable",
        "Partitions of Kafka's topic of messages that wait on this server: how far the store has them cannot be read.";
    log_partition_faults: Gauge::default, "log_partition_faults",
        "Faults of single partitions of Kafka's topic of messages, which refuse messages of their rooms, or do not store them.";
    log_unacked: Gauge::default, "log_unacked",
        "Messages consumed from the broker that are not acknowledged yet.";
    log_lag: MicrosGauge::default, "log_lag_seconds",
        "Time from publishing to storing of the last stored message, or until now of the one that is being stored for longest.";
    http_requests: Counter::default, "http_requests", "HTTP requests, also those whose client was gone before the answer began.";
    http_time: Histogram::of_micros, "http_request_seconds",
        "Time from the header of an HTTP request until its answer began; without requests that may wait for a message, those whose client was gone before, and /health and /metrics.";
    logins: Counter::default, "logins", "Logins with name and password.";
    logins_refused: Counter::default, "logins_refused", "Attempts to log in with a wrong name or password.";
    logins_limited: Counter::default, "logins_limited",
        "Attempts to log in refused because the account or the address tried too often.";
    spans_exported: Counter::default, "traces_spans_exported", "Spans of traces that the collector took.";
    spans_dropped: Counter::default, "traces_spans_dropped",
        "Spans of traces that did not fit into the queue, or that the collector refused.";
}

impl Metrics {
    /// Counts `count` messages or requests refused with `code`.
    pub fn reject(&self, code: ErrorCode, count: u64) {
        let index = ErrorCode::ALL.iter().position(|c| *c == code);
        if let Some(counter) = index.and_then(|i| self.rejected.get(i)) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// All metrics in the text format of Prometheus ([`MEDIA_TYPE`]), with the figures of `store`, `log` and `program`.
    pub fn render(&self, store: &dyn Store, log: &LogHealth, program: &Program) -> String {
        let mut all = Registry::default();
        program.register(&mut all);
        self.register_all(store, log, all.sub_registry_with_prefix("hubbub"));
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = encoding::text::encode(&mut out, &all);
        text::from_open_metrics(&out)
    }

    fn register_all(&self, store: &dyn Store, log: &LogHealth, registry: &mut Registry) {
        self.register(registry);
        let codes = ErrorCode::ALL.iter().zip(&self.rejected);
        let values = codes.map(|(code, count)| {
            (code.as_str().to_owned(), ConstCounter::new(count.load(Ordering::Relaxed)))
        });
        let rejected = Labelled { label: "reason", values: values.collect() };
        registry.register("messages_rejected", "Messages and requests refused, by reason", rejected);
        let figures = store.figures();
        for (name, help, value) in counters(&figures) {
            registry.register(name, help, ConstCounter::new(value));
        }
        let is_up = matches!(store.health(), StoreHealth::Up | StoreHealth::Alarm(_));
        for (name, help, value) in gauges(&figures, is_up) {
            registry.register(name, help, ConstGauge::new(saturate::<_, i64>(value)));
        }
        for (name, help, kind, micros) in times(&figures) {
            match kind {
                MetricType::Counter => registry.register(name, help, ConstCounter::new(seconds(micros))),
                _ => registry.register(name, help, ConstGauge::new(seconds(micros))),
            }
        }
        let help = "Whether the log takes messages; a broker may be away";
        registry.register("log_up", help, ConstGauge::new(i64::from(log.fault.is_none())));
        if let Some(requests) = figures.requests {
            register_requests(&requests, registry);
        }
        if let Some(replicas) = store.replicas() {
            register_replicas(&replicas.replicas(), registry);
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "exact up to 285 years")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// One metric with a value for each text of a label.
#[derive(Debug)]
struct Labelled<M> {
    label: &'static str,
    values: Vec<(String, M)>,
}

impl<M: EncodeMetric + TypedMetric + Debug + Send + Sync> EncodeMetric for Labelled<M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (text, value) in &self.values {
            value.encode(encoder.encode_family(&[(self.label, text.as_str())])?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}

type Figure = (&'static str, &'static str, u64);

fn counters(figures: &StoreFigures) -> impl IntoIterator<Item = Figure> {
    let StoreFigures { pool, cache, lease, .. } = figures;
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
            "store_cache_validations",
            "Queries that validate the cache; one serves all waiting reads",
            cache.validations,
        ),
        (
            "kv_exclusive_lost",
            "Times that this server was no longer the only one that changes keys without having let others do so",
            lease.lost,
        ),
        (
            "kv_exclusive_waits",
            "Batches with changes of keys that waited for the server that was the only one",
            lease.waits,
        ),
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
        ("store_pool_connections", "Connections to the database", pool.active + pool.idle),
        ("store_pool_active", "Connections to the database in use", pool.active),
        ("store_pool_idle", "Idle connections to the database", pool.idle),
        ("store_pool_waiting", "Requests that wait for a connection to the database", pool.waiting),
    ]
}

/// Times in microseconds, shown in seconds.
fn times(figures: &StoreFigures) -> [(&'static str, &'static str, MetricType, u64); 4] {
    let (pool, gauge) = (&figures.pool, MetricType::Gauge);
    let (waits, longest) =
        ("Time spent waiting for connections", "Longest wait for a connection since start");
    [
        ("store_sync_last_seconds", "Duration of the last data sync", gauge, figures.sync_us_last),
        ("store_sync_max_seconds", "Longest data sync since start", gauge, figures.sync_us_max),
        ("store_pool_acquire_seconds", waits, MetricType::Counter, pool.acquire_us),
        ("store_pool_acquire_max_seconds", longest, gauge, pool.acquire_us_max),
    ]
}

/// Only where the store counts them.
fn register_requests(requests: &RequestFigures, registry: &mut Registry) {
    let counters = [
        ("store_requests", "Requests to the database that were answered or failed", requests.done),
        ("store_requests_failed", "Requests to the database that failed", requests.failed),
        ("store_request_statements", "Statements in these requests", requests.statements),
    ];
    for (name, help, value) in counters {
        registry.register(name, help, ConstCounter::new(value));
    }
    let help = "Time that requests to the database took, added up";
    registry.register("store_request_seconds", help, ConstCounter::new(seconds(requests.micros)));
    let gauges = [
        ("store_requests_active", "Requests to the database under way", requests.active),
        ("store_requests_waiting", "Requests that wait because too many are under way", requests.waiting),
    ];
    for (name, help, value) in gauges {
        registry.register(name, help, ConstGauge::new(saturate::<_, i64>(value)));
    }
}

/// Figures of each replica, labelled by its address in the configuration.
fn register_replicas(replicas: &[ReplicaFigures], registry: &mut Registry) {
    let up = |replica: &ReplicaFigures| Some(ConstGauge::new(i64::from(replica.fault.is_none())));
    registry.register("store_replica_up", "Whether reads go to the replica", by_replica(replicas, up));
    let lag = |replica: &ReplicaFigures| replica.lag_us.map(|micros| ConstGauge::new(seconds(micros)));
    let help = "How long the replica has been behind; absent while it does not answer";
    registry.register("store_replica_lag_seconds", help, by_replica(replicas, lag));
    let reads = |replica: &ReplicaFigures| Some(ConstCounter::new(replica.reads));
    registry.register("store_replica_reads", "Reads the replica answered", by_replica(replicas, reads));
    let fallbacks = |replica: &ReplicaFigures| Some(ConstCounter::new(replica.fallbacks));
    let help = "Reads meant for the replica that the primary answered";
    registry.register("store_replica_fallbacks", help, by_replica(replicas, fallbacks));
}

/// One metric of all replicas that have a value.
fn by_replica<M>(replicas: &[ReplicaFigures], value: impl Fn(&ReplicaFigures) -> Option<M>) -> Labelled<M> {
    let values = replicas.iter().filter_map(|replica| Some((replica.place.clone(), value(replica)?)));
    Labelled { label: "replica", values: values.collect() }
}
