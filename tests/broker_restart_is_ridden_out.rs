//! Kafka, the store or the server killed at random moments under load: what was acknowledged is stored, once, in the order it
//! was sent. While Kafka is away, senders are told.

use serde_json::json;

use crate::harness::{Dialect, Kafka, Kind, Load, SharedStore, rounds, until, with_each_store};

const ROOMS: usize = 2;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 600;

with_each_store!(broker_restart_is_ridden_out);

async fn broker_restart_is_ridden_out(store: SharedStore) {
    let (rounds, random) = rounds(4);
    let kafka = Kafka::start();
    let setup = store.behind(&kafka, 3).set("kafka.delivery_timeout=3s");
    let mut server = setup.start();
    let kinds = [
        Kind { name: "chat", dialect: Dialect::Chat, window: 1, outlives_outages: true },
        Kind { name: "many", dialect: Dialect::Api, window: 60, outlives_outages: true },
    ];
    let load = Load::start(&[server.address()], ROOMS, &kinds);
    for round in 0..rounds {
        load.go_on(&random, MESSAGES_MAX).await;
        println!("round {round}");
        match round % 4 {
            0 => server.restart(),
            1 => {
                kafka.kill();
                kafka.restart();
            }
            2 => store.crash(|| ()),
            _ => {
                kafka.kill();
                server.kill();
                store.crash(|| kafka.restart());
                server.restart();
            }
        }
    }
    load.go_on(&random, MESSAGES_MAX).await;
    load.finish(&mut server).await;
    assert!(kafka.dead_letters().is_empty());

    let log = async || server.get("/health").await.json()["components"]["log"].clone();
    until("all is stored", async || log().await["depth"] == 0).await;
    kafka.kill();
    until("senders are told", async || {
        let answer = server.send_as("r", "m-1", "one").await;
        if answer.status == 503 {
            answer.problem(503, "unavailable");
        }
        answer.status == 503
    })
    .await;
    until("it is down", async || log().await["status"] == "DOWN" && server.metric("log_up").await == 0).await;
    let change = server.call("", hyper::Method::PUT, "/v1/rooms/r", json!({})).await;
    change.problem(503, "unavailable");
    // Queues have nothing to do with it.
    let status = if store.has_queues() { 201 } else { 501 };
    assert_eq!(server.call("", hyper::Method::PUT, "/v1/queues/jobs", json!({})).await.status, status);
    kafka.restart();
    until("it is taken", async || server.send_as("r", "m-1", "one").await.status == 202).await;
    until("it is stored, once", async || server.history("r").await.len() == 1).await;
    until("it is up", async || {
        (server.metric("log_up").await, server.metric("log_partitions_committed").await) == (1, 3)
    })
    .await;
    server.put_room("r", json!({"title": "R"})).await;
}
