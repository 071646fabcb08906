//! The commit thread and the dispatcher: apply, answer, publish.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::essential;
use hubbub_core::store::{ApplyError, Store};
use hubbub_core::{ErrorCode, Essential, KvOutcome, Outcome, Refusal, RoomId, UserId};
use tokio::sync::mpsc;

use crate::batcher::{Batch, Batcher, Chunk, Outcomes};
use crate::hub::Hub;
use crate::kv::Keys;
use crate::members::Members;
use crate::metrics::Metrics;
use crate::order::FailedSends;
use crate::queue_counts;
use crate::sweeper::{Nudge, brings_a_deadline};
use crate::takers::Takers;

/// A chunk that is through, with the times its histograms need.
pub(crate) struct Committed {
    chunk: Chunk,
    taken_at: Duration,
    done_at: Duration,
}

/// Chunks between the commit thread and the dispatcher. When it is full the commit thread waits: fan-out that
/// cannot keep up slows the senders instead of filling memory.
pub(crate) const COMMITTED_MAX: usize = 8;

/// The commit thread. A store that panicked may have done half of a batch.
pub(crate) const COMMIT: Essential = Essential::writer("commit");

/// How long the dispatcher's death may take to be known.
const DISPATCHER_DEATH_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until the batcher is closed and empty. Blocks; for a thread of its own.
pub(crate) fn commit(
    batcher: &Batcher,
    store: &dyn Store,
    clock: &dyn Clock,
    metrics: &Metrics,
    committed: &mpsc::Sender<Committed>,
) {
    let mut failed = FailedSends::default();
    while let Some(chunk) = batcher.take() {
        COMMIT.step();
        let taken_at = clock.monotonic();
        metrics.in_flight.set(count(chunk.ops.len()));
        let outcomes = failed.apply(store, batcher, &chunk);
        if let Err(error) = &outcomes {
            tracing::warn!(operations = chunk.ops.len(), %error, "batch not committed");
        }
        settle(&chunk.batch, outcomes);
        metrics.in_flight.set(0);
        let done = Committed { chunk, taken_at, done_at: clock.monotonic() };
        if committed.blocking_send(done).is_err() {
            // The dispatcher has died: nobody could be answered any more, and its death ends the process.
            essential::wait_for_shutdown(DISPATCHER_DEATH_TIMEOUT);
            return;
        }
        batcher.set_cap(store.batch_cap());
    }
}

/// Sets what became of a batch. Senders who look see it at once, unless something remembered must be corrected first.
fn settle(batch: &Batch, outcomes: Outcomes) {
    let is_held = outcomes.as_ref().is_ok_and(|outcomes| outcomes.iter().any(corrects_memory));
    batch.set(outcomes);
    if !is_held {
        batch.show();
    }
}

/// Who is told what was committed.
pub(crate) struct Followers {
    pub(crate) hub: Arc<Hub>,
    pub(crate) members: Arc<Members>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) takers: Arc<Takers>,
    pub(crate) sweeper: Nudge,
}

/// Wakes the senders of each chunk and publishes it, until the commit thread ends.
///
/// What keys are is corrected in memory before anybody is told. A chunk that changes rooms or members is published before its senders are woken: whoever knows that somebody was
/// removed may rely on it that the removed one gets nothing more.
pub(crate) async fn dispatch(
    mut committed: mpsc::Receiver<Committed>,
    batcher: Arc<Batcher>,
    followers: Followers,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
) {
    let Followers { hub, members, keys, takers, sweeper } = &followers;
    let access = |room: RoomId, user: UserId| members.access(room, user);
    while let Some(Committed { mut chunk, taken_at, done_at }) = committed.recv().await {
        // Counted before anybody is told, so that whoever was told finds it counted.
        metrics.batch_size.record(chunk.ops.len() as u64, 1);
        metrics.store_time.record(micros(done_at, taken_at), 1);
        metrics.waiting.set(count(batcher.waiting()));
        let outcomes = chunk.batch.outcomes();
        if let Some(outcomes) = outcomes {
            count_outcomes(outcomes, chunk.ops.len(), &metrics);
            if let Ok(outcomes) = outcomes {
                queue_counts::count(&chunk.ops, outcomes, &metrics);
            }
        }
        let published = outcomes.and_then(|outcomes| outcomes.as_ref().ok());
        let is_change = published.is_some_and(|outcomes| outcomes.iter().any(changes_membership));
        match outcomes {
            Some(Ok(outcomes)) if outcomes.iter().any(is_of_queues_or_keys) => {
                keys.correct(&chunk.ops, outcomes).await;
                takers.notice(&chunk.ops, outcomes);
                if chunk.ops.iter().any(|op| brings_a_deadline(&op)) {
                    sweeper.notify_one();
                }
            }
            Some(Err(_)) => keys.forget(&chunk.ops),
            _ => {}
        }
        if let Some(outcomes) = published.filter(|_| is_change) {
            members.correct(&chunk.ops, outcomes);
            hub.publish(&chunk.ops, outcomes, &access).await;
        }
        chunk.batch.show();
        let told_at = clock.monotonic();
        for group in &chunk.groups {
            metrics.wait_time.record(micros(taken_at, group.submitted_at), group.count as u64);
            metrics.total_time.record(micros(told_at, group.submitted_at), group.count as u64);
        }
        for waiter in chunk.wakes.drain(..) {
            waiter.wake();
        }
        if let Some(outcomes) = published.filter(|_| !is_change) {
            hub.publish(&chunk.ops, outcomes, &access).await;
        }
        if published.is_some() {
            metrics.fan_out_time.record(micros(clock.monotonic(), done_at), 1);
        }
        batcher.recycle(chunk);
    }
}

