//! How fast queues are and how much memory they take: `queue_bench [DIR] [WAITING] [TAKEN]`.
//!
//! Fills a queue with messages of 200 bytes between 1,000 clients and tells the memory for each. Then takes by receiver,
//! one after another in batches of 100, in a fresh queue and in the full one after millions were taken from it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::SeededRandom;
use hubbub_core::queue::{Audience, Due, QueueOutcome, QueueSend, QueueSettings, Take, TakeHow, Wanted};
use hubbub_core::store::ApplyError;
use hubbub_core::{Op, OpBatch, Outcome, QueueOp, Store};
use hubbub_store::embedded::{Embedded, EngineOptions};

mod workload;

use workload::{SystemClock, cpu, memory_mib, now};

const CLIENTS: u64 = 1_000;
const BATCH: u64 = 100;

type Failed = Box<dyn std::error::Error>;

/// Applies a batch, again and again while the store is behind.
fn apply(store: &Embedded, batch: &OpBatch) -> Result<Vec<Outcome>, Failed> {
    loop {
        match store.apply(batch) {
            Ok(outcomes) => return Ok(outcomes),
            Err(ApplyError::Overloaded) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.into()),
        }
    }
}

fn send(store: &Embedded, queue: &str, numbers: std::ops::Range<u64>) -> Result<(), Failed> {
    let text = "x".repeat(200);
    let mut batch = OpBatch::default();
    for first in numbers.clone().step_by(1_000) {
        batch.clear();
        for number in first..(first + 1_000).min(numbers.end) {
            let (sender, receiver) = (format!("{}", number * 7 % CLIENTS), format!("{}", number % CLIENTS));
            let audience = if number % 10 == 0 { Audience::Anyone } else { Audience::One(&receiver) };
            batch.push(&Op::Queue(QueueOp::Send(QueueSend {
                queue,
                sender: &sender,
                audience,
                text: &text,
                message_id: None,
                due: Due::Now,
                group: None,
                ttl_ms: None,
                registers: true,
            })));
        }
        apply(store, &batch)?;
    }
    Ok(())
}

/// Takes so many messages, one at a time, and says how many a second that were, and the processor time of each in µs. With `refill`, as many are sent at once.
fn take(store: &Embedded, queue: &str, count: u64, refill: bool) -> Result<(f64, f64), Failed> {
    let (mut batch, mut spent, mut busy, mut got) =
        (OpBatch::default(), Duration::ZERO, Duration::ZERO, 0_u64);
    for first in (0..count).step_by(usize::try_from(BATCH)?) {
        batch.clear();
        for number in first..first + BATCH {
            let receiver = format!("{}", number * 13 % CLIENTS);
            let wanted =
                Wanted { queue: Some(queue), receiver: Some(&receiver), sender: None, newest_first: false };
            let take = Take { wanted, max: 1, how: TakeHow::Away, registers: true };
            batch.push(&Op::Queue(QueueOp::Take(take)));
        }
        let (start, start_cpu) = (now(), cpu());
        let outcomes = apply(store, &batch)?;
        spent += start.elapsed();
        busy += cpu().saturating_sub(start_cpu);
        for outcome in outcomes {
            if let Outcome::Queue(QueueOutcome::Taken(taken)) = outcome {
                got += taken.len() as u64;
            }
        }
        if refill && first % 10_000 == 0 {
            send(store, queue, first..first + 10_000)?;
        }
    }
    #[allow(clippy::cast_precision_loss)]
    Ok((got as f64 / spent.as_secs_f64(), busy.as_secs_f64() * 1e6 / got as f64))
}

#[allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a benchmark prints figures")]
fn main() -> Result<(), Failed> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "queue-bench-data".into()));
    let waiting: u64 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let taken: u64 = args.next().map_or(Ok(5_000_000), |text| text.parse())?;
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    let store =
        Embedded::open(&dir, EngineOptions::default(), Arc::new(SystemClock(now())), &SeededRandom::new(1))?;
    let mut batch = OpBatch::default();
    let settings = QueueSettings::default();
    for queue in ["fresh", "full"] {
        batch.push(&Op::Queue(QueueOp::Put { queue, settings: &settings }));
    }
    let names: Vec<String> = (0..CLIENTS).map(|number| number.to_string()).collect();
    names.iter().for_each(|client| batch.push(&Op::Queue(QueueOp::Register { client })));
    apply(&store, &batch)?;
    let idle = |store: &Embedded| {
        while store.figures().unsealed_slots > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    };

    // Once through, so that slots are there and memory is warm.
    for _ in 0..2 {
        send(&store, "fresh", 0..60_000)?;
        idle(&store);
        take(&store, "fresh", 120_000, false)?;
    }
    send(&store, "fresh", 0..60_000)?;
    idle(&store);
    let fresh = take(&store, "fresh", 30_000, false)?;
    take(&store, "fresh", 120_000, false)?;
    let before = memory_mib();
    let start = now();
    send(&store, "full", 0..waiting)?;
    let sent = waiting as f64 / start.elapsed().as_secs_f64();
    idle(&store);
    let after = memory_mib();
    let bytes = (after.saturating_sub(before) << 20) as f64 / waiting as f64;
    println!(
        "sent {sent:.0}/s; {waiting} waiting: {before} MiB before, {after} MiB after, {bytes:.0} bytes each"
    );
    let live = take(&store, "full", 30_000, false)?;
    send(&store, "full", 0..30_000)?;
    let start = now();
    take(&store, "full", taken, true)?;
    let passed = start.elapsed().as_secs_f64();
    println!("{taken} sent and taken in {passed:.0} s, {} waiting", store.figures().queue_messages);
    idle(&store);
    let full = take(&store, "full", 30_000, false)?;
    println!(
        "takes/s in batches of {BATCH} (processor µs each): fresh {:.0} ({:.2}), with {waiting} live {:.0} ({:.2}), \
         and {taken} taken {:.0} ({:.2})",
        fresh.0, fresh.1, live.0, live.1, full.0, full.1,
    );
    let start = now();
    store.close();
    drop(store);
    let store =
        Embedded::open(&dir, EngineOptions::default(), Arc::new(SystemClock(now())), &SeededRandom::new(1))?;
    println!(
        "opened again in {:.2} s with {} waiting",
        start.elapsed().as_secs_f64(),
        store.figures().queue_messages
    );
    store.close();
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
