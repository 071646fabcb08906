//! What the examples that measure the engine share.

#![allow(dead_code, reason = "each example takes what it needs")]

use std::time::{Duration, Instant};

use hubbub_core::{Clock, MessageType, Op, OpBatch, Send, Timestamp};

pub(crate) struct SystemClock(pub(crate) Instant);

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
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) const ROOMS: u64 = 20;

pub(crate) fn fill(batch: &mut OpBatch, first: u64, messages: u64) {
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
pub(crate) fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0))
}

/// Anonymous memory of this process, in MiB.
pub(crate) fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or("0");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) / 1024
}
