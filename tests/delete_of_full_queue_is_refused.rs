//! Queues and messages are deleted when that is said, and a full queue answers as it was told to.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Http, Server, in_time, texts, until};

#[tokio::test]
async fn delete_of_full_queue_is_refused() {
    let mut server = Server::start();
    server.put_queue("jobs", json!({})).await;
    server.enqueue("jobs", "one").await;
    server.take("lease", "jobs", json!({"receiver": "ann"})).await;
    // On lease it still belongs to the queue.
    let refused = server.call("", Method::DELETE, "/v1/queues/jobs", Value::Null).await;
    refused.problem(409, "queue_not_empty");
    let named = server.call("ann", Method::DELETE, "/v1/queues/jobs?force=true", Value::Null).await;
    named.problem(403, "forbidden");
    assert_eq!(server.waiting("jobs").await.len(), 1);
    let forced = server.call("", Method::DELETE, "/v1/queues/jobs?force=true", Value::Null).await;
    assert_eq!(forced.status, 204);
    server.kill();
    server.restart();
    server.get("/v1/queues/jobs").await.problem(404, "unknown_queue");
    server.post("/v1/queues/jobs/get", &json!({})).await.problem(404, "unknown_queue");
    server.post("/v1/queues/jobs/read", &json!({})).await.problem(404, "unknown_queue");
    server
        .post("/v1/queues/jobs/messages", &json!({"sender": "a", "message": "m"}))
        .await
        .problem(404, "unknown_queue");
    // Made again it is empty, and an empty one may go.
    server.put_queue("jobs", json!({})).await;
    assert_eq!(server.take("get", "jobs", json!({})).await, [json!(null); 0]);
    assert_eq!(server.call("", Method::DELETE, "/v1/queues/jobs", Value::Null).await.status, 204);
}

#[tokio::test]
async fn who_waits_at_a_deleted_queue_is_told() {
    let server = Server::start();
    server.put_queue("jobs", json!({})).await;
    let address = server.address();
    let waiting = tokio::spawn(async move {
        let mut http = Http::connect(address).await;
        http.post("/v1/queues/jobs/get", r#"{"waitMs":20000}"#).await
    });
    until("somebody waits", async || server.metric("queue_waiting_consumers").await == 1).await;
    server.call("", Method::DELETE, "/v1/queues/jobs", Value::Null).await;
    in_time("the answer", waiting).await.unwrap().problem(404, "unknown_queue");
}

#[tokio::test]
async fn a_full_queue_refuses_or_drops() {
    let server = Server::start();
    let limited = |on_full: &str| json!({"maxMessages": 2, "onFull": on_full});
    server.put_queue("strict", limited("refuse")).await;
    server.put_queue("recent", limited("dropOldest")).await;
    for queue in ["strict", "recent"] {
        server.enqueue(queue, "1").await;
        server.enqueue(queue, "2").await;
    }
    let third = json!({"sender": "boss", "message": "3"});
    let refused = server.post("/v1/queues/strict/messages", &third).await;
    assert_eq!(refused.problem(429, "queue_full")["retryable"], true);
    assert_eq!(refused.header("retry-after"), Some("1"));
    server.enqueue("recent", "3").await;
    assert_eq!(texts(&server.waiting("strict").await), ["1", "2"]);
    assert_eq!(texts(&server.waiting("recent").await), ["2", "3"]);
    let dropped = server.get("/v1/queues/recent").await.json();
    assert_eq!((&dropped["dropped"], &dropped["sent"]), (&json!(1), &json!(3)));
}
