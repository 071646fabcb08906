//! What is sent for later is not delivered before, whatever happens in between, and whoever waits for it gets it then.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Server, in_time, receipt, texts};

#[tokio::test]
async fn delayed_is_never_early() {
    let mut server = Server::start();
    server.put_queue("later", json!({})).await;
    let begin = Instant::now();
    let delay = Duration::from_millis(1_200);
    server.enqueue_with("later", json!({"message": "delayed", "delayMs": 1_200})).await;
    let tomorrow = "2999-01-01T00:00:00Z";
    server.enqueue_with("later", json!({"message": "in a thousand years", "deliverAt": tomorrow})).await;
    server.enqueue_with("later", json!({"message": "long past", "deliverAt": "2001-01-01T00:00:00Z"})).await;
    assert_eq!(texts(&server.take("get", "later", json!({"max": 10})).await), ["long past"]);
    server.kill();
    server.restart();
    let states = server.waiting("later").await;
    assert_eq!((&states[0]["state"], &states[1]["state"]), (&json!("delayed"), &json!("delayed")));
    let got = in_time("it is due", server.take("get", "later", json!({"max": 10, "waitMs": 20_000}))).await;
    assert_eq!(texts(&got), ["delayed"]);
    assert!(begin.elapsed() >= delay, "{:?}", begin.elapsed());
    assert_eq!(texts(&server.waiting("later").await), ["in a thousand years"]);
}

#[tokio::test]
async fn given_back_with_a_delay_waits_for_it() {
    let server = Server::start();
    server.put_queue("jobs", json!({"backoffMs": 400})).await;
    server.enqueue("jobs", "work").await;
    let wait = json!({"receiver": "ann", "waitMs": 20_000});
    // Twice as long each time.
    for least in [400, 800] {
        let taken = in_time("a delivery", server.take("lease", "jobs", wait.clone())).await;
        let begin = Instant::now();
        server.settle("nack", "jobs", receipt(&taken[0]), json!({})).await;
        assert!(server.take("lease", "jobs", json!({"receiver": "bob"})).await.is_empty());
        let seen = in_time("it is back", server.take("read", "jobs", wait.clone())).await;
        assert_eq!(texts(&seen), ["work"]);
        assert!(begin.elapsed() >= Duration::from_millis(least), "{:?}", begin.elapsed());
    }
}
