//! What time does by itself: delays and leases end, messages outlive their time.

use crate::queues::working_set::{Need, State, WorkingSet};

impl WorkingSet {
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
}
