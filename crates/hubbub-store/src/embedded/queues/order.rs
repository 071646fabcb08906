//! The order messages are taken in, and what else finds them: every change of a message goes through here.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::Freed;

use super::entry::{COPY, Entry, LINKED, NEVER, State};
use super::{FromSender, InQueue, Queues, WakeTarget, mix};

pub(super) fn in_queue(entry: &Entry) -> InQueue {
    (entry.queue, entry.receiver, entry.id)
}

/// Queue, receiver, group, whether it waits, id.
pub(super) type InGroup = (u32, u32, u64, bool, u64);

/// Where a message stands in its group: one on lease is the first, as it holds up even those that a redrive brings back before it.
fn in_group(entry: &Entry) -> InGroup {
    (entry.queue, entry.receiver, entry.group, entry.state != State::Leased, entry.id)
}

pub(super) fn from_sender(entry: &Entry) -> FromSender {
    sender_key(entry.receiver, entry.sender, entry.queue, entry.id)
}

#[allow(clippy::cast_possible_truncation, reason = "the halves of an id are meant")]
pub(super) fn sender_key(receiver: u32, sender: u32, queue: u32, id: u64) -> FromSender {
    [receiver, sender, queue, (id >> 32) as u32, id as u32]
}

fn set<K: Ord>(keys: &mut BTreeSet<K>, key: K, comes: bool) {
    if comes {
        keys.insert(key);
    } else {
        keys.remove(&key);
    }
}

impl Queues {
    pub(super) fn add(&mut self, entry: Entry) -> u32 {
        let number = self.keep(entry);
        self.attach(number, &entry, false);
        number
    }

    /// Adds one of very many messages. What can be taken is given to `offered`, to be entered with all others.
    pub(super) fn add_many(&mut self, entry: Entry, offered: &mut Vec<Entry>) -> u32 {
        if entry.state != State::Ready || entry.group != 0 || entry.expires != NEVER {
            return self.add(entry);
        }
        let number = self.keep(entry);
        self.count(&entry, 1, true);
        offered.push(entry);
        number
    }

    /// Enters what [`Self::add_many`] gave: in order, that is many times faster and takes less memory.
    pub(super) fn offer_many(&mut self, offered: &[Entry]) {
        let mut ready = offered.iter().map(in_queue).collect();
        self.ready.append(&mut ready);
        let mut by_sender = offered.iter().map(from_sender).collect();
        self.by_sender.append(&mut by_sender);
    }

    /// Enters a message by all that does not change as it waits.
    fn keep(&mut self, entry: Entry) -> u32 {
        let number = self.slab.add(entry);
        self.ids.insert_unique(mix(entry.id), number, |number| mix(self.slab.get(*number).id));
        if entry.is_known() {
            self.remember_sender_id(number, &entry);
        }
        if entry.has(COPY) {
            self.copies.insert((entry.receiver, entry.id));
        }
        self.sources.count(&entry, 1, true);
        if let Some(queue) = self.queues.get_mut(&entry.queue) {
            queue.all.insert(entry.id);
            queue.counts.dead_letters += u64::from(self.dead.contains_key(&entry.id));
        }
        number
    }

    pub(super) fn remember_sender_id(&mut self, number: u32, entry: &Entry) {
        self.known.insert_unique(entry.known_as[0], number, |number| self.slab.get(*number).known_as[0]);
    }

    /// Changes how a message stands, in which queue, or when it ends.
    pub(super) fn change(&mut self, number: u32, change: impl FnOnce(&mut Entry)) {
        let before = self.slab.get(number);
        let mut entry = before;
        change(&mut entry);
        let keeps_group = before.queue == entry.queue && before.is_in_group() && entry.is_in_group();
        if keeps_group && in_group(&before) != in_group(&entry) {
            self.groups.remove(&in_group(&before));
            self.groups.insert(in_group(&entry));
        }
        self.detach(number, &before, keeps_group);
        self.slab.edit(number, |place| *place = entry);
        if before.queue != entry.queue {
            if let Some(queue) = self.queues.get_mut(&before.queue) {
                queue.all.remove(before.id);
            }
            if let Some(queue) = self.queues.get_mut(&entry.queue) {
                queue.all.insert(entry.id);
            }
        }
        self.attach(number, &entry, keeps_group);
        // It may have come back from its lease behind one that a redrive brought meanwhile.
        if keeps_group
            && before.state == State::Leased
            && let Some((first, other)) = self.first_of_group(&entry)
            && first != number
            && other.state == State::Ready
        {
            self.offer(first, &other);
        }
    }

