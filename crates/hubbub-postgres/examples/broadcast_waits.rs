//! How long others wait beside messages to everybody: sends and takes of one pair at a time, through another server of the
//! same database, with and without. `cargo run --example broadcast_waits -- URL CLIENTS`; the database must be empty.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    missing_docs
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::queue::{Audience, Due, QueueSend, QueueSettings, Take, TakeHow, Wanted};
use hubbub_core::{Op, OpBatch, QueueOp, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};

fn apply(store: &Postgres, ops: &[QueueOp<'_>]) -> Vec<hubbub_core::Outcome> {
    let mut batch = OpBatch::default();
    ops.iter().for_each(|op| batch.push(&Op::Queue(*op)));
    store.apply(&batch).unwrap()
}

fn send<'a>(queue: &'a str, audience: Audience<'a>) -> QueueOp<'a> {
    QueueOp::Send(QueueSend {
        queue,
        sender: "ada",
        audience,
        group: None,
        message_id: None,
        text: "to all",
        due: Due::Now,
        ttl_ms: Some(600_000),
        registers: true,
    })
}

fn pairs(store: &Postgres, queue: &str, until: impl Fn() -> bool) -> Vec<Duration> {
    let mut took = Vec::new();
    while !until() {
        let begun = Instant::now();
        apply(store, &[send(queue, Audience::Anyone)]);
        let wanted = Wanted { queue: Some(queue), receiver: None, sender: None, newest_first: false };
        apply(store, &[QueueOp::Take(Take { wanted, max: 1, how: TakeHow::Away, registers: false })]);
        took.push(begun.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    took.sort_unstable();
    took
}

fn show(what: &str, took: &[Duration]) {
    let at = |share: usize| took.get(took.len() * share / 100).or(took.last()).unwrap();
    println!(
        "{what}: {} pairs, p50 {:.1?}, p99 {:.1?}, longest {:.1?}",
        took.len(),
        at(50),
        at(99),
        took.last().unwrap()
    );
}

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let clients: usize = arguments[2].parse().unwrap();
    let mut stores = Vec::new();
    for seed in 0..2 {
        let options = PostgresOptions::new(&arguments[1]);
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
        stores.push(Arc::new(Postgres::open(options, clock, &SeededRandom::new(seed)).await.unwrap()));
    }
    for queue in ["news", "other"] {
        apply(&stores[0], &[QueueOp::Put { queue, settings: &QueueSettings::default() }]);
    }
    let names: Vec<String> = (0..clients).map(|number| format!("client{number}")).collect();
    for some in names.chunks(2_000) {
        let ops: Vec<QueueOp<'_>> = some.iter().map(|client| QueueOp::Register { client }).collect();
        apply(&stores[0], &ops);
    }
    let handle = tokio::runtime::Handle::current();
    for (what, queue) in [("another queue", "other"), ("the same queue", "news")] {
        for busy in [false, true] {
            let ended = Arc::new(AtomicBool::new(false));
            let (other, done, inner) = (stores[1].clone(), ended.clone(), handle.clone());
            let measuring = std::thread::spawn(move || {
                let _entered = inner.enter();
                pairs(&other, queue, || done.load(Ordering::Relaxed))
            });
            let (store, inner) = (stores[0].clone(), handle.clone());
            let sending = std::thread::spawn(move || {
                let _entered = inner.enter();
                for _ in 0..3 {
                    let begun = Instant::now();
                    if busy {
                        let outcomes = apply(&store, &[send("news", Audience::All)]);
                        println!("  a message to everybody took {:.1?}: {:?}", begun.elapsed(), outcomes[0]);
                    }
                    std::thread::sleep(Duration::from_secs(2));
                }
            });
            tokio::task::spawn_blocking(move || sending.join().unwrap()).await.unwrap();
            ended.store(true, Ordering::Relaxed);
            let took = tokio::task::spawn_blocking(move || measuring.join().unwrap()).await.unwrap();
            show(&format!("{what}, {}", if busy { "with" } else { "without" }), &took);
        }
    }
    stores.iter().for_each(|store| store.close());
}
