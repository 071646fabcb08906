//! The server is killed, PostgreSQL ends as in a power failure, or both, in the middle of load, again and again: what was
//! acknowledged is stored, once, under its number; what was not, at most once; who sends one message after another finds
//! them in that order; and whoever follows sees the same.
//!
//! `CRASH_ROUNDS=100` runs it long, `CRASH_SEED=17` makes the same choices again.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::RandomSource;
use hubbub_core::clock::SeededRandom;

use crate::harness::{Dialect, Follower, Postgres, Setup, Writer, in_time, number, texts, until};

const ROUNDS: u64 = 10;
/// Rooms, each with writers of either kind and a follower.
const ROOMS: u64 = 3;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 600;

#[derive(Default)]
struct Shared {
    acked: AtomicU64,
    stop: AtomicBool,
}

async fn write(mut writer: Writer, address: SocketAddr, shared: Arc<Shared>) -> Writer {
    let mut counted = 0;
    loop {
        let enough = |writer: &Writer| {
            let new = writer.acked.len() as u64 - counted;
            counted += new;
            shared.acked.fetch_add(new, Ordering::SeqCst);
            shared.stop.load(Ordering::SeqCst)
        };
        if writer.run(address, enough).await.is_ok() {
            return writer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn follow(mut follower: Follower, address: SocketAddr) -> Follower {
    while follower.seen.last().is_none_or(|message| message["message"] != "end") {
        if follower.is_connected() || follower.resume(address).await {
            let _ = follower.next().await;
        } else {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    follower
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_killed_at_any_moment() {
    let rounds = number("CRASH_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("the same choices again: CRASH_SEED={seed} CRASH_ROUNDS={rounds}");
    let random = SeededRandom::new(seed);
    let postgres = Postgres::start("");
    let mut server = Setup::new().store(&postgres.url("postgres")).start();
    let address = server.address();
    let shared = Arc::new(Shared::default());
    let room = |number: u64| format!("room-{number}");
    let (mut writers, mut followers) = (Vec::new(), Vec::new());
    for number in 0..ROOMS {
        for (name, dialect, window) in
            [("chat", Dialect::Chat, 1), ("api", Dialect::Api, 1), ("many", Dialect::Api, 30)]
        {
            let writer = Writer::new(&format!("{name}{number}"), &room(number), dialect, window);
            writers.push(tokio::spawn(write(writer.through_outages(), address, shared.clone())));
        }
        followers.push(tokio::spawn(follow(Follower::new(&room(number)), address)));
    }

    for round in 0..rounds {
        let wanted = shared.acked.load(Ordering::SeqCst) + random.next_u64() % MESSAGES_MAX + 1;
        until("load", async || {
            let died = writers.iter().any(tokio::task::JoinHandle::is_finished);
            assert!(!died, "round {round}: a writer met something it must not");
            shared.acked.load(Ordering::SeqCst) >= wanted
        })
        .await;
        // Not just behind an acknowledgement, but anywhere.
        tokio::time::sleep(Duration::from_micros(random.next_u64() % 20_000)).await;
        let (kills_server, crashes_database) =
            [(true, false), (false, true), (true, true)][round as usize % 3];
        if crashes_database {
            postgres.crash();
            tokio::time::sleep(Duration::from_millis(random.next_u64() % 500)).await;
        }
        if kills_server {
            server.kill();
        }
        if crashes_database {
            postgres.restart();
        }
        if kills_server {
            server.restart();
        }
    }

    shared.stop.store(true, Ordering::SeqCst);
    let mut finished = Vec::new();
    for writer in writers {
        finished.push(in_time("the writers", writer).await.unwrap());
    }
    for number in 0..ROOMS {
        server.send(&room(number), "end").await;
    }
    server.restart();
    for (number, follower) in followers.into_iter().enumerate() {
        let history = server.history(&room(number as u64)).await;
        let mut count = 1;
        for writer in finished.iter().filter(|writer| writer.room == room(number as u64)) {
            writer.check(&history);
            count += writer.acked.len();
        }
        assert_eq!(history.len(), count, "nothing is there that nobody sent");
        assert_eq!(texts(&history).into_iter().collect::<BTreeSet<_>>().len(), count, "each is there once");
        in_time("the followers", follower).await.unwrap().check(&history);
    }
    println!("{rounds} rounds, {} messages acknowledged", shared.acked.load(Ordering::SeqCst));
}
