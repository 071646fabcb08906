//! A subscriber that does not read is cut off with 4409 instead of filling the server's memory, delays nobody, and
//! resumes from the last message it has.

use serde_json::{Value, json};

use crate::harness::{Follower, Server, Setup, until};

const TEXT_BYTES: usize = 50_000;
/// With small ones, a store whose seals are late on a busy disk refuses messages.
const SLOT: &str = "store.embedded.journal_slot=16MiB";

async fn flood(server: &Server, mut is_enough: impl AsyncFnMut() -> bool) {
    let mut http = server.http().await;
    let body = json!({"userId": "ada", "message": "x".repeat(TEXT_BYTES)}).to_string();
    until("a full outbox", async || {
        assert_eq!(http.post("/v1/rooms/r/messages", body.clone()).await.status, 201);
        is_enough().await
    })
    .await;
}

#[tokio::test]
async fn slow_reader_is_cut() {
    let server = Setup::new().set(SLOT).set("limits.outbox_messages=20").start();
    let mut slow = Follower::new("r");
    assert!(slow.resume(server.address()).await);
    let mut quick = Follower::new("r");
    assert!(quick.resume(server.address()).await);

    let mut sent = 0;
    flood(&server, async || {
        sent += 1;
        quick.read_to(sent).await;
        server.metric("slow_subscribers_total").await == 1
    })
    .await;
    // What was written to it before stays readable, in order, and then it is told why it ends.
    let closed = loop {
        if let Err(closed) = slow.next().await {
            break closed.expect("cut off without a word");
        }
    };
    assert_eq!(closed.0, 4409, "{closed:?}");
    assert!(slow.position < sent, "it was cut off because it lagged");

    assert!(slow.resume(server.address()).await);
    slow.read_to(sent).await;
    server.send("r", "both are live again").await;
    let history = server.history("r").await;
    for mut follower in [slow, quick] {
        follower.read_to(sent + 1).await;
        follower.check(&history);
    }
    assert_eq!(server.metric("slow_subscribers_total").await, 1);
}

/// Also one that is cut off while it catches up in another room: what was sent before the close frame is a prefix of each
/// room.
#[tokio::test]
async fn a_cut_reader_has_a_prefix_of_each_room() {
    let server = Setup::new().set(SLOT).set("limits.outbox_messages=500").start();
    let mut http = server.http().await;
    let lines = |room: &str, count: usize| {
        format!("{}\n", json!({"roomId": room, "userId": "ada", "message": "x"})).repeat(count)
    };
    // More than the system keeps for a reader that does not read.
    for _ in 0..60 {
        let answer = http.post("/v1/messages", lines("old", 1_000)).await;
        assert!(answer.lines().iter().all(|receipt| receipt["seq"].is_u64()));
    }
    let mut slow = server.subscriber("live", json!({})).await;
    // Pages are written as answers are, and live messages as they were encoded for all: it is sent both in turn.
    slow.send(&json!({"type": "subscribe", "roomId": "old", "after": 0})).await;
    let (mut live, mut old) = (0, 0);
    let mut count = |frame: &Value| {
        let last = if frame["roomId"] == "live" { &mut live } else { &mut old };
        if frame["type"] == "message" {
            *last += 1;
            assert_eq!(frame["seq"], *last, "{}", frame["roomId"]);
        }
        (live, old)
    };
    // It reads until it gets both: where there is one processor, pages alone may fill what the system keeps.
    http.post("/v1/messages", lines("live", 5)).await;
    loop {
        let (live, old) = count(&slow.next().await.expect("it is not cut off while it reads"));
        if live > 0 && old > 0 {
            break;
        }
    }
    until("a full outbox", async || {
        http.post("/v1/messages", lines("live", 5)).await;
        server.metric("slow_subscribers_total").await == 1
    })
    .await;
    let closed = loop {
        match slow.next().await {
            Ok(frame) => count(&frame),
            Err(closed) => break closed.expect("cut off without a word"),
        };
    };
    assert_eq!(closed.0, 4409, "{closed:?}");
    assert!(old > 0 && live > 0, "{old} and {live}");
}

/// A client that reads slowly while it catches up is not cut off for it: pages come at its pace.
#[tokio::test]
async fn catching_up_slowly_is_not_cut() {
    let server = Setup::new().set(SLOT).set("limits.outbox_messages=20").start();
    let mut sent = 0;
    flood(&server, async || {
        sent += 1;
        sent == 300
    })
    .await;
    let mut follower = Follower::new("r");
    assert!(follower.resume(server.address()).await);
    for seq in 1..=300 {
        follower.read_to(seq).await;
        if seq % 50 == 0 {
            server.send("r", "meanwhile").await;
        }
    }
    follower.read_to(306).await;
    follower.check(&server.history("r").await);
    assert_eq!(server.metric("slow_subscribers_total").await, 0);
}
