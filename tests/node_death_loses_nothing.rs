//! Nodes share the partitions of Kafka. Whichever comes, goes or is killed: what was acknowledged is stored, once, in the
//! order it was sent, and whoever follows sees just that.

use crate::harness::{Dialect, Kafka, Kind, Load, Postgres, Server, rounds, texts, until};

const ROOMS: usize = 3;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 400;

const KINDS: [Kind; 2] = [
    Kind { name: "one", dialect: Dialect::Api, window: 1, outlives_outages: true },
    Kind { name: "many", dialect: Dialect::Chat, window: 40, outlives_outages: true },
];

async fn consumed(server: &Server) -> u64 {
    server.metric("log_messages_consumed_total").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_death_loses_nothing() {
    let (rounds, random) = rounds(2);
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 4);
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
    load.finish(&mut servers[0]).await;
    assert_eq!(servers[0].history("room-0").await, servers[1].history("room-0").await);
    assert!(kafka.dead_letters().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zombie_committer_is_harmless() {
    let (_, random) = rounds(1);
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 4);
    let mut server = setup.clone().on("a").start();
    let url = format!("{}?application_name=zombie", postgres.url("postgres"));
    let zombie = setup.clone().on("b").store(&url).start();
    until("the second one stores", async || {
        for room in 0..8 {
            server.send_as(&format!("other-{room}"), "m", "text").await;
        }
        consumed(&zombie).await > 0
    })
    .await;
    let load = Load::start(&[server.address()], ROOMS, &KINDS);
    load.go_on(&random, MESSAGES_MAX).await;
    // Wherever it is: with batches in flight. The other one takes over, and the first one repeats what it does not know of.
    zombie.pause();
    // As idle_in_transaction_session_timeout does with a client that is silent while others wait for its locks.
    let sessions = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'zombie'";
    postgres.run(sessions).await;
    for room in 0..8 {
        let room = format!("alone-{room}");
        until("it is taken", async || server.send_as(&room, "m-1", "one").await.status == 202).await;
        until("it is stored", async || server.history(&room).await.len() == 1).await;
    }
    zombie.resume();
    load.go_on(&random, MESSAGES_MAX).await;
    load.finish(&mut server).await;
    assert!(kafka.dead_letters().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebalance_keeps_order() {
    let (_, random) = rounds(1);
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 4);
    let mut first = setup.clone().on("a").start();
    let load = Load::start(&[first.address()], ROOMS, &KINDS);
    for _ in 0..2 {
        load.go_on(&random, MESSAGES_MAX).await;
        let mut second = setup.clone().on("b").start();
        until("the second one stores", async || consumed(&second).await > 0).await;
        load.go_on(&random, MESSAGES_MAX).await;
        // In an orderly way: the first one takes over at once.
        second.stop().await;
    }
    load.finish(&mut first).await;
    assert!(kafka.dead_letters().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offline_member_catches_up_elsewhere() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 4);
    let mut gone = setup.clone().on("a").start();
    // It stores nothing itself: what it delivers has come over the bus, or from the store.
    let gateway = setup.clone().on("b").set("server.role=gateway").start();
    let mut socket = gateway.subscriber("r", serde_json::json!({"after": 0})).await;
    let mut seen = Vec::new();
    let over_the_bus = async || gateway.metric("bus_messages_received_total").await;
    // Until the bus is read, the store is polled.
    while seen.len() < 20 || over_the_bus().await == 0 {
        assert!(seen.len() < 1_000, "nothing comes over the bus");
        let id = format!("m-{}", seen.len());
        assert_eq!(gone.send_as("r", &id, &id).await.status, 202);
        seen.push(socket.next().await.unwrap());
    }
    assert_eq!(consumed(&gateway).await, 0);
    for (server, committed) in [(&gone, 4), (&gateway, 0)] {
        let all = server.metric("log_partitions").await;
        assert_eq!((server.metric("log_partitions_committed").await, all), (committed, 4));
    }
    // Nobody follows this room there.
    assert_eq!(gone.send_as("elsewhere", "m", "text").await.status, 202);
    until("it is stored", async || gone.history("elsewhere").await.len() == 1).await;
    assert!(over_the_bus().await <= seen.len() as u64);
    drop(socket);
    gone.kill();
    let newest = format!("m-{}", seen.len());
    assert_eq!(gateway.send_as("r", &newest, &newest).await.status, 202);
    let last = seen[9]["seq"].as_u64().unwrap();
    let third = setup.on("c").start();
    let mut socket = third.subscriber("r", serde_json::json!({"after": last})).await;
    let mut rest = Vec::new();
    for _ in 10..=seen.len() {
        rest.push(socket.next().await.unwrap());
    }
    let expected: Vec<String> = (10..=seen.len()).map(|number| format!("m-{number}")).collect();
    assert_eq!(texts(&rest), expected);
}
