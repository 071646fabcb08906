//! Submits what time makes due: leases that have run out, messages that may be taken from now on, keys that are too old.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::queue::{Audience, Due, Settle, TakeHow};
use hubbub_core::store::Store;
use hubbub_core::{KvOp, KvOutcome, Op, OpBatch, Outcome, QueueOp, QueueOutcome};
use tokio::sync::Notify;

use crate::batcher::{Batcher, SubmitError, Waiter};

/// Wakes the sweeper, because something may be due sooner than it thought.
pub(crate) type Nudge = Arc<Notify>;

/// It looks so often even if nobody nudged it: deadlines follow from settings too.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause between two sweeps that left nothing undone.
const SWEEP_EVERY: Duration = Duration::from_millis(10);
/// Pause after a sweep that failed, doubled each time, and its limit.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(10);

/// Whether something of it may become due.
pub(crate) fn brings_a_deadline(op: &Op<'_>) -> bool {
    match op {
        Op::Queue(QueueOp::Send(send)) => {
            send.due != Due::Now || send.ttl_ms.is_some() || send.audience == Audience::All
        }
        Op::Queue(QueueOp::Take(take)) => matches!(take.how, TakeHow::Lease { .. }),
        Op::Queue(QueueOp::Settle { how, .. }) => *how != Settle::Ack,
        Op::Kv(KvOp::Put { ttl_ms, .. }) => ttl_ms.is_some(),
        _ => false,
    }
}

/// Sweeps until the batcher is closed.
pub(crate) async fn sweep(batcher: Arc<Batcher>, store: Arc<dyn Store>, clock: Arc<dyn Clock>, nudge: Nudge) {
    let mut retry = RETRY_FIRST;
    loop {
        let due_in = [store.queue_due_in(), store.kv_due_in()].into_iter().flatten().min();
        match due_in {
            Some(Duration::ZERO) => {}
            later => {
                let pause = later.unwrap_or(LOOK_EVERY).min(LOOK_EVERY);
                // Too early or in time: it looks again.
                let _ = tokio::time::timeout(pause, nudge.notified()).await;
                continue;
            }
        }
        match sweep_once(&batcher, &*store, &*clock).await {
            Swept::Done => {
                retry = RETRY_FIRST;
                tokio::time::sleep(SWEEP_EVERY).await;
            }
            Swept::More => retry = RETRY_FIRST,
            Swept::Failed => {
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(RETRY_LAST);
            }
            Swept::Closed => return,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Swept {
    Done,
    More,
    Failed,
    Closed,
}

async fn sweep_once(batcher: &Batcher, store: &dyn Store, clock: &dyn Clock) -> Swept {
    let mut ops = OpBatch::default();
    if store.queue_due_in() == Some(Duration::ZERO) {
        ops.push(&Op::Queue(QueueOp::Sweep));
    }
    if store.kv_due_in() == Some(Duration::ZERO) {
        ops.push(&Op::Kv(KvOp::Sweep));
    }
    if ops.is_empty() {
        return Swept::Done;
    }
    let waiter = Arc::new(Waiter::default());
    let ticket = match batcher.submit(&ops, &waiter, clock.monotonic()) {
        Ok(ticket) => ticket,
        Err(SubmitError::Overloaded | SubmitError::Unavailable) => return Swept::Failed,
        Err(SubmitError::ShuttingDown) => return Swept::Closed,
    };
    waiter.wait(&ticket).await;
    match ticket.outcomes() {
        Some(Ok(outcomes)) => judge(outcomes),
        // The commit thread has said why in the server's log.
        Some(Err(_)) | None => Swept::Failed,
    }
}

fn judge(outcomes: &[Outcome]) -> Swept {
    let mut judged = Swept::Done;
    for outcome in outcomes {
        match outcome {
            Outcome::Queue(QueueOutcome::Swept { more, .. }) | Outcome::Kv(KvOutcome::Swept { more, .. }) => {
                if *more && judged == Swept::Done {
                    judged = Swept::More;
                }
            }
            _ => judged = Swept::Failed,
        }
    }
    judged
}
