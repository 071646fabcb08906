//! Nodes share the partitions of Kafka. Whichever comes, goes, is killed or stands still: what was acknowledged is stored, once,
//! in the order it was sent, and whoever follows sees just that.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::Method;
use serde_json::json;

use crate::harness::{
    Dialect, Kafka, Kind, Load, Server, SharedStore, rounds, seqs, texts, until, with_each_store,
};

const PARTITIONS: u32 = 4;
const ROOMS: usize = 3;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 400;

const KINDS: [Kind; 2] = [
    Kind { name: "one", dialect: Dialect::Api, window: 1, outlives_outages: true },
    Kind { name: "many", dialect: Dialect::Chat, window: 40, outlives_outages: true },
];

/// Where the server that clients use stays, nothing is refused, so the order is strict.
const STRICT: [Kind; 2] = [
    Kind { name: "one", dialect: Dialect::Api, window: 1, outlives_outages: false },
    Kind { name: "many", dialect: Dialect::Chat, window: 40, outlives_outages: false },
];

with_each_store!(
    node_death_loses_nothing,
    zombie_committer_is_harmless,
    rebalance_keeps_order,
    offline_member_catches_up_elsewhere,
);

async fn consumed(server: &Server) -> u64 {
    server.metric("log_messages_consumed_total").await
}

/// A number of partitions.
async fn partitions(server: &Server, metric: &str) -> u32 {
    u32::try_from(server.metric(metric).await).unwrap()
}

/// How many it stores, as far as it knows.
async fn committed(server: &Server) -> u32 {
    partitions(server, "log_partitions_committed").await
}

async fn node_death_loses_nothing(store: SharedStore) {
    let (rounds, random) = rounds(2);
    let kafka = Kafka::shared();
    let setup = store.behind(&kafka, PARTITIONS);
    let mut servers = [setup.clone().on("a").start(), setup.clone().on("b").start()];
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let load = Load::start(&addresses, ROOMS, &KINDS);
    until("both store", async || {
        for room in 0..8 {
            servers[0].send_as(&format!("other-{room}"), "m", "text").await;
        }
        consumed(&servers[0]).await > 0 && consumed(&servers[1]).await > 0
    })
    .await;
    for round in 0..rounds {
        let [killed, other] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        load.go_on(&random, MESSAGES_MAX).await;
        servers[killed].kill();
        // The other one takes over all partitions, once Kafka has noticed.
        for room in 0..8 {
            let room = format!("alone-{room}");
            let id = format!("round-{round}");
            until("it is taken", async || servers[other].send_as(&room, &id, &id).await.status == 202).await;
            let expected = usize::try_from(round).unwrap() + 1;
            until("it is stored", async || servers[other].history(&room).await.len() == expected).await;
        }
        servers[killed].restart();
    }
    load.go_on(&random, MESSAGES_MAX).await;
    load.catch_up().await;
    for server in &servers {
        assert_eq!(server.metric("log_rewinds_total").await, 0);
    }
    load.finish(&mut servers[0]).await;
    assert_eq!(servers[0].history("room-0").await, servers[1].history("room-0").await);
    assert!(kafka.dead_letters().is_empty());
}

