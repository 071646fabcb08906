//! Finding what is there, or saying that it must be loaded.

use std::ops::Bound;
use std::sync::Arc;

use hubbub_core::Refusal;
use hubbub_core::invariant::saturate;
use hubbub_core::queue::{Freed, TakeFilter};

use super::{ANYBODY, Frontier, GroupKey, LoadRequest, Message, Place, Queue, Stop, WorkingSet};

impl WorkingSet {
    pub(crate) fn find_queue(&self, name: &str) -> Result<Option<i32>, LoadRequest> {
        let found = self.names.get(name).copied();
        if found.is_none() && !self.has_all_queues && !self.queried_names.contains(name) {
            return Err(LoadRequest::Queue(name.into()));
        }
        Ok(found)
    }

    /// A queue that must be there.
    pub(crate) fn queue_named(&self, name: &str) -> Result<(i32, &Queue), Stop> {
        let no = self.find_queue(name)?.ok_or(Refusal::UnknownQueue)?;
        Ok((no, self.queues.get(&no).ok_or(Refusal::UnknownQueue)?))
    }

    /// The number of a client, who need not be registered.
    pub(crate) fn client(&self, name: &str) -> Option<i32> {
        self.clients.get(name).map(|client| client.no)
    }

    pub(crate) fn client_name(&self, no: i32) -> Arc<str> {
        self.client_names.get(&no).map_or_else(|| Arc::from(""), Arc::clone)
    }

    /// Whom a message waits for; `None` = anybody.
    pub(crate) fn receiver_name(&self, no: i32) -> Option<Arc<str>> {
        (no != ANYBODY).then(|| self.client_name(no))
    }

    /// A message that is there, of this queue.
    pub(crate) fn message_in(&self, queue: i32, id: u64) -> Option<&Message> {
        let message = self.messages.get(&signed(id))?;
        (message.queue == queue && !message.is_gone).then_some(message)
    }

    /// Messages a queue holds, and bytes of their texts.
    pub(crate) fn held(&self, no: i32) -> Result<(i64, i64), LoadRequest> {
        let Some(queue) = self.queues.get(&no) else { return Ok((0, 0)) };
        let (messages, bytes) = queue.held.ok_or(LoadRequest::Counts(no))?;
        Ok((messages + queue.added.messages, bytes + queue.added.bytes))
    }

    /// Places of what a filter wants; `queue` is the number of the queue that it names.
    pub(crate) fn places_of(&self, wanted: &TakeFilter<'_>, queue: Option<i32>) -> Vec<Place> {
        let sender = wanted.sender.map(|sender| self.client(sender));
        let queues: Vec<i32> = match (wanted.queue, queue) {
            // Nobody knows this sender.
            _ if sender == Some(None) => Vec::new(),
            (Some(_), queue) => queue.into_iter().collect(),
            (None, _) => self.names.values().copied().collect(),
        };
        let receiver = wanted.receiver.and_then(|receiver| self.client(receiver));
        let (sender, newest_first) = (sender.flatten(), wanted.newest_first);
        let of_queue = |queue| {
            let receivers = receiver.into_iter().chain([ANYBODY]);
            receivers.map(move |receiver| Place { queue, receiver, sender, newest_first })
        };
        queues.into_iter().flat_map(of_queue).collect()
    }

    /// The id up to which a place is loaded.
    pub(crate) fn loaded_to(&self, place: &Place) -> i64 {
        let start = if place.newest_first { i64::MAX } else { 0 };
        self.frontiers.get(place).map_or(start, |frontier| frontier.to)
    }

