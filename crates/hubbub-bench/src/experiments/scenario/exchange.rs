//! The exchange and the queues of one measurement in RabbitMQ. The queue of dead letters is one for all servers of a virtual
//! host, and stays.

use anyhow::Context;
use lapin::Channel;
use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};

use super::file::Measurement;
use super::shared::{Settings, new_name};
use crate::host::temporary::Remove;
use crate::workloads::persist::amqp::connect;

/// The setting of how many queues there are.
const SHARDS: &str = "amqp.shards";

pub(super) struct Exchange {
    pub(super) url: String,
    name: String,
    shards: u16,
}

impl Exchange {
    pub(super) fn new(url: &str, measurement: &Measurement) -> Self {
        let shards = measurement.settings().find(|(key, _)| *key == SHARDS);
        // The server refuses what is no number.
        let shards = shards.and_then(|(_, count)| count.parse().ok()).unwrap_or(1);
        Self { url: url.to_owned(), name: new_name(), shards }
    }

    fn prefix(&self) -> String {
        format!("{}.room.", self.name)
    }

    pub(super) fn settings(&self) -> Settings {
        vec![("amqp.exchange", self.name.clone()), ("amqp.queue_prefix", self.prefix())]
    }

    async fn remove_through(&self, channel: &Channel) -> anyhow::Result<()> {
        let prefix = self.prefix();
        for shard in 0..self.shards {
            let queue = format!("{prefix}{shard}");
            channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await?;
        }
        // One that distributes rooms over several queues, and the one that all is published to.
        for exchange in [format!("{prefix}hash"), self.name.clone()] {
            channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await?;
        }
        Ok(())
    }
}

impl Remove for Exchange {
    /// Servers that did not start may have made nothing: the broker takes what is not there for removed.
    async fn remove(&self) -> anyhow::Result<()> {
        let removing = async {
            let connection = connect(&self.url).await?;
            // Kept until the connection is closed: a channel that is just being closed is in the way of that.
            let channel = connection.create_channel().await?;
            self.remove_through(&channel).await?;
            // Nothing is left to be lost with it.
            let _ = connection.close(200, "done".into()).await;
            anyhow::Ok(())
        };
        removing
            .await
            .with_context(|| format!("the exchange {} and its queues could not be removed", self.name))
    }
}
