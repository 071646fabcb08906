//! How long reads of a small and of a large room take, and how fast rooms are written.
//!
//! `cargo run --release -p hubbub-scylla --example room_size -- scylla://127.0.0.1:19042/room_size 300000`

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::stats::UserHistoryQuery;
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{
    LogIdentity, LogPosition, LogStore, MessageType, Op, OpBatch, RoomId, RoomStore, Send, StatsStore, Store,
    Timestamp, UserId,
};
use hubbub_scylla::{Scylla, ScyllaOptions};

const BATCH: u64 = 1_000;
const START: i64 = 1_700_000_000_000_000;
/// One message a second, so that a large room spans days.
const PAUSE: i64 = 1_000_000;
const ROUNDS: u32 = 100;

fn time_of(number: u64) -> Timestamp {
    Timestamp::from_micros(START + i64::try_from(number).unwrap() * PAUSE)
}

/// Fills a room, which has a partition and a user of its own.
fn fill(store: &Scylla, room: &str, partition: u32, count: u64) -> Duration {
    let user = format!("{room}-user");
    let text = "x".repeat(200);
    let begin = Instant::now();
    for from in (0..count).step_by(usize::try_from(BATCH).unwrap()) {
        let mut batch = OpBatch::default();
        for offset in from..(from + BATCH).min(count) {
            let id = format!("{room}-{offset}");
            let kind = MessageType::Text;
            let timestamp = time_of(offset);
            let send = Send { room, user: &user, id: &id, username: None, text: &text, kind, timestamp };
            batch.push_at(&Op::Send(send), LogPosition { partition, offset, appended_at: timestamp });
        }
        store.apply(&batch).unwrap();
    }
    begin.elapsed()
}

async fn median(mut read: impl AsyncFnMut()) -> Duration {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        read().await;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

async fn measure(store: &Scylla, room: &str, count: u64) {
    let id = RoomId::new(room).unwrap();
    let page = HistoryQuery {
        cursor: Cursor::Before(u64::MAX),
        from: None,
        to: None,
        limit: 50,
        bytes_max: 1 << 20,
    };
    let middle = HistoryQuery { cursor: Cursor::After(count / 2), ..page };
    let timed = HistoryQuery { cursor: Cursor::After(0), from: Some(time_of(count / 2)), ..page };
    for (what, query) in [("newest 50", page), ("50 from the middle", middle), ("50 from a time", timed)] {
        let took =
            median(async || assert_eq!(store.history(id.clone(), query).await.unwrap().messages.len(), 50));
        println!("{room:>6} {what:<28} {:?}", took.await);
    }
    let user = UserId::new(&format!("{room}-user")).unwrap();
    for (what, to) in [("user's newest 50", None), ("user's 50 before a time", Some(time_of(count / 2)))] {
        let query = UserHistoryQuery { before: None, from: None, to, limit: 50, bytes_max: 1 << 20 };
        let took = median(async || {
            assert_eq!(store.user_history(user.clone(), query.clone()).await.unwrap().messages.len(), 50)
        });
        println!("{room:>6} {what:<28} {:?}", took.await);
    }
    let took = median(async || assert!(store.room_stats(id.clone()).await.unwrap().value.is_some()));
    println!("{room:>6} {:<28} {:?}", "room statistics", took.await);
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| panic!("a URL and a number of messages are needed"));
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(300_000);
    let options = ScyllaOptions {
        replication: "{'class': 'SimpleStrategy', 'replication_factor': 1}".into(),
        ..ScyllaOptions::new(url)
    };
    let clock = Arc::new(ManualClock::at(time_of(count)));
    let store = Scylla::open(options, clock, &SeededRandom::new(1)).await.unwrap();
    store.attach(LogIdentity { id: "room_size".into(), partitions: 2 }).await.unwrap();
    for (room, partition, count) in [("small", 0, 1_000), ("large", 1, count)] {
        let took = fill(&store, room, partition, count);
        println!(
            "{room:>6} {count} messages written in {took:?}, {:.0}/s",
            count as f64 / took.as_secs_f64()
        );
    }
    measure(&store, "small", 1_000).await;
    measure(&store, "large", count).await;
    store.close();
}
