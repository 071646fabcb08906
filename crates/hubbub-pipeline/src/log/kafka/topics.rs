//! The topics: created if they are missing, and checked.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError as LibraryError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;

use super::address::KafkaError;
use super::identity::TopicIdentity;
use super::security::{self, LastFault};
use super::settings::{Purpose, Topic};
use super::{KafkaOptions, topic_id};

/// Time-out of one request about topics.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Who waits for a connection looks so often whether it was refused.
const STEP: Duration = Duration::from_secs(1);
/// What the library has to tell of a second of failures.
const EVENTS_MAX: usize = 50;
/// How long a created topic may take to have leaders.
const LEADER_TIMEOUT: Duration = Duration::from_secs(30);
const LEADER_INTERVAL: Duration = Duration::from_millis(100);
/// Records of the bus are of use for moments only.
const LIVE_RETENTION: &str = "600000";

pub(super) struct Topics {
    pub(super) messages: String,
    pub(super) live: String,
    pub(super) dead: String,
    pub(super) partitions: u32,
    pub(super) live_partitions: u32,
    pub(super) identity: TopicIdentity,
    pub(super) admin: Arc<Admin>,
}

pub(super) type Admin = AdminClient<DefaultClientContext>;
/// Asks for topics; learns why it cannot.
type Asking = BaseConsumer<LastFault>;

/// Creates what is missing, and refuses what does not fit.
pub(super) async fn prepare(options: &KafkaOptions) -> Result<Topics, KafkaError> {
    options.security.check()?;
    let admin: Arc<Admin> =
        Arc::new(options.client().create().map_err(|error| options.explain("starting", &error))?);
    let [messages, live, dead] =
        ["messages", "live", "dead"].map(|name| format!("{}{name}", options.topic_prefix));
    let asking = LastFault::listening(options.client()).create_with_context(LastFault::default());
    let asking: Arc<Asking> = Arc::new(asking.map_err(|error| options.explain("starting", &error))?);
    let (brokers, existing) = describe(options, &asking, &messages).await?;
    let partitions = existing.map_or_else(|| options.partitions.into(), |existing| existing.partitions);
    create(options, &admin, brokers, partitions, [&messages, &live, &dead]).await?;
    let purposes = [(&messages, Purpose::Messages), (&live, Purpose::Live), (&dead, Purpose::Dead)];
    let mut found = [0; 3];
    for ((name, purpose), found) in purposes.into_iter().zip(&mut found) {
        let there = await_leaders(options, &asking, name).await?;
        *found = there.partitions;
        let topic = Topic {
            name,
            purpose,
            copies: there.copies,
            brokers,
            retention_ms: options.retention.as_millis(),
            record_bytes_max: saturate(options.record_bytes_max()),
        };
        check_settings(options, &admin, topic).await?;
    }
    let [found, live_partitions, _] = found;
    let identity = identify(options, &admin, &messages).await?;
    Ok(Topics { messages, live, dead, partitions: found, live_partitions, identity, admin })
}

impl KafkaOptions {
    /// Largest record in bytes: a text may grow sixfold in JSON.
    pub(super) fn record_bytes_max(&self) -> usize {
        (self.message_bytes.saturating_mul(6) + 64 * 1024).max(1_048_588)
    }

    pub(super) fn explain(&self, what: &str, error: &dyn std::fmt::Display) -> KafkaError {
        let error = error.to_string();
        let advice = security::advice(&error).unwrap_or("start Kafka there, or correct log.url");
        KafkaError(format!("{what} at {}: {error}; {advice}", self.brokers))
    }
}

/// A topic whose partitions all have leaders.
#[derive(Clone, Copy)]
struct Existing {
    partitions: u32,
    /// Copies of the partition that has the fewest.
    copies: usize,
}

/// The number of brokers, and what the topic has, if it exists.
async fn describe(
    options: &KafkaOptions,
    asking: &Arc<Asking>,
    topic: &str,
) -> Result<(usize, Option<Existing>), KafkaError> {
    let metadata = {
        let (asking, topic) = (asking.clone(), topic.to_owned());
        // Of all topics: asking for one that is missing could create it with other settings.
        tokio::task::spawn_blocking(move || {
            let metadata = fetch_metadata(&asking)?;
            let found =
                metadata.topics().iter().find(|found| found.name() == topic && found.error().is_none());
            let partitions = found.filter(|found| !found.partitions().is_empty());
            let has_leaders = |p: &rdkafka::metadata::MetadataPartition| p.leader() >= 0;
            let ready = partitions.filter(|found| found.partitions().iter().all(has_leaders));
            let existing = ready.map(|found| Existing {
                partitions: saturate(found.partitions().len()),
                copies: found.partitions().iter().map(|part| part.replicas().len()).min().unwrap_or_default(),
            });
            Ok((metadata.brokers().len(), existing))
        })
        .await
    };
    let explain = |error: &dyn std::fmt::Display| options.explain("asking Kafka for its topics", error);
    let metadata: Result<_, String> = metadata.map_err(|error| explain(&error))?;
    metadata.map_err(|error| explain(&error))
}

/// Connects. The error is that of the connection, if one failed. Who is refused is told at once.
fn fetch_metadata(asking: &Asking) -> Result<Metadata, String> {
    let mut left = TIMEOUT;
    loop {
        match asking.fetch_metadata(None, STEP) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => {
                left = left.saturating_sub(STEP);
                // The library tells why while it is polled.
                for _ in 0..EVENTS_MAX {
                    asking.poll(Duration::ZERO);
                }
                let fault = asking.context().get();
                if left.is_zero() || fault.as_deref().is_some_and(security::is_final) {
                    return Err(fault.unwrap_or_else(|| error.to_string()));
                }
            }
        }
    }
}

