//! Kafka as the log and Cassandra as the store: what clients can do with it.

use hyper::Method;
use serde_json::json;

use crate::harness::{Cassandra, Kafka, Server, Setup, seqs, texts, until};

fn start(kafka: &Kafka, cassandra: &Cassandra) -> [Server; 2] {
    let setup = Cassandra::replicated(kafka.setup(&cassandra.url(), 4));
    ["a", "b"].map(|name| Setup::on(setup.clone(), name).start())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_work_and_the_rest_is_refused() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let [one, other] = start(&kafka, &cassandra);
    one.put_room("club", json!({"title": "Club", "membersOnly": true})).await;
    one.add_member("club", "ada").await;
    one.put_room("open", json!({})).await;
    one.add_member("open", "bob").await;
    let call = async |server: &Server, user: &str, method, path: &str, body| {
        server.call(user, method, path, body).await
    };
    // Sent at one server, followed at the other one.
    let mut follower = other.subscriber("open", json!({"after": 0})).await;
    let expected: Vec<String> = (0..20).map(|number| format!("m-{number}")).collect();
    let mut live = Vec::new();
    for id in &expected {
        let answer = one.send_as("open", id, id).await;
        assert_eq!((answer.status, answer.json().get("seq")), (202, None), "{}", answer.text());
        live.push(follower.next().await.unwrap());
    }
    assert_eq!(texts(&live), expected);
    assert_eq!(texts(&other.history("open").await), expected);
    // It goes on at the other server by its number, which may be far from the next one.
    let last = seqs(&live)[9];
    let mut resumed =
        one.subscriber("open", json!({"after": last, "epoch": follower_epoch(&other).await})).await;
    for text in &expected[10..] {
        assert_eq!(resumed.next().await.unwrap()["message"], *text);
    }
    // Private rooms are closed to others.
    call(&other, "eve", Method::GET, "/v1/rooms/club/messages", json!({})).await.problem(403, "not_member");
    assert_eq!(call(&other, "ada", Method::GET, "/v1/rooms/club/messages", json!({})).await.status, 200);
    // Read marks and unread counts are the same at both.
    let marked = call(&other, "", Method::PUT, "/v1/rooms/open/read?user=bob", json!({"seq": last})).await;
    assert_eq!(marked.status, 200, "{}", marked.text());
    until("unread", async || {
        let rooms = one.rooms_of("bob").await;
        rooms.get("open").is_some_and(|room| room["unread"] == 10)
    })
    .await;
    // Statistics count what was acknowledged, and agree with what is there.
    until("they count", async || one.get("/v1/stats").await.json()["messages"] == 20).await;
    let audit = other.post("/v1/stats/audit", &json!({})).await.json();
    assert_eq!(audit["differences"], json!([]), "{audit}");
    // What is exported is all.
    let exported = one.run(&["export", "--room", "open"], "").await.success();
    assert_eq!(exported.lines().count(), 20, "{exported}");
    // A user is erased everywhere.
    let erased = call(&other, "", Method::DELETE, "/v1/users/ada", serde_json::Value::Null).await;
    assert_eq!((erased.status, &erased.json()["messages"]), (200, &json!(20)), "{}", erased.text());
    assert!(one.history("open").await.is_empty());
    // Deleted and made again: its numbers go on, nothing of before is there.
    assert_eq!(call(&one, "", Method::DELETE, "/v1/rooms/open", json!({})).await.status, 204);
    other.get("/v1/rooms/open/messages").await.problem(404, "unknown_room");
    other.put_room("open", json!({})).await;
    assert_eq!(one.send_as("open", "m-0", "again").await.status, 202);
    until("it is stored", async || texts(&other.history("open").await) == ["again"]).await;
    // There are no queues and keys.
    for path in ["/v1/queues/jobs", "/kv/key"] {
        let answer = call(&one, "", Method::PUT, path, json!({})).await;
        assert_eq!(answer.status, 501, "{}", answer.text());
    }
    assert!(kafka.dead_letters().is_empty());
}

