//! Shows the rules the state of all queues. Nothing ever has to be loaded.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;

use hubbub_core::Refusal;
use hubbub_core::invariant::{broken, cast};
use hubbub_core::queue::{LeaseReceipt, QueueSend, TAKE_BYTES_MAX, TakeFilter};
use hubbub_core::rules::queues::{
    Candidate, ClientRef, Found, Held, Lease, QueueRef, ReadMessages, Remembered, View,
};

use super::QueueBatch;
use crate::embedded::queues::entry::{Entry, State};
use crate::embedded::queues::table::Queue;
use crate::embedded::queues::time::Now;
use crate::embedded::queues::{Queues, SettledId};
use crate::embedded::record::Fingerprint;

/// The queues as a batch finds them.
pub(super) struct BatchView<'v, 'b> {
    pub(super) queues: &'v mut Queues,
    pub(super) batch: &'v mut QueueBatch<'b>,
    pub(super) now: Now,
}

fn queue_ref(queue: &Queue) -> QueueRef<'_, u32> {
    QueueRef {
        number: queue.number,
        name: &queue.name,
        is_dead_letter: queue.is_dead_letter,
        is_new: false,
        rules: &queue.settings,
    }
}

impl View for BatchView<'_, '_> {
    type Number = u32;
    type Fingerprint<'a> = Fingerprint;
    type Handle = Entry;
    type LoadRequest = Infallible;

    fn now(&self) -> i64 {
        self.now.wall
    }

    fn autoregisters(&self) -> bool {
        self.batch.autoregister
    }