async fn create(
    options: &KafkaOptions,
    admin: &Admin,
    brokers: usize,
    partitions: u32,
    [messages, live, dead]: [&str; 3],
) -> Result<(), KafkaError> {
    let replication = match options.replication {
        0 => saturate::<_, i32>(brokers.clamp(1, 3)),
        given => i32::from(given),
    };
    // With three copies, one broker may be away, and what is confirmed is on two.
    let in_sync = if replication >= 3 { "2" } else { "1" };
    let retention = options.retention.as_millis().to_string();
    let bytes_max = options.record_bytes_max().to_string();
    let topic = |name, partitions: u32, retention| {
        let topic = NewTopic::new(name, saturate(partitions), TopicReplication::Fixed(replication));
        let topic = topic.set("cleanup.policy", "delete").set("message.timestamp.type", "LogAppendTime");
        let topic = topic.set("min.insync.replicas", in_sync).set("retention.ms", retention);
        topic.set("max.message.bytes", &bytes_max).set("unclean.leader.election.enable", "false")
    };
    let topics = [
        topic(messages, partitions, &retention),
        topic(live, partitions, LIVE_RETENTION),
        topic(dead, 1, "-1"),
    ];
    let admin_options = AdminOptions::new().request_timeout(Some(TIMEOUT)).operation_timeout(Some(TIMEOUT));
    let results = admin.create_topics(&topics, &admin_options).await;
    let results = results.map_err(|error| options.explain("creating topics in Kafka", &error))?;
    for result in results {
        match result {
            Ok(name) => tracing::info!(topic = name, partitions, replication, "created a topic"),
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((name, code)) => {
                return Err(KafkaError(format!(
                    "creating the topic {name} with {replication} copies failed: {code}; correct \
                     kafka.replication, allow it, or create the topic yourself"
                )));
            }
        }
    }
    Ok(())
}

/// Waits until all partitions have leaders.
async fn await_leaders(
    options: &KafkaOptions,
    asking: &Arc<Asking>,
    topic: &str,
) -> Result<Existing, KafkaError> {
    let waiting = async {
        loop {
            if let (_, Some(existing)) = describe(options, asking, topic).await? {
                return Ok(existing);
            }
            tokio::time::sleep(LEADER_INTERVAL).await;
        }
    };
    tokio::time::timeout(LEADER_TIMEOUT, waiting).await.unwrap_or_else(|_| {
        let seconds = LEADER_TIMEOUT.as_secs();
        Err(KafkaError(format!(
            "partitions of the topic {topic} have had no leader for {seconds} s: start the missing brokers"
        )))
    })
}

/// The oldest offset and the end of a partition. Blocks. Waits a while for a leader.
pub(super) fn offsets<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partition: u32,
    timeout: Duration,
) -> Result<(u64, u64), LibraryError> {
    let mut tries = timeout.as_millis() / LEADER_INTERVAL.as_millis();
    loop {
        let error = match consumer.fetch_watermarks(topic, saturate(partition), timeout) {
            Ok((oldest, end)) => return Ok((saturate(oldest), saturate(end))),
            Err(error) => error,
        };
        let has_no_leader = matches!(
            error.rdkafka_error_code(),
            Some(
                RDKafkaErrorCode::NotLeaderForPartition
                    | RDKafkaErrorCode::LeaderNotAvailable
                    | RDKafkaErrorCode::UnknownPartition
                    | RDKafkaErrorCode::UnknownTopicOrPartition
            )
        );
        tries = tries.saturating_sub(1);
        if !has_no_leader || tries == 0 {
            return Err(error);
        }
        std::thread::sleep(LEADER_INTERVAL);
        // Else the library goes on with what it knows of leaders, for minutes.
        let _ = consumer.fetch_metadata(Some(topic), timeout);
    }
}

/// Refuses settings of a topic under which messages would be lost, or have no time, and warns of others.
async fn check_settings(options: &KafkaOptions, admin: &Admin, topic: Topic<'_>) -> Result<(), KafkaError> {
    let admin_options = AdminOptions::new().request_timeout(Some(TIMEOUT));
    let described = admin.describe_configs(&[ResourceSpecifier::Topic(topic.name)], &admin_options).await;
    let settings = match described {
        Ok(described) => described.into_iter().next().and_then(Result::ok).ok_or_else(|| {
            format!("no settings of {}; the user may need the right to describe them", topic.name)
        }),
        Err(error) => Err(error.to_string()),
    };
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) if topic.purpose == Purpose::Messages => {
            return Err(options.explain("asking Kafka for a topic's settings", &error));
        }
        Err(error) => {
            tracing::warn!(topic = topic.name, "the settings of a topic are not checked: {error}");
            return Ok(());
        }
    };
    let value = |name: &str| settings.get(name).and_then(|entry| entry.value.as_deref()).unwrap_or_default();
    for warning in topic.check(value).map_err(KafkaError)? {
        tracing::warn!("{warning}");
    }
    Ok(())
}

/// What the topic is known by.
pub(super) async fn identify(
    options: &KafkaOptions,
    admin: &Arc<Admin>,
    topic: &str,
) -> Result<TopicIdentity, KafkaError> {
    let (admin, name) = (admin.clone(), topic.to_owned());
    let fetched = tokio::task::spawn_blocking(move || {
        let timeout_ms = saturate(TIMEOUT.as_millis());
        let cluster = admin.inner().fetch_cluster_id(TIMEOUT).ok_or("the cluster has no id")?;
        Ok::<_, String>(TopicIdentity::new(&cluster, &name, &topic_id::fetch(&admin, &name, timeout_ms)?))
    });
    let explain = |error: &dyn std::fmt::Display| options.explain("asking Kafka for its ids", error);
    fetched.await.map_err(|error| explain(&error))?.map_err(|error| explain(&error))
}
