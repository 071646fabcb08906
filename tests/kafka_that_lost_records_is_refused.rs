//! Kafka loses records that it had confirmed while servers run. What is sent then would get offsets that the store has passed,
//! and never be stored; so it is refused, on every server, until an operator has acted.

use std::time::Duration;

use hyper::Method;
use serde_json::json;

use crate::harness::{Kafka, Postgres, Server, until};

/// A room in each of two partitions, in the order of the partitions. Each has one message.
async fn rooms_apart(server: &Server, postgres: &Postgres) -> [String; 2] {
    let begun =
        "select string_agg(partition::text, ',' order by partition) from log_offsets where next_offset > 0";
    let (mut first, mut first_begun) = (String::new(), String::new());
    for number in 0.. {
        let room = format!("room-{number}");
        assert_eq!(server.send_as(&room, "one", "one").await.status, 202);
        until("it is stored", async || server.history(&room).await.len() == 1).await;
        let begun = postgres.query("postgres", begun).await;
        if first.is_empty() {
            (first, first_begun) = (room, begun);
        } else if begun != first_begun {
            return if first_begun == "0" { [first, room] } else { [room, first] };
        }
    }
    unreachable!()
}

/// Whether `log` has this status, for this reason. Load balancers send no more to a server that is down.
async fn is_told(server: &Server, status: &str, reason: &str) -> bool {
    let health = server.get("/health").await;
    let log = health.json()["components"]["log"].clone();
    let is_told = log["status"] == status && log["reason"].as_str().unwrap_or_default().contains(reason);
    assert!(!is_told || health.status == if status == "DOWN" { 503 } else { 200 }, "{status}");
    is_told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_lost_its_end_takes_nothing() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 2);
    let mut servers: Vec<Server> = ["a", "b"].map(|name| setup.clone().on(name).start()).into();
    let gateway = setup.clone().on("c").set("server.role=gateway").start();
    let [lost, whole] = rooms_apart(&servers[0], &postgres).await;
    // As if Kafka had lost its last three records.
    postgres.run("update log_offsets set next_offset = next_offset + 3 where partition = 0").await;
    for server in servers.iter().chain([&gateway]) {
        until("it is told", async || is_told(server, "DEGRADED", "partition 0 of the topic").await).await;
        assert!(is_told(server, "DEGRADED", "see docs/kafka.md").await);
        assert_eq!((server.metric("log_partition_faults").await, server.metric("log_up").await), (1, 1));
        assert_eq!(server.send_as(&lost, "two", "two").await.status, 503);
        let change = server.call("", Method::PUT, &format!("/v1/rooms/{lost}"), json!({"title": "A"})).await;
        assert_eq!(change.status, 503, "nor a change");
    }
    assert_eq!(gateway.send_as(&whole, "two", "two").await.status, 202);
    until("the other one goes on", async || servers[0].history(&whole).await.len() == 2).await;
    // What another program puts into the wrong partition has nowhere to go, and holds up nothing.
    let body = r#"{"userId":"ada","message":"two","messageId":"m-two"}"#;
    kafka.produce(Some(&lost), Some(1), body, None);
    until("it is set aside", async || !kafka.dead_letters().is_empty()).await;
    let dead = kafka.dead_letters();
    assert_eq!((dead.len(), dead[0].body.as_str(), dead[0].header("hubbub-code")), (1, body, "unavailable"));
    assert!(dead[0].header("hubbub-reason").starts_with("partition 0 of the topic"));
    // Another program writes on, until the partition is as long as the store thinks, and longer.
    for number in 0..6 {
        let body = format!(r#"{{"userId":"ada","message":"{number}","messageId":"m-{number}"}}"#);
        kafka.produce(Some(&lost), Some(0), &body, None);
    }
    // And the partitions move.
    drop(servers.pop());
    until("they have moved", async || servers[0].metric("log_partitions_committed").await == 2).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for server in [&servers[0], &gateway] {
        assert!(is_told(server, "DEGRADED", "partition 0 of the topic").await);
        assert_eq!(server.send_as(&lost, "two", "two").await.status, 503);
    }
    assert_eq!(gateway.send_as(&whole, "three", "three").await.status, 202);
    until("the other one goes on", async || servers[0].history(&whole).await.len() == 3).await;
    assert_eq!(servers[0].history(&lost).await.len(), 1, "nothing is stored behind what is missing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_created_again_takes_nothing() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 1);
    let server = setup.clone().on("a").start();
    let gateway = setup.on("b").set("server.role=gateway").start();
    // None of this is stored yet that would be too much for the new topic.
    kafka.delete_topic("messages").await;
    until("it is there again", async || kafka.create_topic("messages", 1).await).await;
    for server in [&server, &gateway] {
        until("it is told", async || is_told(server, "DOWN", "was deleted and created again").await).await;
        assert_eq!(server.send_as("r", "one", "one").await.status, 503);
    }
}

/// What is accepted meanwhile waits in Kafka, so nothing is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_removed_is_told_until_the_store_has_it() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let server = kafka.setup(&postgres.url("postgres"), 1).start();
    for text in ["one", "two", "three", "four"] {
        assert_eq!(server.send_as("r", text, text).await.status, 202);
    }
    until("all is stored", async || server.history("r").await.len() == 4).await;
    kafka.remove_before(0, 3).await;
    // An older copy of the database.
    postgres.run("update log_offsets set next_offset = 1").await;
    let is_alarmed = async || is_told(&server, "DEGRADED", "2 were removed by retention").await;
    until("it is told", is_alarmed).await;
    assert_eq!(server.send_as("r", "five", "five").await.status, 202);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(is_alarmed().await);
    assert_eq!(server.history("r").await.len(), 4);
    // A newer copy. The library has given up the partition.
    postgres.run("update log_offsets set next_offset = 3").await;
    until("it goes on", async || server.history("r").await.len() == 5).await;
    until("all is well", async || server.get("/health").await.json()["status"] == "UP").await;
}