fn changes_membership(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Room { .. } | Outcome::Changed { .. } | Outcome::Erased { .. })
}

/// Whether something remembered is wrong from then on, so that nobody may know of it before that is corrected.
fn corrects_memory(outcome: &Outcome) -> bool {
    changes_membership(outcome) || matches!(outcome, Outcome::Kv(_))
}

fn is_of_queues_or_keys(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Queue(_) | Outcome::Kv(_))
}

fn count_outcomes(outcomes: &Outcomes, operations: usize, metrics: &Metrics) {
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(ApplyError::Unconfirmed { .. }) => {
            metrics.unconfirmed.inc_by(operations as u64);
            return;
        }
        Err(error) => return metrics.reject(apply_error_code(error), operations as u64),
    };
    let (mut stored, mut duplicate, mut changes, mut keys) = (0, 0, 0, 0);
    for outcome in outcomes {
        match outcome {
            Outcome::Stored(_) => stored += 1,
            Outcome::Duplicate(_) => duplicate += 1,
            Outcome::Refused(refusal) => metrics.reject(refusal_code(*refusal), 1),
            Outcome::Room { .. } | Outcome::Changed { .. } | Outcome::Read(_) | Outcome::Erased { .. } => {
                changes += 1;
            }
            Outcome::Kv(KvOutcome::Put { .. } | KvOutcome::Deleted { revision: Some(_) }) => keys += 1,
            Outcome::Accepted | Outcome::Queue(_) | Outcome::Kv(_) => {}
        }
    }
    metrics.changes.inc_by(changes);
    metrics.kv_changes.inc_by(keys);
    metrics.accepted.inc_by(stored + duplicate);
    metrics.stored.inc_by(stored);
    metrics.duplicate.inc_by(duplicate);
}

/// The code a client sees for a batch that failed.
pub fn apply_error_code(error: &ApplyError) -> ErrorCode {
    match error {
        ApplyError::Unavailable { .. } => ErrorCode::Unavailable,
        ApplyError::DiskFull { .. } => ErrorCode::DiskFull,
        ApplyError::Overloaded => ErrorCode::Overloaded,
        ApplyError::Unconfirmed { .. } => ErrorCode::Unconfirmed,
    }
}

/// The code a client sees for an operation that was refused.
pub fn refusal_code(refusal: Refusal) -> ErrorCode {
    match refusal {
        Refusal::IdReused { .. } => ErrorCode::IdReused,
        Refusal::UnknownRoom => ErrorCode::UnknownRoom,
        Refusal::NotMember => ErrorCode::NotMember,
        Refusal::UnknownQueue => ErrorCode::UnknownQueue,
        Refusal::QueueNotEmpty { .. } => ErrorCode::QueueNotEmpty,
        Refusal::QueueFull => ErrorCode::QueueFull,
        Refusal::UnknownClient => ErrorCode::UnknownClient,
        Refusal::UnknownReceiver => ErrorCode::UnknownReceiver,
        Refusal::TooManyClients => ErrorCode::TooManyClients,
        Refusal::TooManyBroadcasts => ErrorCode::Overloaded,
        Refusal::MessageIdReused { .. } => ErrorCode::IdReused,
        Refusal::StaleReceipt => ErrorCode::StaleReceipt,
        Refusal::UnknownMessage => ErrorCode::UnknownMessage,
        Refusal::Condition { .. } => ErrorCode::ConditionFailed,
        Refusal::Unreadable => ErrorCode::Unreadable,
        Refusal::Internal => ErrorCode::Internal,
        Refusal::OutOfOrder => ErrorCode::Overloaded,
    }
}

fn micros(later: Duration, earlier: Duration) -> u64 {
    u64::try_from(later.saturating_sub(earlier).as_micros()).unwrap_or(u64::MAX)
}

fn count(operations: usize) -> i64 {
    i64::try_from(operations).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use hubbub_core::store::BatchCap;
    use hubbub_core::{KvOp, Op, OpBatch, Receipt, Timestamp};

    use super::*;
    use crate::batcher::{BatchTuning, QueueLimits, Waiter};

    #[test]
    fn nobody_sees_an_outcome_before_what_is_remembered_is_corrected() {
        let receipt = Receipt { seq: 1, received_at: Timestamp::from_micros(1) };
        let put = KvOutcome::Put { revision: 1, expires_at: None, created: true };
        for (outcomes, is_shown) in [
            (Ok(vec![Outcome::Stored(receipt)]), true),
            (Ok(vec![Outcome::Kv(put)]), false),
            (Ok(vec![Outcome::Stored(receipt), Outcome::Changed { changed: true }]), false),
            (Err(ApplyError::Overloaded), true),
        ] {
            let (limits, cap) = (QueueLimits::default(), BatchCap { ops: 9, bytes: 99 });
            let batcher = Batcher::new(limits, BatchTuning::default(), cap);
            let mut ops = OpBatch::default();
            ops.push(&Op::Kv(KvOp::Sweep));
            let ticket = batcher.submit(&ops, &Arc::new(Waiter::default()), Duration::ZERO).unwrap();
            let chunk = batcher.take().unwrap();
            settle(&chunk.batch, outcomes.clone());
            assert_eq!(ticket.outcomes().is_some(), is_shown, "{outcomes:?}");
            chunk.batch.show();
            assert!(ticket.outcomes().is_some());
        }
    }
}
