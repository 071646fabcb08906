//! What statistics cost and how fast they answer: `stats_bench DIR [MESSAGES] [SECONDS]`. Fills DIR up to that many
//! messages (5 million) of 100,000 users in 20 rooms, then asks while 10,000 messages/s come in.

#![allow(clippy::print_stdout, reason = "a benchmark prints figures")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hubbub_core::clock::SeededRandom;
use hubbub_core::stats::{ActiveUsersQuery, HoursQuery, UserHistoryQuery};
use hubbub_core::{OpBatch, RandomSource, Store, Timestamp};
use hubbub_store::embedded::{Embedded, EngineOptions};

mod workload;

use workload::{SystemClock, fill, memory_mib, now};

const BATCH: u64 = 100;
const FILL_BATCH: u64 = 1_000;
const USERS: u64 = 100_000;
const HOUR_MICROS: i64 = 3_600_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "stats-bench-data".into()));
    let messages: u64 = args.next().map_or(Ok(5_000_000), |text| text.parse())?;
    let seconds: u64 = args.next().map_or(Ok(10), |text| text.parse())?;
    let open = || {
        let clock = Arc::new(SystemClock(now()));
        Embedded::open(&dir, EngineOptions::default(), clock, &SeededRandom::new(1))
    };
    let store = open()?;
    fill_up(&store, messages);
    store.close();

    let store = open()?;
    let before = memory_mib();
    let start = now();
    let totals = store.engine().totals()?.value;
    println!(
        "first answer after a start: {:.2} s for {} messages",
        start.elapsed().as_secs_f64(),
        totals.messages.total()
    );
    println!("memory: {before} MiB at the start, {} MiB when everything is counted", memory_mib());
    catch_up(&store)?;
    ask_while_sending(&store, seconds)?;
    println!("memory in the end: {} MiB", memory_mib());
    let start = now();
    let audit = store.engine().audit()?.value;
    println!(
        "audit: {:.2} s, {} messages, {:?}",
        start.elapsed().as_secs_f64(),
        audit.messages,
        audit.differences
    );
    store.close();
    Ok(())
}

fn fill_up(store: &Embedded, messages: u64) {
    let (mut batch, mut number) = (OpBatch::default(), store.figures().messages);
    let (start, first) = (now(), number);
    while number < messages {
        fill(&mut batch, number, FILL_BATCH);
        while store.apply(&batch).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        number += FILL_BATCH;
    }
    if number > first {
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = (number - first) as f64 / start.elapsed().as_secs_f64();
        println!("filled with {rate:.0} messages/s");
    }
    while store.figures().unsealed_slots > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What counting new messages costs.
fn catch_up(store: &Embedded) -> Result<(), Box<dyn std::error::Error>> {
    let mut batch = OpBatch::default();
    let first = 1 << 40;
    for part in 0..100 {
        fill(&mut batch, first + part * FILL_BATCH, FILL_BATCH);
        store.apply(&batch)?;
    }
    let start = now();
    store.engine().totals()?;
    println!(
        "counting new messages: {:.3} µs each, less what a thread had counted",
        start.elapsed().as_secs_f64() * 10.0
    );
    Ok(())
}

fn ask_while_sending(store: &Embedded, seconds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let (stop, random) = (AtomicBool::new(false), SeededRandom::new(9));
    let names = [
        "totals",
        "top 10 users",
        "top 10 rooms",
        "hours",
        "active users of a day",
        "active users of a window in hours",
        "a user's rooms",
        "a user's last 50",
        "a user's 50 in the middle",
    ];
    let mut times: Vec<Vec<Duration>> = names.iter().map(|_| Vec::new()).collect();
    std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        scope.spawn(|| send(store, &stop));
        let received = store.engine().totals()?.value.received.ok_or("nothing is stored")?;
        let (first, last) = (received.first.as_micros(), received.last.as_micros());
        let span = u64::try_from(last - first).unwrap_or(1).max(1);
        let middle = Timestamp::from_micros(first + (last - first) / 2);
        for _ in 0..seconds * 20 {
            let engine = store.engine();
            let user = format!("user-{}", random.next_u64() % USERS);
            let at = |random: &SeededRandom| {
                Some(Timestamp::from_micros(first + (random.next_u64() % span).cast_signed()))
            };
            let day = ActiveUsersQuery {
                from: Some(Timestamp::from_micros(last - 24 * HOUR_MICROS)),
                to: None,
                after: None,
                limit: 0,
            };
            let (one, other) = (at(&random), at(&random));
            let window = ActiveUsersQuery { from: one.min(other), to: one.max(other), ..day.clone() };
            let newest =
                UserHistoryQuery { before: None, from: None, to: None, limit: 50, bytes_max: usize::MAX };
            let older = UserHistoryQuery { to: Some(middle), ..newest.clone() };
            let mut slots = times.iter_mut();
            let mut time = |ask: &dyn Fn() -> Result<(), hubbub_core::store::ReadError>| {
                let start = now();
                let result = ask();
                if let Some(times) = slots.next() {
                    times.push(start.elapsed());
                }
                result
            };
            time(&|| engine.totals().map(drop))?;
            time(&|| engine.top_users(10).map(drop))?;
            time(&|| engine.top_rooms(10).map(drop))?;
            time(&|| engine.hours(&HoursQuery { from: None, to: None, limit: 1_000 }).map(drop))?;
            time(&|| engine.active_users(&day).map(drop))?;
            time(&|| engine.active_users(&window).map(drop))?;
            time(&|| engine.participation(&user, None, 100).map(drop))?;
            time(&|| engine.user_history(&user, &newest).map(drop))?;
            time(&|| engine.user_history(&user, &older).map(drop))?;
            std::thread::sleep(Duration::from_millis(30));
        }
        stop.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    for (name, times) in names.iter().zip(&mut times) {
        times.sort_unstable();
        let at = |percent: usize| {
            times.get((times.len().saturating_sub(1)) * percent / 100).copied().unwrap_or_default()
        };
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!("{name}: p50 {:.2} ms, p99 {:.2} ms", ms(at(50)), ms(at(99)));
    }
    Ok(())
}

/// 10,000 messages a second.
fn send(store: &Embedded, stop: &AtomicBool) {
    let (mut batch, mut number, begin) = (OpBatch::default(), 1 << 41, now());
    for round in 1.. {
        fill(&mut batch, number, BATCH);
        number += BATCH;
        // Refused batches are as good for this.
        let _ = store.apply(&batch);
        let due = Duration::from_micros(round * BATCH * 100);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}
