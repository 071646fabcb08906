//! `kill -9` at random moments under load, again and again on one data directory: what was acknowledged is stored,
//! once, in the order it was sent, and whoever follows sees the same.
//!
//! `CRASH_ROUNDS=1000` runs it long, `CRASH_SEED=17` makes the same choices again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::RandomSource;
use hubbub_core::clock::SeededRandom;

use crate::harness::{Dialect, Follower, Server, Writer, in_time, number, until};

const ROUNDS: u64 = 30;
/// Rooms; each has a writer of either kind and a follower.
const ROOMS: u64 = 3;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 2_500;

/// Writes until told to stop, through every lost connection.
async fn write(mut writer: Writer, server: Arc<Shared>) -> Writer {
    let address = server.address;
    let mut counted = 0;
    loop {
        let enough = |writer: &Writer| {
            let new = writer.acked.len() as u64 - counted;
            counted += new;
            server.acked.fetch_add(new, Ordering::SeqCst);
            server.stop.load(Ordering::SeqCst)
        };
        if writer.run(address, enough).await.is_ok() {
            return writer;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn follow(mut follower: Follower, server: Arc<Shared>) -> Follower {
    while follower.seen.last().is_none_or(|message| message["message"] != "end") {
        if follower.is_connected() || follower.resume(server.address).await {
            let _ = follower.next().await;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    follower
}

struct Shared {
    address: std::net::SocketAddr,
    acked: AtomicU64,
    stop: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment() {
    let rounds = number("CRASH_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("the same choices again: CRASH_SEED={seed} CRASH_ROUNDS={rounds}");
    let random = SeededRandom::new(seed);
    let mut server = Server::start();
    let address = server.address();
    let shared = Arc::new(Shared { address, acked: AtomicU64::new(0), stop: AtomicBool::new(false) });
    let room = |number: u64| format!("room-{number}");
    let (mut writers, mut followers) = (Vec::new(), Vec::new());
    for number in 0..ROOMS {
        for (name, dialect, window) in [("chat", Dialect::Chat, 100), ("api", Dialect::Api, 30)] {
            let writer = Writer::new(&format!("{name}{number}"), &room(number), dialect, window);
            writers.push(tokio::spawn(write(writer, shared.clone())));
        }
        followers.push(tokio::spawn(follow(Follower::new(&room(number)), shared.clone())));
    }

    for round in 0..rounds {
        let wanted = shared.acked.load(Ordering::SeqCst) + random.next_u64() % MESSAGES_MAX;
        until("load", async || {
            let died = writers.iter().any(tokio::task::JoinHandle::is_finished);
            assert!(!died, "round {round}: a writer met something it must not");
            shared.acked.load(Ordering::SeqCst) >= wanted
        })
        .await;
        // Not just behind an acknowledgement, but anywhere.
        tokio::time::sleep(Duration::from_micros(random.next_u64() % 20_000)).await;
        server.kill();
        // Sometimes also while it starts.
        while random.next_u64().is_multiple_of(4) {
            server.kill_while_starting(Duration::from_micros(random.next_u64() % 60_000));
        }
        server.restart();
    }

    shared.stop.store(true, Ordering::SeqCst);
    let mut finished = Vec::new();
    for writer in writers {
        finished.push(in_time("the writers", writer).await.unwrap());
    }
    for number in 0..ROOMS {
        server.send(&room(number), "end").await;
    }
    // Once more from the disk alone.
    server.restart();
    for (number, follower) in followers.into_iter().enumerate() {
        let history = server.history(&room(number as u64)).await;
        let mine = finished.iter().filter(|writer| writer.room == room(number as u64));
        let mut count = 1;
        for writer in mine {
            writer.check(&history);
            count += writer.acked.len();
        }
        assert_eq!(history.len(), count, "nothing is there that nobody sent");
        in_time("the followers", follower).await.unwrap().check(&history);
    }
    println!("{rounds} rounds, {} messages acknowledged", shared.acked.load(Ordering::SeqCst));
}
