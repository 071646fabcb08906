//! A message on lease whose taker is killed comes back once the lease has ended, and not before.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Http, Server, in_time, receipt, texts};

#[tokio::test]
async fn lease_expires_and_returns() {
    let server = Server::start();
    server.put_queue("jobs", json!({})).await;
    server.enqueue("jobs", "work").await;
    // A consumer takes it, and its connection is gone.
    let mut consumer = Http::connect(server.address()).await;
    let begin = Instant::now();
    let taken = consumer.take("lease", "jobs", json!({"receiver": "ann", "leaseMs": 700})).await;
    drop(consumer);
    // Another one gets it at the end of the lease, and not before.
    let mut again = server.take("lease", "jobs", json!({"receiver": "bob", "leaseMs": 60_000})).await;
    let lease = Duration::from_millis(700);
    assert!(again.is_empty() || begin.elapsed() >= lease, "{:?}", begin.elapsed());
    if again.is_empty() {
        let wait = json!({"receiver": "bob", "waitMs": 20_000, "leaseMs": 60_000});
        again = in_time("the message comes back", server.take("lease", "jobs", wait)).await;
    }
    assert!(begin.elapsed() >= lease, "{:?}", begin.elapsed());
    assert_eq!(texts(&again), ["work"]);
    assert_eq!((&taken[0]["deliveries"], &again[0]["deliveries"]), (&json!(1), &json!(2)));
    let ended = taken[0]["leasedUntil"].as_str().unwrap();
    let begun = again[0]["leasedUntil"].as_str().unwrap();
    assert!(ended < begun, "{ended} {begun}");
    // Who was thought dead is told that it is too late.
    server.settle("ack", "jobs", receipt(&taken[0]), json!({})).await.problem(409, "stale_receipt");
    assert_eq!(server.settle("ack", "jobs", receipt(&again[0]), json!({})).await.status, 204);
    assert_eq!(server.waiting("jobs").await, [json!(null); 0]);
}

/// Whoever asks for a lease and goes away while it waits leaves nothing behind: who comes next gets the message at once.
#[tokio::test]
async fn who_stops_waiting_takes_nothing() {
    let server = Server::start();
    server.put_queue("jobs", json!({})).await;
    let address = server.address();
    let gone = tokio::spawn(async move {
        let mut http = Http::connect(address).await;
        http.take("get", "jobs", json!({"receiver": "ann", "waitMs": 20_000})).await
    });
    crate::harness::until("ann waits", async || server.metric("queue_waiting_consumers").await == 1).await;
    gone.abort();
    crate::harness::until("ann is gone", async || server.metric("queue_waiting_consumers").await == 0).await;
    server.enqueue("jobs", "work").await;
    assert_eq!(texts(&server.take("get", "jobs", json!({"receiver": "bob"})).await), ["work"]);
}