/// What has outlived its retention is gone at both servers, is counted nowhere, and whoever was behind learns of the gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_removes_and_tells() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let [one, other] = start(&kafka, &cassandra);
    one.put_room("open", json!({})).await;
    one.put_room("kept", json!({"retention": "30d"})).await;
    one.add_member("open", "bob").await;
    for number in 0..20 {
        let id = format!("m-{number}");
        assert_eq!(one.send_as("open", &id, &id).await.status, 202);
        assert_eq!(one.send_as("kept", &id, &id).await.status, 202);
    }
    until("they are stored", async || other.history("open").await.len() == 20).await;
    until("they are stored", async || other.history("kept").await.len() == 20).await;
    let seen = seqs(&other.history("open").await)[9];
    other.put_room("open", json!({"retention": 1})).await;
    for server in [&one, &other] {
        until("retention", async || server.get("/v1/rooms/open").await.json()["messages"] == 0).await;
        assert!(server.history("open").await.is_empty());
    }
    let room = one.get("/v1/rooms/open").await.json();
    assert_eq!(room["oldest"].as_u64(), room["head"].as_u64().map(|head| head + 1), "{room}");
    one.put_room("open", json!({"retention": null})).await;
    // Its id is free again.
    assert_eq!(one.send_as("open", "m-3", "after").await.status, 202);
    let mut behind = other.subscriber("open", json!({"after": seen})).await;
    let reset = behind.receive().await;
    assert_eq!(
        (&reset["type"], &reset["oldest"]),
        (&json!("reset"), &json!(room["head"].as_u64().unwrap() + 1))
    );
    assert_eq!(behind.next().await.unwrap()["message"], "after");
    until("unread", async || one.rooms_of("bob").await.get("open").is_some_and(|room| room["unread"] == 1))
        .await;
    until("they count", async || one.get("/v1/stats").await.json()["messages"] == 21).await;
    let audit = other.post("/v1/stats/audit", &json!({})).await.json();
    assert_eq!(audit["differences"], json!([]), "{audit}");
    assert!(kafka.dead_letters().is_empty());
}

/// A node hears over the bus what another one stored, and knows from it that nothing is missing, although numbers are far
/// from each other: it need not ask the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_with_sparse_numbers_come_over_the_bus() {
    const MESSAGES: usize = 300;
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    // One partition: the numbers of each room have holes where the others have theirs.
    let setup = Cassandra::replicated(kafka.setup(&cassandra.url(), 1));
    let one = Setup::on(setup.clone(), "a").start();
    let other = Setup::on(setup, "b").set("server.role=gateway").start();
    let rooms = ["r", "s", "t"];
    let mut followers = Vec::new();
    for server in [&one, &other] {
        for room in rooms {
            followers.push((room, server.subscriber(room, json!({"after": 0})).await));
        }
    }
    // Until the bus is read, the store is polled.
    let mut sent = 0;
    let over_the_bus = async || other.metric("bus_messages_received_total").await;
    let mut read_before = [0; 2];
    let read_backs =
        async || [one.metric("live_read_backs_total").await, other.metric("live_read_backs_total").await];
    let mut warm_up = None;
    while sent < warm_up.unwrap_or(MESSAGES) + MESSAGES {
        for room in rooms {
            let id = format!("{room}-{sent}");
            assert_eq!(one.send_as(room, &id, &id).await.status, 202);
        }
        for (room, follower) in &mut followers {
            assert_eq!(follower.next().await.unwrap()["message"], format!("{room}-{sent}"));
        }
        sent += 1;
        if warm_up.is_none() && over_the_bus().await > 0 {
            (warm_up, read_before) = (Some(sent), read_backs().await);
        }
    }
    assert!(warm_up.is_some(), "nothing comes over the bus");
    let read = read_backs().await;
    let pages: u64 = read.iter().zip(read_before).map(|(now, before)| now - before).sum();
    // A busy machine may keep the bus waiting now and then.
    assert!(pages <= (MESSAGES * rooms.len()) as u64 / 50, "{pages} pages were read from the store");
    let numbers = seqs(&other.history("r").await);
    assert!(numbers.windows(2).any(|pair| pair[0] + 1 < pair[1]), "the numbers have holes: {numbers:?}");
}

/// What one replica answers may be older than what another one confirmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_of_several_is_warned_of() {
    for (replicas, is_warned) in [(3, true), (1, false)] {
        let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
        let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {replicas}}}");
        let setup = kafka.setup(&cassandra.url(), 1).set("store.scylla.consistency=one");
        let server = setup.set(&format!("store.scylla.replication={replication}")).start();
        until("it has started", async || server.log().contains(" on http://")).await;
        let log = server.log();
        let warning = log.lines().find(|line| line.contains("store.scylla.consistency is one"));
        assert_eq!(warning.is_some(), is_warned, "{log}");
        assert!(
            warning.is_none_or(|line| line.contains("3 replicas") && line.contains("local_quorum")),
            "{log}"
        );
    }
}

async fn follower_epoch(server: &Server) -> serde_json::Value {
    server.get("/v1/rooms/open/messages?limit=1").await.json()["epoch"].clone()
}
