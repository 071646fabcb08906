//! Messages as a server stores them, over 30 days.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use hubbub_core::clock::{ManualClock, RandomSource, SeededRandom};
use hubbub_core::stats::StatsStore;
use hubbub_core::{Change, MessageType, Op, OpBatch, RoomChange, Send, Store, Timestamp};
use hubbub_postgres::Postgres;

use crate::{Failure, SPAN_MICROS, START_MICROS, Workload};

const BATCH: u64 = 500;
/// Rooms that each of the first users is a member of.
const MEMBERSHIPS: u64 = 10;
const MEMBERS: u64 = 1_000;

/// Sends what is missing.
pub(crate) async fn fill(
    store: &Arc<Postgres>,
    clock: &Arc<ManualClock>,
    workload: &Workload,
) -> Result<(), Failure> {
    let there = store.totals().await?.value.messages.total();
    clock.advance_micros(at(there, workload) - START_MICROS);
    let begin = Instant::now();
    let mut sent = there;
    while sent < workload.messages {
        let count = BATCH.min(workload.messages - sent);
        let batch = messages(sent, count, workload);
        apply(store, batch).await?;
        sent += count;
        clock.advance_micros(at(sent, workload) - at(sent - count, workload));
        if sent.is_multiple_of(100_000) {
            println!("{sent} messages after {:.0} s", begin.elapsed().as_secs_f64());
        }
    }
    if there == 0 {
        apply(store, memberships(workload)).await?;
    }
    Ok(())
}

async fn apply(store: &Arc<Postgres>, batch: OpBatch) -> Result<(), Failure> {
    let store = store.clone();
    tokio::task::spawn_blocking(move || store.apply(&batch)).await??;
    Ok(())
}

fn at(message: u64, workload: &Workload) -> i64 {
    let share = i128::from(message) * i128::from(SPAN_MICROS) / i128::from(workload.messages.max(1));
    START_MICROS + i64::try_from(share).unwrap_or(0)
}

fn messages(first: u64, count: u64, workload: &Workload) -> OpBatch {
    let random = SeededRandom::new(first);
    let mut batch = OpBatch::default();
    let (mut id, mut text) = (String::new(), String::new());
    for n in first..first + count {
        let (a, b) = (random.next_u64(), random.next_u64());
        id.clear();
        text.clear();
        let (low, high) = (a & 0xFFFF_FFFF_FFFF, a >> 48);
        let _ = write!(id, "{:08x}-{high:04x}-4000-8000-{low:012x}", b & 0xFFFF_FFFF);
        let _ = write!(text, "{n:020}");
        while text.len() < 120 {
            let _ = write!(text, "{:020x}", random.next_u64());
        }
        text.truncate(120);
        let room = format!("room-{}", a % workload.rooms);
        let user = format!("user-{}", b % workload.users);
        batch.push(&Op::Send(Send {
            room: &room,
            user: &user,
            id: &id,
            username: None,
            text: &text,
            kind: MessageType::Text,
            timestamp: Timestamp::from_micros(at(n, workload)),
        }));
    }
    batch
}

fn memberships(workload: &Workload) -> OpBatch {
    let mut batch = OpBatch::default();
    for n in 0..MEMBERS.min(workload.users) * MEMBERSHIPS {
        let (user, room) = (n / MEMBERSHIPS, (n / MEMBERSHIPS + n % MEMBERSHIPS) % workload.rooms);
        let (user, room) = (format!("user-{user}"), format!("room-{room}"));
        let what = RoomChange::AddMember { room: &room, user: &user };
        batch.push(&Op::Change(Change { by: None, what }));
    }
    batch
}