    /// The first message of a place, or the first behind one.
    pub(crate) fn next_of(&self, place: &Place, behind: Option<i64>) -> Result<Option<i64>, LoadRequest> {
        let suits = |id: &&i64| {
            let message = self.messages.get(*id);
            place.sender.is_none_or(|sender| message.is_some_and(|message| message.sender == sender))
        };
        let line = self.ready.get(&(place.queue, place.receiver));
        let found = line.and_then(|ids| {
            let begin = behind.map_or(Bound::Unbounded, Bound::Excluded);
            if place.newest_first {
                ids.range((Bound::Unbounded, begin)).rev().find(suits)
            } else {
                ids.range((begin, Bound::Unbounded)).find(suits)
            }
        });
        let found = found.copied();
        // Whoever is new has nothing in the database.
        if place.receiver < ANYBODY || place.sender.is_some_and(|sender| sender < ANYBODY) {
            return Ok(found);
        }
        let Some(Frontier { to, is_complete }) = self.frontiers.get(place) else {
            return Err(LoadRequest::Place(*place));
        };
        let is_certain = found.is_some_and(|id| if place.newest_first { id >= *to } else { id <= *to });
        if *is_complete || is_certain { Ok(found) } else { Err(LoadRequest::Place(*place)) }
    }

    /// The first message of a group that is not over, behind `id`.
    pub(crate) fn next_in_group(&self, key: &GroupKey, id: i64) -> Result<Option<i64>, LoadRequest> {
        let need = || LoadRequest::Group(key.clone());
        let group = self.groups.get(key).ok_or_else(need)?;
        let frontier = group.frontier.ok_or_else(need)?;
        let found = group.alive.range((Bound::Excluded(id), Bound::Unbounded)).next().copied();
        let is_certain = frontier.is_complete || found.is_some_and(|id| id <= frontier.to);
        if is_certain { Ok(found) } else { Err(need()) }
    }

    /// Whether a group has a message that is not over.
    pub(crate) fn group_has_any(&self, key: &GroupKey) -> Result<bool, LoadRequest> {
        if self.groups.get(key).is_some_and(|group| !group.alive.is_empty()) {
            return Ok(true);
        }
        Ok(self.next_in_group(key, 0)?.is_some())
    }

    /// Makes sure that a message can leave its group.
    pub(crate) fn can_leave(&self, id: i64) -> Result<(), LoadRequest> {
        let Some(message) = self.messages.get(&id) else { return Ok(()) };
        match message.group_key() {
            // With the next one all before it are loaded, too.
            Some(key) if message.is_alive() => self.next_in_group(&key, id).map(drop),
            _ => Ok(()),
        }
    }

    /// Makes sure that a message can come back from its lease.
    pub(crate) fn can_come_back(&self, id: i64) -> Result<(), LoadRequest> {
        let key = self.messages.get(&id).filter(|message| !message.behind).and_then(Message::group_key);
        key.map_or(Ok(()), |key| self.next_in_group(&key, 0).map(drop))
    }

    /// Makes sure that a message can come into the same group of another queue.
    pub(crate) fn can_join(&self, id: i64, queue: i32) -> Result<(), LoadRequest> {
        let Some(message) = self.messages.get(&id) else { return Ok(()) };
        match message.group_key() {
            Some(key) => self.next_in_group(&GroupKey { queue, ..key }, 0).map(drop),
            None => Ok(()),
        }
    }

    /// What was freed by the operation under way and may still be taken.
    pub(crate) fn take_freed(&mut self) -> Box<[Freed]> {
        let freed = std::mem::take(&mut self.freed);
        let freed = freed.iter().filter_map(|id| {
            let message = self.messages.get(id).filter(|message| message.is_open())?;
            Some(Freed {
                queue: Arc::clone(&self.queues.get(&message.queue)?.name),
                id: unsigned(message.id),
                sender: self.client_name(message.sender),
                receiver: self.receiver_name(message.receiver),
            })
        });
        freed.collect()
    }
}

/// An id as others know it. The database gives none below 1.
pub(crate) fn unsigned(id: i64) -> u64 {
    saturate(id)
}

/// An id as the database has it. Those beyond its range are nobody's.
pub(crate) fn signed(id: u64) -> i64 {
    saturate(id)
}
