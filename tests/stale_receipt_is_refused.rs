//! A receipt is good for one delivery: afterwards it neither ends nor extends anything, also after a restart.

use serde_json::json;

use crate::harness::{Server, receipt};

#[tokio::test]
async fn stale_receipt_is_refused() {
    let mut server = Server::start();
    server.put_queue("jobs", json!({"leaseMs": 60_000})).await;
    server.enqueue("jobs", "work").await;
    let first = server.take("lease", "jobs", json!({"receiver": "ann"})).await;
    let given_back = server.settle("nack", "jobs", receipt(&first[0]), json!({"delayMs": 0})).await;
    assert_eq!(given_back.status, 200, "{}", given_back.text());
    let second = server.take("lease", "jobs", json!({"receiver": "bob"})).await;
    assert_ne!(receipt(&first[0]), receipt(&second[0]));
    for how in ["ack", "nack", "extend"] {
        server.settle(how, "jobs", receipt(&first[0]), json!({})).await.problem(409, "stale_receipt");
    }
    let (_, of_delivery) = receipt(&first[0]).split_once('-').unwrap();
    let of_nobody = format!("99-{of_delivery}");
    let acks = json!({"receipts": [receipt(&first[0]), "nonsense", of_nobody]});
    let results = server.post("/v1/queues/jobs/ack", &acks).await.json()["results"].clone();
    let codes: Vec<_> = results.as_array().unwrap().iter().map(|result| &result["code"]).collect();
    assert_eq!(codes, ["stale_receipt", "invalid", "stale_receipt"]);

    server.kill();
    server.restart();
    server.settle("ack", "jobs", receipt(&first[0]), json!({})).await.problem(409, "stale_receipt");
    let longer = server.settle("extend", "jobs", receipt(&second[0]), json!({"leaseMs": 90_000})).await;
    assert_eq!(longer.status, 200, "{}", longer.text());
    assert_eq!(server.settle("ack", "jobs", receipt(&second[0]), json!({})).await.status, 204);
    server.settle("ack", "jobs", receipt(&second[0]), json!({})).await.problem(409, "stale_receipt");
    // Made up, or of another message.
    let wrong = json!({"receipt": of_nobody});
    server.post("/v1/queues/jobs/messages/1/ack", &wrong).await.problem(422, "invalid");
    server.settle("ack", "nowhere", receipt(&second[0]), json!({})).await.problem(404, "unknown_queue");
}
