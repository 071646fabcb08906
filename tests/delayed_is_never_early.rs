//! What is sent for later is not delivered before, whatever happens in between, and whoever waits for it gets it then.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Server, in_time, receipt, texts};

#[tokio::test]
async fn delayed_is_never_early() {
    // A machine that stands still for longer needs a longer delay.
    for delay_ms in [1_200, 6_000, 30_000] {
        if is_never_early(Duration::from_millis(delay_ms)).await {
            return;
        }
    }
    panic!("this machine is too slow to see what is delayed");
}

/// Whether there was time to look while it was delayed.
async fn is_never_early(delay: Duration) -> bool {
    let mut server = Server::start();
    server.put_queue("later", json!({})).await;
    let begin = Instant::now();
    let delay_ms = u64::try_from(delay.as_millis()).unwrap();
    server.enqueue_with("later", json!({"message": "delayed", "delayMs": delay_ms})).await;
    let tomorrow = "2999-01-01T00:00:00Z";
    server.enqueue_with("later", json!({"message": "in a thousand years", "deliverAt": tomorrow})).await;
    server.enqueue_with("later", json!({"message": "long past", "deliverAt": "2001-01-01T00:00:00Z"})).await;
    let got = server.take("get", "later", json!({"max": 10})).await;
    if begin.elapsed() >= delay {
        return false;
    }
    assert_eq!(texts(&got), ["long past"]);
    server.kill();
    server.restart();
    let states = server.waiting("later").await;
    if begin.elapsed() >= delay {
        return false;
    }
    assert_eq!((&states[0]["state"], &states[1]["state"]), (&json!("delayed"), &json!("delayed")));
    let got = in_time("it is due", server.take("get", "later", json!({"max": 10, "waitMs": 20_000}))).await;
    assert_eq!(texts(&got), ["delayed"]);
    assert!(begin.elapsed() >= delay, "{:?}", begin.elapsed());
    assert_eq!(texts(&server.waiting("later").await), ["in a thousand years"]);
    true
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
        // Nobody gets it before, unless this machine stood still for that long.
        for got in server.take("lease", "jobs", json!({"receiver": "bob"})).await {
            assert!(begin.elapsed() >= Duration::from_millis(least), "{:?}", begin.elapsed());
            server.settle("nack", "jobs", receipt(&got), json!({})).await;
        }
        let seen = in_time("it is back", server.take("read", "jobs", wait.clone())).await;
        assert_eq!(texts(&seen), ["work"]);
        assert!(begin.elapsed() >= Duration::from_millis(least), "{:?}", begin.elapsed());
    }
}
