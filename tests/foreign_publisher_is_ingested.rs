//! What any other program publishes to the exchange is stored and delivered like everything else.

use serde_json::json;

use crate::broker_refusals_are_told::refusal;
use crate::harness::{Broker, Setup, texts, until};

#[tokio::test]
async fn foreign_publisher_is_ingested() {
    let broker = Broker::shared();
    let server = Setup::new().set(&broker.setting()).start();
    let mut socket = server.subscriber("7", json!({"after": 0})).await;
    let client = broker.client().await;
    let lines = [
        (
            r#"{"userId":42,"username":"bob","message":"one","messageType":"chat","timestamp":1769860800.5}"#,
            Some("p-1"),
        ),
        (
            r#"{"userId":"u","message":"two","messageId":"b-2","more":{"x":[1]},"timestamp":"1769860800"}"#,
            Some("p-2"),
        ),
        (r#"{"userId":"u","message":"three","messageType":"join"}"#, None),
    ];
    for (body, id) in lines {
        client.publish("room.7", body, id).await;
    }
    // The same once more: known by the id in the body, or in the properties.
    for (body, id) in &lines[..2] {
        client.publish("room.7", body, *id).await;
    }
    client
        .publish("room.elsewhere", r#"{"userId":"u","message":"four","roomId":7,"messageId":"m-4"}"#, None)
        .await;

    let mut live = Vec::new();
    for _ in 0..4 {
        live.push(socket.next().await.unwrap());
    }
    assert_eq!(texts(&live), ["one", "two", "three", "four"]);
    let history = server.history("7").await;
    assert_eq!(texts(&history), ["one", "two", "three", "four"]);
    let first = &history[0];
    assert_eq!((first["userId"].as_str(), first["messageId"].as_str()), (Some("42"), Some("p-1")));
    assert_eq!(
        (first["messageType"].as_str(), &first["timestamp"]),
        (Some("TEXT"), &json!("2026-01-31T12:00:00.500Z"))
    );
    assert_eq!(
        (history[1]["messageId"].as_str(), history[2]["messageType"].as_str()),
        (Some("b-2"), Some("JOIN"))
    );
    // What was given out is acknowledged, and counted.
    until("all acknowledged", async || server.metric("log_unacked").await == 0).await;
    assert_eq!(server.metric("log_messages_consumed_total").await, 6);
    assert_eq!(server.metric("log_messages_without_id_total").await, 1);
    assert_eq!(server.metric("messages_duplicate_total").await, 2);
    assert_eq!(server.metric("log_messages_dead_total").await, 0);
}

#[tokio::test]
async fn several_queues_keep_each_room_in_order() {
    let broker = Broker::shared();
    let setup = Setup::new().set(&broker.setting());
    let spread = setup.clone().set("amqp.shards=3").start();
    let client = broker.client().await;
    for number in 0..60 {
        let (room, body) = (number % 6, json!({"userId": "u", "message": number.to_string()}));
        client.publish(&format!("room.{room}"), &body.to_string(), Some(&format!("m-{number}"))).await;
    }
    until("all stored", async || spread.metric("messages_stored_total").await == 60).await;
    for room in 0..6 {
        let expected: Vec<_> = (0..10).map(|step| (step * 6 + room).to_string()).collect();
        assert_eq!(texts(&spread.history(&room.to_string()).await), expected);
    }
    // What it has not acknowledged would come to the next one again.
    until("all acknowledged", async || spread.metric("log_unacked").await == 0).await;
    // Nobody counts what a server has in hand.
    let refused = refusal(&broker.url(), "amqp.shards=1").await;
    assert!(refused.contains("is still being read") && refused.contains("amqp.shards = 2"), "{refused}");
    let url = spread.url();
    drop(spread);
    // Back to one: what is published now is stored once, too.
    let one = setup.clone().on("other").start();
    assert_ne!(one.url(), url);
    client.publish("room.r", r#"{"userId":"u","message":"once"}"#, None).await;
    until("it is stored", async || one.metric("messages_stored_total").await == 1).await;
    until("all acknowledged", async || one.metric("log_unacked").await == 0).await;
    assert_eq!(one.metric("log_messages_consumed_total").await, 1);
}
