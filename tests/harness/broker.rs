//! RabbitMQ: a virtual host of one's own on the server that runs for all tests, or a server of one's own to be killed.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tempfile::TempDir;

use super::{free_ports, in_time};

/// Where the server for all tests is, unless `HUBBUB_TEST_AMQP` says otherwise.
const SHARED: &str = "amqp://guest:guest@127.0.0.1:5673/";

/// Its own port, and those behind it that it takes, too.
const PORTS: u16 = 6;

pub(crate) struct Broker {
    port: u16,
    vhost: String,
    /// Where its own server lives.
    home: Option<TempDir>,
}

impl Broker {
    /// A virtual host that nobody else uses; gone with this.
    pub(crate) fn shared() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let url = std::env::var("HUBBUB_TEST_AMQP").unwrap_or_else(|_| SHARED.to_owned());
        let port = url.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("HUBBUB_TEST_AMQP {url} names no port"));
        let vhost = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let broker = Self { port, vhost, home: None };
        if let Err(said) = broker.try_script(&["vhost", "add", &broker.vhost]) {
            panic!("no RabbitMQ on port {port}; start it with scripts/services/start.sh\n{said}");
        }
        broker
    }

    /// A server of one's own, which runs.
    pub(crate) fn start() -> Self {
        let home = tempfile::Builder::new().prefix("hubbub-mq-").tempdir().unwrap();
        let broker = Self { port: free_ports(PORTS), vhost: String::new(), home: Some(home) };
        broker.restart();
        broker
    }

    /// Starts it again after it was killed.
    pub(crate) fn restart(&self) {
        self.script(&["start"]);
    }

    pub(crate) fn kill(&self) {
        self.script(&["stop", "KILL"]);
    }

    /// Runs `rabbitmqctl`.
    pub(crate) fn control(&self, arguments: &[&str]) {
        self.script(&[&["ctl"], arguments].concat());
    }

    fn script(&self, arguments: &[&str]) {
        self.try_script(arguments).unwrap_or_else(|said| panic!("rabbitmq.sh {arguments:?}: {said}"));
    }

    fn try_script(&self, arguments: &[&str]) -> Result<(), String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/rabbitmq.sh");
        let mut command = Command::new(script);
        command.args(arguments).env("RMQ_PORT", self.port.to_string());
        if let Some(home) = &self.home {
            command.env("SVC_HOME", home.path());
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    pub(crate) fn url(&self) -> String {
        self.url_of("guest", "guest", &self.vhost)
    }

    /// The same server as others see it.
    pub(crate) fn url_of(&self, user: &str, password: &str, vhost: &str) -> String {
        format!("amqp://{user}:{password}@127.0.0.1:{}/{vhost}", self.port)
    }

    /// The setting that makes it a server's log.
    pub(crate) fn setting(&self) -> String {
        format!("log.url={}", self.url())
    }

    /// Another program that speaks to it.
    pub(crate) async fn client(&self) -> Client {
        // The library takes a URL that ends in a slash for a virtual host without a name.
        let url = self.url();
        let connecting = Connection::connect(url.trim_end_matches('/'), ConnectionProperties::default());
        let connection = in_time("connecting to RabbitMQ", connecting).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Client { _connection: connection, channel }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // What is left of it is in the way of nobody.
        let _ = match &self.home {
            Some(_) => self.try_script(&["wipe"]),
            None => self.try_script(&["vhost", "delete", &self.vhost]),
        };
    }
}

pub(crate) struct Client {
    _connection: Connection,
    pub(crate) channel: Channel,
}

impl Client {
    /// Publishes to the exchange of the rooms, and waits until the broker has it.
    pub(crate) async fn publish(&self, key: &str, body: &str, message_id: Option<&str>) {
        let mut properties = BasicProperties::default().with_delivery_mode(2);
        if let Some(id) = message_id {
            properties = properties.with_message_id(id.into());
        }
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let published = self.channel.basic_publish(
            "chat.exchange".into(),
            key.into(),
            options,
            body.as_bytes(),
            properties,
        );
        let confirmation = in_time("publishing", async { published.await.unwrap().await.unwrap() }).await;
        assert!(confirmation.is_ack() && confirmation.take_message().is_none(), "{key} was not taken");
    }

    /// Takes one message out of a queue, if there is one.
    pub(crate) async fn take(&self, queue: &str) -> Option<BasicGetMessage> {
        let got = self.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()?;
        got.ack(BasicAckOptions::default()).await.unwrap();
        Some(got)
    }
}
