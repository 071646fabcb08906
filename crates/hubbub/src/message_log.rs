//! Opens the configured message log, in front of the direct log.

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
    };
    let limits = crate::serve::limits(config);
    let broker = Amqp::start(options, limits, direct.clone(), clock, random, metrics).await?;
    Ok(Log::amqp(direct, broker))
}
