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

/// The rooms of the stuck partition, and the others.
async fn divide(cassandra: &Cassandra, all: &[String]) -> [Vec<String>; 2] {
    // A room is listed after its first message can be read.
    let listed = async || cassandra.rows::<(i64,)>("select count(*) from room_names").await.remove(0).0;
    until("all rooms are listed", async || listed().await == all.len() as i64).await;
    let select = format!("select room from room_names where part = {STUCK}");
    let stuck: Vec<String> =
        cassandra.rows::<(String,)>(&select).await.into_iter().map(|row| row.0).collect();
    let others: Vec<String> = all.iter().filter(|room| !stuck.contains(room)).cloned().collect();
    assert!(!stuck.is_empty() && !others.is_empty(), "{stuck:?} {others:?}");
    [stuck, others]
}

/// Has the store not read any more where the partition stands. Returns what repairs that.
async fn damage(cassandra: &Cassandra) -> String {
    let select = format!("select next_offset, writetime(next_offset) from positions where part = {STUCK}");
    let (next, written): (i64, i64) = cassandra.rows(&select).await.remove(0);
    let damage = format!("delete next_offset from positions using timestamp {written} where part = {STUCK}");
    cassandra.execute(&damage).await;
    format!(
        "insert into positions (part, next_offset) values ({STUCK}, {next}) using timestamp {}",
        written + 1
    )
}

/// A metric, of all servers together.
async fn sum(servers: &[Server], metric: &str) -> u64 {
    let mut sum = 0;
    for server in servers {
        sum += server.metric(metric).await;
    }
    sum
}

/// Waits until the servers tell that one partition waits, and that they store the others.
async fn tell(servers: &[Server]) {
    until("it is told", async || {
        // A partition may move from one server to another between two questions.
        let mut told = 0;
        for server in servers {
            let log = server.get("/health").await.json()["components"]["log"].clone();
            let reason = log["reason"].as_str().unwrap_or_default();
            told += usize::from(log["status"] == "DEGRADED" && reason.contains("partition 0 of Kafka"));
        }
        told == 1
            && sum(servers, "log_partitions_unreadable").await == 1
            && sum(servers, "log_partitions_committed").await == 3
    })
    .await;
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
    let [stuck, others] = divide(&cassandra, &all).await;

    let repair = damage(&cassandra).await;
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

    cassandra.execute(&repair).await;
    have(&server, &stuck, &["one", "two", "three"]).await;
    until("nothing is wrong", async || server.get("/health").await.json()["status"] == "UP").await;
    assert_eq!(server.metric("log_rewinds_total").await, 0);
    assert!(kafka.dead_letters().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_holds_up_no_other_when_servers_come_and_go() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let setup = Cassandra::replicated(kafka.setup(&cassandra.url(), 4));
    let mut servers = vec![setup.clone().on("a").start()];
    let all: Vec<String> = (0..ROOMS).map(room).collect();
    send_to_all(&servers[0], "one").await;
    have(&servers[0], &all, &["one"]).await;
    let [stuck, others] = divide(&cassandra, &all).await;
    let repair = damage(&cassandra).await;
    // Partitions move.
    servers.push(setup.on("b").start());
    until("both store", async || servers[1].metric("log_partitions_committed").await > 0).await;
    tell(&servers).await;
    send_to_all(&servers[1], "two").await;
    have(&servers[0], &others, &["one", "two"]).await;
    // All start again; then one has them all.
    servers[0].restart();
    servers[1].restart();
    tell(&servers).await;
    drop(servers.pop());
    tell(&servers).await;
    send_to_all(&servers[0], "three").await;
    have(&servers[0], &others, &["one", "two", "three"]).await;
    have(&servers[0], &stuck, &["one"]).await;

    cassandra.execute(&repair).await;
    have(&servers[0], &stuck, &["one", "two", "three"]).await;
    until("nothing is wrong", async || {
        let health = servers[0].get("/health").await.json();
        health["status"] == "UP" && health["components"]["log"]["status"] == "UP"
    })
    .await;
    assert_eq!(sum(&servers, "log_partitions_committed").await, 4);
    assert_eq!(sum(&servers, "log_partitions_unreadable").await, 0);
    assert_eq!(sum(&servers, "log_rewinds_total").await, 0);
    assert!(kafka.dead_letters().is_empty());
}

/// A server that has left all its partitions to others does not go on telling how far they lag.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_store_does_not_lag_here() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let server = Cassandra::replicated(kafka.setup(&cassandra.url(), 4)).start();
    send_to_all(&server, "one").await;
    have(&server, &(0..ROOMS).map(room).collect::<Vec<_>>(), &["one"]).await;
    damage(&cassandra).await;
    send_to_all(&server, "two").await;
    let figures = ["log_depth", "log_unacked", "log_lag_seconds"];
    until("it lags", async || {
        let lags = server.get("/health").await.json()["components"]["log"]["lagMs"].as_u64();
        lags >= Some(2_000) && server.metric("log_unacked").await > 0
    })
    .await;
    // It leaves the group.
    cassandra
        .execute(
            "insert into positions (part, next_offset, version) values (1, 1000, 99) using timestamp 1000",
        )
        .await;
    for metric in figures.into_iter().chain(["log_partitions_committed", "log_partitions_unreadable"]) {
        until(&format!("no {metric}"), async || {
            server.metric_text(&format!("hubbub_{metric}")).await.parse() == Ok(0.0)
        })
        .await;
    }
    let health = server.get("/health").await.json();
    assert_eq!(health["components"]["log"]["lagMs"], 0, "{health}");
}
