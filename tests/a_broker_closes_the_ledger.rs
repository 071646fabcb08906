//! With a broker, what senders are told is counted once: what the broker does not take or confirm, and nothing of what the store
//! takes later.

use std::net::SocketAddr;

use serde_json::json;

use crate::harness::{Http, Postgres, Server, hubbub_aside, in_time, until};

/// What the senders of messages were told, by status.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Told {
    unavailable: u64,
    unconfirmed: u64,
}

impl Told {
    /// The same as the server counts it.
    async fn counted(server: &Server) -> Self {
        let unavailable = server.metric("messages_rejected_total{reason=\"unavailable\"}").await;
        Self { unavailable, unconfirmed: server.metric("messages_unconfirmed_total").await }
    }

    /// Many senders at the same time, each until it is refused: `kill` takes the broker away meanwhile.
    async fn until_refused(server: &Server, kill: impl FnOnce()) -> Self {
        let senders: Vec<_> =
            (0..16).map(|sender| tokio::spawn(Self::of_sender(server.address(), sender))).collect();
        until("messages come in", async || server.metric("messages_stored_total").await > 100).await;
        kill();
        let mut sum = Self::default();
        for sender in senders {
            let told = in_time("a refusal", sender).await.unwrap();
            sum.unavailable += told.unavailable;
            sum.unconfirmed += told.unconfirmed;
        }
        sum
    }

    async fn of_sender(server: SocketAddr, sender: usize) -> Self {
        let (mut http, mut told) = (Http::connect(server).await, Self::default());
        let (path, message) =
            (format!("/v1/rooms/r-{sender}/messages"), json!({"userId": "ada", "message": "x"}));
        while told.unavailable == 0 {
            match http.post(&path, message.to_string()).await.status {
                202 => {}
                503 => told.unavailable += 1,
                504 => told.unconfirmed += 1,
                status => panic!("{status}"),
            }
        }
        told
    }
}

/// Messages are taken while the store is away, so servers stay in use; and nobody is told of a failure.
async fn takes_messages_without_its_store(server: &Server, postgres: &Postgres) {
    assert_eq!(server.send_as("r", "m-1", "x").await.status, 202);
    until("it is stored", async || server.metric("messages_stored_total").await == 1).await;
    postgres.kill();
    for id in ["m-2", "m-3", "m-4"] {
        assert_eq!(server.send_as("r", id, "x").await.status, 202);
    }
    until("they are tried again", async || server.metric("log_batches_retried_total").await > 2).await;
    assert_eq!(Told::counted(server).await, Told::default());
    until("it is known to be away", async || server.metric("store_up").await == 0).await;
    let health = server.get("/health").await;
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("DEGRADED")), "{health:?}");
    let status = ["status", "--server", &server.url()].map(str::to_owned);
    let ran = hubbub_aside(status.to_vec(), String::new()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("DEGRADED ") && ran.stderr.contains("messages are taken"), "{ran:?}");
}

async fn stores_them_later(server: &Server, postgres: &Postgres) {
    postgres.restart();
    until("they are stored", async || server.metric("messages_stored_total").await == 4).await;
    until("all is well", async || server.get("/health").await.json()["status"] == "UP").await;
}

#[cfg(feature = "amqp")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_rabbitmq_does_not_take_is_counted_once() {
    let (broker, postgres) = (crate::harness::Broker::start(), Postgres::start(""));
    let setup = crate::harness::Setup::new().store(&postgres.url("postgres"));
    let server = setup.set(&broker.setting()).start();
    takes_messages_without_its_store(&server, &postgres).await;
    stores_them_later(&server, &postgres).await;
    assert_eq!(Told::counted(&server).await, Told::default());

    let told = Told::until_refused(&server, || broker.kill()).await;
    assert!(told.unconfirmed > 0, "{told:?}");
    assert_eq!(Told::counted(&server).await, told);
    // A broker that is away takes nothing, whatever the store does.
    assert_eq!(server.get("/health").await.status, 503);
}

/// Changes of rooms wait for the store, and their senders are told.
#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_kafka_does_not_take_is_counted_once() {
    let (kafka, postgres) = (crate::harness::Kafka::start(), Postgres::start(""));
    let server = kafka.setup(&postgres.url("postgres"), 2).set("kafka.delivery_timeout=3s").start();
    takes_messages_without_its_store(&server, &postgres).await;
    let change = server.call("", hyper::Method::PUT, "/v1/rooms/r", json!({})).await;
    change.problem(504, "unconfirmed");
    let of_change = Told { unconfirmed: 1, unavailable: 0 };
    assert_eq!(Told::counted(&server).await, of_change);
    assert_eq!(server.metric("log_messages_unconfirmed_total").await, 0, "Kafka has it");
    stores_them_later(&server, &postgres).await;
    assert_eq!(Told::counted(&server).await, of_change);

    let told = Told::until_refused(&server, || kafka.kill()).await;
    assert!(told.unconfirmed > 0, "{told:?}");
    let expected = Told { unconfirmed: told.unconfirmed + 1, ..told };
    assert_eq!(Told::counted(&server).await, expected);
    assert_eq!(server.metric("log_messages_unconfirmed_total").await, told.unconfirmed);
    assert_eq!(server.get("/health").await.status, 503);
}
