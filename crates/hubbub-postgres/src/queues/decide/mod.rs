//! Decides operations, each against the working set as the one before it left it.
//!
//! The rules are [`hubbub_core::rules::queues`]; [`view`] shows them the working set, [`apply`] changes it. Whatever a decision or
//! its effects lack is loaded first, and nothing changes before; then the operation is decided again.

mod apply;
mod select;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use hubbub_core::rules::queues::{self as rules, Effect, Effects};
use hubbub_core::{QueueOp, QueueOutcome};

use super::working_set::{LoadRequest, State, Stop, WakeTarget, WorkingSet};

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
    if matches!(op, QueueOp::Send(_)) && !matches!(decided, Err(Stop::LoadRequest(_))) {
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
    /// Ends delays, leases and lives that are over, of all messages that are loaded. Lives end for good, so by the time
    /// that is proven.
    pub(in crate::queues) fn advance(&mut self) -> Result<(), LoadRequest> {
        let (now, proven) = (self.now, self.proven);
        let is_due = |due: Option<i64>| due.is_some_and(|due| due <= now);
        let mut due: Vec<i64> = Vec::new();
        for message in self.messages.values().filter(|message| message.is_alive()) {
            let is_over = match message.state {
                State::Delayed => is_due(message.due_at) || message.is_expired(proven),
                // A lease goes on to its end.
                State::Leased => is_due(message.due_at),
                State::Exhausted => false,
                _ => message.is_expired(proven),
            };
            if is_over {
                due.push(message.id);
            }
        }
        self.advance_pending();
        due.sort_unstable();
        for id in due {
            let Some(message) = self.messages.get(&id) else { continue };
            let queue = self.queues.get(&message.queue);
            // Without deliveries left it is a dead letter, however old it is by now.
            let is_exhausted = queue.is_some_and(|queue| queue.settings.exhausts(message.deliveries));
            let is_expired = !is_exhausted && message.is_expired(proven);
            let was_leased = message.state == State::Leased;
            if is_expired {
                self.can_leave(id)?;
            } else if was_leased {
                self.can_come_back(id)?;
            }
            if is_exhausted || is_due(message.due_at) {
                self.change(id, |message| {
                    message.state = if is_exhausted { State::Exhausted } else { State::Ready };
                    (message.due_at, message.begun_at) = (None, None);
                });
            }
            if is_expired {
                self.expire(id);
            } else if was_leased {
                self.come_back(id);
            }
        }
        Ok(())
    }

    /// The outcome with what only the applied effects show.
    fn completed(&mut self, mut outcome: QueueOutcome) -> QueueOutcome {
        if let Some(freed) = outcome.freed_mut() {
            *freed = self.take_freed();
        }
        match outcome {
            QueueOutcome::Swept { .. } => self.swept(),
            outcome => outcome,
        }
    }

    /// What a sweep reports once its effects are applied.
    fn swept(&mut self) -> QueueOutcome {
        self.drop_expired_pending();
        let mut woken = std::mem::take(&mut self.woken_before);
        for no in std::mem::take(&mut self.woken) {
            let live = self.queues.get(&no).filter(|queue| !queue.is_deleted);
            woken.extend(live.map(|queue| Arc::clone(&queue.name)));
        }
        self.has_swept = true;
        let more = self.has_more_due || self.messages.values().any(|message| self.is_swept(message));
        QueueOutcome::Swept { more, ready: woken.into_iter().collect() }
    }
}
