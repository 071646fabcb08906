//! Whoever waits at a queue is woken when there is something, one for each message, first come first served.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Http, Server, in_time, receipt, texts, until};

/// Comes and waits; back when it stands in the line behind `before` others.
async fn waits(server: &Server, path: &str, body: Value, before: u64) -> JoinHandle<Vec<Value>> {
    let (address, path) = (server.address(), path.to_owned());
    let waiting = tokio::spawn(async move {
        let mut http = Http::connect(address).await;
        let answer = http.post(&path, body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["messages"].as_array().unwrap().clone()
    });
    until("it waits", async || server.metric("queue_waiting_consumers").await == before + 1).await;
    waiting
}

#[tokio::test]
async fn long_poll_wakes_one() {
    let server = Server::start();
    server.put_queue("jobs", json!({})).await;
    server.register(&["cyd"]).await;
    let wait = |who: &str| json!({"receiver": who, "waitMs": 20_000});
    let mut line = Vec::new();
    for (before, who) in ["ann", "bob", "cyd"].into_iter().enumerate() {
        line.push(waits(&server, "/v1/queues/jobs/get", wait(who), before as u64).await);
    }
    // A queue, a client, three tries. An operation is counted a moment after it is answered.
    let done = async || server.metric("pipeline_total_seconds_count").await;
    until("all is counted", async || done().await == 5).await;
    // For cyd alone, whoever came before.
    server.enqueue_with("jobs", json!({"message": "for cyd", "receiver": "cyd"})).await;
    assert_eq!(texts(&in_time("cyd", line.remove(2)).await.unwrap()), ["for cyd"]);
    server.enqueue("jobs", "first").await;
    assert_eq!(texts(&in_time("ann", line.remove(0)).await.unwrap()), ["first"]);
    assert_eq!(server.metric("queue_waiting_consumers").await, 1);
    server.enqueue("jobs", "second").await;
    assert_eq!(texts(&in_time("bob", line.remove(0)).await.unwrap()), ["second"]);
    // Three sends and three takes: nobody else was woken for nothing.
    until("these are counted, too", async || done().await >= 11).await;
    assert_eq!(done().await, 11);
}

#[tokio::test]
async fn what_is_freed_wakes_who_waits() {
    let server = Server::start();
    server.put_queue("jobs", json!({"leaseMs": 60_000})).await;
    for text in ["one", "two"] {
        server.enqueue_with("jobs", json!({"message": text, "groupId": "g"})).await;
    }
    let lease = json!({"receiver": "ann"});
    let first = server.take("lease", "jobs", lease).await;
    // The next of the group, once the one before is done.
    let wait = json!({"receiver": "bob", "waitMs": 20_000});
    let next = waits(&server, "/v1/queues/jobs/lease", wait.clone(), 0).await;
    server.settle("ack", "jobs", receipt(&first[0]), json!({})).await;
    let next = in_time("the next of the group", next).await.unwrap();
    assert_eq!(texts(&next), ["two"]);
    // And what is given back.
    let again = waits(&server, "/v1/queues/jobs/lease", wait, 0).await;
    server.settle("nack", "jobs", receipt(&next[0]), json!({})).await;
    assert_eq!(texts(&in_time("what was given back", again).await.unwrap()), ["two"]);
}

#[tokio::test]
async fn by_sender_over_all_queues() {
    let server = Server::start();
    for queue in ["a", "b"] {
        server.put_queue(queue, json!({})).await;
    }
    let wait = json!({"sender": "boss", "waitMs": 20_000});
    let waiting = waits(&server, "/v1/clients/ann/get", wait, 0).await;
    let of_another = json!({"sender": "somebody", "message": "not this"});
    assert_eq!(server.post("/v1/queues/a/messages", &of_another).await.status, 201);
    server.enqueue("b", "this").await;
    let got = in_time("the sender's", waiting).await.unwrap();
    assert_eq!((texts(&got), &got[0]["queue"]), (vec!["this"], &json!("b")));
    assert_eq!(server.get("/v1/queues?receiver=ann").await.json()["queues"], json!([{"queue": "a"}]));
}

/// At shutdown whoever waits is answered, with nothing.
#[tokio::test]
async fn shutdown_answers_who_waits() {
    let mut server = Server::start();
    server.put_queue("jobs", json!({})).await;
    let waiting = waits(&server, "/v1/queues/jobs/get", json!({"waitMs": 20_000}), 0).await;
    server.stop().await;
    assert_eq!(in_time("the answer", waiting).await.unwrap(), [json!(null); 0]);
}
