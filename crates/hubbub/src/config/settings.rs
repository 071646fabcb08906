//! Every setting: its key, its type, its default, what it means.

use std::time::Duration;

use super::values::{
    Bytes, LogFormat, LogLevel, MetricsAnswer, Origins, PoolerKind, SettingValue, StoreDurability, Url, Urls,
    masked,
};
use super::{Source, WrittenSettings};

/// What is known of a setting without its value.
pub(crate) struct Setting {
    /// Section and name in the file.
    pub(crate) key: &'static str,
    /// Its short name in the environment, which is also its flag's, for settings that matter most.
    pub(crate) short: &'static [&'static str],
    pub(crate) help: &'static [&'static str],
    pub(crate) show: fn(&Config) -> String,
    pub(crate) source: fn(&Config) -> &Source,
}

impl Setting {
    /// `HUBBUB_` and the flag's name, or the key.
    pub(crate) fn environment_name(&self) -> String {
        let name = self.short.first().unwrap_or(&self.key);
        format!("HUBBUB_{}", name.replace(['.', '-'], "_").to_ascii_uppercase())
    }
}

/// A value and where it came from.
#[derive(Debug, Clone)]
pub(crate) struct Sourced<T> {
    pub(super) value: T,
    source: Source,
}

impl<T> std::ops::Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

