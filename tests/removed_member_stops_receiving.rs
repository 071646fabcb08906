//! Once it is answered that somebody was removed, nothing that is sent afterwards reaches any of the user's sockets or
//! streams; the others of the room notice nothing, and the sockets stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Dialect, Follower, Server, Setup, Writer, Ws, in_time, seqs, until};

/// Reads what came of `room` until the subscription ended; the seqs, and what ended it.
async fn until_removed(socket: &mut Ws, room: &str) -> (Vec<u64>, Value) {
    let mut messages = Vec::new();
    loop {
        let frame = socket.receive().await;
        match frame["type"].as_str() {
            Some("message") if frame["roomId"] == room => messages.push(frame),
            Some("error") => return (seqs(&messages), frame),
            _ => {}
        }
    }
}

async fn removed_under_load(members_only: bool) {
    let server = Setup::new().set("members.cache_ttl=1h").start();
    let address = server.address();
    server.put_room("r", json!({"membersOnly": members_only})).await;
    for user in ["ada", "bob", "w"] {
        server.add_member("r", user).await;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    // Goes on until somebody is removed, but not so fast that sockets that wait for it are cut as slow readers.
    let writer = tokio::spawn({
        let is_over = is_over.clone();
        async move {
            let pace = Arc::new(|| Duration::from_millis(20));
            let mut writer = Writer::new("w", "r", Dialect::Api, 128).paced(pace);
            writer.run(address, |_| is_over.load(Ordering::SeqCst)).await.unwrap();
        }
    });
    // One is live, one has all rooms, one is still catching up from the oldest.
    let mut live = server.ws("/v1/ws?user=ada").await;
    live.subscribe("r", json!({})).await;
    let mut all = server.ws("/v1/ws?user=ada").await;
    all.subscribe("*", json!({})).await;
    let mut other = Follower::new("r");
    assert!(other.resume(address).await);
    until("a backlog", async || server.metric("messages_stored_total").await > 2_000).await;
    let mut behind = server.ws("/v1/ws?user=ada").await;
    behind.subscribe("r", json!({"after": 0})).await;

    server.remove_member("r", "ada").await;
    let after = server.send_as("r", "marker", "after").await;
    // Of whom administrators say that they are "ada" must be one to write here.
    let marker = if members_only {
        after.problem(403, "not_member");
        let body = json!({"userId": "bob", "message": "after"});
        server.post("/v1/rooms/r/messages", &body).await.json()["seq"].as_u64().unwrap()
    } else {
        after.json()["seq"].as_u64().unwrap()
    };
    is_over.store(true, Ordering::SeqCst);
    for (socket, is_live) in [(&mut live, true), (&mut all, false), (&mut behind, false)] {
        let (seen, end) = until_removed(socket, "r").await;
        assert!(!is_live || !seen.is_empty(), "it was live before two thousand messages");
        assert_eq!((&end["code"], &end["roomId"]), (&json!("removed"), &json!("r")), "{end}");
        assert!(seen.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a gap before the end");
        assert!(seen.last().is_none_or(|last| *last < marker), "{seen:?} has what came after {marker}");
    }
    in_time("the writer", writer).await.unwrap();
    // The sockets are as good as before, and the room is silent on them.
    for socket in [&mut live, &mut all, &mut behind] {
        let heard = socket.receive_pending().await;
        assert!(heard.is_empty(), "{heard:?}");
        let answer = socket.request(&json!({"type": "subscribe", "roomId": "r", "after": 0})).await;
        let expected = if members_only { json!("error") } else { json!("subscribed") };
        assert_eq!(answer["type"], expected, "{answer}");
    }
    let history = server.history("r").await;
    other.read_to(history.len() as u64).await;
    other.check(&history);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_member_stops_receiving() {
    removed_under_load(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_member_stops_receiving_where_all_may_read() {
    removed_under_load(false).await;
}

/// Added and removed again and again: what a socket with all rooms gets lies between the two, always.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn membership_begins_and_ends_where_it_says() {
    let server = Server::start();
    server.put_room("r", json!({"membersOnly": true})).await;
    let mut ada = server.ws("/v1/ws?user=ada").await;
    ada.send(&json!({"type": "subscribe", "roomId": "*"})).await;
    assert_eq!(ada.receive().await["rooms"], 0);
    server.add_member("r", "bob").await;
    let send = async |text: &str| {
        let body = json!({"userId": "bob", "message": text});
        server.post("/v1/rooms/r/messages", &body).await.json()["seq"].as_u64().unwrap()
    };
    let mut is_heard = false;
    for _ in 0..20 {
        send("before").await;
        server.add_member("r", "ada").await;
        let (first, last) = (send("first").await, send("last").await);
        server.remove_member("r", "ada").await;
        send("after").await;
        // All she was sent came to her in the time she was a member; whether the room was ever announced depends on how
        // soon she was removed.
        let heard = ada.receive_pending().await;
        let messages: Vec<_> = heard.iter().filter(|frame| frame["type"] == "message").cloned().collect();
        assert!(seqs(&messages).iter().all(|seq| (first..=last).contains(seq)), "{heard:?}");
        is_heard |= !messages.is_empty();
    }
    assert!(is_heard, "she was never sent anything");
}

#[tokio::test]
async fn an_event_stream_of_a_removed_member_ends() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::start();
    server.put_room("r", json!({"membersOnly": true})).await;
    for user in ["ada", "bob"] {
        server.add_member("r", user).await;
    }
    let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    stream
        .write_all(b"GET /v1/rooms/r/events?user=ada HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    until("the stream is live", async || server.metric("subscriptions").await == 1).await;
    server.post("/v1/rooms/r/messages", &json!({"userId": "bob", "message": "before"})).await;
    server.remove_member("r", "ada").await;
    server.post("/v1/rooms/r/messages", &json!({"userId": "bob", "message": "after"})).await;
    let mut text = String::new();
    in_time("the end of the stream", stream.read_to_string(&mut text)).await.unwrap();
    assert!(text.contains("before") && !text.contains("after"), "{text}");
    assert!(text.contains("event: error\ndata: {\"code\":\"removed\""), "{text}");
}
