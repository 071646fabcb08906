//! Opens the configured store and message log. No other module knows which [`Store`] and [`Log`] they are.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hubbub_core::{Clock, RandomSource, Store};
use hubbub_pipeline::hub::relay_over_store;
use hubbub_pipeline::{Log, Pipeline};
use hubbub_store::embedded::{Embedded, EngineOptions, OpenError};

use crate::config::Config;

/// The data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{error}{advice}{option}", advice = crate::ownership::advice(.error))]
pub(crate) struct DataError {
    error: OpenError,
    /// How the command names another directory, where the error says to name one.
    option: &'static str,
}

impl From<OpenError> for DataError {
    fn from(error: OpenError) -> Self {
        Self { error, option: "" }
    }
}

impl DataError {
    fn of_serve(error: OpenError) -> Self {
        let names_another = matches!(error, OpenError::Locked { .. } | OpenError::Foreign { .. });
        Self { error, option: if names_another { ", with --data DIR" } else { "" } }
    }
}

/// Called when the store's history was replaced, before any of its data can be read.
pub(crate) type OnNewEpoch = Arc<dyn Fn() + Send + Sync>;

/// A program without the feature of PostgreSQL has refused its URL in the configuration.
#[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
pub(crate) async fn open(
    config: &Config,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    on_new_history: OnNewEpoch,
) -> anyhow::Result<Arc<dyn Store>> {
    #[cfg(feature = "postgres")]
    if config.uses_postgres() {
        let store = hubbub_postgres::ReopeningStore::open(postgres(config), clock, random, on_new_history);
        return Ok(Arc::new(store.await?));
    }
    #[cfg(feature = "scylla")]
    if config.uses_scylla() {
        return Ok(Arc::new(hubbub_scylla::Scylla::open(scylla(config), clock, &*random).await?));
    }
    let (options, path) = (engine(config), Path::new(config.data_dir()).to_owned());
    let opening = tokio::task::spawn_blocking(move || Embedded::open(&path, options, clock, &*random));
    let store = opening.await.context("opening the store")?.map_err(DataError::of_serve)?;
    Ok(Arc::new(store))
}

/// The options of the embedded store.
fn engine(config: &Config) -> EngineOptions {
    EngineOptions {
        durability: *config.durability,
        autocreate: *config.autocreate,
        queues_autoregister: *config.queues_autoregister,
        queues_clients_max: *config.queues_clients_max as u64,
        retention: *config.retention,
        block_cache_bytes: config.block_cache.0 as u64,
        reserve_bytes: config.disk_reserve.0 as u64,
        sync_delay: *config.sync_delay,
        slot_bytes: config.journal_slot.0 as u64,
        ..EngineOptions::default()
    }
}

/// The options of PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) fn postgres(config: &Config) -> hubbub_postgres::PostgresOptions {
    use crate::config::{ExclusiveKind, PoolerKind};
    use hubbub_postgres::{Exclusive, PoolOptions, Pooler, PostgresOptions};
    PostgresOptions {
        replicas: config.postgres_replicas.0.clone(),
        replica_lag: *config.postgres_replica_lag,
        pooler: match *config.postgres_pooler {
            PoolerKind::Session => Pooler::Session,
            PoolerKind::Transaction => Pooler::Transaction,
        },
        exclusive: match *config.postgres_exclusive {
            // Elsewhere the clock may stand still while the machine sleeps.
            ExclusiveKind::Auto if cfg!(target_os = "linux") => Exclusive::Auto,
            ExclusiveKind::Auto | ExclusiveKind::Off => Exclusive::Off,
        },
        ca: config.postgres_ca.as_ref().map(Into::into),
        pool: PoolOptions {
            min: *config.postgres_pool_min,
            max: *config.postgres_pool_max,
            acquire_timeout: *config.postgres_pool_acquire_timeout,
            idle_timeout: *config.postgres_pool_idle_timeout,
            max_lifetime: *config.postgres_pool_max_lifetime,
        },
        lanes: *config.postgres_lanes,
        apply_timeout: *config.postgres_apply_timeout,
        idle_transaction_timeout: *config.postgres_idle_transaction_timeout,
        migrate: *config.postgres_migrate,
        migrate_url: config.postgres_migrate_url.as_ref().map(|url| url.0.clone()),
        autocreate: *config.autocreate,
        queues_autoregister: *config.queues_autoregister,
        queues_clients_max: *config.queues_clients_max as u64,
        retention: *config.postgres_retention,
        partition: *config.postgres_partition,
        clock_trust_after: Some(*config.clock_trust_after),
        recent_cache_bytes: config.postgres_recent_cache.0,
        ..PostgresOptions::new(config.store.0.as_str())
    }
}