    /// A message waits no more. Its sender's id is remembered until then; `None` = not at all.
    pub(super) fn remove(&mut self, number: u32, until: Option<i64>) {
        let entry = self.slab.get(number);
        self.detach(number, &entry, false);
        if let Ok(found) = self.ids.find_entry(mix(entry.id), |other| *other == number) {
            found.remove();
        }
        if let Some(queue) = self.queues.get_mut(&entry.queue) {
            queue.all.remove(entry.id);
        }
        self.earlier_deliveries.remove(&entry.id);
        self.forget_dead(&entry);
        if entry.has(COPY) {
            self.copies.remove(&(entry.receiver, entry.id));
        }
        self.sources.count(&entry, 1, false);
        if entry.has(COPY) && (entry.is_known() || entry.has(LINKED)) {
            self.remove_copy(number, &entry, until);
        } else if entry.is_known() {
            self.remember(number, &entry, until);
        } else {
            self.slab.remove(number);
        }
    }

    /// Forgets why a message is in a dead-letter queue, if it is.
    pub(super) fn forget_dead(&mut self, entry: &Entry) {
        if self.dead.remove(&entry.id).is_some()
            && let Some(queue) = self.queues.get_mut(&entry.queue)
        {
            queue.counts.dead_letters = queue.counts.dead_letters.saturating_sub(1);
        }
    }

    /// The entry of the first copy keeps the id as long as any copy waits.
    fn remove_copy(&mut self, number: u32, entry: &Entry, until: Option<i64>) {
        let first = if entry.has(LINKED) { entry.known_as[1] } else { entry.id };
        if entry.has(LINKED) {
            self.slab.remove(number);
        } else {
            self.slab.edit(number, |place| place.state = State::Gone);
        }
        self.release_copies(first, 1, until);
    }

    /// So many copies wait no more of the message to everybody whose first has this id. With the last one, the id of its
    /// sender is remembered until then; `None` = not at all.
    pub(super) fn release_copies(&mut self, first: u64, copies: u64, until: Option<i64>) {
        let Some(broadcast) = self.broadcasts.get_mut(&first) else { return };
        broadcast.waiting = broadcast.waiting.saturating_sub(saturate::<_, u32>(copies));
        if broadcast.waiting == 0 {
            let keeper = broadcast.entry;
            let entry = self.slab.get(keeper);
            self.remember(keeper, &entry, until);
        }
    }

    /// Remembers the sender's id of a message that is gone, and lets go of its entry; `None` = without remembering it.
    pub(super) fn remember(&mut self, number: u32, entry: &Entry, until: Option<i64>) {
        if let Ok(found) = self.known.find_entry(entry.known_as[0], |other| *other == number) {
            found.remove();
        }
        if let Some(until) = until {
            self.settled.insert(self.settled_id(entry, until));
        }
        self.broadcasts.remove(&entry.id);
        self.slab.remove(number);
    }

    /// Enters a message into the sets that its state asks for, but for that of its group if it is still there.
    fn attach(&mut self, number: u32, entry: &Entry, kept_group: bool) {
        self.index(number, entry, true);
        if !entry.is_in_group() {
            return;
        }
        if !kept_group {
            self.groups.insert(in_group(entry));
        }
        if self.first_of_group(entry).is_some_and(|(first, _)| first == number) {
            if !kept_group && let Some((_, next)) = self.next_of_group(entry) {
                self.withdraw(&next);
            }
            if entry.state == State::Ready {
                self.offer(number, entry);
            }
        }
    }

    /// Takes a message out of all sets that its state asked for, but for that of its group if it keeps its place there.
    fn detach(&mut self, number: u32, entry: &Entry, keeps_group: bool) {
        self.index(number, entry, false);
        if entry.is_in_group() && !keeps_group {
            let was_first = self.first_of_group(entry).is_some_and(|(first, _)| first == number);
            self.groups.remove(&in_group(entry));
            if was_first
                && let Some((next, other)) = self.first_of_group(entry)
                && other.state == State::Ready
            {
                self.offer(next, &other);
            }
        }
    }

