//! How fast the embedded engine reads while messages come in: `engine_reads DIR [SECONDS]`, on a directory that
//! `engine_bench` left. 10,000 messages/s come in on one thread, 200 reads/s of each kind are timed on another.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hubbub_core::clock::SeededRandom;
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{OpBatch, RandomSource, Store, Timestamp};
use hubbub_store::embedded::{Embedded, EngineOptions};

mod workload;

use workload::{ROOMS, SystemClock, cpu, fill, memory_mib, now};

const BATCH: u64 = 100;

fn query(cursor: Cursor, limit: usize) -> HistoryQuery {
    HistoryQuery { cursor, from: None, to: None, limit, bytes_max: usize::MAX }
}

#[allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a benchmark prints figures")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "engine-bench-data".into()));
    let seconds: u64 = args.next().map_or(Ok(10), |text| text.parse())?;
    let clock = Arc::new(SystemClock(now()));
    let start = now();
    let store = Embedded::open(&dir, EngineOptions::default(), clock, &SeededRandom::new(1))?;
    let stored = store.figures().messages;
    println!("start: {:.2} s", start.elapsed().as_secs_f64());
    let stop = AtomicBool::new(false);
    let random = SeededRandom::new(9);
    let mut times: [Vec<Duration>; 3] = Default::default();
    let room = store.engine().room("room-0").ok_or("there is no room-0; run engine_bench first")?;
    let first = store.engine().history("room-0", &query(Cursor::After(0), 1))?;
    let first = first.messages.get(0).map_or(0, |message| message.received_at.as_micros());
    let last = room.last_received_at.unwrap_or_default().as_micros();
    std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        scope.spawn(|| {
            let mut batch = OpBatch::default();
            let mut number = u64::from(u32::MAX) + random.next_u64() % (1 << 40);
            let begin = now();
            for round in 1.. {
                fill(&mut batch, number, BATCH);
                number += BATCH;
                let _ = store.apply(&batch);
                let due = Duration::from_micros(round * BATCH * 100);
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..seconds * 200 {
            let room = format!("room-{}", random.next_u64() % ROOMS);
            let seq = random.next_u64() % room_head(&store, &room).max(1);
            let from =
                first + (random.next_u64() % u64::try_from(last - first).unwrap_or(1).max(1)).cast_signed();
            let by_time =
                HistoryQuery { from: Some(Timestamp::from_micros(from)), ..query(Cursor::After(0), 1_000) };
            let queries = [query(Cursor::Before(u64::MAX), 50), query(Cursor::After(seq), 1_000), by_time];
            for (times, query) in times.iter_mut().zip(queries) {
                let start = now();
                store.engine().history(&room, &query)?;
                times.push(start.elapsed());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    println!(
        "{stored} messages stored, memory {} MiB, {:.1} s of CPU for reads",
        memory_mib(),
        cpu().as_secs_f64()
    );
    for (name, times) in ["last 50", "1,000 by seq", "1,000 by time"].iter().zip(&mut times) {
        times.sort_unstable();
        let at =
            |part: f64| times.get(((times.len() - 1) as f64 * part) as usize).copied().unwrap_or_default();
        println!(
            "{name}: p50 {:.0} µs, p99 {:.0} µs",
            at(0.5).as_secs_f64() * 1e6,
            at(0.99).as_secs_f64() * 1e6
        );
    }
    store.close();
    Ok(())
}

fn room_head(store: &Embedded, room: &str) -> u64 {
    store.engine().room(room).map_or(0, |room| room.head)
}
