//! A newer program goes on with the store of servers that run: they say so, commit nothing more, and leave their partitions of
//! Kafka to others. What they are given is taken, and waits for those.

use crate::harness::{Cassandra, Kafka, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_schema_is_left_alone() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let setup = Cassandra::replicated(kafka.setup(&cassandra.url(), 4));
    let servers = ["a", "b"].map(|name| setup.clone().on(name).start());
    until("it is stored", async || {
        servers[0].send_as("r", "1", "one").await;
        servers[1].history("r").await.len() == 1
    })
    .await;
    let newer =
        "insert into positions (part, next_offset, version) values (0, 1000, 99) using timestamp 1000";
    cassandra.execute(newer).await;
    for server in &servers {
        until("/health tells", async || {
            let store = server.get("/health").await.json()["components"]["store"].clone();
            let reason = store["reason"].as_str().unwrap_or_default().to_owned();
            store["status"] == "DOWN" && reason.contains("version 99")
        })
        .await;
        until("it leaves", async || server.metric("log_partitions_committed").await == 0).await;
    }
    for server in &servers {
        assert_eq!(server.send_as("r", "2", "two").await.status, 202);
        assert_eq!(server.history("r").await.len(), 1);
    }
    assert!(kafka.dead_letters().is_empty());
}
