//! Making and deleting queues, registering clients.

use std::sync::Arc;

use hubbub_core::queue::QueueSettings;
use hubbub_core::{QueueOutcome, Refusal};

use super::Judged;
use crate::queues::image::{Image, Need, State, Stop};

/// Names of more digits are no numbers here: those are chosen by people or counted, and there must be a next one.
const DIGITS_MAX: usize = 18;

/// The number that a queue's name is, written the one usual way.
pub(in crate::queues) fn number_named(name: &str) -> Option<i64> {
    let is_usual =
        name.len() <= DIGITS_MAX && !name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_usual { name.parse().ok() } else { None }
}

impl Image {
    pub(super) fn put(&mut self, name: &str, settings: &QueueSettings) -> Judged {
        let Some(no) = self.find_queue(name)? else { return Err(Need::Made(name.into()).into()) };
        let number = number_named(name);
        if number.is_some() && self.highest_named.is_none() {
            return Err(Need::HighestNamed.into());
        }
        let Some(queue) = self.queues.get(&no) else { return Err(Refusal::UnknownQueue.into()) };
        let (before, name, created) = (queue.settings.clone(), Arc::clone(&queue.name), queue.is_new);
        let settings = before.changed(settings);
        let judges_anew = before.deliveries_max != settings.deliveries_max;
        if judges_anew && !created && !self.loaded.contains(&Need::Returned(no)) {
            return Err(Need::Returned(no).into());
        }
        let dead_letter = (settings.deliveries_max > 0).then(|| settings.dead_letter_of(&name));
        // The queue may be its own.
        let dead_letter = dead_letter.map(|name| self.dead_letter_queue(&name)).transpose()?;
        if let Some(number) = number
            && self.highest_named.is_none_or(|highest| number > highest)
        {
            (self.highest_named, self.has_named) = (Some(number), true);
        }
        if let Some(queue) = self.queues.get_mut(&no) {
            queue.is_new = false;
            queue.is_changed |= settings != before;
            queue.settings = settings;
        }
        if judges_anew {
            self.judge_deliveries(no);
        }
        if let Some(dead_letter) = dead_letter {
            self.mark_dead_letter_queue(dead_letter);
        }
        Ok(QueueOutcome::Queue { queue: name, created })
    }

    /// Sees which messages of a queue were delivered too often, after that was changed.
    fn judge_deliveries(&mut self, no: i32) {
        let Some(settings) = self.queues.get(&no).map(|queue| queue.settings.clone()) else { return };
        let held = self.messages.values().filter(|message| message.queue == no && !message.is_gone);
        let judged =
            held.filter_map(|message| match (message.state, settings.exhausts(message.deliveries)) {
                (State::Ready, true) => Some((message.id, State::Exhausted)),
                (State::Exhausted, false) => Some((message.id, State::Ready)),
                _ => None,
            });
        for (id, state) in judged.collect::<Vec<_>>() {
            self.change(id, |message| message.state = state);
        }
    }

    /// The number of a queue for dead letters.
    pub(super) fn dead_letter_queue(&self, name: &str) -> Result<i32, Need> {
        self.find_queue(name)?.ok_or_else(|| Need::Made(name.into()))
    }

    /// A queue is for dead letters from now on.
    pub(super) fn mark_dead_letter_queue(&mut self, no: i32) {
        if let Some(queue) = self.queues.get_mut(&no) {
            queue.is_new = false;
            queue.is_changed |= !queue.is_dead_letter;
            queue.is_dead_letter = true;
        }
    }

    pub(super) fn put_numbered(&mut self) -> Judged {
        let highest = self.highest_named.ok_or(Need::HighestNamed)?;
        let name = highest.saturating_add(1).to_string();
        self.put(&name, &QueueSettings::default())
    }

    pub(super) fn delete(&mut self, name: &str, force: bool) -> Judged {
        let (no, _) = self.queue_named(name)?;
        let (held, _) = self.held(no)?;
        let messages = u64::try_from(held).unwrap_or(0);
        if messages > 0 && !force {
            return Err(Refusal::QueueNotEmpty { messages }.into());
        }
        self.names.remove(name);
        self.asked.insert(name.into());
        if let Some(queue) = self.queues.get_mut(&no) {
            queue.is_deleted = true;
        }
        self.woken.remove(&no);
        Ok(QueueOutcome::Deleted { messages, ready: Box::default() })
    }

    pub(super) fn register(&mut self, name: &str) -> Judged {
        let changed = self.registered(name).is_none();
        if changed {
            self.check_client_fits()?;
            self.enter_client(name);
        }
        Ok(QueueOutcome::Client { changed })
    }

    pub(super) fn unregister(&mut self, name: &str) -> Result<QueueOutcome, Stop> {
        let unchanged = QueueOutcome::Client { changed: false };
        let Some(no) = self.client(name) else { return Ok(unchanged) };
        let changed = self.registered(name).is_some();
        if !self.loaded.contains(&Need::Copies(no)) {
            return Err(Need::Copies(no).into());
        }
        // What is on lease is in good hands.
        let held = self.messages.values().filter(|message| message.receiver == no && message.is_copy);
        let held = held.filter(|message| !message.is_gone && message.state != State::Leased);
        let mut copies: Vec<i64> = held.map(|message| message.id).collect();
        copies.sort_unstable();
        for id in &copies {
            self.can_leave(*id)?;
        }
        for id in copies {
            self.remove(id);
        }
        if let Some(client) = self.clients.get_mut(name) {
            client.is_registered = false;
            client.is_changed |= changed;
            self.clients_added -= i64::from(changed);
        }
        Ok(QueueOutcome::Client { changed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_usual_way_of_writing_makes_a_number() {
        for (name, number) in [("7", Some(7)), ("999999999999999999", Some(999_999_999_999_999_999))] {
            assert_eq!(number_named(name), number);
        }
        for name in ["", "0", "07", "+7", "7a", "9999999999999999999"] {
            assert_eq!(number_named(name), None, "{name}");
        }
    }
}
