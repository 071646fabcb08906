//! Applies effects to the working set, once all is loaded that they change.

use hubbub_core::QueueRules;
use hubbub_core::invariant::{broken, saturate};
use hubbub_core::queue::{DeadLetter, DeadReason};
use hubbub_core::rules::queues::{NewMessage, Recipient, Removal, number_named};

use super::view::{bytes_of, copied_bytes};
use super::{DURATION_MAX, Fingerprint, PgEffect};
use crate::queues::working_set::{
    ANYBODY, GroupKey, Known, LoadRequest, Message, Recipients, State, WorkingSet, signed, unsigned,
};

/// A duration as the database can write its end.
pub(super) fn duration(micros: u64) -> i64 {
    saturate::<u64, i64>(micros).min(DURATION_MAX)
}

impl WorkingSet {
    /// Makes sure that all is loaded that an effect changes.
    pub(super) fn check_loaded(&self, effect: &PgEffect<'_>) -> Result<(), LoadRequest> {
        match effect {
            PgEffect::Put { number, name, settings, .. } => self.can_put(*number, name, settings),
            PgEffect::Client { number, registered: false, kept, .. } => {
                self.copies_but(*number, kept).into_iter().try_for_each(|id| self.can_leave(id))
            }
            PgEffect::Send(sent) => self.can_add(sent),
            PgEffect::Taken { ids, .. } | PgEffect::Gone { ids, .. } => {
                ids.iter().try_for_each(|id| self.can_leave(signed(*id)))
            }
            PgEffect::Returned { id, .. } => self.can_return(signed(*id)),
            PgEffect::Dead { id, to, .. } => self.can_move(signed(*id), *to),
            PgEffect::Redriven { to, ids } => ids.iter().try_for_each(|id| self.can_move(signed(*id), *to)),
            PgEffect::Delete { .. }
            | PgEffect::Client { .. }
            | PgEffect::Leased { .. }
            | PgEffect::Extended { .. } => Ok(()),
        }
    }

    fn can_put(&self, no: i32, name: &str, settings: &QueueRules) -> Result<(), LoadRequest> {
        if number_named(name).is_some() && self.highest_named.is_none() {
            return Err(LoadRequest::HighestNamed);
        }
        let changes_limit = self
            .queues
            .get(&no)
            .is_some_and(|queue| !queue.is_new && queue.settings.deliveries_max != settings.deliveries_max);
        let need = LoadRequest::Returned(no);
        if changes_limit && !self.loaded.contains(&need) { Err(need) } else { Ok(()) }
    }

    fn can_return(&self, id: i64) -> Result<(), LoadRequest> {
        let is_expired = self.messages.get(&id).is_some_and(|message| message.is_expired(self.proven));
        if is_expired { self.can_leave(id) } else { self.can_come_back(id) }
    }

    fn can_move(&self, id: i64, to: i32) -> Result<(), LoadRequest> {
        self.can_leave(id)?;
        self.can_join(id, to)
    }

    fn can_add(&self, sent: &NewMessage<'_, i32, Fingerprint<'_>>) -> Result<(), LoadRequest> {
        let receivers = match (sent.group, sent.to) {
            (None, _) => return Ok(()),
            (Some(_), Recipient::Anyone) => vec![ANYBODY],
            (Some(_), Recipient::One(client)) => vec![client],
            (Some(_), Recipient::All) => self.recipients(Some(sent.sender))?.numbers(),
        };
        receivers
            .into_iter()
            .try_for_each(|receiver| self.comes_behind(sent.queue, receiver, sent.group).map(drop))
    }

    /// Copies for a client but those that are kept, in the order of their ids.
    fn copies_but(&self, client: i32, kept: &[u64]) -> Vec<i64> {
        let copies = self.held_by(|message| message.receiver == client && message.is_copy);
        let gone = copies.iter().filter(|message| !kept.contains(&unsigned(message.id)));
        gone.map(|message| message.id).collect()
    }

    /// Whether a new message finds others of its group before it.
    fn comes_behind(&self, queue: i32, receiver: i32, group: Option<&str>) -> Result<bool, LoadRequest> {
        let Some(group) = group else { return Ok(false) };
        let key = GroupKey { queue, receiver, group: group.into() };
        // For someone who is new there is nothing in the database.
        if receiver < ANYBODY {
            return Ok(self.groups.get(&key).is_some_and(|group| !group.alive.is_empty()));
        }
        self.group_has_any(&key)
    }

