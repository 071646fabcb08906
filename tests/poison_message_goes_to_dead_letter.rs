//! What cannot be stored goes to the dead-letter queue with the reason, and is in nobody's way.

use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable};
use serde_json::json;

use crate::harness::{Broker, Setup, texts, until};

#[tokio::test]
async fn poison_message_goes_to_dead_letter() {
    let broker = Broker::shared();
    let server = Setup::new().set(&broker.setting()).start();
    server.put_room("club", json!({"membersOnly": true})).await;
    let client = broker.client().await;
    let good =
        |id: &str| json!({"userId": "u", "message": format!("text of {id}"), "messageId": id}).to_string();
    let poison = [
        ("room.r", "\u{0}not json".to_owned(), "malformed", "JSON"),
        ("room.r", r#"["u","hi"]"#.to_owned(), "malformed", "JSON object"),
        ("room.r", r#"{"message":"hi"}"#.to_owned(), "invalid", "userId is required"),
        // More than a slot of this store's journal takes.
        ("room.r", json!({"userId": "u", "message": "x".repeat(600_000)}).to_string(), "invalid", "524288"),
        (
            "room.r",
            r#"{"userId":"u","message":"another","messageId":"m-0"}"#.to_owned(),
            "id_reused",
            "message 1 of",
        ),
        ("room.club", good("m-9"), "not_member", "member"),
        ("room.", good("m-10"), "invalid", "roomId"),
    ];
    client.publish("room.r", &good("m-0"), None).await;
    for (number, (key, body, _, _)) in poison.iter().enumerate() {
        client.publish(key, body, None).await;
        client.publish("room.r", &good(&format!("m-{}", number + 1)), None).await;
    }
    let expected: Vec<_> = (0..=poison.len()).map(|number| format!("text of m-{number}")).collect();
    until("the good ones are stored", async || server.history("r").await.len() == expected.len()).await;
    assert_eq!(texts(&server.history("r").await), expected);

    until("all dead", async || server.metric("log_messages_dead_total").await == poison.len() as u64).await;
    for (key, body, code, reason) in &poison {
        let dead = client.take_next("hubbub.dead").await;
        assert_eq!(String::from_utf8_lossy(&dead.data), body.as_str());
        assert_eq!(*dead.properties.delivery_mode(), Some(2));
        let headers = dead.properties.headers().as_ref().unwrap().inner();
        let header = |name: &str| match headers.get(name) {
            Some(AMQPValue::LongString(text)) => text.to_string(),
            other => panic!("{name} is {other:?}"),
        };
        assert_eq!(
            (header("hubbub-code"), header("hubbub-routing-key")),
            ((*code).to_owned(), (*key).to_owned())
        );
        assert!(header("hubbub-reason").contains(reason), "{}", header("hubbub-reason"));
    }
    assert!(client.take("hubbub.dead").await.is_none());
    until("all acknowledged", async || server.metric("log_unacked").await == 0).await;
    assert!(server.history("club").await.is_empty());
}

/// The limit is one of what clients may send. What is in the broker was confirmed, perhaps by a server that allows more.
#[tokio::test]
async fn what_was_acknowledged_outlives_a_lower_limit() {
    let broker = Broker::shared();
    let server = Setup::new().set(&broker.setting()).set("limits.message_bytes=1KiB").start();
    let text = "x".repeat(500_000);
    assert_eq!(server.send_as("r", "m-1", &text).await.status, 422);
    let body = json!({"userId": "u", "message": text, "messageId": "m-2"}).to_string();
    broker.client().await.publish("room.r", &body, None).await;
    until("it is stored", async || server.history("r").await.len() == 1).await;
    assert_eq!(texts(&server.history("r").await), [text]);
    assert_eq!(server.metric("log_messages_dead_total").await, 0);
}

/// The broker refuses what one user publishes under another's name. So whose message it was, and how long it was to live, are words
/// of a dead letter, and no properties.
#[tokio::test]
async fn a_dead_letter_is_the_servers_own() {
    let broker = Broker::shared();
    let name = format!("{}-server", broker.vhost());
    broker.add_user(&name, "s3cret");
    broker.grant(&name, [".*", ".*", ".*"]);
    let url = broker.url_of(&name, "s3cret", broker.vhost());
    let server = Setup::new().set(&format!("log.url={url}")).start();
    let client = broker.client().await;
    let mut headers = FieldTable::default();
    headers
        .insert("CC".into(), AMQPValue::FieldArray(vec![AMQPValue::LongString("room.copy".into())].into()));
    headers.insert("trace".into(), AMQPValue::LongString("t-1".into()));
    let properties = BasicProperties::default()
        .with_user_id("guest".into())
        .with_expiration("3600000".into())
        .with_message_id("m-1".into())
        .with_headers(headers);
    let (exchange, options) = ("chat.exchange", BasicPublishOptions::default());
    let published =
        client.channel.basic_publish(exchange.into(), "room.r".into(), options, b"not json", properties);
    assert!(published.await.unwrap().await.unwrap().is_ack());
    let good = json!({"userId": "u", "message": "behind it", "messageId": "m-2"}).to_string();
    client.publish("room.r", &good, None).await;
    until("what follows is stored", async || server.history("r").await.len() == 1).await;
    let letter = client.take_next("hubbub.dead").await;
    let (properties, headers) = (&letter.properties, letter.properties.headers().as_ref().unwrap().inner());
    assert_eq!((properties.user_id(), properties.expiration()), (&None, &None));
    assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "m-1");
    for (name, value) in [("hubbub-user-id", "guest"), ("hubbub-expiration", "3600000"), ("trace", "t-1")] {
        assert_eq!(headers.get(name), Some(&AMQPValue::LongString(value.into())), "{name}");
    }
    assert!(!headers.contains_key("CC"));
    until("all are acknowledged", async || server.metric("log_unacked").await == 0).await;
    assert!(client.take("hubbub.dead").await.is_none());
    drop(server);
    broker.remove_user(&name);
}
