//! RabbitMQ: a virtual host of one's own on the server that runs for all tests, or a server of one's own to be killed.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tempfile::TempDir;

use super::{MAKE_CERTIFICATES, free_ports, in_time};

/// Where the server for all tests is, unless `HUBBUB_TEST_AMQP` says otherwise.
const SHARED: &str = "amqp://guest:guest@127.0.0.1:5673/";

/// Its own port, those behind it that it takes, too, and one for TLS.
const PORTS: u16 = 7;

pub(crate) struct Broker {
    port: u16,
    vhost: String,
    /// Where its own server lives.
    home: Option<TempDir>,
    /// Further lines of its configuration.
    settings: String,
}

impl Broker {
    /// A virtual host that nobody else uses; gone with this.
    pub(crate) fn shared() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let url = std::env::var("HUBBUB_TEST_AMQP").unwrap_or_else(|_| SHARED.to_owned());
        let port = url.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("HUBBUB_TEST_AMQP {url} names no port"));
        let vhost = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let broker = Self { port, vhost, home: None, settings: String::new() };
        if let Err(said) = broker.try_script(&["vhost", "add", &broker.vhost]) {
            panic!("no RabbitMQ on port {port}; start it with scripts/services/start.sh\n{said}");
        }
        broker
    }

    /// A server of one's own, which runs.
    pub(crate) fn start() -> Self {
        let broker = Self::not_started();
        broker.restart();
        broker
    }

    /// The same, which also speaks TLS, with a certificate for `localhost`.
    pub(crate) fn start_with_tls() -> Self {
        let mut broker = Self::not_started();
        let home = broker.home.as_ref().unwrap().path();
        let made = Command::new("bash").args(["-ec", MAKE_CERTIFICATES]).current_dir(home).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        broker.settings = format!(
            "listeners.ssl.1 = 127.0.0.1:{}\nssl_options.cacertfile = {home}/ca.pem\n\
             ssl_options.certfile = {home}/server.crt\nssl_options.keyfile = {home}/server.key",
            broker.tls_port(),
            home = home.display()
        );
        broker.restart();
        broker
    }

    fn not_started() -> Self {
        let home = tempfile::Builder::new().prefix("hubbub-mq-").tempdir().unwrap();
        Self { port: free_ports(PORTS), vhost: String::new(), home: Some(home), settings: String::new() }
    }

    /// Where it speaks without TLS.
    pub(crate) fn plain_port(&self) -> u16 {
        self.port
    }

    pub(crate) fn tls_port(&self) -> u16 {
        self.port + PORTS - 1
    }

    /// The authority that signed its certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.home.as_ref().unwrap().path().join("ca.pem")
    }

    /// Makes somebody who has no rights yet; they are gone with the server, or by [`Broker::remove_user`].
    pub(crate) fn add_user(&self, user: &str, password: &str) {
        self.script(&["user", "add", user, password]);
    }

    pub(crate) fn remove_user(&self, user: &str) {
        self.script(&["user", "delete", user]);
    }

    /// What a user may configure, write and read, as regular expressions of names.
    pub(crate) fn grant(&self, user: &str, [configure, write, read]: [&str; 3]) {
        self.script(&["user", "grant", user, &self.vhost, configure, write, read]);
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
            command.env("SVC_HOME", home.path()).env("RMQ_CONF", &self.settings);
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

    /// Cuts all connections of its virtual host.
    pub(crate) fn cut_connections(&self) {
        let vhost = if self.vhost.is_empty() { "/" } else { &self.vhost };
        self.control(&["close_all_connections", "--vhost", vhost, "test"]);
    }

    pub(crate) fn vhost(&self) -> &str {
        &self.vhost
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
