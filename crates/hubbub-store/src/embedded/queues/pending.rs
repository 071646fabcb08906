//! Messages to everybody whose copies are made bit by bit, so that no batch pays for all receivers at once.
//!
//! The record of such a message is applied in constant time: ids are reserved, the receivers are a copy of the bitmap of
//! registered clients, and the copies are counted as a whole. An entry of its own gets a copy when a sweep comes to it
//! ([`Queues::make_some`]), or before somebody looks for its receiver's messages ([`Queues::make_copies_for`]) or changes
//! it ([`Queues::made`]).
//!
//! Invariants
//! - Whether a copy is made is never seen: until then it is counted (queue, source, id of its sender), it is in the
//!   queue's `all`, and [`Queues::entry_of`] shows it as it would be.
//! - No record says that a copy was made: a start and a checkpoint may have others made than the server that went.
//! - Copies of one message are in one state until they are made; only time changes it ([`Queues::advance_pending`]).
//! - At most [`BroadcastOptions::messages_max`] messages are pending, which bounds what one look for a receiver costs.

use std::collections::VecDeque;
use std::sync::Arc;

use hubbub_core::invariant::saturate;
use roaring::RoaringBitmap;

use super::entry::{Entry, NEVER, State};
use super::source::Sources;
use super::time::Now;
use super::{Queues, WakeTarget};
use crate::embedded::{BroadcastOptions, EngineOptions};

/// What bounds the work and the memory of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Registered clients.
    pub(crate) clients_max: u64,
    /// How copies of messages to everybody are made.
    pub(crate) broadcasts: BroadcastOptions,
}

impl Default for QueueLimits {
    fn default() -> Self {
        EngineOptions::default().queue_limits()
    }
}

/// A message to everybody, as long as not all of its copies are made.
#[derive(Debug, Clone)]
pub(super) struct PendingBroadcast {
    /// What is the same in all copies that are not made; its id is that of the first copy.
    pub(super) template: Entry,
    /// Everybody it is for, by number: the id of the n-th one's copy is `n` above that of the first.
    receivers: Arc<RoaringBitmap>,
    /// Those whose copies are not made.
    unmade: RoaringBitmap,
}

impl PendingBroadcast {
    pub(super) fn new(template: Entry, receivers: RoaringBitmap) -> Self {
        let unmade = receivers.clone();
        Self { template, receivers: Arc::new(receivers), unmade }
    }

    /// The first copy, which is made by itself; `None` when it is for nobody.
    pub(super) fn take_first(&mut self) -> Option<Entry> {
        let first = self.copies().next()?;
        self.unmade.remove(first.receiver);
        Some(first)
    }

    pub(super) fn unmade(&self) -> u64 {
        self.unmade.len()
    }

    /// Place of the first copy that is not made.
    fn first_unmade(&self) -> u64 {
        self.unmade.min().map_or(0, |first| self.receivers.rank(first).saturating_sub(1))
    }

    fn copy(&self, place: u64, receiver: u32) -> Entry {
        Entry { id: self.template.id.saturating_add(place), receiver, ..self.template }
    }

    /// A receiver's copy, if it is not made.
    fn copy_for(&self, receiver: u32) -> Option<Entry> {
        let is_unmade = self.unmade.contains(receiver);
        is_unmade.then(|| self.copy(self.receivers.rank(receiver).saturating_sub(1), receiver))
    }

    /// The copy of an id, if it is not made.
    fn copy_of_id(&self, id: u64) -> Option<Entry> {
        let place = id.checked_sub(self.template.id)?;
        let receiver = self.receivers.select(u32::try_from(place).ok()?)?;
        self.unmade.contains(receiver).then(|| self.copy(place, receiver))
    }

    /// The payload of the copies that are not made stands elsewhere from now on.
    pub(super) fn move_payload(&mut self, sources: &mut Sources, (source, offset): (u16, u32)) {
        sources.count(&self.template, self.unmade(), false);
        (self.template.source, self.template.offset) = (source, offset);
        sources.count(&self.template, self.unmade(), true);
    }

    /// Copies that are not made, in the order of their ids.
    pub(super) fn copies(&self) -> impl Iterator<Item = Entry> + '_ {
        let mut receivers = self.receivers.iter();
        receivers.advance_to(self.unmade.min().unwrap_or_default());
        let copies =
            (self.first_unmade()..).zip(receivers).filter(|(_, receiver)| self.unmade.contains(*receiver));
        copies.map(|(place, receiver)| self.copy(place, receiver))
    }
}

impl Queues {
    /// A message that waits, whether it has an entry or is a copy that is not made.
    pub(super) fn entry_of(&self, id: u64) -> Option<Entry> {
        self.find(id).map(|(_, entry)| entry).or_else(|| Some(self.unmade_copy(id)?.1))
    }

    /// The message of a queue that has an id, as [`Self::entry_of`] shows it.
    pub(super) fn entry_in(&self, queue: u32, id: u64) -> Option<Entry> {
        self.entry_of(id).filter(|entry| entry.queue == queue)
    }

