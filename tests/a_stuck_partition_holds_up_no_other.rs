//! What the store cannot take of one partition of Kafka waits, and is stored in its order once the store can. Meanwhile all
//! other partitions go on.

use crate::harness::{Cassandra, Kafka, Server, texts, until};

const ROOMS: usize = 16;
/// The partition that is stuck.
const STUCK: i32 = 0;

fn room(number: usize) -> String {
    format!("room-{number}")
}

async fn send_to_all(server: &Server, text: &str) {
    for number in 0..ROOMS {
        let id = format!("{text}-{number}");
        until("it is taken", async || server.send_as(&room(number), &id, text).await.status == 202).await;
    }
}

/// Waits until each of these rooms has these messages.
async fn have(server: &Server, rooms: &[String], expected: &[&str]) {
    for room in rooms {
        let what = format!("{room} has {expected:?}");
        until(&what, async || texts(&server.history(room).await) == expected).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_partition_holds_up_no_other() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let server = Cassandra::replicated(kafka.setup(&cassandra.url(), 4)).start();
    let all: Vec<String> = (0..ROOMS).map(room).collect();
    send_to_all(&server, "one").await;
    have(&server, &all, &["one"]).await;
    let select = format!("select room from room_names where part = {STUCK}");
    let stuck: Vec<String> =
        cassandra.rows::<(String,)>(&select).await.into_iter().map(|row| row.0).collect();
    let others: Vec<String> = all.iter().filter(|room| !stuck.contains(room)).cloned().collect();
    assert!(!stuck.is_empty() && !others.is_empty(), "{stuck:?} {others:?}");

    // Where it stands cannot be read any more.
    let select = format!("select next_offset, writetime(next_offset) from positions where part = {STUCK}");
    let (next, written): (i64, i64) = cassandra.rows(&select).await.remove(0);
    let damage = format!("delete next_offset from positions using timestamp {written} where part = {STUCK}");
    cassandra.execute(&damage).await;
    for (text, expected) in [("two", &["one", "two"][..]), ("three", &["one", "two", "three"][..])] {
        send_to_all(&server, text).await;
        have(&server, &others, expected).await;
    }
    until("it is tried again", async || server.metric("log_batches_retried_total").await > 2).await;
    // The others go on and on, and do not hide that it lags.
    until("its lag", async || {
        server.send_as(&others[0], "again", "again").await;
        let health = server.get("/health").await.json();
        let reason = health["components"]["store"]["reason"].as_str().unwrap_or_default().to_owned();
        let lag = health["components"]["log"]["lagMs"].as_u64();
        lag.is_some_and(|lag| lag >= 2_000) && reason.contains("partition 0 of the log")
    })
    .await;
    have(&server, &stuck, &["one"]).await;

    let repair = format!(
        "insert into positions (part, next_offset) values ({STUCK}, {next}) using timestamp {}",
        written + 1
    );
    cassandra.execute(&repair).await;
    have(&server, &stuck, &["one", "two", "three"]).await;
    until("nothing is wrong", async || server.get("/health").await.json()["status"] == "UP").await;
    assert_eq!(server.metric("log_rewinds_total").await, 0);
    assert!(kafka.dead_letters().is_empty());
}
