//! What nobody can do anything with goes to the dead-letter queue after so many deliveries, holds up nobody else, and can
//! be looked into and tried again.

use serde_json::{Value, json};

use crate::harness::{Server, in_time, receipt, texts};

const LONG_MS: u64 = 60_000;

async fn lease(server: &Server, queue: &str, lease_ms: u64) -> Vec<Value> {
    let wait = json!({"receiver": "ann", "waitMs": 20_000, "leaseMs": lease_ms});
    in_time("a message", server.take("lease", queue, wait)).await
}

#[tokio::test]
async fn poison_goes_to_dead_letter() {
    let mut server = Server::start();
    server.put_queue("jobs", json!({"maxDeliveries": 2})).await;
    for text in ["given-back", "left-alone"] {
        server.enqueue_with("jobs", json!({"message": text, "groupId": text})).await;
        server.enqueue_with("jobs", json!({"message": "fine", "groupId": text})).await;
        for delivery in 1..=2 {
            // As long as it takes to settle it, or next to nothing.
            let lease_ms = if text == "left-alone" { 300 } else { LONG_MS };
            let taken = lease(&server, "jobs", lease_ms).await;
            assert_eq!((texts(&taken), &taken[0]["deliveries"]), (vec![text], &json!(delivery)));
            if text == "given-back" {
                let answer = server.settle("nack", "jobs", receipt(&taken[0]), json!({})).await.json();
                assert_eq!(answer["readyAt"].is_null(), delivery == 2, "{answer}");
            }
        }
        // The next of the group may pass.
        let next = lease(&server, "jobs", LONG_MS).await;
        assert_eq!(texts(&next), ["fine"]);
        assert_eq!(server.settle("ack", "jobs", receipt(&next[0]), json!({})).await.status, 204);
    }
    server.kill();
    server.restart();
    let dead = server.waiting("jobs.dead").await;
    assert_eq!(texts(&dead), ["given-back", "left-alone"]);
    let why: Vec<_> = dead.iter().map(|message| message["dead"].clone()).collect();
    let expected = |reason: &str| json!({"origin": "jobs", "reason": reason, "deliveries": 2});
    assert_eq!(why, [expected("rejected"), expected("lease_expired")]);
    let info = server.get("/v1/queues/jobs").await.json();
    assert_eq!((&info["dead"], &info["done"], &info["messages"]), (&json!(2), &json!(2), &json!(0)));

    let one = server.post("/v1/queues/jobs.dead/redrive", &json!({"id": dead[1]["id"]})).await.json();
    assert_eq!((&one["moved"], &one["more"]), (&json!(1), &json!(false)));
    let again = lease(&server, "jobs", LONG_MS).await;
    assert_eq!((texts(&again), &again[0]["deliveries"]), (vec!["left-alone"], &json!(1)));
    let rest = server.post("/v1/queues/jobs.dead/redrive", &json!({})).await.json();
    assert_eq!((&rest["moved"], server.waiting("jobs.dead").await.len()), (&json!(1), 0));
}

/// Whoever waits at the dead-letter queue gets what comes there.
#[tokio::test]
async fn a_dead_letter_wakes_who_waits_for_it() {
    let server = Server::start();
    server.put_queue("jobs", json!({"maxDeliveries": 1, "deadLetter": "bad"})).await;
    server.enqueue("jobs", "poison").await;
    let waits = async {
        let mut http = server.http().await;
        http.take("get", "bad", json!({"receiver": "undertaker", "waitMs": 20_000})).await
    };
    let dies = async {
        crate::harness::until("somebody waits", async || server.metric("queue_waiting_consumers").await == 1)
            .await;
        let taken = lease(&server, "jobs", LONG_MS).await;
        server.settle("nack", "jobs", receipt(&taken[0]), json!({})).await
    };
    let (got, answer) = tokio::join!(waits, dies);
    assert_eq!((texts(&got), answer.status), (vec!["poison"], 200));
}