    fn queue(&self, name: &str) -> Found<Option<QueueRef<'_, u32>>, Self> {
        Ok(self.queues.queue_named(name).map(queue_ref))
    }

    fn queue_of(&self, number: u32) -> Option<QueueRef<'_, u32>> {
        self.queues.queues.get(&number).map(queue_ref)
    }

    fn new_queue(&self, _name: &str, made: u32) -> Found<u32, Self> {
        let number = self.queues.next_queue.checked_add(made);
        Ok(number.ok_or_else(|| broken("fewer than 2^32 queues were ever made"))?)
    }

    fn highest_named(&self) -> Found<u64, Self> {
        Ok(self.queues.highest_named)
    }

    fn held(&self, queue: u32) -> Found<Held, Self> {
        let counts = self.queues.queues.get(&queue).map(|queue| queue.counts).unwrap_or_default();
        Ok(Held { messages: counts.messages(), bytes: counts.bytes })
    }

    fn client(&self, name: &str) -> Option<ClientRef<u32>> {
        let number = self.queues.client_number(name)?;
        Some(ClientRef { number, is_registered: self.queues.registered.contains(number) })
    }

    fn new_client(&self) -> Found<u32, Self> {
        Ok(cast(self.queues.clients.len() + 1, "fewer than 2^32 clients were ever registered")?)
    }

    fn has_room_for_client(&self) -> Found<bool, Self> {
        Ok(self.queues.registered.len() < self.queues.limits.clients_max)
    }

    fn receivers_but(&self, sender: &str) -> Found<u32, Self> {
        let registered = &self.queues.registered;
        let is_among = self.client(sender).is_some_and(|sender| sender.is_registered);
        Ok(cast(registered.len() - u64::from(is_among), "fewer than 2^32 clients are registered")?)
    }

    fn has_room_for_broadcast(&self, _send: &QueueSend<'_>, copies: u32) -> Found<bool, Self> {
        Ok(self.queues.has_room_for_broadcast(copies))
    }

    fn fingerprint<'a>(&self, queue: u32, send: &QueueSend<'a>) -> Option<Fingerprint> {
        let id = send.message_id?;
        Some((self.queues.hash(&[&queue.to_le_bytes(), id.as_bytes()]), self.queues.content(send)))
    }

    fn remembered(&self, _queue: u32, known_as: &Fingerprint) -> Found<Option<Remembered>, Self> {
        let (id, content) = *known_as;
        let sent = self.queues.find_sent(id, self.now).map_err(|error| {
            self.batch.damage.note(&error);
            Refusal::Unreadable
        })?;
        let is_same = |sent: &SettledId| sent.content == content;
        Ok(sent.map(|one| Remembered {
            id: one.id,
            copies: one.copies,
            sent_at: one.sent_at,
            is_same: is_same(&one),
        }))
    }

    fn new_ids(&self, _count: u32) -> Found<u64, Self> {
        Ok(self.queues.next_id)
    }

    fn visit_oldest(
        &self,
        queue: u32,
        mut visit: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Found<(), Self> {
        let all = self.queues.queues.get(&queue).map(|queue| &queue.all);
        let entries = all.into_iter().flatten().filter_map(|id| self.queues.entry_of(id));
        let mut entries = entries.filter(|entry| entry.state != State::Leased);
        let _: ControlFlow<()> = entries.try_for_each(|entry| visit(entry.id, entry.payload_bytes()));
        Ok(())
    }

    fn select(
        &mut self,
        wanted: &TakeFilter<'_>,
        queue: Option<u32>,
        max: usize,
        through_groups: bool,
    ) -> Found<Vec<Candidate<u32, Entry>>, Self> {
        self.queues.make_copies_for_name(wanted.receiver);
        let bounds = (max, self.batch.payloads.min(TAKE_BYTES_MAX as u64));
        let selection = self.queues.selection(wanted, queue, bounds, through_groups);
        let Some(selection) = selection else { return Ok(Vec::new()) };
        Ok(self.queues.choose(&selection, (u64::MAX, self.now.at), &mut self.batch.rounds))
    }

    fn read(
        &mut self,
        chosen: Vec<Candidate<u32, Entry>>,
        unreadable_max: usize,
    ) -> Found<ReadMessages<u32, Entry>, Self> {
        let (mut read, mut unreadable) = (Vec::with_capacity(chosen.len()), Vec::<Entry>::new());
        for message in chosen {
            let entry = &message.handle;
            // The order of a group counts.
            if unreadable.iter().any(|before| entry.is_grouped_with(before)) {
                continue;
            }
            self.batch.payloads = self.batch.payloads.saturating_sub(message.bytes);
            match self.queues.text(entry, self.batch) {
                Some((group, text)) => read.push((message, self.queues.delivery(entry, group, text))),
                None => unreadable.push(*entry),
            }
            if unreadable.len() >= unreadable_max {
                break;
            }
        }
        self.queues.set_aside(&unreadable);
        Ok(ReadMessages { read, unreadable: unreadable.len() })
    }

    fn receipt(&self, message: &Candidate<u32, Entry>, deliveries: u32) -> Found<LeaseReceipt, Self> {
        Ok(self.queues.receipt(message.id, deliveries))
    }

    fn lease_end(&self, _queue: u32, lease: u64) -> i64 {
        self.now.wall_of(self.now.end_of(self.now.wall, lease))
    }

    fn delay_end(&self, queue: u32, delay: u64) -> i64 {
        self.lease_end(queue, delay)
    }

    fn lease(&self, queue: u32, id: u64) -> Option<Lease> {
        let (_, entry) = self.queues.find(id).filter(|(_, entry)| entry.queue == queue)?;
        let is_running = entry.state == State::Leased && entry.at > self.now.at;
        let receipt = self.queues.receipt(id, entry.deliveries);
        is_running.then_some(Lease { receipt, deliveries: entry.deliveries })
    }

    fn holds(&self, queue: u32, id: u64) -> bool {
        self.queues.entry_in(queue, id).is_some()
    }

    fn copies_for(&mut self, client: u32) -> Found<Vec<(u64, bool)>, Self> {
        self.queues.make_copies_for(client);
        let copies = self.queues.copies.range((client, 0)..=(client, u64::MAX)).map(|(_, id)| *id);
        let state = |id| self.queues.find(id).map(|(_, entry)| entry.state);
        Ok(copies.map(|id| (id, state(id) == Some(State::Leased))).collect())
    }

    fn visit_dead_letters(
        &self,
        queue: u32,
        id: Option<u64>,
        mut visit: impl FnMut(u64, u32) -> ControlFlow<()>,
    ) -> Found<(), Self> {
        let Some(queue) = self.queues.queues.get(&queue) else { return Ok(()) };
        let mut ids = queue.all.iter();
        ids.advance_to(id.unwrap_or_default());
        for one in ids.take_while(|one| id.is_none_or(|id| id == *one)) {
            let Some((_, entry)) = self.queues.find(one) else { continue };
            let origin = self.queues.dead.get(&one).and_then(|dead| self.queues.queue_named(&dead.origin));
            if let Some(origin) = origin.filter(|_| !matches!(entry.state, State::Leased | State::Expired))
                && visit(one, origin.number).is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn expired(&mut self, max: usize) -> Vec<u64> {
        let expired = self.queues.first_in(|queues| &mut queues.expired, max);
        expired.into_iter().map(|(id, _)| id).collect()
    }

    fn exhausted(&mut self, max: usize) -> Vec<(u64, u32)> {
        self.queues.first_in(|queues| &mut queues.exhausted, max)
    }
}

impl Queues {
    /// Up to so many messages of a set, with their queues. Those of deleted queues are cleared away by themselves.
    fn first_in(&mut self, set: fn(&mut Self) -> &mut BTreeSet<u64>, max: usize) -> Vec<(u64, u32)> {
        let ids: Vec<u64> = set(self).iter().copied().take(max).collect();
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            match self.live_queue_of(id) {
                Some(queue) => found.push((id, queue)),
                None => drop(set(self).remove(&id)),
            }
        }
        found
    }

    /// The queue of a message, unless it is deleted.
    fn live_queue_of(&self, id: u64) -> Option<u32> {
        let (_, entry) = self.find(id)?;
        self.queues.contains_key(&entry.queue).then_some(entry.queue)
    }

    /// A hash of all that makes two messages the same.
    #[allow(clippy::cast_possible_truncation, reason = "a part of the hash is meant")]
    fn content(&self, send: &QueueSend<'_>) -> u32 {
        self.hash(&send.identity().map(str::as_bytes))[0] as u32
    }
}
