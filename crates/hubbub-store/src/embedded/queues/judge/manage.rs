//! Making and deleting queues, registering clients.

use std::sync::Arc;

use hubbub_core::queue::QueueSettings;
use hubbub_core::{QueueOutcome, QueueRules, Refusal};

use super::{Judged, Judging, LISTED_BYTES};
use crate::embedded::queues::entry::State;
use crate::embedded::queues::{Queues, Telling};
use crate::embedded::record::Queued;

impl Queues {
    pub(super) fn put(
        &mut self,
        name: &str,
        settings: &QueueSettings,
        judging: &mut Judging<'_>,
    ) -> QueueOutcome {
        let found = self.queue_named(name).map(|queue| (queue.number, queue.settings.clone()));
        let created = found.is_none();
        let (number, before) = found.unwrap_or_else(|| (self.next_queue, QueueRules::default()));
        let settings = before.changed(settings);
        if created || settings != before {
            let settings = settings.clone();
            let put = Queued::Put { number, name, is_dead_letter: false, settings };
            self.log(&put, Telling::Sweep, judging);
        }
        if settings.deliveries_max > 0 {
            self.dead_letter_queue(&settings.dead_letter_of(name), judging);
        }
        let queue = self.queue_named(name).map_or_else(|| Arc::from(name), |queue| Arc::clone(&queue.name));
        QueueOutcome::Queue { queue, created }
    }

    /// The number of a queue for dead letters, which is made if there is none.
    pub(super) fn dead_letter_queue(&mut self, name: &str, judging: &mut Judging<'_>) -> u32 {
        let found = self.queue_named(name);
        if let Some(queue) = found.filter(|queue| queue.is_dead_letter) {
            return queue.number;
        }
        let known = found.map(|queue| (queue.number, queue.settings.clone()));
        let (number, settings) = known.unwrap_or_else(|| (self.next_queue, QueueRules::default()));
        let put = Queued::Put { number, name, is_dead_letter: true, settings };
        self.log(&put, Telling::Nobody, judging);
        number
    }

    pub(super) fn put_numbered(&mut self, judging: &mut Judging<'_>) -> QueueOutcome {
        let name = self.highest_named.saturating_add(1).to_string();
        self.put(&name, &QueueSettings::default(), judging)
    }

    pub(super) fn delete(&mut self, queue: &str, force: bool, judging: &mut Judging<'_>) -> Judged {
        let queue = self.queue_named(queue).ok_or(Refusal::UnknownQueue)?;
        let (number, messages) = (queue.number, queue.counts.messages());
        if messages > 0 && !force {
            return Err(Refusal::QueueNotEmpty { messages });
        }
        self.log(&Queued::Delete { number }, Telling::Nobody, judging);
        Ok(QueueOutcome::Deleted { messages, ready: Box::default() })
    }

    pub(super) fn register(&mut self, name: &str, judging: &mut Judging<'_>) -> Judged {
        let changed = self.registered(name).is_none();
        if changed {
            self.check_client_fits()?;
            self.enter_client(name, judging);
        }
        Ok(QueueOutcome::Client { changed })
    }

    /// Refuses one client more than there may be.
    pub(super) fn check_client_fits(&self) -> Result<(), Refusal> {
        let fits = self.registered_numbers.len() < self.limits.clients_max;
        if fits { Ok(()) } else { Err(Refusal::TooManyClients) }
    }

    /// Registers a client who is not, and says the number.
    pub(super) fn enter_client(&mut self, name: &str, judging: &mut Judging<'_>) -> u32 {
        let number = self.client_number(name).unwrap_or_else(|| self.next_client());
        let client = Queued::Client { number, name, registered: true, kept: Vec::new() };
        self.log(&client, Telling::Nobody, judging);
        number
    }

    pub(super) fn unregister(&mut self, name: &str, judging: &mut Judging<'_>) -> QueueOutcome {
        let unchanged = QueueOutcome::Client { changed: false };
        let Some(number) = self.client_number(name) else { return unchanged };
        let changed = self.registered(name).is_some();
        self.make_copies_for(number);
        // What is on lease is in good hands.
        let copies = self.copies.range((number, 0)..=(number, u64::MAX)).map(|(_, id)| *id);
        let is_leased = |id: &u64| self.find(*id).is_some_and(|(_, entry)| entry.state == State::Leased);
        if !changed && copies.clone().all(|id| is_leased(&id)) {
            return unchanged;
        }
        let kept: Vec<u64> = copies.filter(is_leased).take(judging.spare / LISTED_BYTES).collect();
        judging.spare -= kept.len() * LISTED_BYTES;
        let client = Queued::Client { number, name, registered: false, kept };
        self.log(&client, Telling::Sweep, judging);
        QueueOutcome::Client { changed }
    }
}