/// The options of Cassandra or ScyllaDB.
#[cfg(feature = "scylla")]
pub(crate) fn scylla(config: &Config) -> hubbub_scylla::ScyllaOptions {
    use crate::config::ReplicaLevel;
    use hubbub_scylla::{Consistency, ScyllaOptions, TlsFiles};
    ScyllaOptions {
        tls: TlsFiles {
            ca: config.scylla_ca.as_ref().map(Into::into),
            cert: config.scylla_cert.as_ref().map(Into::into),
            key: config.scylla_key.as_ref().map(Into::into),
        },
        consistency: match *config.scylla_consistency {
            ReplicaLevel::LocalQuorum => Consistency::LocalQuorum,
            ReplicaLevel::Quorum => Consistency::Quorum,
            ReplicaLevel::One => Consistency::One,
        },
        replication: config.scylla_replication.to_string(),
        retention: *config.scylla_retention,
        migrate: *config.scylla_migrate,
        statement_timeout: *config.scylla_statement_timeout,
        statements_max: *config.scylla_statements_max,
        autocreate: *config.autocreate,
        ..ScyllaOptions::new(config.store.0.as_str())
    }
}

/// Opens the message log in front of the direct one. A program without the feature of a broker has refused its URL in the
/// configuration.
#[cfg_attr(not(any(feature = "amqp", feature = "kafka")), allow(unused_variables, clippy::unused_async))]
pub(crate) async fn open_log(config: &Config, pipeline: Pipeline) -> anyhow::Result<Log> {
    if !(config.uses_kafka() && *config.kafka_bus) {
        relay_over_store(&pipeline.hub, &pipeline.store, &pipeline.clock, &*pipeline.random);
    }
    #[cfg(feature = "amqp")]
    if config.uses_amqp() {
        use hubbub_core::invariant::cast;
        use hubbub_pipeline::log::amqp::{Address, Amqp, AmqpOptions};
        let options = AmqpOptions {
            address: Address::parse(&config.log.0)?,
            ca: config.amqp_ca.as_ref().map(Into::into),
            exchange: config.amqp_exchange.to_string(),
            queue_prefix: config.amqp_queue_prefix.to_string(),
            shards: cast(*config.amqp_shards, "amqp.shards is at most 64")?,
            prefetch: cast(*config.amqp_prefetch, "amqp.prefetch is at most 65535")?,
            queue: crate::serve::log_options(config).queue,
            text_bytes_max: text_bytes_max(config),
        };
        let direct = pipeline.direct.clone();
        let broker = Amqp::start(options, pipeline).await?;
        return Ok(Log::amqp(direct, broker));
    }
    #[cfg(feature = "kafka")]
    if config.uses_kafka() {
        let (options, direct) = (kafka(config)?, pipeline.direct.clone());
        let broker = hubbub_pipeline::log::kafka::Kafka::start(options, pipeline).await?;
        return Ok(Log::kafka(direct, broker));
    }
    Ok(Log::without_broker(&pipeline).await)
}

/// The longest text that the store takes, whatever clients may send.
#[cfg(feature = "amqp")]
fn text_bytes_max(config: &Config) -> usize {
    use hubbub_core::limits::MESSAGE_BYTES_MAX;
    if config.uses_embedded() { MESSAGE_BYTES_MAX.min(config.slot_text_max()) } else { MESSAGE_BYTES_MAX }
}

#[cfg(feature = "kafka")]
fn kafka(config: &Config) -> anyhow::Result<hubbub_pipeline::log::kafka::KafkaOptions> {
    use crate::config::Sasl;
    use hubbub_core::invariant::cast;
    use hubbub_pipeline::log::kafka::{Brokers, KafkaOptions, KafkaSecurity, SaslMechanism};
    let security = KafkaSecurity {
        ca: config.kafka_ca.as_ref().map(Into::into),
        cert: config.kafka_cert.as_ref().map(Into::into),
        key: config.kafka_key.as_ref().map(Into::into),
        mechanism: match *config.kafka_sasl {
            Sasl::Plain => SaslMechanism::Plain,
            Sasl::Sha256 => SaslMechanism::ScramSha256,
            Sasl::Sha512 => SaslMechanism::ScramSha512,
        },
    };
    Ok(KafkaOptions {
        brokers: Brokers::parse(&config.log.0)?,
        security,
        topic_prefix: config.kafka_topic_prefix.to_string(),
        partitions: cast(*config.kafka_partitions, "kafka.partitions is at most 1000")?,
        replication: cast(*config.kafka_replication, "kafka.replication is at most 100")?,
        retention: *config.kafka_retention,
        delivery_timeout: *config.kafka_delivery_timeout,
        session_timeout: *config.kafka_session_timeout,
        bus: *config.kafka_bus,
        skip_lost: *config.kafka_skip_lost,
        commits: *config.role != crate::config::Role::Gateway,
        message_bytes: config.message_bytes.0,
        queue: crate::serve::log_options(config).queue,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program that uses the crates gets is what the settings say.
    #[test]
    fn defaults_of_settings_are_those_of_the_stores() {
        let config = Config::of_defaults();
        assert_eq!(engine(&config), EngineOptions::default());
        #[cfg(feature = "postgres")]
        {
            let mut options = hubbub_postgres::PostgresOptions::new("embedded");
            options.clock_trust_after = Some(hubbub_core::clock::TRUST_AFTER);
            if !cfg!(target_os = "linux") {
                options.exclusive = hubbub_postgres::Exclusive::Off;
            }
            assert_eq!(format!("{:?}", postgres(&config)), format!("{options:?}"));
        }
        #[cfg(feature = "scylla")]
        assert_eq!(
            format!("{:?}", scylla(&config)),
            format!("{:?}", hubbub_scylla::ScyllaOptions::new("embedded"))
        );
    }
}
