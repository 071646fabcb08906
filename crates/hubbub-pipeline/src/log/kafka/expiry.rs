//! Writes down what has outlived its retention, for a store that removes nothing past its log: a change for each such room of
//! the partitions that this node commits. Two nodes that both do so for a while do no harm.

use std::time::Duration;

use hubbub_core::log_position::ExpiredRoom;
use hubbub_core::{Change, Op, OpBatch, Outcome, RoomChange};
use tokio::sync::watch;

use super::changes;
use super::consumer::Context;
use crate::log::backoff::Backoff;

/// Shortest pause between two looks at the store.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The pause is this many times as long as the look took, which may read all rooms.
const PAUSE_PARTS: u32 = 50;

/// Looks for expired messages until the server stops.
pub(super) async fn watch(context: Context, stop: watch::Receiver<bool>) {
    let mut backoff = Backoff::new(context.core.random.clone());
    loop {
        let began = context.core.clock.monotonic();
        match expire(&context).await {
            Ok(true) => backoff.reset(),
            Ok(false) => {
                backoff.reset();
                let took = context.core.clock.monotonic().saturating_sub(began);
                let pause = PAUSE_MIN.max(took.saturating_mul(PAUSE_PARTS));
                let mut stopping = stop.clone();
                let stopped = stopping.wait_for(|is_stopping| *is_stopping);
                if tokio::time::timeout(pause, stopped).await.is_ok() {
                    return;
                }
            }
            Err(reason) => {
                tracing::debug!(reason, "removing expired messages failed; retrying");
                if backoff.pause_unless(&stop).await.is_none() {
                    return;
                }
            }
        }
    }
}

/// Has some of what has expired removed. Whether there may be more. What the log finds too young is looked at again after a
/// longer pause: then this machine's clock is ahead of the log's.
async fn expire(context: &Context) -> Result<bool, String> {
    let core = &context.core;
    let partitions = context.stored().into_iter().map(|(partition, _)| partition);
    // Nothing is written where it would not be stored.
    let partitions: Vec<u32> =
        partitions.filter(|partition| core.faults.stop_of(*partition).is_none()).collect();
    if partitions.is_empty() {
        return Ok(false);
    }
    let expired = core.log_store()?.expired(&partitions).await.map_err(|error| error.to_string())?;
    if expired.is_empty() {
        return Ok(false);
    }
    let mut ops = OpBatch::default();
    for ExpiredRoom { room, before, retention_s, is_own } in &expired {
        let (room, before, retention_s, is_own) = (room.as_str(), *before, *retention_s, *is_own);
        let what = RoomChange::ExpireMessages { room, before, retention_s, is_own };
        ops.push(&Op::Change(Change { by: None, what }));
    }
    let outcomes = changes::execute(core, &ops).await.map_err(|error| error.to_string())?;
    if outcomes.contains(&Outcome::Changed { changed: true }) {
        return Ok(true);
    }
    Err("nothing of it had expired by the log's clock, or others have removed it".to_owned())
}
