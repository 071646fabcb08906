//! The broker or the server killed, or their connections cut, at random moments under load: what was acknowledged is
//! stored, once, in the order it was sent.
//!
//! `CRASH_ROUNDS=100` runs it long, `CRASH_SEED=17` makes the same choices again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::RandomSource;
use hubbub_core::clock::SeededRandom;

use crate::harness::{Broker, Dialect, Setup, Writer, in_time, number, until};

const ROUNDS: u64 = 6;
const ROOMS: u64 = 3;
/// Most messages acknowledged in one round.
const MESSAGES_MAX: u64 = 2_000;

struct Shared {
    address: std::net::SocketAddr,
    acked: AtomicU64,
    stop: AtomicBool,
}

/// Writes until told to stop, through every refusal and lost connection.
async fn write(mut writer: Writer, shared: Arc<Shared>) -> Writer {
    let mut counted = 0;
    loop {
        let enough = |writer: &Writer| {
            let new = writer.acked.len() as u64 - counted;
            counted += new;
            shared.acked.fetch_add(new, Ordering::SeqCst);
            shared.stop.load(Ordering::SeqCst)
        };
        if writer.run(shared.address, enough).await.is_ok() {
            return writer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_with_a_broker() {
    let rounds = number("CRASH_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("the same choices again: CRASH_SEED={seed} CRASH_ROUNDS={rounds}");
    let random = SeededRandom::new(seed);
    let broker = Broker::start();
    let mut server = Setup::new().set(&broker.setting()).start();
    let shared = Arc::new(Shared {
        address: server.address(),
        acked: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let mut writers = Vec::new();
    for number in 0..ROOMS {
        for (name, dialect, window) in [("chat", Dialect::Chat, 100), ("api", Dialect::Api, 30)] {
            let writer = Writer::new(&format!("{name}{number}"), &format!("room-{number}"), dialect, window);
            writers.push(tokio::spawn(write(writer.through_outages(), shared.clone())));
        }
    }
    for round in 0..rounds {
        let wanted = shared.acked.load(Ordering::SeqCst) + 1 + random.next_u64() % MESSAGES_MAX;
        until("load", async || {
            let died = writers.iter().any(tokio::task::JoinHandle::is_finished);
            assert!(!died, "round {round}: a writer met something it must not");
            shared.acked.load(Ordering::SeqCst) >= wanted
        })
        .await;
        tokio::time::sleep(Duration::from_micros(random.next_u64() % 20_000)).await;
        // Each at least once, then as it comes.
        let how = if round < 4 { round } else { random.next_u64() % 4 };
        println!(
            "round {round}: {}",
            ["server", "broker", "both", "connections"][usize::try_from(how).unwrap()]
        );
        match how {
            0 => {
                server.kill();
                server.restart();
            }
            1 => {
                broker.kill();
                broker.restart();
            }
            2 => {
                broker.kill();
                server.kill();
                broker.restart();
                server.restart();
            }
            _ => broker.control(&["close_all_connections", "test"]),
        }
    }
    shared.stop.store(true, Ordering::SeqCst);
    let mut finished = Vec::new();
    for writer in writers {
        finished.push(in_time("the writers", writer).await.unwrap());
    }
    for number in 0..ROOMS {
        let room = format!("room-{number}");
        let mine: Vec<_> = finished.iter().filter(|writer| writer.room == room).collect();
        let count: usize = mine.iter().map(|writer| writer.acked.len()).sum();
        until("all is stored", async || server.history(&room).await.len() >= count).await;
        let history = server.history(&room).await;
        for writer in mine {
            writer.check(&history);
        }
        assert_eq!(history.len(), count, "nothing is there that nobody sent");
    }
    until("the broker is empty", async || server.metric("log_unacked").await == 0).await;
    assert_eq!(server.metric("log_messages_dead_total").await, 0);
    println!("{rounds} rounds, {} messages acknowledged", shared.acked.load(Ordering::SeqCst));
}
