//! Messages to everybody whose copies are not all made.
//!
//! A copy that is not made is counted with its queue, and is listed like any other. It is made in the working set before anything
//! is chosen for its receiver, and written if it still waits when the batch ends.

use std::collections::BTreeMap;

use hubbub_core::invariant::saturate;

use super::members::{CHUNK, Members, chunk_of};
use super::{ANYBODY, Counts, LoadRequest, Message, State, WorkingSet};

/// A message to everybody, as long as not all of its copies are made.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    /// What is the same in all copies; its id is that of the first.
    pub(crate) template: Message,
    pub(crate) unmade: i64,
    pub(crate) is_new: bool,
    pub(crate) is_changed: bool,
}

/// Some of those it is for.
#[derive(Debug, Clone)]
pub(crate) struct PendingChunk {
    /// Id of the copy for the first of them.
    pub(crate) low: i64,
    pub(crate) receivers: Members,
    pub(crate) unmade: Members,
    pub(crate) is_changed: bool,
}

impl PendingChunk {
    pub(crate) fn high(&self) -> i64 {
        self.low + self.receivers.count() - 1
    }

    /// The id of a receiver's copy.
    pub(crate) fn id_of(&self, bit: i32) -> i64 {
        self.low + self.receivers.rank(bit)
    }

    /// Copies that are not made: ids, and the receivers' numbers.
    pub(crate) fn copies(&self, chunk: i32) -> impl Iterator<Item = (i64, i32)> + '_ {
        let all = (self.low..).zip(self.receivers.bits());
        all.filter(|(_, bit)| self.unmade.has(*bit)).map(move |(id, bit)| (id, chunk * CHUNK + bit))
    }
}

impl WorkingSet {
    /// Takes in what the database has, unless it is there already.
    pub(crate) fn insert_pending(&mut self, template: Message, unmade: i64) {
        let pending = Pending { template, unmade, is_new: false, is_changed: false };
        self.pending.entry(pending.template.id).or_insert(pending);
    }

    pub(crate) fn insert_pending_chunk(&mut self, first: i64, chunk: i32, entered: PendingChunk) {
        self.pending_chunks.entry((first, chunk)).or_insert(entered);
    }

    /// Makes all copies for a client of messages to these queues that are loaded.
    pub(crate) fn make_copies_for(&mut self, queues: &[i32], client: i32) {
        let (chunk, bit) = chunk_of(client);
        let meant = |pending: &&Pending| queues.contains(&pending.template.queue);
        let firsts: Vec<i64> = self.pending.values().filter(meant).map(|one| one.template.id).collect();
        for first in firsts {
            self.make_copy(first, chunk, bit);
        }
    }

    /// Makes the copy of an id, if its message is loaded and it is not made.
    pub(crate) fn make_copy_of_id(&mut self, id: i64) {
        let found = self.pending_chunks.iter().find_map(|((first, chunk), part)| {
            let bit = part.receivers.at_rank(id.checked_sub(part.low).filter(|rank| *rank >= 0)?)?;
            Some((*first, *chunk, bit))
        });
        if let Some((first, chunk, bit)) = found {
            self.make_copy(first, chunk, bit);
        }
    }

    pub(crate) fn make_chunk(&mut self, first: i64, chunk: i32) {
        self.make_some(first, chunk, usize::MAX);
    }

    /// Makes up to so many copies of a chunk.
    pub(crate) fn make_some(&mut self, first: i64, chunk: i32, most: usize) {
        let Some(part) = self.pending_chunks.get(&(first, chunk)) else { return };
        for bit in part.unmade.bits().take(most).collect::<Vec<_>>() {
            self.make_copy(first, chunk, bit);
        }
    }

    /// Makes all copies of messages to a queue that the batch itself has sent.
    pub(crate) fn make_new_of(&mut self, queue: i32) {
        let is_meant = |first: &i64| {
            self.pending.get(first).is_some_and(|one| one.is_new && one.template.queue == queue)
        };
        let chunks = self.pending_chunks.keys().filter(|(first, _)| is_meant(first));
        for (first, chunk) in chunks.copied().collect::<Vec<_>>() {
            self.make_chunk(first, chunk);
        }
    }

    fn make_copy(&mut self, first: i64, chunk: i32, bit: i32) {
        let (Some(pending), Some(part)) =
            (self.pending.get_mut(&first), self.pending_chunks.get_mut(&(first, chunk)))
        else {
            return;
        };
        if pending.unmade <= 0 || !part.unmade.has(bit) {
            return;
        }
        part.unmade.set(bit, false);
        pending.unmade -= 1;
        (part.is_changed, pending.is_changed) = (true, true);
        let (id, receiver) = (part.id_of(bit), chunk * CHUNK + bit);
        let message = Message { id, receiver, copy_of: Some(first), ..pending.template.clone() };
        // It is counted already, and whoever waits for it was woken when it was sent.
        self.insert(message);
    }

