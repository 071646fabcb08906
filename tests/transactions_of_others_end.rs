//! Other programs write to Kafka in transactions: what these leave that is no message is passed over, also where nothing follows,
//! and one that stays open is seen by the lag.

use serde_json::json;

use crate::harness::{Kafka, Server, SharedStore, texts, until, with_each_store};

with_each_store!(transactions_of_others_end);

async fn figure(server: &Server, name: &str) -> u64 {
    server.get("/health").await.json()["components"]["log"][name].as_u64().unwrap()
}

async fn transactions_of_others_end(store: SharedStore) {
    let kafka = Kafka::shared();
    let mut server = store.behind(&kafka, 1).start();
    let body =
        |text: &str| json!({"userId": "u", "message": text, "messageId": format!("m-{text}")}).to_string();
    assert_eq!(server.send_as("r", "m-zero", "zero").await.status, 202);
    let open = kafka.begin_transaction("r", &body("one"));
    until("it lags", async || figure(&server, "lagMs").await >= 3_000).await;
    assert_eq!((figure(&server, "depth").await, server.history("r").await.len()), (1, 1));
    open.commit();
    until("it is stored", async || server.history("r").await.len() == 2).await;
    until("nothing waits", async || figure(&server, "depth").await == 0).await;
    until("nothing lags", async || figure(&server, "lagMs").await == 0).await;

    kafka.begin_transaction("r", &body("never")).abort();
    until("nothing waits", async || figure(&server, "depth").await == 0).await;
    until("all is passed over", async || kafka.committed(1) == kafka.end(0)).await;
    server.kill();
    // Retention takes all that is stored, and the ends of the transactions.
    kafka.remove_before(0, kafka.end(0)).await;
    server.restart();
    kafka.produce(Some("r"), None, &body("two"), None);
    until("it goes on", async || server.history("r").await.len() == 3).await;
    assert_eq!(texts(&server.history("r").await), ["zero", "one", "two"]);
}
