//! A broker short of memory takes nothing more: senders are told so in bounded time and memory, everything else goes on,
//! and once it takes messages again nothing is lost, repeated or out of order.

use hubbub_core::clock::SeededRandom;
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Broker, Dialect, Http, Kind, Load, Setup, until};

/// Most messages acknowledged before and after.
const MESSAGES_MAX: u64 = 500;
/// Sent while nothing is taken, 60 KB each.
const REFUSED: usize = 1_500;
/// What the server may grow by meanwhile: less than half of what was sent.
const GROWTH_MAX_KIB: u64 = 40_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_broker_answers_503_and_recovers() {
    let (broker, random) = (Broker::start(), SeededRandom::new(1));
    let mut server = Setup::new().set(&broker.setting()).start();
    let kinds = [
        Kind { name: "one", dialect: Dialect::Api, window: 1, outlives_outages: true },
        Kind { name: "many", dialect: Dialect::Chat, window: 50, outlives_outages: true },
    ];
    let load = Load::start(&[server.address()], 2, &kinds);
    load.go_on(&random, MESSAGES_MAX).await;
    let address = server.address();
    let log = async || Http::connect(address).await.get("/health").await.json()["components"]["log"].clone();

    broker.control(&["set_vm_memory_high_watermark", "0"]);
    until("it is noticed", async || log().await["status"] == "DOWN").await;
    let health = log().await;
    assert!(health["reason"].as_str().unwrap().contains("short of memory"), "{health}");
    server.send_as("other", "m", "hi").await.problem(503, "unavailable");
    let before = server.memory_kib();
    let (mut http, text) = (server.http().await, "x".repeat(60_000));
    for number in 0..REFUSED {
        let message = json!({"userId": "u", "message": text, "messageId": format!("refused-{number}")});
        let answer = http.post("/v1/rooms/other/messages", message.to_string()).await;
        answer.problem(503, "unavailable");
    }
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown <= GROWTH_MAX_KIB, "{grown} KiB more");
    assert_eq!(server.call("", Method::PUT, "/v1/queues/jobs", json!({})).await.status, 201);
    assert_eq!(server.call("", Method::GET, "/v1/rooms/room-0/messages", Value::Null).await.status, 200);
    // A server that starts now hears of it when it publishes.
    server.restart();
    until("it is noticed again", async || log().await["status"] == "DOWN").await;
    server.send_as("other", "m", "hi").await.problem(503, "unavailable");

    broker.control(&["set_vm_memory_high_watermark", "0.9"]);
    until("it takes messages again", async || log().await["status"] == "UP").await;
    assert_eq!(server.send_as("other", "m", "hi").await.status, 202);
    load.go_on(&random, MESSAGES_MAX).await;
    until("it is stored", async || server.history("other").await.len() == 1).await;
    load.finish(&mut server).await;
    let other = server.history("other").await;
    assert!(other.len() == 1 && other[0]["message"] == "hi", "{other:?}");
}
