//! What time does, what it leads to, and bringing dead letters back.

use std::sync::Arc;

use hubbub_core::queue::{DeadReason, TAKE_MAX};
use hubbub_core::{QueueOutcome, Refusal};

use super::Judged;
use crate::queues::image::{Image, Need, State, Stop, unsigned};

impl Image {
    /// Ends delays, leases and lives that are over, of all messages that are loaded. Lives end for good, so by the time
    /// that is proven.
    pub(in crate::queues) fn advance(&mut self) -> Result<(), Need> {
        let (now, proven) = (self.now, self.proven);
        let is_due = |due: Option<i64>| due.is_some_and(|due| due <= now);
        let mut due: Vec<i64> = Vec::new();
        for message in self.messages.values().filter(|message| message.is_alive()) {
            let is_over = match message.state {
                State::Delayed => is_due(message.due_at) || message.is_expired(proven),
                // A lease goes on to its end.
                State::Leased => is_due(message.due_at),
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
            let (is_expired, timed) = (message.is_expired(proven), is_due(message.due_at));
            let queue = self.queues.get(&message.queue);
            let is_exhausted = queue.is_some_and(|queue| queue.settings.exhausts(message.deliveries));
            if is_expired {
                self.can_leave(id)?;
            }
            if timed {
                self.change(id, |message| {
                    message.state = if is_exhausted { State::Exhausted } else { State::Ready };
                    (message.due_at, message.begun_at) = (None, None);
                });
            }
            if is_expired {
                self.expire(id);
            }
        }
        Ok(())
    }

    pub(super) fn sweep(&mut self) -> Judged {
        let mut over: Vec<(i64, State)> = self
            .messages
            .values()
            .filter(|message| {
                let queue = self.queues.get(&message.queue);
                !message.is_gone && queue.is_some_and(|queue| !queue.is_deleted)
            })
            .filter(|message| matches!(message.state, State::Expired | State::Exhausted))
            .map(|message| (message.id, message.state))
            .collect();
        over.sort_unstable_by_key(|(id, _)| *id);
        let is_more = over.len() > TAKE_MAX;
        over.truncate(TAKE_MAX);
        // Each is dealt with for good before the next is looked at, so that it does not matter which one lacks something.
        for (id, state) in over {
            if state == State::Exhausted {
                self.bury(id, DeadReason::LeaseExpired)?;
            } else if let Some(queue) = self.messages.get(&id).map(|message| message.queue) {
                self.remove(id);
                self.tally(queue, |counts| counts.dropped += 1);
            }
        }
        self.drop_expired_pending();
        let mut woken = std::mem::take(&mut self.woken_before);
        for no in std::mem::take(&mut self.woken) {
            let live = self.queues.get(&no).filter(|queue| !queue.is_deleted);
            woken.extend(live.map(|queue| Arc::clone(&queue.name)));
        }
        self.has_swept = true;
        let ready = woken.into_iter().collect();
        Ok(QueueOutcome::Swept { more: is_more || self.has_more_due, ready })
    }

    pub(super) fn redrive(&mut self, queue: &str, id: Option<u64>) -> Result<QueueOutcome, Stop> {
        let (no, _) = self.queue_named(queue)?;
        let one = id.map(|id| i64::try_from(id).map_err(|_| Refusal::UnknownMessage)).transpose()?;
        if !self.loaded.contains(&Need::DeadLetters(no, one)) {
            return Err(Need::DeadLetters(no, one).into());
        }
        if let Some(id) = one
            && self.message_in(no, unsigned(id)).is_none()
        {
            return Err(Refusal::UnknownMessage.into());
        }
        let mut moves = Vec::new();
        for message in self.messages.values() {
            let is_meant = message.queue == no && !message.is_gone && one.is_none_or(|id| id == message.id);
            if is_meant
                && !matches!(message.state, State::Leased | State::Expired)
                && let Some(dead) = &message.dead
                && let Some(origin) = self.find_queue(&dead.origin)?
            {
                moves.push((message.id, origin));
            }
        }
        moves.sort_unstable();
        let more = moves.len() > TAKE_MAX;
        moves.truncate(TAKE_MAX);
        for (id, to) in &moves {
            self.can_leave(*id)?;
            self.can_join(*id, *to)?;
        }
        let messages = moves.len() as u64;
        let mut ready: Vec<Arc<str>> = Vec::new();
        for (id, to) in moves {
            self.move_to(id, to, None);
            ready.extend(self.queues.get(&to).map(|queue| Arc::clone(&queue.name)));
        }
        ready.sort_unstable();
        ready.dedup();
        Ok(QueueOutcome::Redriven { messages, more, ready: ready.into_boxed_slice() })
    }
}
