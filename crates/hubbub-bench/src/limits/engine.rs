//! The embedded engine without a server in front of it: batches as large as it wants, made by another thread.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use hubbub_core::clock::SeededRandom;
use hubbub_core::op::{Op, OpBatch, Outcome};
use hubbub_core::store::{BatchCap, Store};
use hubbub_core::{Send, Timestamp};
use hubbub_store::embedded::{Embedded, EngineOptions};
use tempfile::TempDir;

use crate::job::{Job, Shape, below};
use crate::machine::{SystemClock, scratch, seed};

/// Batches made ahead, so that the engine never waits for one.
const AHEAD: usize = 8;
const ROOMS: u16 = 20;

/// Messages per second stored for some time, in a new directory below `dir`.
pub(crate) async fn rate(dir: &Path, time: Duration) -> anyhow::Result<f64> {
    let dir = scratch("hubbub-engine-", dir)?;
    tokio::task::spawn_blocking(move || store(&dir, time)).await?
}

fn store(dir: &TempDir, time: Duration) -> anyhow::Result<f64> {
    let random = SeededRandom::new(seed());
    let store = Embedded::open(dir.path(), EngineOptions::default(), Arc::new(SystemClock::new()), &random)?;
    let (batches, ready) = sync_channel(AHEAD);
    let cap = store.batch_cap();
    let maker = std::thread::spawn(move || make(&batches, cap, &random));
    let (begun, mut stored) = (Instant::now(), 0_usize);
    while begun.elapsed() < time {
        let batch = ready.recv().context("no batches")?;
        let outcomes = store.apply(&batch)?;
        anyhow::ensure!(
            outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored(_))),
            "the engine did not store a new message"
        );
        stored += outcomes.len();
    }
    let rate = stored as f64 / begun.elapsed().as_secs_f64();
    // The maker ends when nobody takes its batches any more.
    drop(ready);
    store.close();
    let _ = maker.join();
    Ok(rate)
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
