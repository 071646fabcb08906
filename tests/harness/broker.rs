//! RabbitMQ: a virtual host of one's own on the server that runs for all tests, or a server of one's own to be killed.

use std::path::PathBuf;

use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use super::service::{Script, Service, unique};
use super::{in_time, until};

/// Where the server for all tests is, unless `HUBBUB_TEST_AMQP` says otherwise.
const SHARED: &str = "amqp://guest:guest@127.0.0.1:5673/";

/// Its own port, those behind it that it takes, too, and one for TLS.
const PORTS: u16 = 7;

const SCRIPT: Script = Script { name: "rabbitmq.sh", port: "RMQ_PORT" };

pub(crate) struct Broker {
    service: Service,
    vhost: String,
}

impl Broker {
    /// A virtual host that nobody else uses; gone with this.
    pub(crate) fn shared() -> Self {
        let service = Service::shared(SCRIPT, "HUBBUB_TEST_AMQP", SHARED);
        let broker = Self { service, vhost: format!("test-{}", unique()) };
        broker.service.run(&["vhost", "add", &broker.vhost]);
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
        broker.service.make_certificates("DNS:localhost");
        let settings = format!(
            "listeners.ssl.1 = 127.0.0.1:{}\nssl_options.cacertfile = {home}/ca.pem\n\
             ssl_options.certfile = {home}/server.crt\nssl_options.keyfile = {home}/server.key",
            broker.tls_port(),
            home = broker.service.home().display()
        );
        broker.service.set("RMQ_CONF", settings);
        broker.restart();
        broker
    }

    fn not_started() -> Self {
        Self { service: Service::own(SCRIPT, PORTS), vhost: String::new() }
    }

    /// Where it speaks without TLS.
    pub(crate) fn plain_port(&self) -> u16 {
        self.service.port()
    }

    pub(crate) fn tls_port(&self) -> u16 {
        self.plain_port() + PORTS - 1
    }

    /// The authority that signed its certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.service.home().join("ca.pem")
    }

    /// Makes somebody who has no rights yet; they are gone with the server, or by [`Broker::remove_user`].
    pub(crate) fn add_user(&self, user: &str, password: &str) {
        self.service.run(&["user", "add", user, password]);
    }

    pub(crate) fn remove_user(&self, user: &str) {
        self.service.run(&["user", "delete", user]);
    }

    /// What a user may configure, write and read, as regular expressions of names.
    pub(crate) fn grant(&self, user: &str, [configure, write, read]: [&str; 3]) {
        self.service.run(&["user", "grant", user, &self.vhost, configure, write, read]);
    }

    /// Starts it again after it was killed.
    pub(crate) fn restart(&self) {
        self.service.run(&["start"]);
    }

    pub(crate) fn kill(&self) {
        self.service.run(&["stop", "KILL"]);
    }

    /// Runs `rabbitmqctl`.
    pub(crate) fn control(&self, arguments: &[&str]) {
        self.service.run(&[&["ctl"], arguments].concat());
    }

    pub(crate) fn url(&self) -> String {
        self.url_of("guest", "guest", &self.vhost)
    }

    /// The same server as others see it.
    pub(crate) fn url_of(&self, user: &str, password: &str, vhost: &str) -> String {
        format!("amqp://{user}:{password}@127.0.0.1:{}/{vhost}", self.plain_port())
    }

    /// Exchanges (`exchanges`) or queues (`queues`) of its virtual host, without those that RabbitMQ has itself.
    pub(crate) fn names_of(&self, what: &str) -> Vec<String> {
        let url =
            format!("http://127.0.0.1:{}/api/{what}/{}?columns=name", self.plain_port() + 2, self.vhost);
        let asked =
            std::process::Command::new("curl").args(["-fsS", "-u", "guest:guest", &url]).output().unwrap();
        assert!(asked.status.success(), "{asked:?}");
        let all: Vec<serde_json::Value> = serde_json::from_slice(&asked.stdout).unwrap();
        let names = all.iter().map(|one| one["name"].as_str().unwrap().to_owned());
        names.filter(|name| !name.is_empty() && !name.starts_with("amq.")).collect()
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
        if self.service.is_shared() {
            // What is left of it is in the way of nobody.
            let _ = self.service.try_run(&["vhost", "delete", &self.vhost]);
        }
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

    /// Takes one message out of a queue, once there is one.
    pub(crate) async fn take_next(&self, queue: &str) -> BasicGetMessage {
        let mut next = None;
        until(queue, async || {
            next = self.take(queue).await;
            next.is_some()
        })
        .await;
        next.unwrap()
    }
}
