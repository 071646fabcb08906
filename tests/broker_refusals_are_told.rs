//! A broker that cannot be used: one line that says what and what to do, without the password.

use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::FieldTable;

use crate::harness::{Broker, Setup, hubbub_aside, until};

pub(crate) async fn refusal(url: &str, setting: &str) -> String {
    let setup = Setup::new().set(&format!("log.url={url}")).set(setting);
    let ran = hubbub_aside(setup.arguments("127.0.0.1:0"), String::new()).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    let errors: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("hubbub: ")).collect();
    assert_eq!(errors.len(), 1, "{ran:?}");
    assert!(!ran.stderr.contains("s3cret"), "{ran:?}");
    errors[0].to_owned()
}

#[tokio::test]
async fn broker_refusals_are_told() {
    let broker = Broker::shared();
    let client = broker.client().await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let arguments = FieldTable::default;
    client
        .channel
        .exchange_declare("straight".into(), ExchangeKind::Direct, durable, arguments())
        .await
        .unwrap();
    let fleeting = QueueDeclareOptions::default();
    client.channel.queue_declare("fleeting.0".into(), fleeting, arguments()).await.unwrap();
    let none = "amqp.shards=1";
    for (url, setting, parts) in [
        (broker.url_of("guest", "s3cret", ""), none, &["user or the password is wrong", "log.url"][..]),
        (
            broker.url_of("guest", "guest", "nowhere"),
            none,
            &["vhost nowhere not found", "rabbitmqctl add_vhost"],
        ),
        (
            "amqp://guest:s3cret@127.0.0.1:1/".to_owned(),
            none,
            &["amqp://guest@127.0.0.1:1/", "does not answer"],
        ),
        (broker.url(), "amqp.exchange=straight", &["exchange straight", "'type'", "amqp.exchange"]),
        (
            broker.url(),
            "amqp.queue_prefix=fleeting.",
            &["queue fleeting.0", "'durable'", "amqp.queue_prefix"],
        ),
    ] {
        let line = refusal(&url, setting).await;
        for part in parts {
            assert!(line.contains(part), "'{part}' is not in: {line}");
        }
    }
}

#[tokio::test]
async fn what_fits_is_used() {
    let broker = Broker::shared();
    let client = broker.client().await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-single-active-consumer".into(), true.into());
    arguments.insert("x-queue-type".into(), lapin::types::AMQPValue::LongString("quorum".into()));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    client.channel.queue_declare("hubbub.room.0".into(), durable, arguments).await.unwrap();
    let fleeting = ExchangeDeclareOptions::default();
    let exchange = client.channel.exchange_declare(
        "chat.exchange".into(),
        ExchangeKind::Topic,
        fleeting,
        FieldTable::default(),
    );
    exchange.await.unwrap();
    let server = Setup::new().set(&broker.setting()).start();
    assert_eq!(server.send_as("r", "m", "hi").await.status, 202);
}

const ALL: [&str; 3] = [".*", ".*", ".*"];
const NONE: [&str; 3] = ["", "", ""];
/// What a user needs where everything is there already.
const ENOUGH: [&str; 3] =
    ["", r"^(hubbub[.].*|chat[.]exchange|amq[.]default)$", "^(hubbub[.].*|chat[.]exchange)$"];

/// Somebody of one's own, gone with this.
struct User<'a> {
    broker: &'a Broker,
    name: String,
}

impl<'a> User<'a> {
    fn new(broker: &'a Broker) -> Self {
        let name = format!("{}-user", broker.vhost());
        broker.add_user(&name, "s3cret");
        Self { broker, name }
    }

    fn url(&self) -> String {
        self.broker.url_of(&self.name, "s3cret", self.broker.vhost())
    }

    fn may(&self, rights: [&str; 3]) {
        self.broker.grant(&self.name, rights);
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.broker.remove_user(&self.name);
    }
}

#[tokio::test]
async fn missing_rights_are_told() {
    let broker = Broker::shared();
    let user = User::new(&broker);
    let refused = async |part: &str| {
        let line = refusal(&user.url(), "amqp.shards=1").await;
        let advice = format!("set_permissions -p '{}' '{}'", broker.vhost(), user.name);
        for part in [part, "refused", &advice] {
            assert!(line.contains(part), "'{part}' is not in: {line}");
        }
    };
    refused("the virtual host").await;
    user.may(["", ".*", ".*"]);
    refused("declaring the exchange chat.exchange").await;
    user.may(["^chat[.]exchange$", ".*", ".*"]);
    refused("declaring the queue hubbub.dead").await;
    drop(Setup::new().set(&broker.setting()).start());
    let [configure, write, read] = ENOUGH;
    for (rights, part) in [
        ([configure, "^hubbub[.].*", ""], "binding the queue hubbub.room.0"),
        ([configure, "^hubbub[.].*", read], "publishing to the exchange chat.exchange"),
        ([configure, "^(hubbub[.].*|chat[.]exchange)$", read], "publishing to the default exchange"),
        ([configure, write, "^chat[.]exchange$"], "consuming from the queue hubbub.room.0"),
    ] {
        user.may(rights);
        refused(part).await;
    }
    user.may(ENOUGH);
    let server = Setup::new().set(&format!("log.url={}", user.url())).start();
    assert_eq!(server.send_as("r", "m", "hi").await.status, 202);
    until("it is stored", async || server.history("r").await.len() == 1).await;
    broker.client().await.publish("room.r", "no message", None).await;
    until("it is dead", async || server.metric("log_messages_dead_total").await == 1).await;
}

#[tokio::test]
async fn rights_are_taken_and_given_back() {
    let broker = Broker::shared();
    let user = User::new(&broker);
    user.may(ALL);
    let server = Setup::new().set(&format!("log.url={}", user.url())).start();
    assert_eq!(server.send_as("r", "1", "1").await.status, 202);
    let log = async || server.get("/health").await.json()["components"]["log"].clone();
    user.may(NONE);
    // The broker looks at rights when something is opened.
    broker.cut_connections();
    let is_told = async || log().await["reason"].as_str().unwrap_or_default().contains("set_permissions");
    until("health says what to do", is_told).await;
    let health = server.get("/health").await;
    assert!(health.status == 503 && !health.text().contains("s3cret"), "{}", health.text());
    // What met the refusal on its way may have arrived: 504 says so.
    until("senders are told", async || server.send_as("r", "2", "2").await.status == 503).await;
    user.may(ALL);
    until("it goes on", async || log().await["status"] == "UP").await;
    assert_eq!(server.send_as("r", "2", "2").await.status, 202);
    until("all are stored", async || server.history("r").await.len() == 2).await;
}