macro_rules! settings {
    ($($(#[doc = $help:literal])+ $field:ident: $kind:ty = $default:expr => $key:literal $(, $short:literal)?;)*) => {
        /// The whole configuration.
        #[derive(Debug, Clone)]
        pub(crate) struct Config { $($(#[doc = $help])+ pub(crate) $field: Sourced<$kind>,)* }

        /// All settings, in the order of the file.
        pub(crate) const SETTINGS: &[Setting] = &[$(Setting {
            key: $key,
            short: &[$($short)?],
            help: &[$($help),+],
            show: |config| config.$field.value.show(),
            source: |config| &config.$field.source,
        },)*];

        impl Config {
            /// The values that were written, defaults for the rest; what is wrong goes to `faults`.
            pub(super) fn from_written(written: &WrittenSettings, faults: &mut Vec<String>) -> Self {
                Self { $($field: read::<$kind>($key, || $default, written, faults),)* }
            }
        }
    };
}

fn read<T: SettingValue>(
    key: &'static str,
    default: impl FnOnce() -> T,
    written: &WrittenSettings,
    faults: &mut Vec<String>,
) -> Sourced<T> {
    let Some(written) = written.get(key) else {
        return Sourced { value: default(), source: Source::Default };
    };
    match T::parse(&written.value) {
        Some(value) => Sourced { value, source: written.source.clone() },
        None => {
            faults.push(format!("{key} {}, not '{}' ({})", T::RULE, masked(&written.value), written.source));
            Sourced { value: default(), source: Source::Default }
        }
    }
}

settings! {
    /// Address to listen on; port 0 picks a free one.
    listen: String = "127.0.0.1:8080".into() => "server.listen", "listen";
    /// Address for the line protocol, queues over plain TCP, as 127.0.0.1:3456; off = it is not spoken.
    line: Option<String> = None => "server.line", "line";
    /// Listen beyond this machine although nobody has to prove who they are.
    insecure: bool = false => "server.insecure", "insecure";
    /// Sites whose pages may send and follow here besides the server's own, as https://chat.example, separated by
    /// commas. Behind a proxy that does not pass the Host header on, the site people see.
    allowed_origins: Origins = Origins(Vec::new()) => "server.allowed_origins";
    /// Worker threads; 0 = as many as the machine has cores.
    threads: usize = 0 => "server.threads";
    /// Connections open at once; more are closed as they come.
    connections: usize = 50_000 => "server.connections";
    /// Time for a request's header to arrive, and for the next request on an idle connection.
    header_timeout: Duration = Duration::from_secs(60) => "server.header_timeout";
    /// Time for a request's body to arrive.
    body_timeout: Duration = Duration::from_secs(30) => "server.body_timeout";
    /// Time between pings on a WebSocket.
    ping_interval: Duration = Duration::from_secs(25) => "server.ping_interval";
    /// Time for the pong; without one the socket is closed (4408).
    pong_timeout: Duration = Duration::from_secs(10) => "server.pong_timeout";
    /// Time for the second line of a command of the line protocol to follow the first.
    terms_timeout: Duration = Duration::from_secs(30) => "server.terms_timeout";
    /// Time for connections to finish at shutdown.
    drain_timeout: Duration = Duration::from_secs(10) => "server.drain_timeout";

    /// How long a wall clock that was set must keep its time before it is followed, and after a long time out of service
    /// before anything is deleted by it. A clock that is wrong for less deletes nothing.
    clock_trust_after: Duration = hubbub_core::clock::TRUST_AFTER => "clock.trust_after";

    /// Where messages are kept: embedded, embedded:DIR, or postgres://USER:PASSWORD@HOST:PORT/DATABASE; of several hosts,
    /// as in HOST1:PORT,HOST2:PORT, the one that takes writes is used. A password is better given in the environment
    /// or in a file than on the command line.
    store: Url = Url("embedded".into()) => "store.url", "store";
    /// Directory of the embedded store; made if missing.
    data: String = "./data".into() => "store.data", "data";
    /// fsync: an acknowledged message survives a power failure. os: it survives a crash of the server, not of the
    /// machine; the data is handed to the operating system, which writes it when it likes.
    durability: StoreDurability = StoreDurability::Fsync => "store.embedded.durability";
    /// Messages older than this are deleted, whole segments at a time; off = kept for ever.
    retention: Option<Duration> = None => "store.embedded.retention";
    /// Memory for blocks read from segments.
    block_cache: Bytes = Bytes(32 << 20) => "store.embedded.block_cache";
    /// Disk space left to the system: with less free, writes are refused until there is more.
    disk_reserve: Bytes = Bytes(256 << 20) => "store.embedded.disk_reserve";
    /// Size of a journal file, of which up to six are kept: full ones become segments, larger ones larger segments.
    journal_slot: Bytes = Bytes(64 << 20) => "store.embedded.journal_slot";
    /// For experiments: time added to each sync of the journal, as a slow disk would take.
    sync_delay: Duration = Duration::ZERO => "store.embedded.sync_delay", "sync-delay";
    /// Replicas that may answer reads of history and statistics, as postgres://USER:PASSWORD@HOST:PORT/DATABASE,
    /// separated by commas, each with one host; a comma in a password is written as %2C.
    postgres_replicas: Urls = Urls(Vec::new()) => "store.postgres.replicas";
    /// A replica that is further behind than this is passed over. No answer is older than the primary's in any case.
    postgres_replica_lag: Duration = Duration::from_secs(1) => "store.postgres.replica_lag";
    /// What stands between the server and PostgreSQL. session: nothing, or what keeps a session for each connection.
    /// transaction: a pooler that gives each transaction another session, as pgbouncer with pool_mode = transaction.
    postgres_pooler: PoolerKind = PoolerKind::Session => "store.postgres.pooler";
    /// File of the certificates to trust, as PEM; off = those of the system. With sslmode=require in the URL nothing but
    /// TLS will do; the certificate is checked in any case.
    postgres_ca: Option<String> = None => "store.postgres.ca";
    /// Most connections that a batch of messages is written over at the same time, each for rooms of its own.
    postgres_lanes: usize = 2 => "store.postgres.lanes";
    /// Longest time for a batch; after that it is not known whether it was stored.
    postgres_apply_timeout: Duration = Duration::from_secs(30) => "store.postgres.apply_timeout";
    /// Messages older than this are deleted, whole partitions at a time; off = kept for ever.
    postgres_retention: Option<Duration> = None => "store.postgres.retention";
    /// How much time a partition of messages covers.
    postgres_partition: Duration = Duration::from_secs(7 * 24 * 3_600) => "store.postgres.partition";
    /// Most memory for recent messages of active rooms; with 0 every read of a room goes to PostgreSQL.
    postgres_recent_cache: Bytes = Bytes(64 << 20) => "store.postgres.recent_cache_bytes";
    /// Whether the schema is brought up to date at the start; otherwise one that is too old is refused.
    postgres_migrate: bool = true => "store.postgres.migrate";
    /// Where the schema is migrated: the URL of PostgreSQL itself, where store.url leads to a pooler of transactions;
    /// off = there too.
    postgres_migrate_url: Option<Url> = None => "store.postgres.migrate_url";
    /// Connections kept open even if nobody uses them.
    postgres_pool_min: usize = 2 => "store.postgres.pool.min";
    /// Connections at most.
    postgres_pool_max: usize = 16 => "store.postgres.pool.max";
    /// Longest wait for a connection.
    postgres_pool_acquire_timeout: Duration = Duration::from_secs(30) => "store.postgres.pool.acquire_timeout";
    /// Connections that nobody used for so long are closed, but for the fewest.
    postgres_pool_idle_timeout: Duration = Duration::from_secs(600) => "store.postgres.pool.idle_timeout";
    /// Connections older than this are closed once nobody uses them, so that settings and hosts that changed are noticed.
    postgres_pool_max_lifetime: Duration = Duration::from_secs(1_800) => "store.postgres.pool.max_lifetime";

    /// What orders messages of rooms before they are stored: direct, the server itself, or
    /// amqp://USER:PASSWORD@HOST:PORT/VHOST, RabbitMQ; amqps:// with TLS.
    log: Url = Url("direct".into()) => "log.url", "log";
    /// File of certificates to trust besides those of the system, as PEM, where log.url begins with amqps://; off = no others.
    amqp_ca: Option<String> = None => "amqp.ca";
    /// The topic exchange that messages are published to, with keys like room.NAME; by other programs, too.
    amqp_exchange: String = "chat.exchange".into() => "amqp.exchange";
    /// What the names of the queues begin with; the number of the shard follows.
    amqp_queue_prefix: String = "hubbub.room.".into() => "amqp.queue_prefix";
    /// Queues that rooms are spread over; more than one needs the plugin rabbitmq_consistent_hash_exchange.
    amqp_shards: usize = 1 => "amqp.shards";
    /// Messages of a queue that the broker hands out before it hears that they are stored.
    amqp_prefetch: usize = 1_000 => "amqp.prefetch";
    /// Operations that may wait for the store; one room may hold half of it. More are refused as overloaded.
    queue_operations: usize = 65_536 => "pipeline.queue_operations";
    /// Bytes that may wait for the store.
    queue_bytes: Bytes = Bytes(64 << 20) => "pipeline.queue_bytes";
    /// For experiments: how long the first operation of a batch waits for company.
    linger: Duration = Duration::ZERO => "pipeline.linger";
    /// For experiments: most operations of one batch; 0 = what the store wants, 1 = no batching.
    batch_max: usize = 0 => "pipeline.batch_max";

    /// Whether a room springs into being with its first message.
    autocreate: bool = true => "rooms.autocreate";

    /// Whether whoever sends to a queue or takes from one is registered by that.
    queues_autoregister: bool = true => "queues.autoregister";
    /// Clients of queues that may be registered at a time; one more is refused. A message to everybody is a copy for each.
    queues_clients_max: usize = 1_000_000 => "queues.clients_max";

    /// Memory for live messages on their way to all subscribers together. With more, those who lag behind most are cut
    /// off (4409) and resume, and those who catch up read smaller pages.
    live_memory: Bytes = Bytes(64 << 20) => "live.memory";

    /// How long it is remembered who may read a room; 0s = the store is asked each time. What this server itself
    /// changes counts at once.
    members_cache_ttl: Duration = Duration::from_secs(10) => "members.cache_ttl";

    /// Memory for values of keys; 0B = each is read from the store. Without effect on a store that several servers may
    /// share, as a database is.
    kv_cache: Bytes = Bytes(256 << 20) => "kv.cache_bytes";
    /// Keys whose values are kept in that memory; each is counted with its share of it at least.
    kv_cache_entries: usize = 1_000_000 => "kv.cache_entries";

    /// Longest text of a message; at most 16MiB.
    message_bytes: Bytes = Bytes(64 << 10) => "limits.message_bytes";
    /// Longest text of a queue's message.
    queue_message_bytes: Bytes = Bytes(256 << 10) => "limits.queue_message_bytes";
    /// Longest value of a key.
    value_bytes: Bytes = Bytes(1 << 20) => "limits.value_bytes";
    /// Largest body of a request, and longest line of a streamed one.
    body_bytes: Bytes = Bytes(1 << 20) => "limits.body_bytes";
    /// Rooms one socket may follow.
    subscriptions: usize = 1_000 => "limits.subscriptions";
    /// Rooms one socket may follow through "*", all rooms of its user; for a user with more, "*" is refused.
    all_rooms: usize = 10_000 => "limits.all_rooms";
    /// Most messages of one page of history.
    page_messages: usize = 1_000 => "limits.page_messages";
    /// Messages a subscriber may lag behind before it is cut off (4409).
    outbox_messages: usize = 16_384 => "limits.outbox_messages";
    /// Bytes a subscriber may lag behind before it is cut off.
    outbox_bytes: Bytes = Bytes(8 << 20) => "limits.outbox_bytes";

    /// What /metrics answers where the Accept header is missing or takes anything: prometheus, or report, the statistics
    /// as JSON.
    metrics_default: MetricsAnswer = MetricsAnswer::Prometheus => "metrics.default";

    /// Which events are logged: error, warn, info or debug.
    log_level: LogLevel = LogLevel::Info => "logging.level";
    /// How events are logged, to standard error: text or json.
    log_format: LogFormat = LogFormat::Text => "logging.format";
}
