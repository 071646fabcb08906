//! How fast the newest messages of active rooms are read, and how many statements that takes: with what is remembered of
//! rooms, and without; one reader, and fifty; while the rooms are being written to.
//!
//! `cargo run --release -p hubbub-postgres --example recent_rate -- postgres://…/database [seconds] [rounds]`; the
//! database must be one that may be written to.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::{Cursor, HistoryQuery, StoreFigures};
use hubbub_core::{Op, OpBatch, RoomId, RoomStore, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use hubbub_store::conformance::model::Post;
use tokio::task::JoinSet;

const ROOMS: usize = 10;
/// Messages in each before anybody reads.
const FILLED: usize = 2_000;
/// Messages read at once.
const LAST: usize = 50;
const READERS: [usize; 2] = [1, 50];
/// Readers think between two reads; the writer writes one message to the rooms in turn.
const THINKING: Duration = Duration::from_millis(10);
const WRITING: Duration = Duration::from_millis(20);

/// What some readers met.
struct Met {
    readers: usize,
    reads: usize,
    p50: Duration,
    p99: Duration,
    /// Statements of a read, without those of writing.
    statements: f64,
    hits: u64,
    misses: u64,
}

async fn write(store: &Arc<Postgres>, posts: Vec<Post>) {
    let mut batch = OpBatch::default();
    posts.iter().for_each(|post| batch.push(&Op::Send(post.as_send())));
    let store = store.clone();
    tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap().unwrap();
}

/// The times of one reader's reads.
async fn read(store: Arc<Postgres>, room: RoomId, until: Instant) -> Vec<Duration> {
    let query = HistoryQuery {
        cursor: Cursor::Before(u64::MAX),
        from: None,
        to: None,
        limit: LAST,
        bytes_max: usize::MAX,
    };
    let mut times = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        let page = store.history(room.clone(), query).await.unwrap();
        times.push(began.elapsed());
        assert_eq!(page.messages.len(), LAST);
        tokio::time::sleep(THINKING).await;
    }
    times
}

/// Lets readers read for a while. Their statements are those that took a connection beyond `background` a second.
async fn meet(store: &Arc<Postgres>, readers: usize, time: Duration, background: f64) -> Met {
    let before: StoreFigures = store.figures();
    let began = Instant::now();
    let mut reading = JoinSet::new();
    for reader in 0..readers {
        let room = RoomId::new(&format!("r{}", reader % ROOMS)).unwrap();
        reading.spawn(read(store.clone(), room, began + time));
    }
    let mut times: Vec<Duration> = reading.join_all().await.into_iter().flatten().collect();
    if readers == 0 {
        tokio::time::sleep(time).await;
    }
    let (after, seconds) = (store.figures(), began.elapsed().as_secs_f64());
    let taken = (after.pool.acquired - before.pool.acquired) as f64 - background * seconds;
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    Met {
        readers,
        reads: times.len(),
        p50: at(50),
        p99: at(99),
        statements: taken / if readers == 0 { seconds } else { times.len() as f64 },
        hits: after.cache.hits - before.cache.hits,
        misses: after.cache.misses - before.cache.misses,
    }
}

/// `first` is the number of the first message written beside the readers.
async fn round(url: &str, recent_cache_bytes: usize, time: Duration, first: usize) -> Vec<Met> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let options = PostgresOptions { recent_cache_bytes, ..PostgresOptions::new(url) };
    let store = Arc::new(Postgres::open(options, clock, &SeededRandom::new(3)).await.unwrap());
    let posts = |first: usize| {
        let post = |n: usize| Post::new(&format!("r{}", n % ROOMS), &format!("m{n}")).text("x".repeat(120));
        (first..).map(post)
    };
    for first in (0..ROOMS * FILLED).step_by(1_000) {
        // A later round finds them there.
        write(&store, posts(first).take(1_000).collect()).await;
    }
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            let mut next = first;
            loop {
                write(&store, posts(next).take(1).collect()).await;
                next += 1;
                tokio::time::sleep(WRITING).await;
            }
        }
    });
    let background = meet(&store, 0, time, 0.0).await.statements;
    let mut met = Vec::new();
    for readers in READERS {
        met.push(meet(&store, readers, time, background).await);
    }
    writing.abort();
    let _ = writing.await;
    store.close();
    met
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap();
    let mut number = |otherwise: u64| arguments.next().map_or(otherwise, |text| text.parse().unwrap());
    let (time, rounds) = (Duration::from_secs(number(5)), number(2));
    println!(
        "| readers | remembering | reads | p50 ms | p99 ms | statements a read | hits of what was asked | saved |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    // Ids that no earlier run used.
    let mut firsts = (1..).map(|n: usize| (std::process::id() as usize * 1_000 + n) * 1_000_000);
    let mut first = || firsts.next().unwrap();
    for _ in 0..rounds {
        let off = round(&url, 0, time, first()).await;
        let on = round(&url, 64 << 20, time, first()).await;
        for (off, on) in off.iter().zip(&on) {
            for (name, met) in [("no", off), ("yes", on)] {
                let hits = met.hits as f64 * 100.0 / (met.hits + met.misses).max(1) as f64;
                println!(
                    "| {} | {name} | {} | {:.2} | {:.2} | {:.2} | {hits:.1} % | {:.0} % |",
                    met.readers,
                    met.reads,
                    met.p50.as_secs_f64() * 1e3,
                    met.p99.as_secs_f64() * 1e3,
                    met.statements,
                    (1.0 - met.statements / off.statements) * 100.0,
                );
            }
        }
    }
}
