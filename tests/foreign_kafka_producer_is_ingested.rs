//! What any other program writes to Kafka is stored and delivered like everything else, whichever partition it chooses.

use serde_json::json;

use crate::harness::{Kafka, SharedStore, texts, until, with_each_store};

with_each_store!(foreign_kafka_producer_is_ingested);

async fn foreign_kafka_producer_is_ingested(store: SharedStore) {
    let kafka = Kafka::shared();
    let server = store.behind(&kafka, 5).start();
    let mut socket = server.subscriber("7", json!({"after": 0})).await;
    let stored = async |count: usize| {
        until("it is stored", async || server.history("7").await.len() == count).await;
    };
    let lines = [
        (
            Some("7"),
            r#"{"userId":42,"message":"one","messageType":"chat","timestamp":1769860800.5,"x":[]}"#,
            Some("p-1"),
        ),
        (Some("7"), r#"{"userId":"u","message":"two","messageId":"b-2"}"#, Some("p-2")),
        (Some("7"), r#"{"userId":"u","message":"three","messageType":"join"}"#, None),
        (None, r#"{"userId":"u","message":"four","roomId":7}"#, None),
        // The key decides only where it is, unless the body names no room.
        (Some("elsewhere"), r#"{"userId":"u","message":"five","roomId":"7","messageId":"m-5"}"#, None),
    ];
    for (count, (key, body, id)) in lines.iter().enumerate() {
        kafka.produce(*key, None, body, id.map(|id| ("message-id", id)));
        stored(count + 1).await;
    }
    // The same once more: known by its id.
    for (key, body, id) in &lines[..2] {
        kafka.produce(*key, None, body, id.map(|id| ("message-id", id)));
    }
    // In every partition, each time without an id: a record is one message.
    for partition in 0..5 {
        let body = json!({"userId": "u", "message": format!("six-{partition}")});
        kafka.produce(Some("7"), Some(partition), &body.to_string(), None);
        stored(lines.len() + usize::try_from(partition).unwrap() + 1).await;
    }
    let expected = ["one", "two", "three", "four", "five", "six-0", "six-1", "six-2", "six-3", "six-4"];
    let mut live = Vec::new();
    for _ in 0..expected.len() {
        live.push(socket.next().await.unwrap());
    }
    assert_eq!(texts(&live), expected);
    let history = server.history("7").await;
    assert_eq!(texts(&history), expected);
    let field = |index: usize, name: &str| history[index][name].as_str().unwrap().to_owned();
    assert_eq!((field(0, "userId"), field(0, "messageId")), ("42".into(), "p-1".into()));
    assert_eq!(
        (field(0, "messageType"), field(0, "timestamp")),
        ("TEXT".into(), "2026-01-31T12:00:00.500Z".into())
    );
    assert_eq!((field(1, "messageId"), field(2, "messageType")), ("b-2".into(), "JOIN".into()));
    until("all are consumed", async || server.metric("messages_duplicate_total").await == 2).await;
    // At least four of the five partitions are not the room's.
    assert!(server.metric("log_messages_forwarded_total").await >= 4);
    assert_eq!(server.metric("log_messages_dead_total").await, 0);
    // A change is taken where the room is, and nowhere else: another server may decide about the room at the same time.
    for partition in 0..5 {
        let change = r#"{"change":"addMember","roomId":"7","userId":"x"}"#;
        kafka.produce(Some("7"), Some(partition), change, Some(("hubbub-change", "")));
    }
    until("the others are dead", async || server.metric("log_messages_dead_total").await == 4).await;
    until("one is taken", async || {
        server.get("/v1/rooms/7/members").await.json()["members"][0]["userId"] == "x"
    })
    .await;
    let reasons: Vec<_> =
        kafka.dead_letters().iter().map(|letter| letter.header("hubbub-reason").to_owned()).collect();
    assert!(reasons.iter().all(|reason| reason.contains("belongs to partition")), "{reasons:?}");
    // The group's offsets follow, for Kafka's tools.
    let consumed = server.metric("log_messages_consumed_total").await;
    until("offsets are committed", async || u64::try_from(kafka.committed(5)).unwrap() == consumed).await;
}