    pub(super) fn apply(&mut self, effect: PgEffect<'_>) {
        match effect {
            PgEffect::Put { number, is_dead_letter, settings, .. } => {
                self.apply_put(number, is_dead_letter, settings);
            }
            PgEffect::Delete { number } => self.delete(number),
            PgEffect::Client { name, registered: true, .. } => drop(self.register_client(name)),
            PgEffect::Client { number, name, kept, .. } => self.unregister(number, name, &kept),
            PgEffect::Send(sent) => self.apply_sent(&sent),
            PgEffect::Taken { ids, .. } => {
                for id in ids {
                    self.hand_over(signed(id));
                    self.end(signed(id), None);
                }
            }
            PgEffect::Leased { leases, .. } => {
                for lease in leases {
                    self.hand_over(signed(lease.id));
                    self.lease(signed(lease.id), Some(lease.delivery), lease.lease);
                }
            }
            PgEffect::Returned { id, delay, .. } => self.give_back(signed(id), delay),
            PgEffect::Extended { id, lease, .. } => self.lease(signed(id), None, lease),
            PgEffect::Gone { why, ids, .. } => {
                ids.into_iter().for_each(|id| self.end(signed(id), Some(why)));
            }
            PgEffect::Dead { id, to, reason } => self.dead_letter(signed(id), to, reason),
            PgEffect::Redriven { to, ids } => {
                ids.into_iter().for_each(|id| self.move_to(signed(id), to, None));
            }
        }
    }

    fn apply_put(&mut self, no: i32, is_dead_letter: bool, settings: QueueRules) {
        let Some(queue) = self.queues.get_mut(&no) else { return };
        if let Some(number) = number_named(&queue.name).map(signed)
            && self.highest_named.is_none_or(|highest| number > highest)
        {
            (self.highest_named, self.has_named) = (Some(number), true);
        }
        queue.is_new = false;
        queue.is_changed |= queue.settings != settings || (is_dead_letter && !queue.is_dead_letter);
        queue.is_dead_letter |= is_dead_letter;
        let before = std::mem::replace(&mut queue.settings, settings);
        if before.deliveries_max != queue.settings.deliveries_max {
            self.apply_delivery_limit(no);
        }
    }

    /// Makes messages exhausted or ready by a limit of deliveries that was changed.
    fn apply_delivery_limit(&mut self, no: i32) {
        let Some(settings) = self.queues.get(&no).map(|queue| queue.settings.clone()) else { return };
        let held = self.messages.values().filter(|message| message.queue == no && !message.is_gone);
        let changed =
            held.filter_map(|message| match (message.state, settings.exhausts(message.deliveries)) {
                // One that has expired had ended before, and left its group.
                (State::Ready, true) => Some((message.id, State::Exhausted)),
                // If it has outlived its time, it expires with the next batch.
                (State::Exhausted, false) => Some((message.id, State::Ready)),
                _ => None,
            });
        for (id, state) in changed.collect::<Vec<_>>() {
            self.change(id, |message| {
                (message.state, message.due_at, message.begun_at) = (state, None, None);
            });
        }
    }

    fn delete(&mut self, no: i32) {
        let Some(queue) = self.queues.get_mut(&no) else { return };
        queue.is_deleted = true;
        self.names.remove(&queue.name);
        self.queried_names.insert(queue.name.clone());
        self.woken.remove(&no);
    }

    fn unregister(&mut self, no: i32, name: &str, kept: &[u64]) {
        for id in self.copies_but(no, kept) {
            self.remove(id);
        }
        if let Some(client) = self.clients.get_mut(name) {
            client.is_changed |= client.is_registered;
            self.clients_added -= i64::from(client.is_registered);
            client.is_registered = false;
        }
    }

