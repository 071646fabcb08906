//! `kill -9` with messages waiting, delayed, on lease and in groups: nothing is lost, nothing comes twice, and each is as
//! it was.

use serde_json::{Value, json};

use crate::harness::{Server, in_time, receipt, texts};

fn states(messages: &[Value]) -> Vec<(String, Value, Value)> {
    let state = |message: &Value| {
        (
            message["message"].as_str().unwrap().to_owned(),
            message["state"].clone(),
            message["deliveries"].clone(),
        )
    };
    messages.iter().map(state).collect()
}

#[tokio::test]
async fn queues_survive_a_kill() {
    let mut server = Server::start();
    server.put_queue("jobs", json!({"leaseMs": 600_000, "maxDeliveries": 3})).await;
    let id = |text: &str| json!({"message": text, "messageId": text});
    for text in ["taken", "acked", "leased", "given-back", "waiting"] {
        server.enqueue_with("jobs", id(text)).await;
    }
    server
        .enqueue_with("jobs", json!({"message": "delayed", "messageId": "delayed", "delayMs": 600_000}))
        .await;
    server.enqueue_with("jobs", json!({"message": "short", "messageId": "short", "delayMs": 1_500})).await;
    assert_eq!(texts(&server.take("get", "jobs", json!({"receiver": "ann"})).await), ["taken"]);
    let taken = server.take("lease", "jobs", json!({"receiver": "ann", "max": 3})).await;
    assert_eq!(texts(&taken), ["acked", "leased", "given-back"]);
    assert_eq!(server.settle("ack", "jobs", receipt(&taken[0]), json!({})).await.status, 204);
    server.settle("nack", "jobs", receipt(&taken[2]), json!({"delayMs": 0})).await;
    let before = server.waiting("jobs").await;
    for _ in 0..3 {
        server.kill();
        server.restart();
        let after = server.waiting("jobs").await;
        let but_short = |messages: &[Value]| {
            let rest: Vec<Value> = messages.iter().filter(|one| one["message"] != "short").cloned().collect();
            states(&rest)
        };
        assert_eq!(but_short(&after), but_short(&before));
        // Sent again under the same ids they are what they were, gone or not.
        for text in ["taken", "acked", "leased", "given-back", "waiting"] {
            let message = json!({"sender": "boss", "message": text, "messageId": text});
            let answer = server.post("/v1/queues/jobs/messages", &message).await;
            assert_eq!((answer.status, &answer.json()["duplicate"]), (200, &json!(true)), "{text}");
        }
    }
    assert_eq!(server.settle("ack", "jobs", receipt(&taken[1]), json!({})).await.status, 204);
    let mut got = Vec::new();
    while got.len() < 3 {
        let wait = json!({"receiver": "bob", "max": 10, "waitMs": 20_000});
        got.extend(in_time("the rest", server.take("get", "jobs", wait)).await);
    }
    assert_eq!(texts(&got), ["given-back", "waiting", "short"]);
    assert_eq!(states(&server.waiting("jobs").await), [("delayed".into(), json!("delayed"), json!(0))]);
    let info = server.get("/v1/queues/jobs").await.json();
    assert_eq!((&info["sent"], &info["done"], &info["messages"]), (&json!(7), &json!(6), &json!(1)));
}
