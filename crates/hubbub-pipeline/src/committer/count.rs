//! Counts what became of the operations of a batch.

use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::{Settle, TakeMode};
use hubbub_core::store::ApplyError;
use hubbub_core::{KvOutcome, Op, Outcome, QueueOp, QueueOutcome};

use super::{apply_error_code, refusal_code};
use crate::batcher::{Chunk, Outcomes};
use crate::metrics::Metrics;

/// Failures of what comes from a log are not counted: their senders were answered before, and they are repeated.
pub(super) fn count_outcomes(chunk: &Chunk, outcomes: &Outcomes, metrics: &Metrics) {
    for (error, operations) in chunk.reported_failures(outcomes) {
        count_failures(error, operations as u64, metrics);
    }
    let Ok(outcomes) = outcomes else { return };
    let (mut stored, mut duplicate, mut changes, mut keys) = (0, 0, 0, 0);
    for (index, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Outcome::Stored(_) => stored += 1,
            Outcome::Duplicate(_) => duplicate += 1,
            Outcome::Refused(refusal) => metrics.reject(refusal_code(*refusal), 1),
            Outcome::Room { .. } | Outcome::Changed { .. } | Outcome::Read(_) | Outcome::Erased { .. } => {
                changes += 1;
            }
            Outcome::Kv(KvOutcome::Put { .. } | KvOutcome::Deleted { revision: Some(_) }) => keys += 1,
            Outcome::Queue(outcome) => count_queue(chunk.ops.get(index), outcome, metrics),
            Outcome::Accepted | Outcome::Kv(_) | Outcome::Failed(_) => {}
        }
    }
    metrics.changes.inc_by(changes);
    metrics.kv_changes.inc_by(keys);
    metrics.accepted.inc_by(stored + duplicate);
    metrics.stored.inc_by(stored);
    metrics.duplicate.inc_by(duplicate);
}

/// Counts operations whose senders are told that they failed, before they are told.
pub(crate) fn count_failures(error: &ApplyError, operations: u64, metrics: &Metrics) {
    match error {
        ApplyError::Unconfirmed { .. } => drop(metrics.unconfirmed.inc_by(operations)),
        error => metrics.reject(apply_error_code(error), operations),
    }
}

fn count_queue(op: Option<Op<'_>>, outcome: &QueueOutcome, metrics: &Metrics) {
    let (counter, count) = match (outcome, op) {
        (QueueOutcome::Sent { copies, duplicate: false, .. }, _) => (&metrics.queue_sent, (*copies).into()),
        (QueueOutcome::Taken { messages, .. }, Some(Op::Queue(QueueOp::Take(take)))) => match take.how {
            TakeMode::Away => (&metrics.queue_taken, messages.len() as u64),
            TakeMode::Lease { .. } => (&metrics.queue_leased, messages.len() as u64),
        },
        (QueueOutcome::Settled { .. }, Some(Op::Queue(QueueOp::Settle { how, .. }))) => match how {
            Settle::Ack => (&metrics.queue_acked, 1),
            Settle::Nack { .. } => (&metrics.queue_nacked, 1),
            Settle::Extend { .. } => return,
        },
        _ => return,
    };
    counter.inc_by(count);
}

pub(super) fn record_times(chunk: &Chunk, taken_at: Duration, notified_at: Duration, metrics: &Metrics) {
    for group in &chunk.groups {
        let (total, count) = (micros(notified_at, group.submitted_at), group.count as u64);
        metrics.wait_time.record(micros(taken_at, group.submitted_at), count);
        metrics.total_time.record(total, count);
        if !group.is_of_log {
            metrics.client_time.record(total, count);
        }
    }
}

pub(super) fn micros(later: Duration, earlier: Duration) -> u64 {
    saturate(later.saturating_sub(earlier).as_micros())
}
