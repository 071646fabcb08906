//! A stored block cannot be read any more: whoever repeats an id that stands in it is refused, everybody else of the same
//! batch is not, and `/health` says where the damage is.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Server, until};

const SEGMENT: &str = "segments/00000001.seg";

/// In the first block, which holds the first messages of the first room.
const IN_FIRST_BLOCK: usize = 40;

fn lines(messages: &[Value]) -> String {
    messages.iter().map(|message| message.to_string() + "\n").collect()
}

fn message(room: &str, id: &str) -> Value {
    json!({"roomId": room, "userId": "ada", "messageId": id, "message": format!("the text of {id}")})
}

/// A server whose first segment has a damaged block: that of message `m0` of room `a`.
async fn damaged() -> Server {
    let mut server = Server::start();
    let mut http = server.http().await;
    let mut sent = 0;
    until("the first segment", async || {
        let rooms = ["a", "b"].into_iter();
        let part: Vec<_> = rooms
            .flat_map(|room| (sent..sent + 1_000).map(move |number| message(room, &format!("m{number}"))))
            .collect();
        assert_eq!(http.post("/v1/messages", lines(&part)).await.lines().len(), part.len());
        sent += 1_000;
        server.metric("store_segments").await > 0
    })
    .await;
    drop(http);
    server.stop().await;
    let path = server.data().join(SEGMENT);
    let mut bytes = fs::read(&path).unwrap();
    bytes[IN_FIRST_BLOCK] ^= 1;
    fs::write(&path, bytes).unwrap();
    server.restart();
    server
}

#[tokio::test]
async fn an_unreadable_block_refuses_one_message() {
    let server = damaged().await;
    let health = server.get("/health").await.json();
    assert_eq!(health["components"]["store"]["reason"], Value::Null, "{health}");

    let batch = [message("b", "m0"), message("a", "new 1"), message("a", "m0"), message("a", "new 2")];
    let batch: Vec<_> = batch
        .map(|message| serde_json::from_str(&message.to_string().replace("new ", "new-")).unwrap())
        .into();
    let answers = server.http().await.post("/v1/messages", lines(&batch)).await.lines();
    assert_eq!(answers[0]["duplicate"], true, "{answers:?}");
    assert_eq!(answers[1]["duplicate"], false, "{answers:?}");
    assert_eq!(answers[2]["code"], "unreadable", "{answers:?}");
    assert_eq!(answers[3]["duplicate"], false, "{answers:?}");

    let one = server.send_as("a", "m0", "the text of m0").await.problem(500, "unreadable");
    assert_eq!(one["retryable"], false, "{one}");
    let health = server.get("/health").await.json();
    let reason = health["components"]["store"]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains(&format!("{SEGMENT} is damaged at byte 16")), "{health}");
    let status = (&health["status"], &health["components"]["store"]["status"]);
    assert_eq!(status, (&json!("UP"), &json!("DEGRADED")));
    assert!(server.metric("store_unreadable_reads_total").await >= 2);
}

#[cfg(feature = "amqp")]
#[tokio::test]
async fn an_unreadable_block_does_not_block_the_broker() {
    use lapin::types::AMQPValue;

    use crate::harness::Broker;

    let broker = Broker::shared();
    let mut server = damaged().await;
    server.restart_with(&[&broker.setting()]);
    let client = broker.client().await;
    for id in ["m0", "behind it"] {
        let body = json!({"userId": "ada", "message": format!("the text of {id}"), "timestamp": "2026-01-01T00:00:00Z"});
        client.publish("room.a", &body.to_string(), Some(&id.replace(' ', "-"))).await;
    }
    until("the message behind it", async || {
        let newest = server.get("/v1/rooms/a/messages?limit=1").await.json();
        newest["messages"][0]["messageId"] == "behind-it"
    })
    .await;
    // The one that cannot be compared. What can be stored does not wait for it.
    let dead = client.take_next("hubbub.dead").await;
    let headers = dead.properties.headers().as_ref().unwrap().inner();
    let code = headers.get("hubbub-code");
    assert!(
        matches!(code, Some(AMQPValue::LongString(code)) if code.to_string() == "unreadable"),
        "{code:?}"
    );
}
