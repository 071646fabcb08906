//! A wall clock that jumps deletes nothing, and brings nothing back: what cannot be undone goes by a clock that agreed
//! with the machine's monotonic one for some time.

use hyper::Method;
use serde_json::{Value, json};

#[cfg(all(feature = "kafka", feature = "scylla"))]
use crate::harness::{Cassandra, Kafka};
use crate::harness::{Postgres, Server, Setup, texts, until};

const HOUR: i64 = 3_600;
const YEAR: i64 = 365 * 24 * HOUR;

async fn put(server: &Server, key: &str, ttl_s: u64) {
    let ttl = ttl_s.to_string();
    let headers = [("hubbub-ttl", ttl.as_str())];
    let answer = server.http().await.request(Method::PUT, &format!("/kv/{key}"), &headers, "value").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

async fn status(server: &Server, key: &str) -> u16 {
    server.get(&format!("/kv/{key}")).await.status
}

async fn keys(server: &Server) -> Vec<String> {
    let list = server.get("/v1/kv").await.json();
    list["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect()
}

async fn clock_health(server: &Server) -> Value {
    let answer = server.get("/health").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["components"]["clock"].clone()
}

/// A message and a key that time takes away soon, wherever the wall clock stands; returns when both are gone, and with
/// them whatever else is due.
async fn until_due_work_is_done(server: &Server, round: &str) {
    let room = format!("brief-{round}");
    server.put_room(&room, json!({"retention": "1s"})).await;
    server.send(&room, "soon gone").await;
    let key = format!("brief/{round}");
    put(server, &key, 1).await;
    until("the message is too old", async || server.history(&room).await.is_empty()).await;
    until("the key ran out", async || status(server, &key).await == 404).await;
}

/// What a clock that is a year ahead would take away.
async fn fill(server: &Server) {
    server.put_room("kept", json!({"retention": "30d"})).await;
    server.send("kept", "for a month").await;
    put(server, "kept", 24 * 3_600).await;
    server.put_queue("kept", json!({})).await;
    server.enqueue_with("kept", json!({"message": "for a day", "ttlMs": 86_400_000})).await;
    server.enqueue_with("kept", json!({"message": "tomorrow", "delayMs": 86_400_000})).await;
}

async fn must_be_there(server: &Server) {
    assert_eq!(texts(&server.history("kept").await), ["for a month"]);
    assert_eq!(status(server, "kept").await, 200);
    let waiting = server.waiting("kept").await;
    assert_eq!(texts(&waiting), ["for a day", "tomorrow"]);
    assert_eq!(waiting[1]["state"], "delayed", "{waiting:?}");
}

#[tokio::test]
async fn a_short_jump_of_the_clock_deletes_nothing() {
    let server = Server::start();
    fill(&server).await;
    for (round, ahead_s) in [("ahead", YEAR), ("behind", -YEAR), ("two hours", 2 * HOUR)] {
        let round = &round.replace(' ', "-");
        server.set_clock(ahead_s);
        until_due_work_is_done(&server, round).await;
        must_be_there(&server).await;
        let clock = clock_health(&server).await;
        assert_eq!(clock["status"], "DEGRADED", "{clock}");
        let step = clock["stepMs"].as_i64().unwrap();
        assert!((step - ahead_s * 1_000).abs() < 60_000, "{clock}");
        server.set_clock(0);
        until("the clock is fine again", async || clock_health(&server).await["status"] == "UP").await;
        must_be_there(&server).await;
    }
}

#[tokio::test]
async fn a_start_with_a_wrong_clock_deletes_nothing() {
    let mut server = Server::start();
    fill(&server).await;
    for (round, ahead_s) in [("ahead", YEAR), ("behind", -YEAR)] {
        server.kill();
        server.set_clock(ahead_s);
        server.restart();
        assert_eq!(clock_health(&server).await["status"], "DEGRADED");
        // Nothing is due yet by a clock that is ahead from the start: only the questions are asked.
        if ahead_s < 0 {
            until_due_work_is_done(&server, round).await;
        }
        server.kill();
        server.set_clock(0);
        server.restart();
        assert_eq!(clock_health(&server).await["status"], "UP");
        until_due_work_is_done(&server, &format!("{round}-over")).await;
        must_be_there(&server).await;
    }
}

#[tokio::test]
async fn a_clock_that_keeps_its_time_is_followed() {
    let server = Setup::new().set("clock.trust_after=1s").start();
    put(&server, "kept", 24 * 3_600).await;
    server.set_clock(YEAR);
    until("a year has passed", async || status(&server, "kept").await == 404).await;
    until("that is believed", async || clock_health(&server).await["status"] == "UP").await;
    let receipt = server.send("r", "next year").await;
    server.set_clock(0);
    until("the clock is back", async || {
        put(&server, "probe", 1_000).await;
        let answer = server.get("/health").await.json();
        server.call("", Method::DELETE, "/kv/probe", Value::Null).await;
        answer["components"]["clock"]["status"] == "UP"
    })
    .await;
    let later = server.send("r", "this year again").await;
    assert!(later["receivedAt"].as_str() >= receipt["receivedAt"].as_str(), "{later}");
    let other = server.send("other", "now").await;
    assert!(other["receivedAt"].as_str() < receipt["receivedAt"].as_str(), "{other}");
}

async fn an_expired_key_stays_expired_in(setup: Setup) {
    let mut server = setup.start();
    put(&server, "brief", 1).await;
    put(&server, "long", 24 * 3_600).await;
    server.set_clock(-HOUR);
    until("it ran out", async || status(&server, "brief").await == 404).await;
    assert_eq!(keys(&server).await, ["long"], "the list says the same as a read");
    let only_there = [("if-match", "*")];
    let answer = server.http().await.request(Method::PUT, "/kv/brief", &only_there, "again").await;
    assert_eq!(answer.status, 412, "a condition says the same as a read");
    // A crash before the deletion is durable may show the key again; it follows at once.
    until("its deletion is durable", async || server.metric("store_keys").await == 1).await;
    server.restart();
    assert_eq!(status(&server, "brief").await, 404, "also after a restart");
    assert_eq!(keys(&server).await, ["long"]);
    let only_new = [("if-none-match", "*")];
    let answer = server.http().await.request(Method::PUT, "/kv/brief", &only_new, "again").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

#[tokio::test]
async fn an_expired_key_stays_expired() {
    an_expired_key_stays_expired_in(Setup::new()).await;
}

#[tokio::test]
async fn an_expired_key_stays_expired_without_a_cache() {
    an_expired_key_stays_expired_in(Setup::new().set("kv.cache_bytes=0B")).await;
}

#[tokio::test]
async fn servers_that_share_a_database_go_by_its_clock() {
    let postgres = Postgres::start("");
    let url = postgres.url("postgres");
    let right = Setup::new().store(&url).start();
    fill(&right).await;
    let wrong = Setup::new().store(&url);
    wrong.set_clock(YEAR);
    let wrong = wrong.start();
    until_due_work_is_done(&wrong, "ahead").await;
    put(&wrong, "long", 24 * 3_600).await;
    for server in [&right, &wrong] {
        must_be_there(server).await;
        assert_eq!(keys(server).await, ["kept", "long"]);
    }
    wrong.set_clock(-YEAR);
    until_due_work_is_done(&wrong, "behind").await;
    put(&wrong, "brief", 1).await;
    until("it ran out for both", async || status(&right, "brief").await == 404).await;
    assert_eq!(status(&wrong, "brief").await, 404);
    let stored = wrong.send("r", "when").await;
    let before = right.send("r", "then").await;
    assert!(before["receivedAt"].as_str() >= stored["receivedAt"].as_str(), "{stored} {before}");
    must_be_there(&right).await;
}

/// What is removed must be old by Kafka's clock, too, which says when messages came; also if a server believes another one.
#[cfg(all(feature = "kafka", feature = "scylla"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_behind_kafka_go_by_its_clock() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let setup = Cassandra::replicated(kafka.setup(&cassandra.url(), 2)).set("clock.trust_after=1s");
    let setup = setup.set("store.scylla.retention=20d");
    let send = async |server: &Server, room: &str, text: &str| {
        assert_eq!(server.send_as(room, "m", text).await.status, 202);
        until("it is stored", async || texts(&server.history(room).await) == [text]).await;
    };
    let mut server = setup.start();
    server.put_room("kept", json!({"retention": "30d"})).await;
    for room in ["kept", "kept-by-default"] {
        send(&server, room, "for some time").await;
    }
    for (round, ahead_s) in [("ahead", YEAR), ("behind", -YEAR), ("right", 0)] {
        server.set_clock(ahead_s);
        server.restart();
        until("the clock is believed", async || clock_health(&server).await["status"] == "UP").await;
        let room = &format!("brief-{round}");
        server.put_room(room, json!({"retention": "1s"})).await;
        // It may be gone before anybody has read it.
        let stored = async || server.metric("messages_stored_total").await;
        let before = stored().await;
        assert_eq!(server.send_as(room, "m", "soon gone").await.status, 202);
        until("it is stored", async || stored().await > before).await;
        // By a clock that is behind nothing is old.
        if ahead_s >= 0 {
            until("it is too old", async || server.history(room).await.is_empty()).await;
        }
        for room in ["kept", "kept-by-default"] {
            assert_eq!(texts(&server.history(room).await), ["for some time"]);
        }
    }
}
