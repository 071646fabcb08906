//! What the servers of one measurement share and nobody else has: a database or keyspace, and topics or queues, on what is given.
//! Each measurement has new ones, which are removed whatever became of it.

use super::backends::BackendArgs;
#[cfg(feature = "amqp")]
use super::exchange::Exchange;
use super::file::Measurement;
#[cfg(feature = "kafka")]
use super::topics::Topics;
#[cfg(all(feature = "kafka", feature = "scylla"))]
use crate::experiments::limits::cassandra::Keyspace;
#[cfg(feature = "postgres")]
use crate::experiments::limits::postgres::{Database, check_durable};
#[cfg(any(feature = "postgres", feature = "amqp", feature = "kafka"))]
use crate::host::temporary::Temporary;

/// Settings of servers.
pub(super) type Settings = Vec<(&'static str, String)>;

/// A new store.
pub(super) enum SharedStore {
    /// Each server has its own.
    Embedded,
    #[cfg(feature = "postgres")]
    Database(Temporary<Database>),
    #[cfg(all(feature = "kafka", feature = "scylla"))]
    Keyspace(Temporary<Keyspace>),
}

impl SharedStore {
    /// Makes a database; a keyspace is made by its first server.
    ///
    /// # Errors
    /// A PostgreSQL that acknowledges what a power failure would lose, or cannot be used.
    pub(super) async fn make(args: &BackendArgs) -> anyhow::Result<Self> {
        #[cfg(feature = "postgres")]
        if let Some(url) = args.postgres() {
            check_durable(url).await?;
            return Ok(Self::Database(Database::fresh(url).await?));
        }
        #[cfg(all(feature = "kafka", feature = "scylla"))]
        if let Some(url) = args.cql() {
            return Ok(Self::Keyspace(Keyspace::fresh(url).await?));
        }
        let _ = args;
        Ok(Self::Embedded)
    }

    pub(super) fn url(&self) -> Option<&str> {
        match self {
            Self::Embedded => None,
            #[cfg(feature = "postgres")]
            Self::Database(database) => Some(&database.url),
            #[cfg(all(feature = "kafka", feature = "scylla"))]
            Self::Keyspace(keyspace) => Some(&keyspace.url),
        }
    }

    /// What servers must be told to use it, where the scenario does not say it.
    pub(super) fn settings(&self) -> Settings {
        match self {
            #[cfg(all(feature = "kafka", feature = "scylla"))]
            Self::Keyspace(keyspace) => vec![("store.scylla.replication", keyspace.replication())],
            _ => Vec::new(),
        }
    }

    pub(super) async fn remove(self) -> anyhow::Result<()> {
        match self {
            Self::Embedded => Ok(()),
            #[cfg(feature = "postgres")]
            Self::Database(database) => database.remove().await,
            #[cfg(all(feature = "kafka", feature = "scylla"))]
            Self::Keyspace(keyspace) => keyspace.remove().await,
        }
    }
}

/// A new place in a broker. Servers make what they need there.
pub(super) enum SharedLog {
    /// There is no broker.
    Direct,
    #[cfg(feature = "kafka")]
    Kafka(Temporary<Topics>),
    #[cfg(feature = "amqp")]
    Rabbitmq(Temporary<Exchange>),
}

impl SharedLog {
    pub(super) fn of(args: &BackendArgs, measurement: &Measurement) -> Self {
        #[cfg(feature = "kafka")]
        if let Some(url) = args.kafka() {
            return Self::Kafka(Temporary::new(Topics::new(url)));
        }
        #[cfg(feature = "amqp")]
        if let Some(url) = args.rabbitmq() {
            return Self::Rabbitmq(Temporary::new(Exchange::new(url, measurement)));
        }
        let _ = (args, measurement);
        Self::Direct
    }

    pub(super) fn url(&self) -> Option<&str> {
        match self {
            Self::Direct => None,
            #[cfg(feature = "kafka")]
            Self::Kafka(topics) => Some(&topics.url),
            #[cfg(feature = "amqp")]
            Self::Rabbitmq(exchange) => Some(&exchange.url),
        }
    }

    /// What servers must be told to use it, whatever the scenario says.
    pub(super) fn settings(&self) -> Settings {
        match self {
            Self::Direct => Vec::new(),
            #[cfg(feature = "kafka")]
            Self::Kafka(topics) => topics.settings(),
            #[cfg(feature = "amqp")]
            Self::Rabbitmq(exchange) => exchange.settings(),
        }
    }

    pub(super) async fn remove(self) -> anyhow::Result<()> {
        match self {
            Self::Direct => Ok(()),
            #[cfg(feature = "kafka")]
            Self::Kafka(topics) => topics.remove().await,
            #[cfg(feature = "amqp")]
            Self::Rabbitmq(exchange) => exchange.remove().await,
        }
    }
}

/// A name that no other measurement has.
#[cfg(any(feature = "kafka", feature = "amqp"))]
pub(super) fn new_name() -> String {
    format!("hubbub-bench-{:012x}", crate::host::machine::seed() & 0xffff_ffff_ffff)
}
