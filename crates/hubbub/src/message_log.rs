//! Opens the log that the configuration names, on top of the one that leads to the store.

use std::sync::Arc;

use hubbub_core::{Clock, RandomSource};
use hubbub_pipeline::{DirectLog, Log, Metrics};

use crate::config::{Config, LogKind};

pub(crate) async fn open(
    config: &Config,
    direct: Arc<DirectLog>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Log> {
    match config.log_kind() {
        LogKind::Direct => Ok(Log::direct(direct)),
        #[cfg(feature = "amqp")]
        LogKind::Amqp => amqp(config, direct, clock, random, metrics).await,
        #[cfg(not(feature = "amqp"))]
        LogKind::Amqp => {
            drop((clock, random, metrics));
            anyhow::bail!(crate::config::NO_AMQP)
        }
    }
}

#[cfg(feature = "amqp")]
async fn amqp(
    config: &Config,
    direct: Arc<DirectLog>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Log> {
    use hubbub_pipeline::log::amqp::{Address, Amqp, AmqpOptions, AmqpParts};
    // Both were looked at with the configuration.
    let number = |value: usize| u16::try_from(value).unwrap_or(u16::MAX);
    let options = AmqpOptions {
        ca: config.amqp_ca.as_ref().map(Into::into),
        exchange: config.amqp_exchange.to_string(),
        queue_prefix: config.amqp_queue_prefix.to_string(),
        shards: number(*config.amqp_shards),
        prefetch: number(*config.amqp_prefetch),
        queue: crate::serve::log_options(config).queue,
    };
    let address = Address::parse(&config.log.0)?;
    let limits = crate::serve::limits(config);
    let parts = AmqpParts { address, options, limits, direct: direct.clone(), clock, random, metrics };
    Ok(Log::amqp(direct, Amqp::start(parts).await?))
}
