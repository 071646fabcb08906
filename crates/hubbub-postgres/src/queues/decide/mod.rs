//! Decides operations, each against the working set as the one before it left it.
//!
//! The rules are [`hubbub_core::rules::queues`]; [`view`] shows them the working set, [`apply`] changes it. Whatever a decision or
//! its effects lack is loaded first, and nothing changes before; then the operation is decided again.

mod advance;
mod apply;
mod select;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use hubbub_core::rules::queues::{self as rules, Effect, Effects};
use hubbub_core::{QueueOp, QueueOutcome};

use super::working_set::{Stop, WakeTarget, WorkingSet};

/// Longest time of anything, in microseconds; keeps times within what the database can write.
const DURATION_MAX: i64 = 8_000 * 365 * 24 * 3_600 * 1_000_000;

/// By what a repeated message is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fingerprint<'a> {
    /// The sender's id for it.
    id: &'a str,
    /// A hash of what it says.
    content: i64,
}

/// An effect in the numbers of the database.
type PgEffect<'a> = Effect<'a, i32, Fingerprint<'a>>;

/// Decides one operation and does it in the working set.
pub(super) fn decide(set: &mut WorkingSet, op: &QueueOp<'_>) -> Result<QueueOutcome, Stop> {
    let decided = decide_and_apply(set, op);
    // One that is decided again still needs its id.
    if matches!(op, QueueOp::Send(_)) && !matches!(decided, Err(Stop::Need(_))) {
        set.sends_left -= 1;
    }
    decided
}

fn decide_and_apply(set: &mut WorkingSet, op: &QueueOp<'_>) -> Result<QueueOutcome, Stop> {
    let mut effects = Effects::new(usize::MAX);
    let outcome = rules::decide(set, op, &mut effects)?;
    for effect in effects.iter() {
        set.check_loaded(effect)?;
    }
    if rules::names_freed(op) {
        set.wake_target = WakeTarget::Outcome;
    }
    for effect in effects.drain() {
        set.apply(effect);
    }
    set.wake_target = WakeTarget::default();
    Ok(set.completed(outcome))
}

impl WorkingSet {
    /// The outcome with what only the applied effects tell.
    fn completed(&mut self, outcome: QueueOutcome) -> QueueOutcome {
        match outcome {
            QueueOutcome::Settled { until, .. } => QueueOutcome::Settled { until, ready: self.take_freed() },
            QueueOutcome::Deleted { messages, .. } => {
                QueueOutcome::Deleted { messages, ready: self.take_freed() }
            }
            QueueOutcome::Swept { .. } => self.swept(),
            outcome => outcome,
        }
    }

    /// What a sweep tells once its effects are applied.
    fn swept(&mut self) -> QueueOutcome {
        self.drop_expired_pending();
        let mut woken = std::mem::take(&mut self.woken_before);
        for no in std::mem::take(&mut self.woken) {
            let live = self.queues.get(&no).filter(|queue| !queue.is_deleted);
            woken.extend(live.map(|queue| Arc::clone(&queue.name)));
        }
        self.has_swept = true;
        let more = self.has_more_due || self.swept_ids().next().is_some();
        QueueOutcome::Swept { more, ready: woken.into_iter().collect() }
    }
}
