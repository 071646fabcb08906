//! A broker that is full takes no dead letters. They wait for it, and are in nobody's way: else its queues would never be shorter.

use serde_json::json;

use crate::harness::{Broker, Setup, until};

/// More than a server takes from the broker at once.
const MESSAGES: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_wait_aside() {
    let broker = Broker::start();
    let mut server = Setup::new().set(&broker.setting()).set("amqp.prefetch=10").start();
    server.kill();
    let client = broker.client().await;
    for number in 0..MESSAGES {
        if [1, 25].contains(&number) {
            client.publish("room.r", "not json", None).await;
        }
        let good = json!({"userId": "u", "message": "text", "messageId": format!("m-{number}")});
        client.publish("room.r", &good.to_string(), None).await;
    }
    broker.control(&["set_vm_memory_high_watermark", "0"]);
    server.restart();
    until("all others are stored", async || server.history("r").await.len() == MESSAGES).await;
    until("they are acknowledged", async || server.metric("log_unacked").await == 2).await;
    assert_eq!(server.metric("log_messages_dead_total").await, 0);

    broker.control(&["set_vm_memory_high_watermark", "0.9"]);
    until("they are dead", async || server.metric("log_messages_dead_total").await == 2).await;
    until("all are acknowledged", async || server.metric("log_unacked").await == 0).await;
    server.kill();
    for _ in 0..2 {
        assert_eq!(client.take_next("hubbub.dead").await.data, b"not json");
    }
    assert!(client.take("hubbub.room.0").await.is_none());
}
