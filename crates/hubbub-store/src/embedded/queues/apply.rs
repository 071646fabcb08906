//! Applies effects. A start does the same with the records of the journal.

use std::sync::Arc;

use hubbub_core::Clock;
use hubbub_core::invariant::cast_or_nearest;
use hubbub_core::queue::ID_KEPT_MS;
use roaring::RoaringTreemap;

use super::entry::{COPY, Entry, LINKED, NEVER, NOWHERE, State};
use super::pending::PendingBroadcast;
use super::source::Medium;
use super::table::{Counts, Queue};
use super::time::{Now, micros};
use super::{Broadcast, Dead, Queues};
use crate::embedded::record::{Effect, MessageRecord, QueueRecord, Recipient, Removal, checked_bytes};
use crate::embedded::tail::Tail;

impl Queues {
    /// Applies one effect. `place` is where the checked part of a message stands.
    pub(crate) fn apply(&mut self, effect: &QueueRecord<'_>, place: (u16, u32), now: Now) {
        self.changes += 1;
        match effect {
            Effect::Put { number, name, is_dead_letter, settings } => {
                let (name, settings, counts) = (Arc::clone(name), settings.clone(), Counts::default());
                let (number, is_dead_letter, all) = (*number, *is_dead_letter, RoaringTreemap::new());
                self.put_queue(Queue { number, name, is_dead_letter, settings, counts, all });
            }
            Effect::Delete { number } => self.drop_queue(*number),
            Effect::Client { number, name, registered, kept } => {
                self.set_client(*number, name, *registered);
                if !registered {
                    self.drop_copies(*number, kept, now);
                }
            }
            Effect::Send(sent) => self.apply_sent(sent, place, now),
            Effect::Taken { at, ids } => self.end(ids, *at, now, |counts| counts.done += 1),
            Effect::Leased { at, leases } => {
                for leased in leases {
                    let until = now.end_of(*at, leased.lease);
                    self.change_by_id(leased.id, |entry| {
                        entry.deliveries = leased.delivery;
                        (entry.state, entry.at) = (State::Leased, until);
                    });
                }
            }
            Effect::Returned { at, id, delay } => {
                let until = now.end_of(*at, *delay);
                self.change_by_id(*id, |entry| set_due(entry, until, now));
                // Nothing is loaded before the end of the start.
                if *id <= self.loaded && (self.times.is_unproven() || self.time_out.is_some()) {
                    self.returned.insert(*id);
                }
            }
            Effect::Extended { at, id, lease } => {
                let until = now.end_of(*at, *lease);
                self.change_by_id(*id, |entry| (entry.state, entry.at) = (State::Leased, until));
            }
            Effect::Gone { at, why, ids } => {
                if matches!(why, Removal::Expired | Removal::Dropped) {
                    self.dropped += ids.len() as u64;
                }
                self.end(ids, *at, now, |counts| match why {
                    Removal::Acknowledged => counts.done += 1,
                    Removal::Removed => {}
                    Removal::Expired | Removal::Dropped => counts.dropped += 1,
                });
            }
            Effect::Dead { id, to, reason } => {
                let Some((number, entry)) = self.made(*id) else { return };
                let Some(queue) = self.queues.get_mut(&entry.queue) else { return };
                queue.counts.dead += 1;
                self.given_up += 1;
                let origin = Arc::clone(&queue.name);
                let why = Dead { origin, reason: *reason, deliveries: entry.deliveries };
                self.move_to(number, *to, Some(why));
            }
            Effect::Redriven { to, ids } => {
                for id in ids {
                    if let Some((number, _)) = self.made(*id) {
                        self.move_to(number, *to, None);
                    }
                }
            }
        }
    }

