//! Servers that only serve clients, and servers that only store, do together what one does alone.

use hyper::Method;
use serde_json::json;

use crate::harness::{Kafka, Postgres, hubbub, texts, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_divide_the_work() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 3);
    let mut committer = setup.clone().on("a").set("server.role=committer").start();
    let gateway = setup.clone().on("b").set("server.role=gateway").start();
    gateway.put_room("r", json!({"title": "A"})).await;
    let mut follower = gateway.subscriber("r", json!({"after": 0})).await;
    for text in ["one", "two", "three"] {
        assert_eq!(gateway.send_as("r", text, text).await.status, 202);
        assert_eq!(follower.next().await.unwrap()["message"], text);
    }
    assert_eq!(gateway.metric("log_messages_consumed_total").await, 0);
    until("it is counted", async || committer.metric("messages_stored_total").await == 3).await;
    // What is for clients is refused, whatever it is.
    for path in ["/health", "/health/ready", "/health/live", "/metrics"] {
        assert_eq!(committer.get(path).await.status, 200, "{path}");
    }
    for (method, path) in [
        (Method::GET, "/"),
        (Method::GET, "/v1/rooms/r/messages"),
        (Method::POST, "/v1/rooms/r/messages"),
        (Method::PUT, "/v1/rooms/r"),
        (Method::GET, "/v1/ws"),
        (Method::GET, "/v1/rooms/r/events"),
        (Method::PUT, "/kv/key"),
        (Method::POST, "/metrics"),
        (Method::GET, "/nowhere"),
    ] {
        let answer = committer.call("", method, path, json!({})).await;
        let problem = answer.problem(501, "not_supported");
        assert!(problem["detail"].as_str().unwrap().contains("role gateway"), "{path}: {problem}");
    }
    // Both are one after the other what the other was: a store without a committer waits, and loses nothing.
    committer.stop().await;
    assert_eq!(gateway.send_as("r", "four", "four").await.status, 202);
    let health = async || gateway.get("/health").await.json();
    // It goes on accepting, so it is not down.
    until("its health says so", async || health().await["components"]["log"]["status"] == "DEGRADED").await;
    let said = health().await;
    assert_eq!(said["status"], "UP", "{said}");
    assert!(said["components"]["log"]["reason"].as_str().unwrap().contains("no server stores"), "{said}");
    let other = setup.on("c").start();
    until("it is stored", async || texts(&other.history("r").await) == ["one", "two", "three", "four"]).await;
    assert_eq!(follower.next().await.unwrap()["message"], "four");
    until("all is well", async || health().await["components"]["log"]["status"] == "UP").await;
}

#[test]
fn a_committer_has_nothing_for_clients() {
    let refused = |more: &[&str]| {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--role", "committer"];
        hubbub(&[&serve, more].concat(), "").refusal(2)
    };
    let said = refused(&[]);
    assert!(said.contains("server.role other than gateway,committer needs Kafka"), "{said}");
    let said = refused(&["--log", "kafka://127.0.0.1:1", "--line", "127.0.0.1:0"]);
    assert!(said.contains("server.line and server.compat are for clients"), "{said}");
}
