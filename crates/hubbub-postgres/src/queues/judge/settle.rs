//! Ending and extending leases, removing single messages.

use hubbub_core::queue::{DeadReason, LeaseReceipt, Settle};
use hubbub_core::{QueueOutcome, Refusal, Timestamp};

use super::{Judged, micros};
use crate::queues::image::{Dead, Image, State, Stop, Telling, unsigned};

impl Image {
    pub(super) fn settle(&mut self, queue: &str, receipt: LeaseReceipt, how: Settle) -> Judged {
        let (no, found) = self.queue_named(queue)?;
        let settings = found.settings.clone();
        let message = self.message_in(no, receipt.id).ok_or(Refusal::StaleReceipt)?;
        let is_its = message.state == State::Leased
            && message.receipt(self.epoch) == receipt
            && message.due_at.is_some_and(|until| until > self.now);
        if !is_its {
            return Err(Refusal::StaleReceipt.into());
        }
        let (id, deliveries, is_expired) = (message.id, message.deliveries, message.is_expired(self.proven));
        let until = match how {
            Settle::Ack => {
                self.can_leave(id)?;
                self.telling = Telling::Outcome;
                self.remove(id);
                self.tally(no, |counts| counts.done += 1);
                None
            }
            Settle::Nack { .. } if settings.exhausts(deliveries) => {
                self.can_bury(id)?;
                self.telling = Telling::Outcome;
                self.bury(id, DeadReason::Rejected)?;
                None
            }
            Settle::Nack { delay_ms } => {
                let lasts = micros(delay_ms.unwrap_or_else(|| settings.backoff(deliveries)));
                if is_expired {
                    self.can_leave(id)?;
                }
                self.telling = Telling::Outcome;
                let (until, now) = (self.end_of(no, lasts), self.now);
                self.change(id, |message| {
                    message.state = if lasts > 0 { State::Delayed } else { State::Ready };
                    message.due_at = (lasts > 0).then_some(until);
                    message.begun_at = (lasts > 0).then_some(now);
                });
                if is_expired {
                    self.expire(id);
                }
                Some(if lasts > 0 { until } else { now })
            }
            Settle::Extend { lease_ms } => {
                let lasts = micros(lease_ms.unwrap_or(settings.lease_ms));
                let (until, now) = (self.end_of_lease(no, lasts), self.now);
                self.change(id, |message| {
                    (message.due_at, message.begun_at) = (Some(until), Some(now));
                });
                Some(until)
            }
        };
        self.telling = Telling::default();
        Ok(QueueOutcome::Settled { until: until.map(Timestamp::from_micros), ready: self.take_freed() })
    }

    pub(super) fn remove_one(&mut self, queue: &str, id: u64) -> Judged {
        let (no, _) = self.queue_named(queue)?;
        let id = self.message_in(no, id).ok_or(Refusal::UnknownMessage)?.id;
        self.can_leave(id)?;
        self.telling = Telling::Outcome;
        self.remove(id);
        self.telling = Telling::default();
        Ok(QueueOutcome::Deleted { messages: 1, ready: self.take_freed() })
    }

    /// Makes sure that a message can be moved to its dead-letter queue, and says which that is.
    pub(super) fn can_bury(&self, id: i64) -> Result<Option<i32>, Stop> {
        let Some(message) = self.messages.get(&id) else { return Ok(None) };
        let Some(queue) = self.queues.get(&message.queue) else { return Ok(None) };
        let name = queue.settings.dead_letter_of(&queue.name);
        let to = self.dead_letter_queue(&name)?;
        self.can_leave(id)?;
        self.can_join(id, to)?;
        Ok(Some(to))
    }

    /// Moves a message to its dead-letter queue.
    pub(super) fn bury(&mut self, id: i64, reason: DeadReason) -> Result<(), Stop> {
        let Some(to) = self.can_bury(id)? else { return Ok(()) };
        let Some(message) = self.messages.get(&id) else { return Ok(()) };
        let (from, deliveries) = (message.queue, message.deliveries);
        let Some(origin) = self.queues.get(&from).map(|queue| queue.name.clone()) else { return Ok(()) };
        self.mark_dead_letter_queue(to);
        self.tally(from, |counts| counts.dead += 1);
        self.move_to(id, to, Some(Dead { origin, reason, deliveries }));
        tracing::debug!(id = unsigned(id), "a message was given up");
        Ok(())
    }
}