    fn unmade_copy(&self, id: u64) -> Option<(usize, Entry)> {
        let behind = self.pending.partition_point(|pending| pending.template.id <= id);
        let place = behind.checked_sub(1)?;
        Some((place, self.pending.get(place)?.copy_of_id(id)?))
    }

    /// The entry of a waiting message, made if it is a copy that is not.
    pub(super) fn made(&mut self, id: u64) -> Option<(u32, Entry)> {
        if let Some(found) = self.find(id) {
            return Some(found);
        }
        let (place, copy) = self.unmade_copy(id)?;
        let number = self.make_copy(place, copy);
        self.drop_complete();
        Some((number, copy))
    }

    /// Makes all copies for a receiver: before anything is chosen for it.
    pub(super) fn make_copies_for(&mut self, receiver: u32) {
        for place in 0..self.pending.len() {
            if let Some(copy) = self.pending.get(place).and_then(|pending| pending.copy_for(receiver)) {
                self.make_copy(place, copy);
            }
        }
        self.drop_complete();
    }

    /// The same for a receiver by name, if there is one.
    pub(super) fn make_copies_for_name(&mut self, receiver: Option<&str>) {
        if !self.pending.is_empty()
            && let Some(receiver) = receiver.and_then(|receiver| self.client_number(receiver))
        {
            self.make_copies_for(receiver);
        }
    }

    /// Makes up to so many copies, of the oldest message first.
    pub(super) fn make_some(&mut self, most: usize) {
        self.make_of(0, most);
    }

    fn make_of(&mut self, place: usize, most: usize) {
        let Some(pending) = self.pending.get(place) else { return };
        let copies: Vec<Entry> = pending.copies().take(most).collect();
        for copy in copies {
            self.make_copy(place, copy);
        }
        self.drop_complete();
    }

    /// Whether one more message to everybody with so many copies can be taken on.
    pub(super) fn has_room_for_broadcast(&self, copies: u32) -> bool {
        let limits = &self.limits.broadcasts;
        let pending: u64 = self.pending.iter().map(PendingBroadcast::unmade).sum();
        let fits = self.pending.len() < limits.messages_max
            && pending.saturating_add(copies.into()) <= limits.copies_max;
        fits || copies <= limits.at_once || self.pending.is_empty()
    }

    /// Takes on a message to everybody. A start may find more than there is room for, which were sent when others were
    /// complete.
    pub(super) fn add_pending(&mut self, pending: PendingBroadcast) {
        let (template, copies) = (pending.template, pending.unmade());
        if copies == 0 {
            return;
        }
        let short = saturate::<_, u32>(copies);
        while !self.has_room_for_broadcast(short) {
            self.make_some(usize::MAX);
        }
        self.count(&template, copies, true);
        self.sources.count(&template, copies, true);
        if let Some(queue) = self.queues.get_mut(&template.queue) {
            let first = template.id.saturating_add(pending.first_unmade());
            queue.all.insert_range(first..template.id.saturating_add(pending.receivers.len()));
        }
        self.pending.push_back(pending);
        if short <= self.limits.broadcasts.at_once {
            self.make_of(self.pending.len() - 1, usize::MAX);
        }
    }

    /// Gives a copy an entry. It is counted already, and whoever waits for it was woken when it was sent.
    fn make_copy(&mut self, place: usize, copy: Entry) -> u32 {
        if let Some(pending) = self.pending.get_mut(place) {
            pending.unmade.remove(copy.receiver);
        }
        self.count(&copy, 1, false);
        self.sources.count(&copy, 1, false);
        let wake_target = std::mem::replace(&mut self.wake_target, WakeTarget::Nobody);
        let number = self.add(copy);
        self.wake_target = wake_target;
        number
    }

    fn drop_complete(&mut self) {
        self.pending.retain(|pending| pending.unmade() > 0);
    }

    /// Gives up the copies that are not made of messages to a queue that is gone.
    pub(super) fn drop_pending_of(&mut self, queue: u32) {
        let pending = std::mem::take(&mut self.pending).into_iter();
        let (gone, rest) = pending.partition::<VecDeque<_>, _>(|pending| pending.template.queue == queue);
        self.pending = rest;
        for PendingBroadcast { template, unmade, .. } in gone {
            self.sources.count(&template, unmade.len(), false);
            self.release_copies(template.id, unmade.len(), None);
        }
    }

    /// Ends delays and lives of copies that are not made.
    pub(super) fn advance_pending(&mut self, now: Now) {
        for place in 0..self.pending.len() {
            let Some(PendingBroadcast { template, unmade, .. }) = self.pending.get_mut(place) else { return };
            let (before, copies) = (*template, unmade.len());
            if template.state == State::Delayed && template.at <= now.at {
                (template.state, template.at) = (State::Ready, NEVER);
            }
            if template.state != State::Expired && template.expires <= now.at {
                template.state = State::Expired;
            }
            let after = *template;
            if before == after {
                continue;
            }
            self.count(&before, copies, false);
            self.count(&after, copies, true);
            if after.state == State::Ready {
                self.woken.insert(after.queue);
            }
        }
    }
}
