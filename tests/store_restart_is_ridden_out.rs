//! The database of servers with Kafka is killed, like a process that the system ends, and started again under load. Kafka has
//! what is not stored: nothing is lost, the order is kept, and soon nothing waits any more.

use crate::harness::{Cassandra, Dialect, Kafka, Kind, Load, Postgres, Setup, rounds, until};

const ROOMS: usize = 2;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 300;

const KINDS: [Kind; 2] = [
    Kind { name: "one", dialect: Dialect::Chat, window: 1, outlives_outages: true },
    Kind { name: "many", dialect: Dialect::Api, window: 40, outlives_outages: true },
];

/// Two servers under load while the database comes and goes.
async fn ride_out(kafka: &Kafka, setup: Setup, fails: &str, kill: impl Fn(), restart: impl Fn()) {
    let (rounds, random) = rounds(2);
    let mut servers = ["a", "b"].map(|name| setup.clone().on(name).start());
    let addresses = servers.each_ref().map(|server| server.address());
    let load = Load::start(&addresses, ROOMS, &KINDS);
    for round in 0..rounds {
        load.go_on(&random, MESSAGES_MAX).await;
        println!("round {round}");
        kill();
        // Messages are taken without it.
        load.go_on(&random, MESSAGES_MAX).await;
        for server in &servers {
            // A load balancer goes on sending here: else nobody could reach what takes messages.
            until("/health tells", async || {
                let answer = server.get("/health").await;
                let health = answer.json();
                let store = &health["components"]["store"];
                let says = store["reason"].as_str().unwrap_or_default();
                let is_known = says.contains("messages are taken") && says.contains(fails);
                assert_eq!(answer.status, 200, "{health}");
                health["status"] == "DEGRADED" && store["status"] == "DOWN" && is_known
            })
            .await;
        }
        restart();
    }
    load.go_on(&random, MESSAGES_MAX).await;
    load.catch_up().await;
    for server in &servers {
        assert_eq!(server.metric("log_rewinds_total").await, 0);
    }
    load.finish(&mut servers[0]).await;
    for server in &servers {
        until("nothing waits", async || {
            let health = server.get("/health").await.json();
            let log = &health["components"]["log"];
            let has_lag = log["lagMs"].as_u64().is_some_and(|lag| lag > 0);
            health["status"] == "UP" && log["status"] == "UP" && log["depth"] == 0 && !has_lag
        })
        .await;
    }
    assert_eq!(servers[0].history("room-0").await, servers[1].history("room-0").await);
    assert!(kafka.dead_letters().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_restart_is_ridden_out_on_cassandra() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::start());
    let setup = Cassandra::replicated(kafka.setup(&cassandra.url(), 4));
    let fails = "reads and changes of rooms may fail";
    ride_out(&kafka, setup, fails, || cassandra.kill(), || cassandra.restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_restart_is_ridden_out_on_postgres() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 4);
    let fails = "reads, changes of rooms, queues and keys may fail";
    ride_out(&kafka, setup, fails, || postgres.kill(), || postgres.restart()).await;
}
