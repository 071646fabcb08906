//! When a sync fails nobody knows what the disk has: the batch is `unconfirmed`, nothing is written any more, reads go
//! on, and a restart finds what was acknowledged. On a simulated disk, since no real one fails on demand; everything
//! above the disk is what the binary runs.

use std::sync::Arc;

use hubbub_store::embedded::sim::SimDisk;
use serde_json::json;

use crate::harness::{Follower, Simulated, Ws, chat_message, texts};

fn message(id: &str) -> String {
    json!({"userId": "ada", "message": id, "messageId": id}).to_string()
}

const PATH: &str = "/v1/rooms/r/messages";

#[derive(Debug, Clone, Copy)]
enum Failure {
    Sync,
    Write,
}

async fn fails(failure: Failure) {
    let disk = SimDisk::new();
    let server = Simulated::start(Arc::new(disk.clone())).await;
    let mut http = server.http().await;
    let mut chat = Ws::open(server.address, "/chat/r").await;
    let mut socket = Ws::open(server.address, "/v1/ws").await;
    let mut follower = Follower::new("r");
    assert!(follower.resume(server.address).await);
    for id in ["1", "2", "3"] {
        assert_eq!(http.post(PATH, message(id)).await.status, 201);
    }
    follower.read_to(3).await;

    match failure {
        Failure::Sync => disk.fail_sync_in(1),
        Failure::Write => disk.fail_write_in(1),
    }
    let problem =
        http.post(PATH, r#"{"userId":"ada","message":"doubtful"}"#).await.problem(504, "unconfirmed");
    assert_eq!(problem["retryable"], true);
    let doubtful = problem["messageId"].as_str().expect("the id, also one the server made").to_owned();

    // Whether the disk works again or not: nothing is written before a restart has looked.
    for id in ["4", "5"] {
        let answer = http.post(PATH, message(id)).await;
        answer.problem(503, "unavailable");
        assert_eq!(answer.header("retry-after"), Some("1"));
        let answer = chat.request(&chat_message(id, id)).await;
        assert_eq!(
            (&answer["status"], &answer["code"]),
            (&json!("error"), &json!("unavailable")),
            "{answer}"
        );
        let frame = json!({"type": "send", "roomId": "r", "userId": "ada", "message": id, "messageId": id});
        let answer = socket.request(&frame).await;
        assert_eq!((&answer["code"], &answer["messageId"]), (&json!("unavailable"), &json!(id)), "{answer}");
    }
    let health = http.get("/health").await;
    assert_eq!((health.status, &health.json()["components"]["store"]["status"]), (503, &json!("DOWN")));
    assert_eq!(health.header("retry-after"), Some("1"));
    assert!(
        health.json()["components"]["store"]["reason"].as_str().unwrap().contains("restart"),
        "{health:?}"
    );
    assert!(http.get("/metrics").await.text().contains("hubbub_store_up 0\n"));

    // Reads go on, and show what was acknowledged, not what is in doubt.
    assert_eq!(texts(&server.history().await), ["1", "2", "3"]);
    let mut late = Follower::new("r");
    assert!(late.resume(server.address).await);
    late.read_to(3).await;
    assert_eq!(http.get("/health/live").await.status, 200);
    drop((http, chat, socket, follower, late));
    server.stop().await;

    // Any state the power failure may leave: the acknowledged messages are there, the doubtful one is or is not.
    for seed in 0..20 {
        let disk = if seed == 0 {
            disk.kill();
            disk.clone()
        } else {
            disk.crash(seed);
            disk.clone()
        };
        let server = Simulated::start(Arc::new(disk.clone())).await;
        let history = server.history().await;
        assert_eq!(texts(&history[..3]), ["1", "2", "3"], "seed {seed}");
        // Whoever repeats it under its id gets it stored once.
        let mut http = server.http().await;
        let body = json!({"userId": "ada", "message": "doubtful", "messageId": doubtful}).to_string();
        let receipt = http.post(PATH, body).await;
        assert!(matches!(receipt.status, 200 | 201), "{receipt:?}");
        assert_eq!(receipt.json()["seq"], 4, "seed {seed}");
        assert_eq!(server.history().await.len(), 4, "seed {seed}");
        assert_eq!(http.get("/health").await.status, 200);
        drop(http);
        server.stop().await;
    }
}

#[tokio::test]
async fn failed_sync_stops_writes() {
    fails(Failure::Sync).await;
}

#[tokio::test]
async fn failed_write_stops_writes() {
    fails(Failure::Write).await;
}
