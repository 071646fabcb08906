//! Live messages of all rooms and subscribers share one budget: whoever lags behind when it is exceeded is cut off and
//! resumes, and nobody misses anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Follower, Server, Setup, Ws, in_time, until};

const ROOMS: usize = 200;
const EACH: usize = 100;
const TEXT_BYTES: usize = 1_000;

fn room(number: usize) -> String {
    format!("room-{number}")
}

/// A socket that follows all rooms live.
async fn follow_all(server: &Server) -> Ws {
    let mut socket = server.ws("/v1/ws").await;
    for number in 0..ROOMS {
        socket.subscribe(&room(number), json!({})).await;
    }
    socket
}

/// Sends `count` messages to each room, in turn. What is refused because the disk is behind is sent again.
async fn fill(server: &Server, count: usize) {
    let mut sender = server.ws("/v1/ws").await;
    let text = "x".repeat(TEXT_BYTES);
    let message =
        |number: &usize| json!({"type": "send", "roomId": room(*number), "userId": "ada", "message": text});
    for _ in 0..count {
        let mut missing: Vec<usize> = (0..ROOMS).collect();
        while !missing.is_empty() {
            sender.send_all(&missing.iter().map(message).collect::<Vec<Value>>()).await;
            let mut refused = Vec::new();
            for number in missing {
                let answer = sender.receive().await;
                if answer["code"] == "overloaded" {
                    refused.push(number);
                } else {
                    assert_eq!(answer["type"], "ack", "{answer}");
                }
            }
            if !refused.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            missing = refused;
        }
    }
}

/// Rings of what rooms published last used to hold a megabyte for each of them, without a bound for all.
#[tokio::test]
async fn a_room_keeps_nothing_for_those_who_are_up_to_date() {
    // Records of batches have a bound of their own, and take 4 MiB for these.
    let setup = Setup::new().set("timeline.memory=0B");
    // A reader that is late on a busy machine is not to be cut off.
    let server = setup.set("limits.outbox_bytes=64MiB").set("limits.outbox_messages=100000").start();
    let mut socket = follow_all(&server).await;
    fill(&server, 5).await;
    socket.receive_many(5 * ROOMS).await;
    let before = server.memory_kib();
    let reading = async {
        for _ in 0..EACH * ROOMS {
            socket.receive_type("message").await;
        }
    };
    tokio::join!(fill(&server, EACH), reading);
    until("nothing is on its way", async || server.metric("live_bytes").await < 100_000).await;
    let sent_kib = (ROOMS * EACH * TEXT_BYTES / 1024) as u64;
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < sent_kib / 2, "{grown} KiB more after {sent_kib} KiB of messages");
    assert_eq!(server.metric("live_evictions_total").await, 0);
}

#[tokio::test]
async fn live_memory_has_one_budget() {
    const BUDGET: u64 = 2 << 20;
    let server = Setup::new().set("live.memory=2MiB").start();
    // Outboxes alone would take 8 MiB each. They read nothing until they are cut off.
    let mut slow = Vec::new();
    for _ in 0..3 {
        slow.push(follow_all(&server).await);
    }
    let mut quick = Follower::new(&room(0));
    assert!(quick.resume(server.address()).await);
    let most = AtomicU64::new(0);
    let watching = async {
        until("all that lag behind are cut off", async || {
            most.fetch_max(server.metric("live_bytes").await, Ordering::SeqCst);
            server.metric("subscriptions").await == 1
        })
        .await;
    };
    let filling = async {
        // More than systems hold in their sockets' buffers.
        while server.metric("subscriptions").await > 1 {
            fill(&server, EACH).await;
        }
        server.history(&room(0)).await.len() as u64
    };
    let (sent, ()) = tokio::join!(
        async {
            let sent = filling.await;
            quick.read_to(sent).await;
            sent
        },
        watching
    );
    assert!(server.metric("live_evictions_total").await >= 3);
    // A batch and what three sockets were about to write may come on top of it.
    let most = most.into_inner();
    assert!(most < 3 * BUDGET, "{most} bytes");
    for mut socket in slow {
        // Whoever reads too late finds the connection closed behind what was on its way.
        let closed = loop {
            if let Err(closed) = socket.next().await {
                break closed;
            }
        };
        assert!(closed.as_ref().is_none_or(|(code, _)| *code == 4409), "{closed:?}");
    }
    let mut resumed = Follower::new(&room(0));
    assert!(resumed.resume(server.address()).await);
    resumed.read_to(sent).await;
    let history = server.history(&room(0)).await;
    quick.check(&history);
    resumed.check(&history);
}

/// With memory for no more than one message, everybody gets everything nevertheless.
#[tokio::test]
async fn the_smallest_budget_leaves_no_gap() {
    const SENT: u64 = 3_000;
    let server = Arc::new(Setup::new().set("live.memory=1B").start());
    let writing = tokio::spawn({
        let server = server.clone();
        async move {
            let mut sender = server.ws("/v1/ws").await;
            for number in 0..SENT / 10 {
                let message = |part| json!({"type": "send", "roomId": "r", "userId": "ada", "message": format!("{number} {part}")});
                sender.send_all(&(0..10).map(message).collect::<Vec<Value>>()).await;
                for _ in 0..10 {
                    sender.receive_type("ack").await;
                }
            }
        }
    });
    let mut followers = Vec::new();
    for _ in 0..4 {
        let server = server.clone();
        followers.push(tokio::spawn(async move {
            let mut follower = Follower::new("r");
            while follower.position < SENT {
                if !follower.is_connected() {
                    assert!(follower.resume(server.address()).await);
                }
                // Cut off for being slow, it resumes.
                if let Err(closed) = follower.next().await {
                    assert_eq!(closed.map(|(code, _)| code), Some(4409));
                }
            }
            follower
        }));
    }
    in_time("writing", writing).await.unwrap();
    let history = server.history("r").await;
    for follower in followers {
        in_time("following", follower).await.unwrap().check(&history);
    }
}