    /// Ends delays and lives of copies that are not made.
    pub(crate) fn advance_pending(&mut self) {
        let (now, proven) = (self.now, self.proven);
        for pending in self.pending.values_mut() {
            let template = &mut pending.template;
            let Some(queue) = self.queues.get_mut(&template.queue) else { continue };
            let is_due = template.due_at.is_some_and(|due| due <= now);
            if template.state == State::Delayed && is_due {
                template.state = State::Ready;
                (template.due_at, template.begun_at) = (None, None);
                queue.added.delayed -= pending.unmade;
                pending.is_changed = true;
                self.woken.insert(template.queue);
            }
            if template.state != State::Expired && template.is_expired(proven) {
                template.state = State::Expired;
                pending.is_changed = true;
            }
        }
    }

    /// Clears away copies that are not made and have outlived their time.
    pub(crate) fn drop_expired_pending(&mut self) {
        for pending in self.pending.values_mut().filter(|one| one.template.state == State::Expired) {
            let (template, copies) = (&pending.template, std::mem::take(&mut pending.unmade));
            pending.is_changed = true;
            let Some(queue) = self.queues.get_mut(&template.queue) else { continue };
            queue.added.add(Counts::of(template), -copies);
            queue.added.dropped += copies;
            if let Some(known) = template.known_as {
                *self.known_gone.entry(known).or_default() += copies;
            }
        }
    }

    /// Takes on a new message to everybody: copies for clients that the batch names are made, all others counted.
    pub(crate) fn add_pending(&mut self, template: Message, receivers: &BTreeMap<i32, Members>, new: &[i32]) {
        let named: Vec<i32> = self.clients.values().map(|client| client.no).collect();
        let first = template.id;
        let queue = template.queue;
        let mut low = first;
        let mut pending = Pending { template, unmade: 0, is_new: true, is_changed: true };
        for (chunk, members) in receivers.iter().filter(|(_, members)| !members.is_empty()) {
            let part = PendingChunk { low, receivers: *members, unmade: *members, is_changed: true };
            pending.unmade += members.count();
            low = part.high() + 1;
            self.pending_chunks.insert((first, *chunk), part);
        }
        for (id, receiver) in (low..).zip(new) {
            self.add(Message { id, receiver: *receiver, ..pending.template.clone() });
        }
        self.tally(queue, |added| added.add(Counts::of(&pending.template), pending.unmade));
        self.pending.insert(first, pending);
        for client in named.into_iter().filter(|client| *client > 0) {
            let (chunk, bit) = chunk_of(client);
            self.make_copy(first, chunk, bit);
        }
        if let Some(frontier) = self.oldest.get_mut(&queue) {
            frontier.is_complete = false;
        }
    }
}

/// Clients by the chunks of their numbers, then those who have no number yet.
#[derive(Debug, Default)]
pub(crate) struct Recipients {
    pub(crate) chunks: BTreeMap<i32, Members>,
    pub(crate) new: Vec<i32>,
}

impl Recipients {
    pub(crate) fn count(&self) -> i64 {
        let new: i64 = saturate(self.new.len());
        self.chunks.values().map(Members::count).sum::<i64>().saturating_add(new)
    }

    /// In the order of the copies' ids.
    pub(crate) fn numbers(&self) -> Vec<i32> {
        let numbered = self
            .chunks
            .iter()
            .flat_map(|(chunk, members)| members.bits().map(move |bit| chunk * CHUNK + bit));
        numbered.chain(self.new.iter().copied()).collect()
    }
}

impl WorkingSet {
    /// Whom a message to everybody of this sender is for.
    pub(crate) fn recipients(&self, sender: Option<i32>) -> Result<Recipients, LoadRequest> {
        let mut chunks = self.registered.clone().ok_or(LoadRequest::Registered)?;
        let mut new = Vec::new();
        for client in self.clients.values() {
            let is_meant = client.is_registered && Some(client.no) != sender;
            if client.no > ANYBODY {
                let (chunk, bit) = chunk_of(client.no);
                chunks.entry(chunk).or_default().set(bit, is_meant);
            } else if is_meant {
                new.push(client.no);
            }
        }
        // New ones in the order in which they registered.
        new.sort_unstable_by_key(|no| -no);
        Ok(Recipients { chunks, new })
    }

    /// Whether copies of a message to everybody are made bit by bit. A group orders each copy among others of its
    /// receiver, which takes all of them.
    pub(crate) fn is_made_later(&self, group: Option<&str>, copies: i64) -> bool {
        group.is_none() && copies > i64::from(self.broadcasts.at_once)
    }

    /// Whether one more message whose copies are made later can be taken on.
    pub(crate) fn has_room_for_pending(&self, copies: i64) -> bool {
        let new = self.pending.values().filter(|pending| pending.is_new);
        let (messages, unmade) =
            new.fold(self.pending_before, |(messages, unmade), one| (messages + 1, unmade + one.unmade));
        let limits = &self.broadcasts;
        let fits = messages < limits.messages_max && unmade.saturating_add(copies) <= limits.copies_max;
        fits || messages == 0
    }
}
