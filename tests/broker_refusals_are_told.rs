//! A broker that cannot be used: one line that says what and what to do, without the password.

use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::FieldTable;

use crate::harness::{Broker, Setup, hubbub_aside};

async fn refusal(url: &str, setting: &str) -> String {
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
