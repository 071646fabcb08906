//! How fast the embedded engine takes messages: `engine_bench [DIR] [MESSAGES] [BATCH...]`.
//!
//! Batches of unique messages with 120-byte texts for 20 rooms go through `apply` on one thread, sealing on its own.
//! Prints, per batch size, messages per second, commit times, bytes on disk per message and anonymous memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::SeededRandom;
use hubbub_core::store::ApplyError;
use hubbub_core::{OpBatch, Store};
use hubbub_store::embedded::{Embedded, EngineOptions};

mod workload;

use workload::{SystemClock, cpu, fill, memory_mib, now};

#[allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a benchmark prints figures")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "engine-bench-data".into()));
    let messages: u64 = args.next().map_or(Ok(5_000_000), |text| text.parse())?;
    let mut sizes = args.map(|text| text.parse()).collect::<Result<Vec<u64>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![1, 100, 1_000];
    }
    for size in sizes {
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        let clock = Arc::new(SystemClock(now()));
        let store = Embedded::open(&dir, EngineOptions::default(), clock.clone(), &SeededRandom::new(1))?;
        let messages = if size == 1 { messages / 50 } else { messages };
        // Prepared, so that making messages is not measured; the same ids never come twice.
        let mut batch = OpBatch::default();
        let (mut done, mut refused, mut spent, mut busy) = (0, 0_u64, Duration::ZERO, Duration::ZERO);
        let mut commits = Vec::new();
        let begin = now();
        while done < messages {
            fill(&mut batch, done, size);
            let (start, start_cpu) = (now(), cpu());
            match store.apply(&batch) {
                Ok(_) => {
                    commits.push(start.elapsed());
                    done += size;
                }
                Err(ApplyError::Overloaded) => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error.into()),
            }
            spent += start.elapsed();
            busy += cpu().saturating_sub(start_cpu);
        }
        let wall = begin.elapsed();
        let memory = memory_mib();
        commits.sort_unstable();
        let at = |part: f64| {
            commits.get(((commits.len() - 1) as f64 * part) as usize).copied().unwrap_or_default()
        };
        while store.figures().unsealed_slots > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let settled = begin.elapsed();
        let figures = store.figures();
        println!(
            "batch {size}: {:.0}/s in apply ({:.0}/s wall, {:.0}/s until sealed), {:.2} µs CPU/message, commit p50 {:.0} µs p99 {:.0} µs max {:.1} ms, \
             overloaded {refused}, {} segments, {:.1} bytes/message with slots, memory {memory} MiB",
            done as f64 / spent.as_secs_f64(),
            done as f64 / wall.as_secs_f64(),
            done as f64 / settled.as_secs_f64(),
            busy.as_secs_f64() * 1e6 / done as f64,
            at(0.5).as_secs_f64() * 1e6,
            at(0.99).as_secs_f64() * 1e6,
            at(1.0).as_secs_f64() * 1e3,
            figures.segments,
            figures.disk_bytes as f64 / done as f64,
        );
        store.close();
        drop(store);
        let start = now();
        let store = Embedded::open(&dir, EngineOptions::default(), clock, &SeededRandom::new(2))?;
        println!(
            "  start: {:.2} s with {} messages",
            start.elapsed().as_secs_f64(),
            store.figures().messages
        );
        store.close();
    }
    Ok(())
}