    /// Whoever takes a message has its text from here on. It is not kept here, unless it is still to be written.
    fn hand_over(&mut self, id: i64) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        self.taken_bytes = self.taken_bytes.saturating_add(saturate(message.bytes));
        if message.stored_in.is_some() {
            message.text = None;
        }
    }

    /// A message is gone; `None` = it was taken away.
    fn end(&mut self, id: i64, why: Option<Removal>) {
        let Some(queue) = self.messages.get(&id).map(|message| message.queue) else { return };
        self.remove(id);
        self.tally(queue, |counts| match why {
            None | Some(Removal::Acknowledged) => counts.done += 1,
            Some(Removal::Removed) => {}
            Some(Removal::Expired | Removal::Dropped) => counts.dropped += 1,
        });
    }

    /// A message is on lease from now on; with a new delivery, if there is one.
    fn lease(&mut self, id: i64, delivery: Option<u32>, lease: u64) {
        let Some(queue) = self.messages.get(&id).map(|message| message.queue) else { return };
        let (until, now) = (self.end_of_lease(queue, duration(lease)), self.now);
        self.change(id, |message| {
            message.state = State::Leased;
            message.deliveries = delivery.unwrap_or(message.deliveries);
            (message.due_at, message.begun_at) = (Some(until), Some(now));
        });
    }

    /// A message waits again, unless it has outlived its time.
    fn give_back(&mut self, id: i64, delay: u64) {
        let Some(message) = self.messages.get(&id) else { return };
        let (queue, is_expired) = (message.queue, message.is_expired(self.proven));
        let until = (delay > 0).then(|| self.end_of(queue, duration(delay)));
        let now = self.now;
        self.change(id, |message| {
            message.state = if until.is_some() { State::Delayed } else { State::Ready };
            (message.due_at, message.begun_at) = (until, until.map(|_| now));
        });
        if is_expired {
            self.expire(id);
        } else {
            self.come_back(id);
        }
    }

    fn dead_letter(&mut self, id: i64, to: i32, reason: DeadReason) {
        let Some(message) = self.messages.get(&id) else { return };
        let (from, deliveries) = (message.queue, message.deliveries);
        let Some(origin) = self.queues.get(&from).map(|queue| queue.name.clone()) else { return };
        self.tally(from, |counts| counts.dead += 1);
        self.move_to(id, to, Some(DeadLetter { origin, reason, deliveries }));
    }

    fn apply_sent(&mut self, sent: &NewMessage<'_, i32, Fingerprint<'_>>) {
        let count = i64::from(sent.copies);
        let first = signed(sent.id);
        self.ids.start = first + count.max(1);
        self.tally(sent.queue, |counts| counts.sent += count);
        let template = self.template(sent);
        match sent.to {
            Recipient::Anyone => self.add_all(template, vec![ANYBODY]),
            Recipient::One(client) => self.add_all(template, vec![client]),
            Recipient::All => match self.recipients(Some(sent.sender)) {
                Ok(recipients) => self.add_broadcast(template, &recipients),
                Err(_) => drop(broken("receivers of a message to everybody are loaded")),
            },
        }
        if let Some(Fingerprint { id, content }) = sent.known_as {
            let known = Known { first, content, sent_at: self.now, copies: sent.copies, is_new: true };
            self.known.insert((sent.queue, id.to_owned()), known);
        }
    }

    /// Adds copies for all, or one message whose copies are made later.
    fn add_broadcast(&mut self, template: Message, recipients: &Recipients) {
        let copies = recipients.count();
        if self.is_made_later(template.group.as_deref(), copies) {
            self.add_pending(template, &recipients.chunks, &recipients.new);
        } else {
            self.copied_bytes += copied_bytes(copies, template.bytes);
            self.add_all(template, recipients.numbers());
        }
    }

    /// What is the same in all copies of a message; its id is that of the first.
    fn template(&self, sent: &NewMessage<'_, i32, Fingerprint<'_>>) -> Message {
        let due_at = (sent.delay > 0).then(|| self.end_of(sent.queue, duration(sent.delay)));
        let first = signed(sent.id);
        Message {
            id: first,
            queue: sent.queue,
            sender: sent.sender,
            receiver: ANYBODY,
            state: if due_at.is_some() { State::Delayed } else { State::Ready },
            behind: false,
            is_copy: sent.to == Recipient::All,
            deliveries: 0,
            earlier_deliveries: 0,
            sent_at: self.now,
            due_at,
            begun_at: due_at.map(|_| self.now),
            expires_at: sent.ttl.map(|ttl| self.end_of(sent.queue, duration(ttl))),
            known_as: sent.known_as.map(|_| first),
            group: sent.group.map(Into::into),
            bytes: bytes_of(sent.text),
            text: Some(sent.text.to_owned()),
            copy_of: None,
            dead: None,
            stored_in: None,
            is_changed: false,
            is_gone: false,
        }
    }

    fn add_all(&mut self, mut template: Message, receivers: Vec<i32>) {
        let (text, first) = (template.text.take(), template.id);
        let mut texts = std::iter::repeat_n(text, receivers.len());
        for (receiver, id) in receivers.into_iter().zip(first..) {
            let text = texts.next().flatten();
            let behind = self.comes_behind(template.queue, receiver, template.group.as_deref());
            let behind = behind.unwrap_or_else(|_| {
                broken("the group of a new message is loaded");
                true
            });
            self.add(Message { id, receiver, text, behind, ..template.clone() });
        }
    }
}