    /// Makes a queue, or changes what is set of it.
    fn put_queue(&mut self, new: Queue) {
        let Some(queue) = self.queues.get_mut(&new.number) else { return self.add_queue(new) };
        queue.is_dead_letter |= new.is_dead_letter;
        let limit = new.settings.deliveries_max;
        let before = std::mem::replace(&mut queue.settings, new.settings);
        if before.deliveries_max != limit {
            self.apply_delivery_limit(new.number);
        }
    }

    /// Finds payloads that stand in the slot of a journal, now that the start has come to it.
    pub(crate) fn adopt(&mut self, tail: &Arc<Tail>) {
        self.sources.adopt(tail);
    }

    /// Applies a record that the journal has, and that ends at `end` in its slot.
    pub(crate) fn replay(&mut self, record: &QueueRecord<'_>, tail: &Arc<Tail>, end: u64, clock: &dyn Clock) {
        let place = match record {
            Effect::Send(sent) => {
                let begin = end.saturating_sub(checked_bytes(sent) as u64);
                (self.sources.of_tail(tail), cast_or_nearest(begin, "a slot is smaller than 4 GiB"))
            }
            _ => (NOWHERE, 0),
        };
        let now = self.times.for_loading(clock);
        self.apply(record, place, now);
    }

    /// Gives up messages whose payloads stand in journals that are not there; where parts of journals may be lost, each payload
    /// is looked at. Says how many.
    pub(crate) fn forget_missing(&mut self, may_be_lost: bool) -> u64 {
        let missing = |queues: &Self, entry: &Entry| {
            let medium = queues.sources.get(entry.source).map(|source| &source.medium);
            let is_there = |medium: &Medium| match medium {
                Medium::File(_) => true,
                Medium::Slot(_) => !may_be_lost || entry.bytes_in(medium).is_ok(),
                Medium::Journal(_) => false,
            };
            entry.is_alive() && !medium.is_some_and(is_there)
        };
        while self.pending.iter().any(|pending| missing(self, &pending.template)) {
            self.make_some(usize::MAX);
        }
        let missing: Vec<u32> =
            self.slab.iter().filter(|(_, entry)| missing(self, entry)).map(|(number, _)| number).collect();
        missing.iter().for_each(|number| self.remove(*number, None));
        missing.len() as u64
    }

    fn change_by_id(&mut self, id: u64, change: impl FnOnce(&mut Entry)) {
        if let Some((number, _)) = self.made(id) {
            self.change(number, change);
        }
    }

    fn end(&mut self, ids: &[u64], at: i64, now: Now, count: impl Fn(&mut Counts)) {
        let until = now.end_of(at, micros(ID_KEPT_MS));
        for id in ids {
            let Some((number, entry)) = self.made(*id) else { continue };
            if let Some(queue) = self.queues.get_mut(&entry.queue) {
                count(&mut queue.counts);
            }
            self.remove(number, Some(until));
        }
    }

    fn apply_sent(&mut self, sent: &MessageRecord<'_>, (source, offset): (u16, u32), now: Now) {
        self.next_id = self.next_id.max(sent.id.saturating_add(sent.copies.max(1).into()));
        let group = sent.group.unwrap_or_default();
        let is_copy = sent.to == Recipient::All;
        let mut entry = Entry {
            id: sent.id,
            known_as: sent.known_as.map_or([0; 2], |(id, _)| id),
            group: sent.group.map_or(0, |group| self.group_hash(group)),
            sent_at: sent.at,
            expires: sent.ttl.map_or(NEVER, |ttl| now.end_of(sent.at, ttl)),
            content: sent.known_as.map_or(0, |(_, content)| content),
            offset,
            bytes: cast_or_nearest(group.len() + sent.text.len(), "a payload fits a slot of less than 4 GiB"),
            queue: sent.queue,
            sender: sent.sender,
            source,
            ..Entry::FREE
        };
        set_due(&mut entry, now.end_of(sent.at, sent.delay), now);
        entry.set_packed(group.len(), if is_copy { COPY } else { 0 });
        if let Some(queue) = self.queues.get_mut(&sent.queue) {
            queue.counts.sent += u64::from(sent.copies);
        }
        match sent.to {
            Recipient::All => self.apply_copies(sent, entry, now),
            Recipient::One(receiver) => {
                self.add(Entry { receiver, ..entry });
            }
            Recipient::Anyone => {
                self.add(entry);
            }
        }
    }

