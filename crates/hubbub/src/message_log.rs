//! Opens the configured message log, in front of the direct log.

use std::sync::Arc;

use hubbub_core::{Clock, RandomSource};
use hubbub_pipeline::{DirectLog, Log, Metrics};

use crate::config::Config;

/// A program without the feature of RabbitMQ has refused its URL in the configuration.
#[cfg_attr(not(feature = "amqp"), allow(unused_variables, clippy::unused_async))]
pub(crate) async fn open(
    config: &Config,
    direct: Arc<DirectLog>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Log> {
    #[cfg(feature = "amqp")]
    if config.uses_amqp() {
        use hubbub_core::invariant::cast;
        use hubbub_pipeline::log::amqp::{Address, Amqp, AmqpOptions, AmqpParts};
        let options = AmqpOptions {
            ca: config.amqp_ca.as_ref().map(Into::into),
            exchange: config.amqp_exchange.to_string(),
            queue_prefix: config.amqp_queue_prefix.to_string(),
            shards: cast(*config.amqp_shards, "amqp.shards is at most 64")?,
            prefetch: cast(*config.amqp_prefetch, "amqp.prefetch is at most 65535")?,
            queue: crate::serve::log_options(config).queue,
        };
        let address = Address::parse(&config.log.0)?;
        let limits = crate::serve::limits(config);
        let parts = AmqpParts { address, options, limits, direct: direct.clone(), clock, random, metrics };
        return Ok(Log::amqp(direct, Amqp::start(parts).await?));
    }
    Ok(Log::direct(direct))
}
