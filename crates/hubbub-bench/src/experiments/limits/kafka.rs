//! Kafka without a server in front of it: a producer with the server's own settings, which also fills what is drained.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use hubbub_core::clock::{RandomSource, SeededRandom};
use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer};

use crate::host::machine::seed;
use crate::host::temporary::{Remove, Temporary};
use crate::load::message_plan::{Shape, below};

/// How long the broker may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause while the library's queue is full.
const FULL_PAUSE: Duration = Duration::from_micros(200);
/// Users, as `bench persist` has them.
const USERS: u32 = 10_000;

/// Brokers to measure with.
#[derive(Clone)]
pub(crate) struct Brokers(ClientConfig);

/// Messages to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) messages: u64,
    pub(crate) rooms: u16,
    pub(crate) text_bytes: usize,
}

impl Brokers {
    /// From `kafka://HOST:PORT,HOST:PORT`.
    pub(crate) fn of(url: &str) -> anyhow::Result<Self> {
        let hosts = url.strip_prefix("kafka://").context("--kafka must be like kafka://HOST:PORT")?;
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", hosts.trim_end_matches('/'));
        Ok(Self(config))
    }

    fn admin(&self) -> anyhow::Result<AdminClient<DefaultClientContext>> {
        self.0.create().context("reaching Kafka")
    }

    /// Makes a topic of one partition, as the server makes those of rooms.
    pub(crate) async fn create(&self, topic: &str) -> anyhow::Result<Temporary<Topics>> {
        let made = self.topics([topic.to_owned()]);
        let topic = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
        let topic = topic.set("message.timestamp.type", "LogAppendTime");
        let created = self.admin()?.create_topics([&topic], &patient()).await.context("creating a topic")?;
        match created.into_iter().next() {
            Some(Err((topic, code))) => bail!("creating the topic {topic}: {code}"),
            _ => Ok(made),
        }
    }

    /// Topics of these names, whoever makes them.
    pub(crate) fn topics<const N: usize>(&self, names: [String; N]) -> Temporary<Topics> {
        Temporary::new(Topics { brokers: self.clone(), names: names.into() })
    }

    /// Writes messages of some rooms to a topic, as many at a time as the library takes; returns how many a second were
    /// confirmed.
    pub(crate) async fn write(&self, topic: &str, load: Load) -> anyhow::Result<f64> {
        let (brokers, topic) = (self.clone(), topic.to_owned());
        tokio::task::spawn_blocking(move || brokers.write_blocking(&topic, load)).await?
    }

    fn write_blocking(&self, topic: &str, load: Load) -> anyhow::Result<f64> {
        let confirmed = Arc::new(Confirmed::default());
        let mut config = self.0.clone();
        // As crates/hubbub-pipeline/src/log/kafka/producer.rs has it.
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "1")
            .set("compression.type", "lz4")
            .set("partitioner", "murmur2_random");
        let context = Counting(Arc::clone(&confirmed));
        let producer: ThreadedProducer<Counting> =
            config.create_with_context(context).context("starting a producer")?;
        let shape = Shape::of_residents(seed(), USERS, load.text_bytes);
        let random = SeededRandom::new(seed());
        let begun = Instant::now();
        let (mut body, mut now) = (Vec::new(), Vec::new());
        for index in 0..load.messages {
            if index.is_multiple_of(1_000) {
                now.clear();
                crate::host::machine::now().write(&mut now);
            }
            let room = below(random.next_u64(), load.rooms.max(1).into()) as u16 + 1;
            body.clear();
            shape.write_bulk(&shape.draw(&random, index, room), &now, &mut body);
            let room = shape.room_name(room);
            let mut record = BaseRecord::to(topic).key(room.as_str()).payload(body.as_slice());
            let waiting = Instant::now();
            while let Err((error, back)) = producer.send(record) {
                let is_full = error == KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
                ensure!(is_full && waiting.elapsed() < PATIENCE, "writing to Kafka: {error}");
                record = back;
                std::thread::sleep(FULL_PAUSE);
            }
        }
        producer.flush(PATIENCE).context("Kafka did not confirm in time")?;
        let seconds = begun.elapsed().as_secs_f64();
        let [taken, failed] =
            [&confirmed.taken, &confirmed.failed].map(|count| count.load(Ordering::Acquire));
        ensure!(failed == 0 && taken == load.messages, "Kafka confirmed {taken}, and refused {failed}");
        Ok(taken as f64 / seconds)
    }
}

/// Topics of a measurement.
pub(crate) struct Topics {
    brokers: Brokers,
    names: Vec<String>,
}

impl Remove for Topics {
    /// Those that are not there are gone, too.
    async fn remove(&self) -> anyhow::Result<()> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let removing = self.brokers.admin()?;
        removing.delete_topics(&names, &patient()).await.context("removing topics").map(drop)
    }
}

fn patient() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

#[derive(Debug, Default)]
struct Confirmed {
    taken: AtomicU64,
    failed: AtomicU64,
}

struct Counting(Arc<Confirmed>);

impl ClientContext for Counting {}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let count = if result.is_ok() { &self.0.taken } else { &self.0.failed };
        count.fetch_add(1, Ordering::AcqRel);
    }
}
