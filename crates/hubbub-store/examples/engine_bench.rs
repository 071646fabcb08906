//! How fast the embedded engine takes messages: `engine_bench [DIR] [MESSAGES] [BATCH...]`.
//!
//! Batches of unique messages with 120-byte texts for 20 rooms go through `apply` on one thread, sealing on its own.
//! Prints, per batch size, messages per second, commit times, bytes on disk per message and anonymous memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_core::clock::SeededRandom;
use hubbub_core::store::ApplyError;
use hubbub_core::{Clock, MessageType, Op, OpBatch, Send, Store, Timestamp};
use hubbub_store::embedded::{Embedded, EngineOptions};

struct SystemClock(Instant);

#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(0))
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}

const ROOMS: u64 = 20;

fn fill(batch: &mut OpBatch, first: u64, messages: u64) {
    use std::fmt::Write;
    let mut id = String::new();
    let mut text = String::new();
    batch.clear();
    for number in first..first + messages {
        let (a, b) = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15), number.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        id.clear();
        let _ = write!(
            id,
            "{:08x}-{:04x}-7{:03x}-8{:03x}-{:012x}",
            number >> 16,
            number & 0xFFFF,
            a >> 52,
            b >> 52,
            a ^ b & 0xFFFF_FFFF_FFFF
        );
        id.truncate(36);
        text.clear();
        let _ = write!(
            text,
            "message {number} of user {}: the quick brown fox jumps over the lazy dog, {a:016x}{b:016x}, and so on and on and on",
            a % 100_000
        );
        text.truncate(120);
        let (room, user) = (format!("room-{}", number % ROOMS), format!("user-{}", a % 100_000));
        batch.push(&Op::Send(Send {
            room: &room,
            user: &user,
            id: &id,
            username: Some("username20"),
            text: &text,
            kind: MessageType::Text,
            timestamp: Timestamp::from_micros(1_800_000_000_000_000 + i64::try_from(number).unwrap_or(0)),
        }));
    }
}

/// Processor time this thread has had.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0))
}

/// Anonymous memory of this process, in MiB.
fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or("0");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) / 1024
}

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