    fn apply_copies(&mut self, sent: &MessageRecord<'_>, first: Entry, now: Now) {
        let mut pending = PendingBroadcast::new(first, self.registered_but(sent.sender));
        if sent.known_as.is_none() {
            self.add_pending(pending);
            return;
        }
        let keeper = pending.take_first();
        pending.template.known_as = [0, sent.id];
        pending.template.set_packed(sent.group.map_or(0, str::len), COPY | LINKED);
        let entry = Entry { state: State::Gone, ..first };
        let number = keeper.map(|copy| self.add(copy)).unwrap_or_else(|| {
            let number = self.slab.add(entry);
            self.remember_sender_id(number, &entry);
            number
        });
        self.broadcasts
            .insert(sent.id, Broadcast { copies: sent.copies, waiting: sent.copies, entry: number });
        self.add_pending(pending);
        if keeper.is_none() {
            self.remember(number, &entry, Some(now.end_of(sent.at, micros(ID_KEPT_MS))));
        }
    }

    /// What a client who goes has not taken of what was sent to everybody goes too.
    fn drop_copies(&mut self, client: u32, kept: &[u64], now: Now) {
        self.make_copies_for(client);
        let until = now.end_of(now.wall, micros(ID_KEPT_MS));
        let copies: Vec<u64> =
            self.copies.range((client, 0)..=(client, u64::MAX)).map(|(_, id)| *id).collect();
        for id in copies {
            if !kept.contains(&id)
                && let Some((number, _)) = self.find(id)
            {
                self.remove(number, Some(until));
            }
        }
    }

    /// Moves a message to another queue, where it may be taken at once.
    fn move_to(&mut self, number: u32, to: u32, why: Option<Dead>) {
        let entry = self.slab.get(number);
        self.forget_dead(&entry);
        if let Some(why) = why {
            self.dead.insert(entry.id, why);
            if let Some(queue) = self.queues.get_mut(&to) {
                queue.counts.dead_letters += 1;
            }
        }
        if entry.deliveries > 0 {
            let earlier = self.earlier_deliveries.entry(entry.id).or_default();
            *earlier = earlier.saturating_add(entry.deliveries.into());
        }
        self.change(number, |entry| {
            (entry.queue, entry.state, entry.deliveries) = (to, State::Ready, 0);
            (entry.at, entry.expires) = (NEVER, NEVER);
        });
    }

    /// Makes messages exhausted or ready by a limit of deliveries that was changed.
    fn apply_delivery_limit(&mut self, queue: u32) {
        let Some(queue) = self.queues.get(&queue) else { return };
        let changed = queue.all.iter().filter_map(|id| {
            let (number, entry) = self.find(id)?;
            match (entry.state, queue.settings.exhausts(entry.deliveries)) {
                (State::Ready | State::Expired, true) => Some((number, State::Exhausted)),
                // If it has outlived its time, it expires with the next step of time.
                (State::Exhausted, false) => Some((number, State::Ready)),
                _ => None,
            }
        });
        for (number, state) in changed.collect::<Vec<_>>() {
            self.change(number, |entry| (entry.state, entry.at) = (state, NEVER));
        }
    }
}

/// A message may be taken at this time, or now, unless it outlived its own meanwhile.
fn set_due(entry: &mut Entry, until: i64, now: Now) {
    entry.at = if until > now.at { until } else { NEVER };
    entry.state = if entry.expires <= now.at {
        State::Expired
    } else if entry.at == NEVER {
        State::Ready
    } else {
        State::Delayed
    };
}
