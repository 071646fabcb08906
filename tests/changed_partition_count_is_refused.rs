//! A log that is not the one the store knows, or that lacks what the store lacks, is refused at start, with what to do.

use crate::harness::{Broker, Kafka, Postgres, Setup, hubbub, until};

/// Starts a server that must not start; what it says.
fn refused(setup: &Setup) -> String {
    let arguments = setup.arguments("127.0.0.1:0");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = hubbub(&arguments, "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    ran.stderr.lines().last().unwrap_or_default().to_owned()
}

/// Has a server store a message, and stops it.
async fn store_one(setup: &Setup) {
    let server = setup.clone().start();
    assert_eq!(server.send_as("r", "m-1", "one").await.status, 202);
    until("it is stored", async || server.history("r").await.len() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_partition_count_is_refused() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 2);
    store_one(&setup).await;
    // A store that belongs to a log is changed through it only.
    let without = Setup::new().store(&postgres.url("postgres")).start();
    assert_eq!(without.send_as("r", "m-2", "past the log").await.status, 503);
    let health = without.get("/health").await;
    let log = &health.json()["components"]["log"];
    assert_eq!((health.status, log["status"].as_str()), (503, Some("DOWN")), "{log}");
    assert!(log["reason"].as_str().unwrap().contains("takes its rooms from a log"), "{log}");
    // It can be exported.
    assert!(without.run(&["export"], "").await.success().contains("\"m-1\""));
    drop(without);
    // What a broker confirms would never be stored.
    let broker = Broker::shared();
    let behind = Setup::new().store(&postgres.url("postgres")).set(&broker.setting());
    let said = refused(&behind);
    let id = postgres.query("postgres", "select id from attached_log").await;
    assert!(said.contains(&id) && said.contains("log.url"), "{said}");
    assert!(broker.names_of("queues").is_empty(), "it leaves nothing there");

    kafka.add_partitions(3).await;
    let said = refused(&setup);
    assert!(said.contains("3 partitions") && said.contains("docs/kafka.md"), "{said}");
    // `live` has the old number, and another topic is another log.
    kafka.delete_topic("live").await;
    kafka.delete_topic("messages").await;
    let mut said = String::new();
    until("the topics are gone, and made again", async || {
        said = refused(&setup);
        !said.contains("creating the topic")
    })
    .await;
    assert!(said.contains("another log"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_lost_by_retention_are_told() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 1);
    store_one(&setup).await;
    for number in 2..5 {
        let body = format!(r#"{{"userId":"ada","message":"{number}","messageId":"m-{number}"}}"#);
        kafka.produce(Some("r"), None, &body, None);
    }
    kafka.remove_before(0, 3).await;
    let said = refused(&setup);
    assert!(said.contains("2 were removed by retention") && said.contains("kafka.skip_lost"), "{said}");
    let server = setup.clone().set("kafka.skip_lost=true").start();
    until("the rest is stored", async || server.history("r").await.len() == 2).await;
    drop(server);
    // The store knows now; an ordinary start is fine.
    let server = setup.start();
    assert_eq!(server.send_as("r", "m-5", "five").await.status, 202);
    until("it goes on", async || server.history("r").await.len() == 3).await;
}

/// Another server attaches a log to the store of one behind a broker, by mistake: nothing is accepted any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_attached_later_is_noticed_behind_a_broker() {
    let (kafka, postgres, broker) = (Kafka::shared(), Postgres::start(""), Broker::shared());
    let behind = Setup::new().store(&postgres.url("postgres")).set(&broker.setting()).start();
    assert_eq!(behind.send_as("r", "m-1", "one").await.status, 202);
    until("it is stored", async || behind.history("r").await.len() == 1).await;
    let with_kafka = kafka.setup(&postgres.url("postgres"), 1).start();
    assert_eq!(behind.send_as("r", "m-2", "it stays in the broker").await.status, 202);
    until("it is noticed", async || behind.send_as("r", "m-3", "three").await.status == 503).await;
    let log = behind.get("/health").await.json()["components"]["log"].clone();
    assert!(log["status"] == "DOWN" && log["reason"].as_str().unwrap().contains("log.url"), "{log}");
    assert_eq!(with_kafka.send_as("r", "m-4", "four").await.status, 202);
}

/// An unclean leader election, or a restored disk: new records would get offsets that the store has passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_kafka_lost_are_told() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 2);
    store_one(&setup).await;
    let query = async |sql: &str| postgres.query("postgres", sql).await;
    let partition = query("select partition from log_offsets where next_offset > 0").await;
    let raise =
        "update log_offsets set next_offset = next_offset + 3 where next_offset > 0 returning next_offset";
    let next = query(raise).await;
    let said = refused(&setup);
    let told = format!("partition {partition} of the topic {} ends at ", kafka.topic("messages"));
    assert!(said.contains(&told) && said.contains("docs/kafka.md"), "{said}");
    assert!(said.contains(&format!("has its records up to {next}: Kafka lost records")), "{said}");
    // As it was.
    postgres.run("update log_offsets set next_offset = next_offset - 3 where next_offset > 0").await;
    let server = setup.start();
    assert_eq!(server.send_as("r", "m-2", "two").await.status, 202);
    until("it goes on", async || server.history("r").await.len() == 2).await;
}

/// Servers of a copy would take a share of the partitions, and store it elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_database_needs_a_topic_of_its_own() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let [setup, of_copy] = ["postgres", "copy"].map(|name| kafka.setup(&postgres.url(name), 2));
    store_one(&setup).await;
    postgres.run("create database copy template postgres").await;
    // Nobody else is there yet. It only accepts.
    let stranger = of_copy.clone().on("a").set("server.role=gateway").start();
    let server = setup.clone().on("b").start();
    let beside = setup.on("c").start();
    let said = refused(&of_copy.on("d"));
    assert!(
        said.contains("servers of another store, 2 members") && said.contains("kafka.topic_prefix"),
        "{said}"
    );
    let log = async || stranger.get("/health").await.json()["components"]["log"].clone();
    until("it is told", async || log().await["status"] == "DOWN").await;
    assert!(log().await["reason"].as_str().unwrap().contains("servers of another store"));
    assert_eq!(stranger.send_as("r", "m-2", "lost").await.status, 503);
    for server in [&server, &beside] {
        assert_eq!(server.get("/health").await.json()["components"]["log"]["status"], "UP");
        let id = format!("m-{}", server.address().port());
        assert_eq!(server.send_as("r", &id, "two").await.status, 202);
    }
    until("all is stored", async || server.history("r").await.len() == 3).await;
}
