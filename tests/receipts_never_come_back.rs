//! A receipt names one delivery for ever: not the first one after a `redrive`, and no message of another history that has
//! the same id.

use serde_json::{Value, json};

use crate::harness::{Server, Setup, hubbub_aside, receipt};

/// Takes one on lease that must be there.
async fn lease(server: &Server) -> Value {
    let taken = server.take("lease", "jobs", json!({"receiver": "ann", "leaseMs": 600_000})).await;
    assert_eq!(taken.len(), 1, "{taken:?}");
    taken[0].clone()
}

#[tokio::test]
async fn a_redriven_message_has_new_receipts() {
    let mut server = Server::start();
    server.put_queue("jobs", json!({"maxDeliveries": 1})).await;
    server.enqueue("jobs", "work").await;
    let slow = lease(&server).await;
    assert_eq!(server.settle("nack", "jobs", receipt(&slow), json!({})).await.status, 200);
    let redriven = server.post("/v1/queues/jobs.dead/redrive", &json!({})).await;
    assert_eq!(redriven.json()["moved"], 1);
    let rightful = lease(&server).await;
    assert_eq!((&rightful["id"], &rightful["deliveries"]), (&slow["id"], &json!(1)));
    server.kill();
    server.restart();
    for how in ["ack", "nack", "extend"] {
        server.settle(how, "jobs", receipt(&slow), json!({})).await.problem(409, "stale_receipt");
    }
    assert_eq!(server.settle("ack", "jobs", receipt(&rightful), json!({})).await.status, 204);
}

#[tokio::test]
async fn a_restored_server_knows_no_receipt_of_what_was_lost() {
    let mut server = Server::start();
    server.put_queue("jobs", json!({})).await;
    server.enqueue("jobs", "kept").await;
    let kept = lease(&server).await;
    let dir = server.setup().beside("backups").display().to_string();
    server.run(&["backup", &dir], "").await.success();
    server.enqueue("jobs", "lost").await;
    let lost = lease(&server).await;
    server.kill();

    let setup = Setup::new();
    let data = setup.beside("restored").display().to_string();
    let restore = ["restore", &dir, "--to", &data].map(String::from).to_vec();
    hubbub_aside(restore, String::new()).await.success();
    let restored = setup.on(&data).start();
    restored.enqueue("jobs", "another").await;
    let another = lease(&restored).await;
    assert_ne!(another["id"], lost["id"], "no id is given again");
    for old in [&lost, &kept] {
        restored.settle("ack", "jobs", receipt(old), json!({})).await.problem(409, "stale_receipt");
    }
    assert_eq!(restored.settle("ack", "jobs", receipt(&another), json!({})).await.status, 204);
}

#[tokio::test]
async fn receipts_end_with_an_unclean_end_where_the_disk_is_not_waited_for() {
    let mut server = Setup::new().set("store.embedded.durability=os").start();
    server.put_queue("jobs", json!({})).await;
    server.enqueue("jobs", "work").await;
    let held = lease(&server).await;
    server.kill();
    server.restart();
    // What follows may have the ids of what was lost.
    server.settle("ack", "jobs", receipt(&held), json!({})).await.problem(409, "stale_receipt");
    server.enqueue("jobs", "more").await;
    let next = lease(&server).await;
    assert_eq!(server.settle("ack", "jobs", receipt(&next), json!({})).await.status, 204);
}
