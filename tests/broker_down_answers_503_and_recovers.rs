//! While the broker is away senders are told at once, everything else goes on, and once it is back so does sending.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Broker, Setup, chat_message, texts, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_down_answers_503_and_recovers() {
    let broker = Broker::start();
    let server = Setup::new().set(&broker.setting()).start();
    let answer = server.send_as("r", "m-1", "one").await;
    assert_eq!((answer.status, answer.json()), (202, json!({"messageId": "m-1"})));
    until("it is stored", async || server.history("r").await.len() == 1).await;
    let log = async || server.get("/health").await.json()["components"]["log"].clone();
    let health = log().await;
    assert_eq!((&health["status"], &health["kind"]), (&json!("UP"), &json!("amqp")), "{health}");
    assert!(health["depth"].is_u64() && health["lagMs"].is_u64(), "{health}");

    broker.kill();
    until("it is noticed", async || log().await["status"] == "DOWN").await;
    let health = server.get("/health").await;
    assert_eq!(health.status, 503);
    assert!(!health.text().contains("guest:guest"), "{}", health.text());
    // What was on its way when the connection broke may have arrived: that is said, too.
    let mut refused = server.send_as("r", "m-2", "two").await;
    until("senders are told at once", async || {
        if refused.status == 504 {
            refused = server.send_as("r", "m-2", "two").await;
        }
        refused.status != 504
    })
    .await;
    assert_eq!(refused.problem(503, "unavailable")["messageId"], "m-2");
    assert!(refused.header("retry-after").is_some());
    let mut chat = server.ws("/chat/r").await;
    chat.send(&chat_message("m-3", "three")).await;
    let error = chat.next().await.unwrap();
    assert_eq!(
        (error["status"].as_str(), error["code"].as_str()),
        (Some("error"), Some("unavailable")),
        "{error}"
    );
    // Rooms, queues and keys have nothing to do with it.
    server.put_room("other", json!({"title": "Other"})).await;
    let queue = server.call("", Method::PUT, "/v1/queues/jobs", json!({})).await;
    assert_eq!(queue.status, 201, "{}", queue.text());
    assert_eq!(server.call("", Method::GET, "/v1/rooms/r/messages", Value::Null).await.status, 200);

    broker.restart();
    until("it is back", async || log().await["status"] == "UP").await;
    assert_eq!(server.send_as("r", "m-2", "two").await.status, 202);
    chat.send(&chat_message("m-3", "three")).await;
    let success = chat.next().await.unwrap();
    assert_eq!((success["status"].as_str(), success.get("seq")), (Some("success"), None), "{success}");
    until("all are stored", async || server.history("r").await.len() == 3).await;
    assert_eq!(texts(&server.history("r").await), ["one", "two", "three"]);

    // Without its queue a message has nowhere to go: it is refused, and the queue is made again.
    let client = broker.client().await;
    client
        .channel
        .queue_delete("hubbub.room.0".into(), lapin::options::QueueDeleteOptions::default())
        .await
        .unwrap();
    until("it is taken again", async || server.send_as("r", "m-4", "four").await.status == 202).await;
    until("it is stored", async || server.history("r").await.len() == 4).await;
}
