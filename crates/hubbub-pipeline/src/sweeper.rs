//! Submits sweeps when deadlines pass: expired leases, delayed messages that become available, expired keys.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::backoff::Backoff;
use hubbub_core::clock::Clock;
use hubbub_core::queue::{Audience, Due, Settle, TakeMode};
use hubbub_core::store::Store;
use hubbub_core::{KvOp, KvOutcome, Op, OpBatch, Outcome, QueueOp, QueueOutcome};
use tokio::sync::Notify;

use crate::batcher::{Batcher, SubmitError, Waiter};

/// Wakes the sweeper early: a committed operation may have an earlier deadline.
pub(crate) type WakeupSignal = Arc<Notify>;

/// Longest pause without a signal: settings move deadlines, too.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a sweep that finished all due work.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);
/// Pause after a failed sweep, doubled up to `RETRY_MAX`.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Whether the operation may set a deadline.
pub(crate) fn has_deadline(op: &Op<'_>) -> bool {
    match op {
        Op::Queue(QueueOp::Send(send)) => {
            send.due != Due::Now || send.ttl_ms.is_some() || send.audience == Audience::All
        }
        Op::Queue(QueueOp::Take(take)) => matches!(take.how, TakeMode::Lease { .. }),
        Op::Queue(QueueOp::Settle { how, .. }) => *how != Settle::Ack,
        Op::Kv(KvOp::Put { ttl_ms, .. }) => ttl_ms.is_some(),
        _ => false,
    }
}

pub(crate) async fn sweep(
    batcher: Arc<Batcher>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    signal: WakeupSignal,
) {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    loop {
        let due_in = [store.queue_due_in(), store.kv_due_in()].into_iter().flatten().min();
        match due_in {
            Some(Duration::ZERO) => {}
            later => {
                let pause = later.unwrap_or(CHECK_INTERVAL).min(CHECK_INTERVAL);
                // Whichever comes first, the deadlines are checked again.
                let _ = tokio::time::timeout(pause, signal.notified()).await;
                continue;
            }
        }
        match sweep_once(&batcher, &*store, &*clock).await {
            Ok(has_more) => {
                backoff.reset();
                if !has_more {
                    tokio::time::sleep(SWEEP_PAUSE).await;
                }
            }
            Err(SubmitError::ShuttingDown) => return,
            Err(SubmitError::Overloaded | SubmitError::Unavailable) => {
                tokio::time::sleep(backoff.exact_pause()).await;
            }
        }
    }
}

/// Returns whether more work is due.
async fn sweep_once(batcher: &Batcher, store: &dyn Store, clock: &dyn Clock) -> Result<bool, SubmitError> {
    let mut ops = OpBatch::default();
    if store.queue_due_in() == Some(Duration::ZERO) {
        ops.push(&Op::Queue(QueueOp::Sweep));
    }
    if store.kv_due_in() == Some(Duration::ZERO) {
        ops.push(&Op::Kv(KvOp::Sweep));
    }
    if ops.is_empty() {
        return Ok(false);
    }
    let waiter = Arc::new(Waiter::default());
    let ticket = batcher.submit(&ops, &waiter, clock.monotonic())?;
    waiter.wait(&ticket).await;
    // The commit thread has logged why it failed.
    let Some(Ok(outcomes)) = ticket.outcomes() else { return Err(SubmitError::Unavailable) };
    outcomes.iter().try_fold(false, |has_more, outcome| match outcome {
        Outcome::Queue(QueueOutcome::Swept { more, .. }) | Outcome::Kv(KvOutcome::Swept { more, .. }) => {
            Ok(has_more | more)
        }
        _ => Err(SubmitError::Unavailable),
    })
}