/// Stops the only server that stores somewhere in the middle of storing a batch.
async fn stop_in_commit(store: &SharedStore, server: &Server) {
    until("it stands in the middle of a commit", async || {
        server.pause();
        let is_there = store.is_half_written().await;
        if !is_there {
            // It may be anywhere the next time.
            server.resume();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        is_there
    })
    .await;
}

/// A server stands still while it stores, loses its partitions to another one, and goes on where it was.
async fn zombie_committer_is_harmless(store: SharedStore) {
    let (rounds, random) = rounds(2);
    let kafka = Kafka::shared();
    let setup = store.behind(&kafka, PARTITIONS).set("kafka.session_timeout=3s");
    // PostgreSQL ends what the zombie has locked; what it waits for of Cassandra is there when it goes on.
    let setup =
        setup.set("store.postgres.idle_transaction_timeout=2s").set("store.scylla.statement_timeout=1h");
    let mut gateway = setup.clone().on("a").set("server.role=gateway").start();
    let zombie = setup.clone().on("b").start();
    let rooms: Vec<String> = (0..ROOMS).map(|number| format!("room-{number}")).collect();
    for room in &rooms {
        gateway.put_room(room, json!({})).await;
        gateway.add_member(room, "bob").await;
    }
    let load = Load::start(&[gateway.address()], ROOMS, &STRICT);
    let mut marks = BTreeMap::new();
    for _ in 0..rounds {
        load.go_on(&random, MESSAGES_MAX).await;
        stop_in_commit(&store, &zombie).await;
        let mut other = tokio::task::block_in_place(|| setup.clone().on("c").start());
        until("the other one has all partitions", async || committed(&other).await == PARTITIONS).await;
        load.catch_up().await;
        for room in &rooms {
            let newest = gateway.get(&format!("/v1/rooms/{room}/messages?limit=1")).await.json();
            let seq = seqs(newest["messages"].as_array().unwrap())[0];
            let path = format!("/v1/rooms/{room}/read?user=bob");
            let marked = gateway.call("", Method::PUT, &path, json!({"seq": seq})).await;
            assert_eq!(marked.status, 200, "{}", marked.text());
            marks.insert(room, seq);
        }
        zombie.resume();
        // It goes on with all of them until Kafka tells it.
        until("it knows", async || committed(&zombie).await + committed(&other).await == PARTITIONS).await;
        load.catch_up().await;
        assert_eq!(other.metric("log_rewinds_total").await, 0);
        other.stop().await;
        until("it has them again", async || committed(&zombie).await == PARTITIONS).await;
    }
    assert_eq!(zombie.metric("log_rewinds_total").await, 0);
    load.finish(&mut gateway).await;
    let (unread_of, mut messages) = (gateway.rooms_of("bob").await, 0);
    for room in &rooms {
        let history = gateway.history(room).await;
        assert_eq!(zombie.history(room).await, history, "what it remembers of {room}");
        let unread = seqs(&history).into_iter().filter(|seq| *seq > marks[room]).count();
        assert_eq!(unread_of[room]["unread"], json!(unread), "{room}");
        messages += history.len();
    }
    for server in [&gateway, &zombie] {
        assert_eq!(server.get("/v1/stats").await.json()["messages"], json!(messages));
    }
    let audit = gateway.post("/v1/stats/audit", &json!({})).await.json();
    assert_eq!(audit["differences"], json!([]), "{audit}");
    assert!(kafka.dead_letters().is_empty());
}

async fn rebalance_keeps_order(store: SharedStore) {
    let (_, random) = rounds(1);
    let kafka = Kafka::shared();
    let setup = store.behind(&kafka, PARTITIONS);
    let mut first = setup.clone().on("a").start();
    let load = Load::start(&[first.address()], ROOMS, &STRICT);
    for _ in 0..2 {
        load.go_on(&random, MESSAGES_MAX).await;
        let mut second = setup.clone().on("b").start();
        until("the second one stores", async || consumed(&second).await > 0).await;
        load.go_on(&random, MESSAGES_MAX).await;
        // In an orderly way: the first one takes over at once.
        second.stop().await;
        load.catch_up().await;
    }
    load.finish(&mut first).await;
    assert!(kafka.dead_letters().is_empty());
}

async fn offline_member_catches_up_elsewhere(store: SharedStore) {
    let kafka = Kafka::shared();
    let setup = store.behind(&kafka, PARTITIONS);
    let mut gone = setup.clone().on("a").start();
    // It stores nothing itself: what it delivers has come over the bus, or from the store.
    let gateway = setup.clone().on("b").set("server.role=gateway").start();
    let mut socket = gateway.subscriber("r", json!({"after": 0})).await;
    let mut seen = Vec::new();
    let over_the_bus = async || gateway.metric("bus_messages_received_total").await;
    let mut send_and_see = async |number: usize| {
        let id = format!("m-{number}");
        assert_eq!(gone.send_as("r", &id, &id).await.status, 202);
        socket.next().await.unwrap()
    };
    // Until the bus is read, the store is polled.
    while seen.len() < 20 || over_the_bus().await == 0 {
        assert!(seen.len() < 1_000, "nothing comes over the bus");
        let message = send_and_see(seen.len()).await;
        seen.push(message);
    }
    assert_eq!(consumed(&gateway).await, 0);
    for (server, expected) in [(&gone, PARTITIONS), (&gateway, 0)] {
        let all = partitions(server, "log_partitions").await;
        assert_eq!((committed(server).await, all), (expected, PARTITIONS));
    }
    reads_of_the_bus_what_is_followed(&gone, &gateway).await;
    // All of what is followed comes over it.
    let before = over_the_bus().await;
    for _ in 0..10 {
        let message = send_and_see(seen.len()).await;
        seen.push(message);
    }
    until("they come over the bus", async || over_the_bus().await >= before + 10).await;
    drop(socket);
    gone.kill();
    let newest = format!("m-{}", seen.len());
    assert_eq!(gateway.send_as("r", &newest, &newest).await.status, 202);
    let last = seen[9]["seq"].as_u64().unwrap();
    let third = setup.on("c").start();
    let mut socket = third.subscriber("r", json!({"after": last})).await;
    let mut rest = Vec::new();
    for _ in 10..=seen.len() {
        rest.push(socket.next().await.unwrap());
    }
    let expected: Vec<String> = (10..=seen.len()).map(|number| format!("m-{number}")).collect();
    assert_eq!(texts(&rest), expected);
}

/// Of `gateway`, where one room is followed, and `committer`, where nobody follows anything.
async fn reads_of_the_bus_what_is_followed(committer: &Server, gateway: &Server) {
    let read = async |server: &Server| partitions(server, "bus_partitions").await;
    until("the one of the room is read", async || read(gateway).await == 1).await;
    // Rooms of all partitions.
    let rooms: Vec<String> = (0..16).map(|number| format!("elsewhere-{number}")).collect();
    for room in &rooms {
        assert_eq!(committer.send_as(room, "m", "text").await.status, 202);
    }
    for room in &rooms {
        until("it is stored", async || committer.history(room).await.len() == 1).await;
    }
    assert_eq!((read(committer).await, read(gateway).await), (0, 1));
    let mut sockets = Vec::new();
    for room in &rooms {
        sockets.push(gateway.subscriber(room, json!({})).await);
    }
    until("all partitions are read", async || read(gateway).await == PARTITIONS).await;
    assert_eq!(read(committer).await, 0);
}
