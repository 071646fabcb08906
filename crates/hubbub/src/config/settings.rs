//! All settings: field, type, default, key and description.

use std::time::Duration;

use hubbub_gateway::{Compat, MetricsDefault};
use hubbub_store::embedded::Durability;
use tracing_subscriber::filter::LevelFilter;

use super::WrittenSettings;
use super::setting::{Setting, Sourced, UNLIMITED, read, settings};
use super::values::{
    Address, Bytes, ClientAuth, ExclusiveKind, LogFormat, Networks, Origins, PoolerKind, ReplicaLevel, Role,
    Sasl, Secret, SettingValue, Share, Url, Urls,
};

settings! {
    /// Address to listen on: ADDR:PORT, or PORT on 127.0.0.1; port 0 picks a free one.
    listen: Address = Address::local(8080) => "server.listen", "listen";
    /// With Kafka as the log: gateway,committer; gateway for a server that stores nothing from it; or committer for one that
    /// serves no clients, only /health and /metrics.
    role: Role = Role::Both => "server.role", "role";
    /// Name of this server among several, in the timelines of messages; off = the machine's name and the port.
    name: Option<String> = None => "server.name";
    /// Address of the line protocol (queues over plain TCP), such as 127.0.0.1:3456; off = disabled.
    line: Option<Address> = None => "server.line", "line";
    /// Allow non-loopback listeners without authentication: everybody who reaches them is the administrator.
    insecure: bool = false => "server.insecure", "insecure";
    /// Interface to serve besides the API: chats (forms and a cookie that proves nothing; on loopback addresses only, unless
    /// server.insecure is set), or off.
    compat: Option<Compat> = None => "server.compat", "compat";
    /// Origins whose pages may use this server besides its own, such as https://chat.example, separated by commas. Set it
    /// to the public origin behind a proxy that does not forward the Host header, or, without tokens, behind one that does:
    /// a server without tokens refuses requests to other names, with server.insecure only if an origin is listed here.
    allowed_origins: Origins = Origins(Vec::new()) => "server.allowed_origins";
    /// Addresses or networks of proxies whose X-Forwarded-For header says where a client comes from, such as
    /// 10.0.0.0/8, separated by commas. They are exempt from limits.address_connections.
    trusted_proxies: Networks = Networks(Vec::new()) => "server.trusted_proxies";
    /// Worker threads; 0 = one for each core.
    threads: usize = 0 => "server.threads";
    /// Maximum number of open connections; further ones are closed at once.
    connections: usize = 50_000, from 1 to UNLIMITED => "server.connections";
    /// Time-out for a request's header, and for the next request on an idle connection.
    header_timeout: Duration = Duration::from_secs(60), from 1 to UNLIMITED => "server.header_timeout";
    /// Time-out for a request's body.
    body_timeout: Duration = Duration::from_secs(30), from 1 to UNLIMITED => "server.body_timeout";
    /// Time-out until a client takes more of an answer over HTTP/1.1.
    write_timeout: Duration = Duration::from_secs(30), from 1 to UNLIMITED => "server.write_timeout";
    /// Interval between pings on a WebSocket.
    ping_interval: Duration = Duration::from_secs(25), from 1 to UNLIMITED => "server.ping_interval";
    /// Time-out for the pong; then the socket is closed (4408).
    pong_timeout: Duration = Duration::from_secs(10), from 1 to UNLIMITED => "server.pong_timeout";
    /// Time-out for the second line of a command of the line protocol.
    terms_timeout: Duration = Duration::from_secs(30), from 1 to UNLIMITED => "server.terms_timeout";
    /// Time for open connections to finish at shutdown.
    drain_timeout: Duration = Duration::from_secs(10) => "server.drain_timeout";
    /// At shutdown each client is told to reconnect after a random part of this time.
    reconnect_spread: Duration = Duration::from_secs(5) => "server.reconnect_spread";

    /// PEM file of the certificate and its chain; with it, HTTP and WebSocket are encrypted. off = no TLS. A changed file
    /// is read within a second or at SIGHUP, and is used for new connections.
    tls_cert: Option<String> = None => "tls.cert";
    /// PEM file of the certificate's private key.
    tls_key: Option<String> = None => "tls.key";
    /// Whether the line protocol is encrypted too, if there is a certificate.
    tls_line: bool = true => "tls.line";
    /// PEM file of authorities that sign clients' certificates; off = clients need none.
    tls_client_ca: Option<String> = None => "tls.client_ca";
    /// With tls.client_ca: required = clients without a certificate are refused; optional = only wrong ones are.
    tls_client_auth: ClientAuth = ClientAuth::Required => "tls.client_auth";
    /// Time-out for a TLS handshake.
    tls_handshake_timeout: Duration = Duration::from_secs(10), from 1 to UNLIMITED => "tls.handshake_timeout";
    /// Maximum number of TLS handshakes under way; for one more, the oldest is given up if it takes longer than a second.
    tls_handshakes: usize = 1_024, from 1 to UNLIMITED => "tls.handshakes";

    /// Secret that tokens are signed with (HS256), at least 32 bytes; in the environment or the file, never on the command
    /// line. With this, auth.public_key or auth.jwks, every caller needs a token: see docs/security.md.
    auth_secret: Option<Secret> = None => "auth.secret";
    /// PEM file of the public key that tokens are signed for: Ed25519 (EdDSA), P-256 (ES256) or RSA (RS256).
    auth_public_key: Option<String> = None => "auth.public_key";
    /// JSON Web Key Set of an identity provider: a file, or https://…; read again as its keys change. Needs auth.audience.
    auth_jwks: Option<String> = None => "auth.jwks";
    /// Who tokens must be for (aud). Without it, tokens that are for somebody are refused.
    auth_audience: Option<String> = None => "auth.audience";
    /// Who must have issued tokens (iss); off = anybody with the key.
    auth_issuer: Option<String> = None => "auth.issuer";
    /// Tolerance of times in tokens, for clocks that differ.
    auth_leeway: Duration = Duration::from_secs(30) => "auth.leeway";
    /// Tokens that expire later than this from now are refused.
    auth_max_lifetime: Duration = Duration::from_secs(30 * 86_400), from 1 to UNLIMITED => "auth.max_lifetime";
    /// Accounts with passwords, for people without an identity provider: hubbub user, and a form on the page. Needs one of the
    /// keys above, as accounts are added with an administrator's token.
    auth_accounts: bool = false => "auth.accounts";
    /// How long somebody who gave a password stays logged in.
    auth_login_lifetime: Duration = Duration::from_secs(12 * 3_600), from 1 to UNLIMITED => "auth.login_lifetime";
    /// How often one account's password may be tried each minute, on each server.
    auth_login_attempts: usize = 10, from 1 to UNLIMITED => "auth.login_attempts";
    /// How often one address may try passwords each minute, on each server.
    auth_login_attempts_address: usize = 60, from 1 to UNLIMITED => "auth.login_attempts_address";

    /// How long a wall clock that was set must keep its time before it is trusted; after a long downtime, before data is
    /// deleted by it. A clock that is wrong for a shorter time deletes nothing.
    clock_trust_after: Duration = hubbub_core::clock::TRUST_AFTER, from 1 to UNLIMITED => "clock.trust_after";

    /// The store: embedded, embedded:DIR, or postgres://USER:PASSWORD@HOST:PORT/DATABASE. Of several hosts, as in
    /// HOST1:PORT,HOST2:PORT, the one that accepts writes is used. Behind Kafka also Cassandra or ScyllaDB:
    /// scylla://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE, with TLS scyllas://. Pass a password in the environment or in a
    /// file rather than on the command line.
    store: Url = Url("embedded".into()) => "store.url", "store";
    /// Directory of the embedded store; created if missing.
    data: String = "./data".into() => "store.data", "data";
    /// fsync: an acknowledged message survives a power failure. os: it survives a crash of the server, not of the
    /// machine; the operating system writes the data to disk later.
    durability: Durability = Durability::Fsync => "store.embedded.durability";
    /// Messages older than this are deleted, whole segments at a time; off = kept forever.
    retention: Option<Duration> = None => "store.embedded.retention";
    /// Memory of the cache of segment blocks.
    block_cache: Bytes = Bytes(32 << 20) => "store.embedded.block_cache";
    /// Free disk space to preserve: with less, writes are refused until space is freed.
    disk_reserve: Bytes = Bytes(256 << 20) => "store.embedded.disk_reserve";
    /// Size of a journal file; up to six are kept. A full file becomes a segment, so a larger size makes larger segments.
    journal_slot: Bytes = Bytes(64 << 20) => "store.embedded.journal_slot";
    /// For experiments: time added to each sync of the journal, to simulate a slow disk.
    sync_delay: Duration = Duration::ZERO => "store.embedded.sync_delay", "sync-delay";
    /// Replicas for reads of history and statistics, as postgres://USER:PASSWORD@HOST:PORT/DATABASE, separated by commas,
    /// each with one host. Write a comma in a password as %2C.
    postgres_replicas: Urls = Urls(Vec::new()) => "store.postgres.replicas";
    /// A replica that is further behind than this is not used. No answer is ever older than the primary's.
    postgres_replica_lag: Duration = Duration::from_secs(1), from 1 to UNLIMITED => "store.postgres.replica_lag";
    /// The pooler between the server and PostgreSQL. session: none, or one that keeps a session for each connection.
    /// transaction: one that assigns a session for each transaction, as pgbouncer with pool_mode = transaction.
    postgres_pooler: PoolerKind = PoolerKind::Session => "store.postgres.pooler";
    /// auto: while this server is the only one on the database, it answers reads of cached keys without asking it. off: never,
    /// as while servers without this setting still run beside it.
    postgres_exclusive: ExclusiveKind = ExclusiveKind::Auto => "store.postgres.exclusive";
    /// PEM file of certificates to trust; off = the system's. With sslmode=require in the URL, TLS is mandatory. The
    /// certificate is always verified.
    postgres_ca: Option<String> = None => "store.postgres.ca";
    /// Maximum number of connections that write one batch of messages in parallel, each for different rooms.
    postgres_lanes: usize = 2, from 1 to UNLIMITED => "store.postgres.lanes";
    /// Time-out of a batch; after it, the outcome is unknown.
    postgres_apply_timeout: Duration = Duration::from_secs(30), from 1 to UNLIMITED => "store.postgres.apply_timeout";
    /// PostgreSQL ends sessions of a server that stands still in a transaction for this long, as a paused virtual machine
    /// does; the others wait for its locks until then. Not behind a transaction pooler: set it at the role there.
    postgres_idle_transaction_timeout: Duration = Duration::from_secs(10), from 1 to UNLIMITED => "store.postgres.idle_transaction_timeout";
    /// Messages older than this are deleted, whole partitions at a time; off = kept forever.
    postgres_retention: Option<Duration> = None => "store.postgres.retention";
    /// Time range of a partition of messages.
    postgres_partition: Duration = Duration::from_secs(7 * 24 * 3_600) => "store.postgres.partition";
    /// Memory of the cache of recent messages in active rooms; 0 = every read goes to PostgreSQL.
    postgres_recent_cache: Bytes = Bytes(64 << 20) => "store.postgres.recent_cache_bytes";
    /// Whether to migrate the schema at the start; otherwise an outdated schema is refused.
    postgres_migrate: bool = true => "store.postgres.migrate";
    /// URL for migrations: that of PostgreSQL itself, if store.url is that of a transaction pooler; off = store.url.
    postgres_migrate_url: Option<Url> = None => "store.postgres.migrate_url";
    /// Minimum number of open connections.
    postgres_pool_min: usize = 2 => "store.postgres.pool.min";
    /// Maximum number of open connections.
    postgres_pool_max: usize = 16, from 1 to UNLIMITED => "store.postgres.pool.max";
    /// Time-out of waiting for a connection.
    postgres_pool_acquire_timeout: Duration = Duration::from_secs(30), from 1 to UNLIMITED => "store.postgres.pool.acquire_timeout";
    /// Connections that were idle for this time are closed, down to the minimum.
    postgres_pool_idle_timeout: Duration = Duration::from_secs(600), from 1 to UNLIMITED => "store.postgres.pool.idle_timeout";
    /// Connections older than this are closed when they are idle, so that changed settings and hosts take effect.
    postgres_pool_max_lifetime: Duration = Duration::from_secs(1_800), from 1 to UNLIMITED => "store.postgres.pool.max_lifetime";

    /// For scyllas://: PEM file of certificates to trust; off = the system's. The certificate is always verified; its names
    /// must have the server's IP address.
    scylla_ca: Option<String> = None => "store.scylla.ca";
    /// PEM file of the certificate that this client shows to Cassandra or ScyllaDB, and after it those that lead to the
    /// authority; off = none.
    scylla_cert: Option<String> = None => "store.scylla.cert";
    /// PEM file of its private key.
    scylla_key: Option<String> = None => "store.scylla.key";
    /// How many replicas of Cassandra or ScyllaDB confirm a write and answer a read: local_quorum, quorum, or one, which is
    /// only for clusters with one replica.
    scylla_consistency: ReplicaLevel = ReplicaLevel::LocalQuorum => "store.scylla.consistency";
    /// Replication of the keyspace when it is created, in CQL.
    scylla_replication: String = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}".into() => "store.scylla.replication";
    /// Messages older than this are deleted, unless their room sets it; off = kept forever. The same on all servers.
    scylla_retention: Option<Duration> = None => "store.scylla.retention";
    /// Whether to create and migrate the schema at the start; otherwise an outdated schema is refused.
    scylla_migrate: bool = true => "store.scylla.migrate";
    /// Time-out of a statement; after it, the outcome of the batch is unknown.
    scylla_statement_timeout: Duration = Duration::from_secs(10), from 1 to UNLIMITED => "store.scylla.statement_timeout";
    /// Maximum number of statements under way at the same time.
    scylla_statements_max: usize = 256, from 1 to 10_000 => "store.scylla.statements_max";

    /// The message log, which orders room messages before they are stored: direct (inside the server), RabbitMQ:
    /// amqp://USER:PASSWORD@HOST:PORT/VHOST, with TLS amqps://, or Kafka: kafka://USER:PASSWORD@HOST:PORT,HOST:PORT, with TLS
    /// kafkas://.
    log: Url = Url("direct".into()) => "log.url", "log";
    /// PEM file of certificates to trust besides the system's, for amqps://; off = none.
    amqp_ca: Option<String> = None => "amqp.ca";
    /// Topic exchange that messages are published to, with routing keys room.NAME; other programs may publish, too.
    amqp_exchange: String = "chat.exchange".into() => "amqp.exchange";
    /// Prefix of the queues' names; the number of the shard follows.
    amqp_queue_prefix: String = "hubbub.room.".into() => "amqp.queue_prefix";
    /// Number of queues that rooms are distributed over; more than one needs the plugin rabbitmq_consistent_hash_exchange.
    amqp_shards: usize = 1, from 1 to 64 => "amqp.shards";
    /// Maximum number of unacknowledged messages for each queue.
    amqp_prefetch: usize = 1_000, from 1 to 65_535 => "amqp.prefetch";
    /// For kafkas://: PEM file of certificates to trust; off = the system's. The certificate is always verified, with the
    /// names that the brokers advertise.
    kafka_ca: Option<String> = None => "kafka.ca";
    /// PEM file of the certificate that this client shows to Kafka, and after it those that lead to the authority; off = none.
    kafka_cert: Option<String> = None => "kafka.cert";
    /// PEM file of its private key.
    kafka_key: Option<String> = None => "kafka.key";
    /// How user and password of log.url prove to Kafka who this is (SASL): plain, scram-sha-256 or scram-sha-512.
    kafka_sasl: Sasl = Sasl::Sha512 => "kafka.sasl";
    /// Prefix of the names of Kafka's topics and of the consumer group.
    kafka_topic_prefix: String = "hubbub.".into() => "kafka.topic_prefix";
    /// Partitions of the topic of messages when it is created; it can never change.
    kafka_partitions: usize = 12, from 1 to 1_000 => "kafka.partitions";
    /// Copies of each topic when it is created; 0 = three, or one for each broker if there are fewer.
    kafka_replication: usize = 0 => "kafka.replication";
    /// How long Kafka keeps messages when the topic is created; the store must never be behind by more.
    kafka_retention: Duration = Duration::from_secs(7 * 24 * 3_600), from 1 to UNLIMITED => "kafka.retention";
    /// A message that Kafka has not confirmed after this time is answered as unconfirmed.
    kafka_delivery_timeout: Duration = Duration::from_secs(10), from 1 to UNLIMITED => "kafka.delivery_timeout";
    /// A server that died is replaced after this time. The brokers' group.min.session.timeout.ms must allow it.
    kafka_session_timeout: Duration = Duration::from_secs(6), from 1 to UNLIMITED => "kafka.session_timeout";
    /// Whether servers tell each other through Kafka what they stored; without, they poll the store.
    kafka_bus: bool = true => "kafka.bus";
    /// Whether to start although Kafka has removed messages before they were stored; they are lost.
    kafka_skip_lost: bool = false => "kafka.skip_lost";
    /// Maximum number of operations that wait for the store; one room may hold half of them. More are refused as
    /// overloaded.
    queue_operations: usize = 65_536, from 1 to UNLIMITED => "pipeline.queue_operations";
    /// Maximum bytes that wait for the store; one room, queue or key may hold half of them.
    queue_bytes: Bytes = Bytes(64 << 20), from 1 to UNLIMITED => "pipeline.queue_bytes";
    /// For experiments: how long a batch waits for more operations after its first one.
    linger: Duration = Duration::ZERO => "pipeline.linger";
    /// For experiments: maximum number of operations in a batch; 0 = the store's limit, 1 = no batching.
    batch_max: usize = 0 => "pipeline.batch_max";

    /// Whether the first message to a room creates it.
    autocreate: bool = true => "rooms.autocreate";

    /// Whether a client is registered by sending to a queue or taking from one.
    queues_autoregister: bool = true => "queues.autoregister";
    /// Maximum number of registered queue clients. A message to everybody makes a copy for each.
    queues_clients_max: usize = 1_000_000 => "queues.clients_max";

    /// Memory of undelivered live messages, for all subscribers together. Above it, the slowest subscribers are
    /// disconnected (4409) and resume, and subscribers that catch up read smaller pages.
    live_memory: Bytes = Bytes(64 << 20) => "live.memory";

    /// Memory of the records behind `hubbub trace`: when batches were queued, stored, published and delivered; 0B = none. It
    /// is taken as records come. 16MiB are 200,000 batches of one room, or half as many if somebody follows it.
    timeline_memory: Bytes = Bytes(16 << 20) => "timeline.memory";

    /// How long access to rooms is cached; 0s = not at all. Changes made by this server take effect at once.
    members_cache_ttl: Duration = Duration::from_secs(10) => "members.cache_ttl";

    /// Memory of the cache of keys' values; 0B = none. On a store that several servers share, such as a database, it is
    /// asked whether cached values are current; reads that wait share one question.
    kv_cache: Bytes = Bytes(256 << 20) => "kv.cache_bytes";
    /// Maximum number of cached keys; each counts at least its share of the memory.
    kv_cache_entries: usize = 1_000_000, from 1 to UNLIMITED => "kv.cache_entries";

    /// Longest text of a message; at most 16MiB.
    message_bytes: Bytes = Bytes(64 << 10) => "limits.message_bytes";
    /// Longest text of a queue's message.
    queue_message_bytes: Bytes = Bytes(256 << 10), from 1 to UNLIMITED => "limits.queue_message_bytes";
    /// Longest value of a key.
    value_bytes: Bytes = Bytes(1 << 20), from 1 to UNLIMITED => "limits.value_bytes";
    /// Largest request body, and longest line of a streamed one.
    body_bytes: Bytes = Bytes(1 << 20) => "limits.body_bytes";
    /// Memory of request bodies, frames and commands that have not arrived whole, of all connections together; the first
    /// 16KiB of each do not count. Beyond it, what has not grown for longest is given up as overloaded (a WebSocket: 1013).
    unfinished_bytes: Bytes = Bytes(256 << 20) => "limits.unfinished_bytes";
    /// Memory of answers that clients have not taken, of all connections together; the first 16KiB of each do not count. Beyond
    /// it, connections on which nothing was taken for longest are closed.
    unread_bytes: Bytes = Bytes(256 << 20) => "limits.unread_bytes";
    /// Maximum number of rooms that one socket may follow.
    subscriptions: usize = 1_000, from 1 to UNLIMITED => "limits.subscriptions";
    /// Maximum number of rooms that one socket may follow with "*", all rooms of its user; for a user with more, "*" is
    /// refused.
    all_rooms: usize = 10_000, from 1 to UNLIMITED => "limits.all_rooms";
    /// Maximum number of messages in a page of history.
    page_messages: usize = 1_000, from 1 to 10_000 => "limits.page_messages";
    /// Maximum number of messages in a subscriber's send queue; a slower one is disconnected (4409).
    outbox_messages: usize = 16_384, from 1 to UNLIMITED => "limits.outbox_messages";
    /// Maximum bytes in a subscriber's send queue.
    outbox_bytes: Bytes = Bytes(8 << 20), from 1 to UNLIMITED => "limits.outbox_bytes";

    /// Maximum number of connections of one address, or of one /64 network of IPv6; further ones are closed at once. off =
    /// no limit.
    address_connections: Option<usize> = None, from 1 to UNLIMITED => "limits.address_connections";
    /// Maximum number of requests of one user in a second, over all connections: HTTP requests, lines of a bulk request,
    /// frames of a WebSocket. More are refused (429 too_many_requests).
    user_requests: Option<usize> = None, from 1 to UNLIMITED => "limits.user_requests";
    /// Maximum bytes of one user's requests in a second.
    user_bytes: Option<Bytes> = None, from 1 to UNLIMITED => "limits.user_bytes";
    /// Maximum number of requests of one address in a second, commands of the line protocol included.
    address_requests: Option<usize> = None, from 1 to UNLIMITED => "limits.address_requests";
    /// Maximum bytes of one address's requests in a second.
    address_bytes: Option<Bytes> = None, from 1 to UNLIMITED => "limits.address_bytes";
    /// Maximum number of rooms that one user may be a member of; administrators may make more. off = no limit.
    user_rooms: Option<usize> = None, from 1 to UNLIMITED => "limits.user_rooms";
    /// Maximum number of HTTP requests that are answered at one time, for everybody together. off = no limit.
    requests: Option<usize> = None, from 1 to UNLIMITED => "limits.requests";
    /// Maximum number of requests that wait for a queue's next message, for everybody together. off = no limit.
    waiting: Option<usize> = None, from 1 to UNLIMITED => "limits.waiting";

    /// What /metrics returns if the Accept header is missing or allows everything: prometheus, or report, the statistics
    /// as JSON.
    metrics_default: MetricsDefault = MetricsDefault::Prometheus => "metrics.default";

    /// Collector of traces that takes OTLP over HTTP, such as http://127.0.0.1:4318; off = no traces. Without a path,
    /// /v1/traces is added.
    otlp_url: Option<Url> = None => "telemetry.otlp.url";
    /// Share of the HTTP requests that are traced, from 0 to 1, if they have no traceparent header; those whose header asks
    /// for it always are.
    otlp_sample: Share = Share(10_000) => "telemetry.otlp.sample";
    /// Headers for the collector, as NAME=VALUE, separated by commas; in the environment or the file, never on the command
    /// line.
    otlp_headers: Option<Secret> = None => "telemetry.otlp.headers";
    /// Time-out of a request to the collector.
    otlp_timeout: Duration = Duration::from_secs(10), from 1 to UNLIMITED => "telemetry.otlp.timeout";
    /// Name of the service in traces; server.name tells its servers apart.
    otlp_service: String = "hubbub".into() => "telemetry.otlp.service";

    /// Which events are logged: error, warn, info or debug.
    log_level: LevelFilter = LevelFilter::INFO => "logging.level";
    /// How events are logged, to standard error: text or json.
    log_format: LogFormat = LogFormat::Text => "logging.format";
}
