//! Options of the store.

use std::path::PathBuf;
use std::time::Duration;

/// How the database is reached and used.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Where it is: `postgres://user:password@host:port,host2:port2/database?sslmode=…`. Of several hosts the one that
    /// takes writes is used.
    pub url: String,
    /// Where its replicas are, each a URL with one host; history and statistics may be read from them.
    pub replicas: Vec<String>,
    /// Replicas that lag further behind are not used.
    pub replica_lag: Duration,
    /// The kind of pooler in front of the database.
    pub pooler: Pooler,
    /// Certificates to trust, in a PEM file; `None` = those of the system.
    pub ca: Option<PathBuf>,
    /// The pool of connections.
    pub pool: PoolOptions,
    /// Most connections that write a batch of messages at the same time, each for rooms of its own; at least 1.
    pub lanes: usize,
    /// Longest time for a batch, from the wait for a connection to the commit.
    pub apply_timeout: Duration,
    /// How long a session may stand still in a transaction before the database ends it, with its locks. A working server
    /// never does. Not set behind a transaction pooler.
    pub idle_transaction_timeout: Duration,
    /// Whether migrations run at the start. Otherwise a schema that is too old is refused.
    pub migrate: bool,
    /// A URL past the pooler, for migrations; `None` = `url`.
    pub migrate_url: Option<String>,
    /// Whether a room is created by its first message.
    pub autocreate: bool,
    /// Whether unknown clients of queues are registered by their first use.
    pub queues_autoregister: bool,
    /// Clients of queues that may be registered at a time.
    pub queues_clients_max: u64,
    /// How the copies of messages to everybody are made.
    pub broadcasts: BroadcastOptions,
    /// How long messages are kept, unless their room sets it; `None` = for ever.
    pub retention: Option<Duration>,
    /// How much time a partition of messages covers.
    pub partition: Duration,
    /// Bytes of recent messages cached in memory; 0 switches the cache of rooms off.
    pub recent_cache_bytes: usize,
    /// Whether a server that is the only one answers reads of keys without asking the database.
    pub exclusive: Exclusive,
    /// Uses the database's clock, and follows a step of it once it was held for this long. `None` = the server's clock.
    pub clock_trust_after: Option<Duration>,
}

/// How the copies of messages to everybody are created: with the message, or in slices afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BroadcastOptions {
    /// Up to so many copies of a message are created with it.
    pub at_once: u32,
    /// Copies per slice; at least 1. A slice is a transaction that other operations on the queue wait for.
    pub per_slice: usize,
    /// Shortest pause between two slices; the pause is at least as long as the slice took.
    pub pause: Duration,
    /// Most messages with copies still to be created; more are refused.
    pub messages_max: i64,
    /// Most copies still to be created; more are refused, unless they are of the only message.
    pub copies_max: i64,
}

impl Default for BroadcastOptions {
    fn default() -> Self {
        Self {
            at_once: 200,
            per_slice: 500,
            pause: Duration::ZERO,
            messages_max: 1_000,
            copies_max: 8_000_000,
        }
    }
}

/// The kind of pooler in front of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooler {
    /// Nothing, or something that keeps a session for each connection.
    Session,
    /// A pooler that gives each transaction another session, such as pgbouncer with `pool_mode = transaction`. Statements
    /// are not prepared, and nothing outlives a transaction.
    Transaction,
}

/// When a server takes the lease of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusive {
    /// While it is the only one on the database.
    Auto,
    /// Never. It respects those of others.
    Off,
}

/// The pool of connections to the primary; each replica has one as large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// Connections kept open even if unused.
    pub min: usize,
    /// Connections at most.
    pub max: usize,
    /// Longest wait for one.
    pub acquire_timeout: Duration,
    /// Connections unused for this long are closed.
    pub idle_timeout: Duration,
    /// Connections older than this are closed when they are free.
    pub max_lifetime: Duration,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            min: 2,
            max: 16,
            acquire_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(10 * 60),
            max_lifetime: Duration::from_secs(30 * 60),
        }
    }
}

impl PostgresOptions {
    /// The defaults, for a database at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            replicas: Vec::new(),
            replica_lag: Duration::from_secs(1),
            pooler: Pooler::Session,
            ca: None,
            pool: PoolOptions::default(),
            lanes: 2,
            apply_timeout: Duration::from_secs(30),
            idle_transaction_timeout: Duration::from_secs(10),
            migrate: true,
            migrate_url: None,
            autocreate: true,
            queues_autoregister: true,
            queues_clients_max: 1_000_000,
            broadcasts: BroadcastOptions::default(),
            retention: None,
            partition: Duration::from_secs(7 * 24 * 3_600),
            recent_cache_bytes: 64 << 20,
            exclusive: Exclusive::Auto,
            clock_trust_after: None,
        }
    }
}
