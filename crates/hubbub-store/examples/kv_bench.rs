//! How fast the embedded engine takes and gives keys: `kv_bench [DIR] [KEYS] [BATCH]`.
//!
//! Keys of 12 bytes get values of 100, in no order, in batches; then a tenth is overwritten, then keys are read: any of
//! them, a thousand of them again and again, and ones that are not there. Seals and merges go on on their own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::SeededRandom;
use hubbub_core::kv::Condition;
use hubbub_core::store::ApplyError;
use hubbub_core::{KvOp, KvStore, Op, OpBatch, RandomSource, Store};
use hubbub_store::embedded::{Embedded, EngineOptions};

mod workload;

use workload::{SystemClock, cpu, memory_mib, now};

type Failed = Box<dyn std::error::Error>;

const VALUE_BYTES: usize = 100;

fn key(number: u64) -> String {
    format!("key-{number:08}")
}

/// The numbers below `end`, each once, in no order; `end` is no multiple of the step.
fn scattered(end: u64) -> impl Iterator<Item = u64> {
    (0..end).map(move |place| place.wrapping_mul(2_654_435_761) % end)
}

/// Numbers below `end` as they come.
fn any(seed: u64, end: u64) -> impl Iterator<Item = u64> {
    let random = SeededRandom::new(seed);
    std::iter::repeat_with(move || random.next_u64() % end).take(100_000)
}

#[allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a benchmark prints figures")]
fn put(store: &Embedded, what: &str, numbers: impl Iterator<Item = u64>, size: usize) -> Result<(), Failed> {
    let (random, mut numbers) = (SeededRandom::new(7), numbers.peekable());
    let (mut done, mut spent, mut busy, mut slowest) =
        (0_u64, Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let begin = now();
    while numbers.peek().is_some() {
        let mut batch = OpBatch::default();
        for number in numbers.by_ref().take(size) {
            let noise = || random.next_u64().to_le_bytes();
            let mut value: Vec<u8> =
                std::iter::repeat_with(noise).take(VALUE_BYTES / 8 + 1).flatten().collect();
            value.truncate(VALUE_BYTES);
            let key = key(number);
            let op =
                KvOp::Put { key: key.as_bytes(), value: &value, ttl_ms: None, condition: Condition::Always };
            batch.push(&Op::Kv(op));
        }
        let (start, start_cpu) = (now(), cpu());
        loop {
            match store.apply(&batch) {
                Ok(outcomes) => break done += outcomes.len() as u64,
                Err(ApplyError::Overloaded) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error.into()),
            }
        }
        spent += start.elapsed();
        slowest = slowest.max(start.elapsed());
        busy += cpu().saturating_sub(start_cpu);
    }
    println!(
        "{what}: {:.0}/s in apply ({:.0}/s wall), {:.2} µs CPU/put, slowest batch {:.1} ms, memory {} MiB",
        done as f64 / spent.as_secs_f64(),
        done as f64 / begin.elapsed().as_secs_f64(),
        busy.as_secs_f64() * 1e6 / done as f64,
        slowest.as_secs_f64() * 1e3,
        memory_mib(),
    );
    Ok(())
}

#[allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a benchmark prints figures")]
async fn get(store: &Embedded, what: &str, numbers: impl Iterator<Item = u64>) -> Result<(), Failed> {
    let mut times = Vec::new();
    let mut found = 0_u64;
    let start_cpu = cpu();
    for number in numbers {
        let key = key(number);
        let start = now();
        let entry = store.value(key.as_bytes()).await?;
        times.push(start.elapsed());
        found += u64::from(entry.is_some());
    }
    let busy = cpu().saturating_sub(start_cpu);
    times.sort_unstable();
    let at =
        |part: usize| times.get(times.len().saturating_sub(1) * part / 1_000).copied().unwrap_or_default();
    println!(
        "{what}: p50 {:.1} µs, p99 {:.1} µs, p99.9 {:.1} µs, max {:.2} ms, {:.1} µs CPU on this thread, {found} of {} found",
        at(500).as_secs_f64() * 1e6,
        at(990).as_secs_f64() * 1e6,
        at(999).as_secs_f64() * 1e6,
        at(1_000).as_secs_f64() * 1e3,
        busy.as_secs_f64() * 1e6 / times.len() as f64,
        times.len(),
    );
    Ok(())
}

#[allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a benchmark prints figures")]
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<(), Failed> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "kv-bench-data".into()));
    let keys: u64 = args.next().map_or(Ok(200_000), |text| text.parse())?;
    let size: usize = args.next().map_or(Ok(64), |text| text.parse())?;
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    let clock = Arc::new(SystemClock(now()));
    let open = |seed| Embedded::open(&dir, EngineOptions::default(), clock.clone(), &SeededRandom::new(seed));
    let store = open(1)?;
    put(&store, "new", scattered(keys), size)?;
    let start = now();
    while store.figures().unsealed_slots > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("sealed {:.2} s later", start.elapsed().as_secs_f64());
    put(&store, "overwritten", scattered(keys).take(usize::try_from(keys / 10)?), size)?;
    get(&store, "any", any(3, keys)).await?;
    get(&store, "one of 1,000", any(4, 1_000)).await?;
    get(&store, "not there", (keys..keys + 100_000).map(|number| number + 1)).await?;
    let (start, mut listed, mut after) = (now(), 0_u64, None::<Vec<u8>>);
    while listed < keys.min(100_000) {
        let page = store.keys(b"key-", after.as_deref(), 1_000).await?;
        after = page.last().map(|info| info.key.to_vec());
        listed += page.len() as u64;
    }
    println!("listing: {:.0} keys/s in pages of 1,000", listed as f64 / start.elapsed().as_secs_f64());
    let figures = store.figures();
    println!(
        "{} keys, {:.1} bytes/key on disk with slots",
        figures.keys,
        figures.disk_bytes as f64 / keys as f64
    );
    store.close();
    drop(store);
    let start = now();
    let store = open(2)?;
    println!("start: {:.2} s, memory {} MiB", start.elapsed().as_secs_f64(), memory_mib());
    get(&store, "any after the start", any(5, keys)).await?;
    store.close();
    Ok(())
}
