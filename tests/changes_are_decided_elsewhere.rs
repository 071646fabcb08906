//! Changes of rooms are answered with their outcome, whichever node commits them, and are seen on every node in their order.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Kafka, Server, SharedStore, until, with_each_store};

with_each_store!(removed_member_stops_receiving_on_every_node);

/// One that stores, and one that only serves clients.
fn two(kafka: &Kafka, store: &SharedStore) -> [Server; 2] {
    let setup = store.behind(kafka, 3);
    [setup.clone().on("a").start(), setup.on("b").set("server.role=gateway").start()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_wait_for_their_outcome_on_another_node() {
    let (kafka, store) = (Kafka::shared(), SharedStore::postgres());
    let [committer, gateway] = two(&kafka, &store);
    for room in ["r", "s", "t"] {
        let put = gateway.put_room(room, json!({"title": "A", "membersOnly": true})).await;
        assert_eq!(put["title"], "A", "what one changed, one can read: {put}");
        gateway.add_member(room, "ada").await;
        gateway.add_member(room, "bob").await;
        assert_eq!(gateway.send_as(room, "m-1", "one").await.status, 202);
        until("it is stored", async || gateway.history(room).await.len() == 1).await;
    }
    let mark = gateway.call("bob", Method::PUT, "/v1/rooms/r/read", json!({"seq": 1})).await;
    assert_eq!((mark.status, &mark.json()["unread"]), (200, &json!(0)), "{}", mark.text());
    // Refusals are outcomes, too.
    let refused = gateway.call("eve", Method::PUT, "/v1/rooms/r/members/eve", Value::Null).await;
    refused.problem(403, "not_member");
    let unknown = gateway.call("", Method::PUT, "/v1/rooms/none/read?user=ada", json!({"seq": 1})).await;
    assert!(unknown.status == 404 || unknown.status == 422, "{}", unknown.text());
    // A user is erased in all rooms, whatever their partitions.
    let erased = gateway.call("", Method::DELETE, "/v1/users/ada", Value::Null).await;
    assert_eq!((erased.status, &erased.json()["messages"]), (200, &json!(3)), "{}", erased.text());
    for room in ["r", "s", "t"] {
        assert_eq!(committer.history(room).await, Vec::<Value>::new());
    }
    let deleted = gateway.call("", Method::DELETE, "/v1/rooms/r", Value::Null).await;
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    assert_eq!(committer.get("/v1/rooms/r").await.status, 404);
    assert_eq!(gateway.metric("log_messages_consumed_total").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_commits_is_unconfirmed() {
    let (kafka, store) = (Kafka::shared(), SharedStore::postgres());
    let [mut committer, gateway] = two(&kafka, &store);
    gateway.put_room("r", json!({})).await;
    committer.kill();
    let answer = gateway.call("", Method::PUT, "/v1/rooms/r", json!({"title": "later"})).await;
    answer.problem(504, "unconfirmed");
    committer.restart();
    // It was written, and is executed now.
    until("it is executed", async || gateway.get("/v1/rooms/r").await.json()["title"] == "later").await;
}

async fn removed_member_stops_receiving_on_every_node(store: SharedStore) {
    let kafka = Kafka::shared();
    let servers = two(&kafka, &store);
    servers[0].put_room("r", json!({"membersOnly": true})).await;
    for user in ["ada", "bob"] {
        servers[0].add_member("r", user).await;
    }
    let mut others = Vec::new();
    for server in &servers {
        others.push(server.subscriber_of("ada", "r").await);
    }
    for (round, remover) in [0, 1, 0, 1].into_iter().enumerate() {
        servers[0].add_member("r", "bob").await;
        let mut sockets = Vec::new();
        for server in &servers {
            sockets.push(server.subscriber_of("bob", "r").await);
        }
        let before = format!("before-{round}");
        assert_eq!(servers[1].send_as("r", &before, &before).await.status, 202);
        servers[remover].remove_member("r", "bob").await;
        // Sent by somebody who knows of the removal.
        let after = format!("after-{round}");
        assert_eq!(servers[1 - remover].send_as("r", &after, &after).await.status, 202);
        for (socket, other) in sockets.iter_mut().zip(&mut others) {
            let mut seen = Vec::new();
            let end = loop {
                match socket.receive().await {
                    frame if frame["type"] == "error" => break frame,
                    frame => seen.push(frame),
                }
            };
            assert_eq!(end["code"], "removed", "{end}");
            // Whoever stayed has it, on the same server.
            while other.receive_until("message", "r").await["message"] != after.as_str() {}
            seen.extend(socket.receive_pending().await);
            assert!(seen.iter().all(|frame| frame["message"] != after.as_str()), "{seen:?}");
        }
        until("all is stored", async || servers[0].history("r").await.len() == 2 * (round + 1)).await;
    }
}
