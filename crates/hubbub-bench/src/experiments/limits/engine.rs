//! The embedded engine without a server in front of it: batches as large as it wants, or as it is given, made by another
//! thread.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use hubbub_core::op::{Op, OpBatch, Outcome};
use hubbub_core::store::{ApplyError, BatchCap, Store};
use hubbub_core::{Send, Timestamp};
use hubbub_store::embedded::{Embedded, EngineOptions};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::Alone;
use crate::host::machine::{SystemClock, scratch, seed};
use crate::load::message_plan::{Job, Shape, below};
use crate::results::record::Dist;

/// Batches made ahead, so that the engine never waits for one.
const AHEAD: usize = 8;
const ROOMS: u16 = 20;
/// Between two attempts at a store whose background work is behind.
const PAUSE: Duration = Duration::from_millis(1);

/// Stores messages for some time, at most `batch` at once, in a new directory below `dir`.
pub(crate) async fn store(dir: &Path, time: Duration, batch: Option<NonZeroUsize>) -> anyhow::Result<Alone> {
    let dir = scratch("hubbub-engine-", dir)?;
    let given_up = CancellationToken::new();
    // It ends early where nobody waits for it any more.
    let _waiting = given_up.clone().drop_guard();
    tokio::task::spawn_blocking(move || store_in(&dir, time, batch, &given_up)).await?
}

fn store_in(
    dir: &TempDir,
    time: Duration,
    batch: Option<NonZeroUsize>,
    given_up: &CancellationToken,
) -> anyhow::Result<Alone> {
    let random = SeededRandom::new(seed());
    let store = Embedded::open(dir.path(), EngineOptions::default(), Arc::new(SystemClock::new()), &random)?;
    let (batches, ready) = sync_channel(AHEAD);
    let cap = store.batch_cap();
    let cap = BatchCap { ops: batch.map_or(cap.ops, |batch| cap.ops.min(batch.get())), ..cap };
    let maker = std::thread::spawn(move || make(&batches, cap, &random));
    let (begun, mut stored, mut latency) = (Instant::now(), 0_usize, Dist::default());
    while begun.elapsed() < time && !given_up.is_cancelled() {
        let batch = ready.recv().context("no batches")?;
        let applied = Instant::now();
        let Some(outcomes) = patiently(begun + time, || store.apply(&batch))? else { break };
        latency.add(saturate(applied.elapsed().as_micros()));
        anyhow::ensure!(
            outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored(_))),
            "the engine did not store a new message"
        );
        stored += outcomes.len();
    }
    let per_second = stored as f64 / begun.elapsed().as_secs_f64();
    // The maker ends when nobody takes its batches any more.
    drop(ready);
    store.close();
    let _ = maker.join();
    Ok(Alone { per_second, latency: latency.stats() })
}

/// Tries again while the store's background work is behind, as senders do: the rate is one that it keeps up. `None` = the time
/// was over before it took anything.
fn patiently<T>(
    until: Instant,
    mut apply: impl FnMut() -> Result<T, ApplyError>,
) -> Result<Option<T>, ApplyError> {
    loop {
        match apply() {
            Err(ApplyError::Overloaded) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(ApplyError::Overloaded) => return Ok(None),
            applied => return applied.map(Some),
        }
    }
}

fn make(batches: &SyncSender<OpBatch>, cap: BatchCap, random: &SeededRandom) {
    let shape = Shape::new(seed() & 0xff_ffff_ffff, 100_000, None, "");
    let mut index = 0_u64;
    loop {
        let mut batch = OpBatch::default();
        while batch.len() < cap.ops && batch.bytes() < cap.bytes {
            let room = below(index.wrapping_mul(0x9E37_79B9) & 0xffff_ffff, u64::from(ROOMS)) as u16 + 1;
            push(&shape, &shape.draw(random, index, room), &mut batch);
            index += 1;
        }
        if batches.send(batch).is_err() {
            return;
        }
    }
}

fn push(shape: &Shape, job: &Job, batch: &mut OpBatch) {
    let (room, user, username) =
        (shape.room_name(job.room), job.user.to_string(), format!("user{}", job.user));
    let mut id = Vec::new();
    shape.write_id(job.index, &mut id);
    batch.push(&Op::Send(Send {
        room: &room,
        user: &user,
        id: &String::from_utf8_lossy(&id),
        username: Some(&username),
        text: shape.text(job),
        kind: job.kind,
        timestamp: Timestamp::from_micros(0),
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_behind_is_waited_for() {
        let later = Instant::now() + Duration::from_secs(3_600);
        let mut answers = vec![Ok(7), Err(ApplyError::Overloaded), Err(ApplyError::Overloaded)];
        let mut apply = || answers.pop().unwrap_or(Err(ApplyError::Overloaded));
        assert_eq!(patiently(later, &mut apply).expect("waited"), Some(7));
        // Not for longer than the measurement, and for nothing else.
        assert_eq!(patiently(Instant::now(), &mut apply).expect("gave up"), None);
        let broken = || Err::<(), _>(ApplyError::Unconfirmed { reason: "the disk is gone".to_owned() });
        assert!(patiently(later, broken).is_err());
    }
}
