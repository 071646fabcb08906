//! A subscriber whose server is killed goes on behind the last message it saw: no gap, no repeat, in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;

use crate::harness::{Dialect, Follower, Server, Setup, Writer, in_time, until};

const KILLS: u64 = 4;
/// Acknowledged between two kills.
const MESSAGES: u64 = 1_500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_has_no_gap() {
    let mut server = Server::start();
    let address = server.address();
    let acked = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));

    let writer = tokio::spawn({
        let (acked, stop) = (acked.clone(), stop.clone());
        async move {
            let mut writer = Writer::new("w", "r", Dialect::Chat, 64);
            let enough = |writer: &Writer| {
                acked.store(writer.acked.len() as u64, Ordering::SeqCst);
                stop.load(Ordering::SeqCst)
            };
            while writer.run(address, enough).await.is_err() {
                tokio::task::yield_now().await;
            }
            writer
        }
    });
    let follower = tokio::spawn(async move {
        let mut follower = Follower::new("r");
        while follower.seen.last().is_none_or(|message| message["message"] != "end") {
            if !follower.is_connected() && !follower.resume(address).await {
                tokio::task::yield_now().await;
                continue;
            }
            // A lost connection is resumed.
            let _ = follower.next().await;
        }
        follower
    });

    for kill in 1..=KILLS {
        until("the writer", async || acked.load(Ordering::SeqCst) >= kill * MESSAGES).await;
        server.restart();
    }
    stop.store(true, Ordering::SeqCst);
    let writer = in_time("the writer", writer).await.unwrap();
    server.send("r", "end").await;
    let follower = in_time("the follower", follower).await.unwrap();
    let history = server.history("r").await;
    writer.check(&history);
    follower.check(&history);
    assert!(history.len() as u64 >= KILLS * MESSAGES);
}

/// Joining a room in full flow: pages until the live stream is reached, then live, with nothing between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joining_under_load_has_no_gap() {
    let server = Server::start();
    let address = server.address();
    let writer = tokio::spawn(async move {
        let mut writer = Writer::new("w", "r", Dialect::Api, 256);
        writer.run(address, |writer| writer.acked.len() >= 10_000).await.unwrap();
    });
    let mut joined = Vec::new();
    while !writer.is_finished() {
        let mut follower = Follower::new("r");
        assert!(follower.resume(address).await);
        // Each joins at another point of the stream.
        follower.read_to(joined.len() as u64 * 100).await;
        joined.push(follower);
        if joined.len() == 20 {
            break;
        }
    }
    in_time("the writer", writer).await.unwrap();
    let history = server.history("r").await;
    for mut follower in joined {
        follower.read_to(history.len() as u64).await;
        follower.check(&history);
    }
}

/// However much is to be caught up with, and however fast it is read: it comes without waiting for anything else to
/// happen on the socket. The next ping is an hour away.
#[tokio::test]
async fn a_long_history_comes_without_a_pause() {
    let server = Setup::new().set("store.embedded.journal_slot=16MiB").start();
    let line = json!({"roomId": "r", "userId": "ada", "message": "x".repeat(400)}).to_string() + "\n";
    for _ in 0..4 {
        server.http().await.post("/v1/messages", line.repeat(2_500)).await;
    }
    let mut follower = Follower::new("r");
    assert!(follower.resume(server.address()).await);
    follower.read_to(10_000).await;
    // Live in large batches too.
    for seq in [12_500, 15_000, 17_500] {
        server.http().await.post("/v1/messages", line.repeat(2_500)).await;
        follower.read_to(seq).await;
    }
    follower.check(&server.history("r").await);
}
