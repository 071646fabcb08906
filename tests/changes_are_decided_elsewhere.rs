//! Changes of rooms are answered with their outcome, whichever node commits them, and are seen on every node in their order.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Kafka, Postgres, Server, texts, until};

/// One that stores, and one that only serves clients.
fn two(kafka: &Kafka, postgres: &Postgres) -> [Server; 2] {
    let setup = kafka.setup(&postgres.url("postgres"), 3);
    [setup.clone().on("a").start(), setup.on("b").set("server.role=gateway").start()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_wait_for_their_outcome_on_another_node() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let [committer, gateway] = two(&kafka, &postgres);
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
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let [mut committer, gateway] = two(&kafka, &postgres);
    gateway.put_room("r", json!({})).await;
    committer.kill();
    let answer = gateway.call("", Method::PUT, "/v1/rooms/r", json!({"title": "later"})).await;
    answer.problem(504, "unconfirmed");
    committer.restart();
    // It was written, and is executed now.
    until("it is executed", async || gateway.get("/v1/rooms/r").await.json()["title"] == "later").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_member_stops_receiving_on_every_node() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let servers = two(&kafka, &postgres);
    servers[0].put_room("r", json!({"membersOnly": true})).await;
    for user in ["ada", "bob"] {
        servers[0].add_member("r", user).await;
    }
    for (round, remover) in [0, 1, 0, 1].into_iter().enumerate() {
        servers[0].add_member("r", "bob").await;
        let mut sockets = Vec::new();
        for server in &servers {
            let mut socket = server.ws("/v1/ws?user=bob").await;
            socket.subscribe("r", json!({"last": 0})).await;
            sockets.push(socket);
        }
        let before = format!("before-{round}");
        assert_eq!(servers[1].send_as("r", &before, &before).await.status, 202);
        servers[remover].remove_member("r", "bob").await;
        // Sent by somebody who knows of the removal.
        let after = format!("after-{round}");
        assert_eq!(servers[1 - remover].send_as("r", &after, &after).await.status, 202);
        for socket in &mut sockets {
            let mut seen = Vec::new();
            loop {
                let frame = socket.next().await.unwrap();
                match frame["type"].as_str() {
                    Some("message") => seen.push(frame),
                    Some("error") => {
                        assert_eq!(frame["code"], "removed", "{frame}");
                        break;
                    }
                    _ => {}
                }
            }
            assert!(!texts(&seen).contains(&after.as_str()), "{seen:?}");
        }
        until("all is stored", async || servers[0].history("r").await.len() == 2 * (round + 1)).await;
    }
}
