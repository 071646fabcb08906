//! Who is in a room, who types and what is read is the same on every node: over Kafka, and over PostgreSQL alone.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Postgres, Server, Setup, Ws, until};

async fn users(server: &Server, room: &str) -> Value {
    server.get(&format!("/v1/rooms/{room}/presence")).await.json()["users"].clone()
}

async fn are_present(servers: &[Server], room: &str, expected: Value) {
    for server in servers {
        until("everybody is known", async || users(server, room).await == expected).await;
    }
}

/// The next frame of this kind.
async fn next_of(socket: &mut Ws, kind: &str) -> Value {
    loop {
        let frame = socket.receive().await;
        if frame["type"] == kind {
            return frame;
        }
    }
}

/// Reads until a frame says that the user came or left.
async fn until_presence(socket: &mut Ws, user: &str, is_online: bool) {
    loop {
        let frame = next_of(socket, "presence").await;
        if frame["userId"] == user && frame["online"] == is_online {
            return;
        }
    }
}

/// `servers` share a store; the last one is not followed on at first.
async fn crosses(servers: [Server; 3]) {
    let [a, b, c] = &servers;
    a.put_room("r", json!({})).await;
    a.add_member("r", "bob").await;
    a.put_room("club", json!({"membersOnly": true})).await;
    for user in ["ada", "bob"] {
        a.add_member("club", user).await;
    }
    let mut ada = a.subscriber_of("ada", "r").await;
    let mut bob = b.subscriber_of("bob", "r").await;
    until_presence(&mut ada, "bob", true).await;
    are_present(&servers, "r", json!(["ada", "bob"])).await;
    // Typing.
    bob.send(&json!({"type": "typing", "roomId": "r"})).await;
    assert_eq!(next_of(&mut ada, "typing").await, json!({"type": "typing", "roomId": "r", "userId": "bob"}));
    // Bob is on both: he comes and goes once. What he reads on one he has read on the other.
    let mut other = a.subscriber_of("bob", "r").await;
    assert!([201, 202].contains(&b.send_as("r", "m-1", "one").await.status));
    let seq = next_of(&mut other, "message").await["seq"].clone();
    let marked = b.call("bob", Method::PUT, "/v1/rooms/r/read", json!({"seq": seq})).await;
    assert_eq!(marked.status, 200, "{}", marked.text());
    let read = next_of(&mut other, "read").await;
    assert_eq!((&read["roomId"], &read["seq"], &read["unread"]), (&json!("r"), &seq, &json!(0)), "{read}");
    drop(bob);
    // Ada's node knows that he is not on the other one any more; to her that is no news.
    until("it is known", async || a.metric("presence_remote_users").await == 0).await;
    let heard = ada.receive_pending().await;
    assert!(heard.iter().all(|frame| frame["type"] != "presence"), "{heard:?}");
    are_present(&servers, "r", json!(["ada", "bob"])).await;
    drop(other);
    until_presence(&mut ada, "bob", false).await;
    are_present(&servers, "r", json!(["ada"])).await;
    // Of a room for members only nobody else hears, on whichever node.
    let mut inside = a.subscriber_of("ada", "club").await;
    let mut bob = b.subscriber_of("bob", "club").await;
    until_presence(&mut inside, "bob", true).await;
    for server in &servers {
        let asked = server.call("eve", Method::GET, "/v1/rooms/club/presence", Value::Null).await;
        asked.problem(403, "not_member");
    }
    c.remove_member("club", "bob").await;
    until_presence(&mut inside, "bob", false).await;
    assert_eq!(next_of(&mut bob, "error").await["code"], "removed");
    are_present(&servers, "club", json!(["ada"])).await;
    dies(servers).await;
}

/// The users of a node that dies, or stops, are gone on the others.
async fn dies([a, mut b, mut c]: [Server; 3]) {
    let mut ada = a.subscriber_of("ada", "s").await;
    let _bob = b.subscriber_of("bob", "s").await;
    let _eve = c.subscriber_of("eve", "s").await;
    until("all are there", async || users(&a, "s").await == json!(["ada", "bob", "eve"])).await;
    b.kill();
    until_presence(&mut ada, "bob", false).await;
    c.stop().await;
    until_presence(&mut ada, "eve", false).await;
    assert_eq!(users(&a, "s").await, json!(["ada"]));
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn presence_crosses_nodes() {
    let (kafka, postgres) = (crate::harness::Kafka::shared(), Postgres::start(""));
    let setup = kafka.setup(&postgres.url("postgres"), 3);
    let start = |name: &str, role: &str| setup.clone().on(name).set(&format!("server.role={role}")).start();
    crosses([start("a", "gateway,committer"), start("b", "gateway"), start("c", "gateway,committer")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn presence_crosses_servers_of_a_database() {
    let postgres = Postgres::start("");
    crosses(["a", "b", "c"].map(|_| Setup::new().store(&postgres.url("postgres")).start())).await;
}