    /// Counts a message, and enters it into the sets of all messages that stand as it does, or takes it out. One of a
    /// group is offered by what knows the group.
    fn index(&mut self, number: u32, entry: &Entry, comes: bool) {
        self.count(entry, 1, comes);
        match entry.state {
            State::Ready if !comes => self.withdraw(entry),
            State::Ready if entry.group == 0 => self.offer(number, entry),
            State::Ready => {}
            State::Delayed | State::Leased => set(&mut self.timed, (entry.at, entry.id), comes),
            // Its life is over for sure, one way or the other.
            State::Exhausted => return set(&mut self.exhausted, entry.id, comes),
            State::Expired => return set(&mut self.expired, entry.id, comes),
            State::Gone | State::Free => return,
        }
        if entry.expires != NEVER {
            set(&mut self.expiring, (entry.expires, entry.id), comes);
        }
    }

    /// The message of the group that an entry is of that holds up all others.
    fn first_of_group(&self, entry: &Entry) -> Option<(u32, Entry)> {
        let begin = (entry.queue, entry.receiver, entry.group, false, 0);
        self.in_groups(entry, Bound::Included(begin))
    }

    /// The message behind an entry in its group.
    pub(super) fn next_of_group(&self, entry: &Entry) -> Option<(u32, Entry)> {
        self.in_groups(entry, Bound::Excluded(in_group(entry)))
    }

    fn in_groups(&self, entry: &Entry, begin: Bound<InGroup>) -> Option<(u32, Entry)> {
        let end = (entry.queue, entry.receiver, entry.group, true, u64::MAX);
        let (.., id) = self.groups.range((begin, Bound::Included(end))).next()?;
        self.find(*id)
    }

    fn offer(&mut self, number: u32, entry: &Entry) {
        self.ready.insert(in_queue(entry));
        self.by_sender.insert(from_sender(entry));
        match self.wake_target {
            WakeTarget::Nobody => {}
            WakeTarget::Outcome => self.freed.push(number),
            WakeTarget::Sweep => {
                self.woken.insert(entry.queue);
            }
        }
    }

    fn withdraw(&mut self, entry: &Entry) {
        if self.ready.remove(&in_queue(entry)) {
            self.by_sender.remove(&from_sender(entry));
        }
    }

    /// Messages whose payloads cannot be read are not offered any more, so that nobody has to pass over them: until
    /// something about them changes, or a restart. They go on waiting, may be removed by their ids, and hold up those
    /// behind them in their groups, whose order counts.
    pub(super) fn set_aside(&mut self, unreadable: &[Entry]) {
        for entry in unreadable {
            // It may have been taken since it was read, or be in another place now.
            let is_offered = |now: &Entry| now.state == State::Ready && in_queue(now) == in_queue(entry);
            if !self.find(entry.id).is_some_and(|(_, now)| is_offered(&now)) {
                continue;
            }
            tracing::error!(
                id = entry.id,
                queue = self.queues.get(&entry.queue).map(|queue| &*queue.name),
                "the text of a message cannot be read; it is passed over until a restart and may be removed by its id"
            );
            self.withdraw(entry);
        }
    }

    /// Counts so many messages that stand as `entry` does.
    pub(super) fn count(&mut self, entry: &Entry, messages: u64, comes: bool) {
        let Some(queue) = self.queues.get_mut(&entry.queue) else { return };
        let counts = &mut queue.counts;
        let number = match entry.state {
            State::Expired if entry.at != NEVER => &mut counts.delayed,
            State::Ready | State::Exhausted | State::Expired => &mut counts.ready,
            State::Delayed => &mut counts.delayed,
            State::Leased => &mut counts.leased,
            State::Gone | State::Free => return,
        };
        *number = if comes { *number + messages } else { number.saturating_sub(messages) };
        let text = entry.payload_bytes().saturating_mul(messages);
        counts.bytes = if comes { counts.bytes + text } else { counts.bytes.saturating_sub(text) };
    }

    /// What was freed by the operation under way and may still be taken.
    pub(super) fn take_freed(&mut self) -> Box<[Freed]> {
        let freed = std::mem::take(&mut self.freed);
        let told = freed.iter().filter_map(|number| {
            let entry = self.slab.get(*number);
            let queue = self.queues.get(&entry.queue)?;
            self.ready.contains(&in_queue(&entry)).then(|| Freed {
                queue: Arc::clone(&queue.name),
                id: entry.id,
                sender: self.client_name(entry.sender),
                receiver: (entry.receiver != 0).then(|| self.client_name(entry.receiver)),
            })
        });
        told.collect()
    }
}
