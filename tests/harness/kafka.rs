//! Kafka: topics of one's own on the server that runs for all tests, or a server of one's own to be killed.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::service::{Script, Service, unique};
use super::{PATIENCE, Setup};

/// Where the server for all tests is, unless `HUBBUB_TEST_KAFKA` says otherwise.
const SHARED: &str = "kafka://127.0.0.1:19092";
/// Its own port, the one behind it, and two for TLS.
const PORTS: u16 = 4;
const SCRIPT: Script = Script { name: "kafka.sh", port: "KAFKA_PORT" };

/// Who may use a server with TLS by a password, with each mechanism.
pub(crate) const USER: &str = "ada";
pub(crate) const PASSWORD: &str = "s3cret/1";

pub(crate) struct Kafka {
    service: Service,
    prefix: String,
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

/// A transaction of another program.
pub(crate) struct Transaction(BaseProducer);

impl Transaction {
    pub(crate) fn commit(self) {
        self.0.commit_transaction(PATIENCE).unwrap();
    }

    pub(crate) fn abort(self) {
        self.0.abort_transaction(PATIENCE).unwrap();
    }
}

impl Kafka {
    /// Topics that nobody else uses.
    pub(crate) fn shared() -> Self {
        let service = Service::shared(SCRIPT, "HUBBUB_TEST_KAFKA", SHARED);
        Self { service, prefix: format!("test-{}.", unique()) }
    }

    /// A server of one's own, which runs.
    pub(crate) fn start() -> Self {
        let kafka = Self { service: Service::own(SCRIPT, PORTS), prefix: "own.".to_owned() };
        kafka.restart();
        kafka
    }

    /// The same, which also speaks TLS, with a certificate for `localhost`: at one port with [`USER`]s and passwords, at
    /// another one with certificates of clients.
    pub(crate) fn start_with_tls() -> Self {
        let mut service = Service::own(SCRIPT, PORTS);
        service.make_certificates("DNS:localhost");
        let (port, home) = (service.port(), service.home().display().to_string());
        let (sasl, ssl) = (port + 2, port + 3);
        let store = service.home().join("store.pem");
        let of = |file: &str| std::fs::read_to_string(service.home().join(file)).unwrap();
        std::fs::write(&store, of("server.key") + &of("server.crt")).unwrap();
        let jaas = "listener.name.sasl_ssl";
        let module = "org.apache.kafka.common.security";
        let scram = ["256", "512"].map(|bits| {
            format!("{jaas}.scram-sha-{bits}.sasl.jaas.config={module}.scram.ScramLoginModule required;")
        });
        let lines = [
            &format!(
                "listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{},SASL_SSL://127.0.0.1:{sasl},\
                 SSL://127.0.0.1:{ssl}",
                port + 1
            ),
            &format!(
                "advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://localhost:{sasl},SSL://localhost:{ssl}"
            ),
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            &format!(
                "{jaas}.plain.sasl.jaas.config={module}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";"
            ),
            &scram[0],
            &scram[1],
            "listener.name.ssl.ssl.client.auth=required",
            "ssl.keystore.type=PEM",
            &format!("ssl.keystore.location={home}/store.pem"),
            "ssl.truststore.type=PEM",
            &format!("ssl.truststore.location={home}/ca.pem"),
        ];
        service.set("KAFKA_CONF", lines.join("\n"));
        let users = ["256", "512"]
            .map(|bits| format!("--add-scram SCRAM-SHA-{bits}=[name={USER},password={PASSWORD}]"));
        service.set("KAFKA_FORMAT", users.join(" "));
        let kafka = Self { service, prefix: "own.".to_owned() };
        kafka.restart();
        kafka
    }

    /// Where it asks for a password.
    pub(crate) fn sasl_port(&self) -> u16 {
        self.port() + 2
    }

    /// Where it asks for a certificate.
    pub(crate) fn tls_port(&self) -> u16 {
        self.port() + 3
    }

    /// `ca.pem`, `server.crt` and `server.key`.
    pub(crate) fn file(&self, name: &str) -> String {
        self.service.home().join(name).display().to_string()
    }

    pub(crate) fn port(&self) -> u16 {
        self.service.port()
    }

    pub(crate) fn restart(&self) {
        self.service.run(&["start"]);
    }

    pub(crate) fn kill(&self) {
        self.service.run(&["stop", "KILL"]);
    }

    pub(crate) fn url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.port())
    }

    /// A server whose log it is, with `partitions` partitions.
    pub(crate) fn setup(&self, store: &str, partitions: u32) -> Setup {
        self.log_of(Setup::new().store(store), partitions)
    }

    /// Makes it the log of a server.
    pub(crate) fn log_of(&self, setup: Setup, partitions: u32) -> Setup {
        let setup = setup.set(&format!("log.url={}", self.url()));
        let setup = setup.set(&format!("kafka.topic_prefix={}", self.prefix));
        setup.set(&format!("kafka.partitions={partitions}"))
    }

    pub(crate) fn topic(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", format!("127.0.0.1:{}", self.port()));
        // As large as brokers take.
        config.set("message.max.bytes", "1048588");
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

    /// Begins a transaction with a record for partition 0, which is in Kafka afterwards.
    pub(crate) fn begin_transaction(&self, key: &str, body: &str) -> Transaction {
        let producer: BaseProducer =
            self.client().set("transactional.id", self.topic("test")).create().unwrap();
        producer.init_transactions(PATIENCE).unwrap();
        producer.begin_transaction().unwrap();
        let topic = self.topic("messages");
        let record = BaseRecord::to(&topic).partition(0).key(key).payload(body);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(PATIENCE).unwrap();
        Transaction(producer)
    }

    /// The end of a partition of the topic of messages.
    pub(crate) fn end(&self, partition: i32) -> i64 {
        let consumer: BaseConsumer = self.client().create().unwrap();
        consumer.fetch_watermarks(&self.topic("messages"), partition, PATIENCE).unwrap().1
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

    /// Returns false if there still is one of that name.
    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) -> bool {
        let topic = self.topic(name);
        let topic = NewTopic::new(&topic, partitions, TopicReplication::Fixed(1));
        let topic = topic.set("message.timestamp.type", "LogAppendTime");
        self.admin().create_topics(&[topic], &AdminOptions::new()).await.unwrap().remove(0).is_ok()
    }

    /// Has a topic take no batch of records that is larger.
    pub(crate) async fn limit(&self, name: &str, bytes: &str) {
        let topic = self.topic(name);
        let config = AlterConfig::new(ResourceSpecifier::Topic(&topic)).set("max.message.bytes", bytes);
        let done = self.admin().alter_configs(&[config], &AdminOptions::new()).await;
        done.unwrap().remove(0).unwrap();
    }

    /// Removes the records of a partition before `offset`, as retention does.
    pub(crate) async fn remove_before(&self, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.topic("messages"), partition, Offset::Offset(offset)).unwrap();
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        self.admin().delete_records(&list, &options).await.unwrap();
    }

    /// All topics of the server, of whomever.
    pub(crate) fn topics(&self) -> Vec<String> {
        let consumer: BaseConsumer = self.client().create().unwrap();
        let metadata = consumer.fetch_metadata(None, PATIENCE).unwrap();
        metadata.topics().iter().map(|topic| topic.name().to_owned()).collect()
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
        if !self.service.is_shared() {
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
