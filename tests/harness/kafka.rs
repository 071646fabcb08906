//! Kafka: topics of one's own on the server that runs for all tests, or a server of one's own to be killed.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tempfile::TempDir;

use super::{PATIENCE, Setup, free_ports};

/// Where the server for all tests is, unless `HUBBUB_TEST_KAFKA` says otherwise.
const SHARED: &str = "kafka://127.0.0.1:19092";
/// Its own port and the one behind it.
const PORTS: u16 = 2;

pub(crate) struct Kafka {
    port: u16,
    prefix: String,
    home: Option<TempDir>,
}

/// A record in the topic of dead letters.
pub(crate) struct DeadLetter {
    pub(crate) body: String,
    headers: Vec<(String, String)>,
}

impl DeadLetter {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map_or_else(|| panic!("no {name} in {:?}", self.headers), |(_, value)| value)
    }
}

impl Kafka {
    /// Topics that nobody else uses.
    pub(crate) fn shared() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let url = std::env::var("HUBBUB_TEST_KAFKA").unwrap_or_else(|_| SHARED.to_owned());
        let port = url.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("HUBBUB_TEST_KAFKA {url} names no port"));
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            panic!("no Kafka on port {port}; start it with scripts/services/start.sh");
        }
        let prefix = format!("test-{}-{}.", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self { port, prefix, home: None }
    }

    /// A server of one's own, which runs.
    pub(crate) fn start() -> Self {
        let home = tempfile::Builder::new().prefix("hubbub-kafka-").tempdir().unwrap();
        let kafka = Self { port: free_ports(PORTS), prefix: "own.".to_owned(), home: Some(home) };
        kafka.restart();
        kafka
    }

    pub(crate) fn restart(&self) {
        self.script(&["start"]).unwrap();
    }

    pub(crate) fn kill(&self) {
        self.script(&["stop", "KILL"]).unwrap();
    }

    fn script(&self, arguments: &[&str]) -> Result<(), String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/kafka.sh");
        let mut command = Command::new(script);
        command.args(arguments).env("KAFKA_PORT", self.port.to_string());
        if let Some(home) = &self.home {
            command.env("SVC_HOME", home.path());
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    pub(crate) fn url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.port)
    }

    /// A server whose log it is, with `partitions` partitions.
    pub(crate) fn setup(&self, store: &str, partitions: u32) -> Setup {
        let setup = Setup::new().store(store).set(&format!("log.url={}", self.url()));
        let setup = setup.set(&format!("kafka.topic_prefix={}", self.prefix));
        setup.set(&format!("kafka.partitions={partitions}"))
    }

    pub(crate) fn topic(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", format!("127.0.0.1:{}", self.port));
        config
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().unwrap()
    }

    /// Writes a record as another program does: the partition is the library's choice unless it is given.
    pub(crate) fn produce(
        &self,
        key: Option<&str>,
        partition: Option<i32>,
        body: &str,
        header: Option<(&str, &str)>,
    ) {
        let topic = self.topic("messages");
        let producer: BaseProducer = self.client().create().unwrap();
        let mut record: BaseRecord<'_, str, str> = BaseRecord::to(&topic).payload(body);
        (record.key, record.partition) = (key, partition);
        record.headers = header.map(|(key, value)| {
            OwnedHeaders::new().insert(rdkafka::message::Header { key, value: Some(value) })
        });
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(PATIENCE).unwrap();
    }

    /// Everything in a topic's partition from the start.
    fn read(&self, topic: &str) -> Vec<DeadLetter> {
        let consumer: BaseConsumer = self.client().set("group.id", "test").create().unwrap();
        let (start, end) = consumer.fetch_watermarks(topic, 0, PATIENCE).unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Offset(start)).unwrap();
        consumer.assign(&list).unwrap();
        let mut read = Vec::new();
        let mut next = start;
        while next < end {
            let record = consumer.poll(PATIENCE).expect("a record").unwrap();
            next = record.offset() + 1;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
            let headers = headers
                .map(|header| (header.key.to_owned(), text(header.value.unwrap_or_default())))
                .collect();
            read.push(DeadLetter { body: text(record.payload().unwrap_or_default()), headers });
        }
        read
    }

    pub(crate) fn dead_letters(&self) -> Vec<DeadLetter> {
        self.read(&self.topic("dead"))
    }

    pub(crate) async fn add_partitions(&self, partitions: usize) {
        let topic = self.topic("messages");
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let done = self.admin().create_partitions(&[NewPartitions::new(&topic, partitions)], &options).await;
        done.unwrap().remove(0).unwrap();
    }

    pub(crate) async fn delete_topic(&self, name: &str) {
        let topic = self.topic(name);
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        self.admin().delete_topics(&[&topic], &options).await.unwrap().remove(0).unwrap();
    }

    /// Removes the records of a partition before `offset`, as retention does.
    pub(crate) async fn remove_before(&self, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.topic("messages"), partition, Offset::Offset(offset)).unwrap();
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        self.admin().delete_records(&list, &options).await.unwrap();
    }

    /// What the group has committed, added up over all partitions.
    pub(crate) fn committed(&self, partitions: i32) -> i64 {
        let group = self.topic("committers");
        let consumer: BaseConsumer = self.client().set("group.id", group).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_range(&self.topic("messages"), 0, partitions - 1);
        let committed = consumer.committed_offsets(list, Duration::from_secs(10)).unwrap();
        committed
            .elements()
            .iter()
            .filter_map(|element| element.offset().to_raw())
            .map(|raw| raw.max(0))
            .sum()
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        if self.home.is_some() {
            let _ = self.script(&["wipe"]);
            return;
        }
        // What is left is in the way of nobody.
        let topics = ["messages", "live", "dead"].map(|name| self.topic(name));
        let (admin, topics) = (self.admin(), topics);
        let _ = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
            drop(runtime.block_on(admin.delete_topics(&topics, &AdminOptions::new())));
        })
        .join();
    }
}
