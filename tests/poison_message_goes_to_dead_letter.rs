//! What cannot be stored goes to the dead-letter queue with the reason, and is in nobody's way.

use lapin::types::AMQPValue;
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
        ("room.r", json!({"userId": "u", "message": "x".repeat(70_000)}).to_string(), "invalid", "65536"),
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
