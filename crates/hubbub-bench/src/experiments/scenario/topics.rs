//! Topics of one measurement in Kafka, by their prefix. The group of the servers is not removed with them: servers that were
//! killed are its members until their session ends, and Kafka refuses to remove it until then. With its topics its offsets go, and
//! Kafka removes a group that has neither members nor offsets by itself.

use std::time::Duration;

use anyhow::{Context, bail};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::RDKafkaErrorCode;

use super::shared::{Settings, new_name};
use crate::host::temporary::Remove;

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Topics {
    pub(super) url: String,
    prefix: String,
}

impl Topics {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), prefix: format!("{}.", new_name()) }
    }

    pub(super) fn settings(&self) -> Settings {
        vec![("kafka.topic_prefix", self.prefix.clone())]
    }
}

impl Remove for Topics {
    /// Servers that did not start may have made none.
    async fn remove(&self) -> anyhow::Result<()> {
        let names = ["messages", "live", "dead"].map(|name| format!("{}{name}", self.prefix));
        let brokers = self.url.strip_prefix("kafka://").unwrap_or(&self.url);
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers.trim_end_matches('/'));
        let admin: AdminClient<DefaultClientContext> = config.create()?;
        let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
        let topics: Vec<&str> = names.iter().map(String::as_str).collect();
        let what = || format!("the topics {}* could not be removed", self.prefix);
        for removed in admin.delete_topics(&topics, &options).await.with_context(what)? {
            match removed {
                Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
                Err((topic, code)) => bail!("the topic {topic} could not be removed: {code}"),
            }
        }
        Ok(())
    }
}
