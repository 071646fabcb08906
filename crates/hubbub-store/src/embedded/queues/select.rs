//! Shows the rules which messages are available, in sorted sources: parts of the ordered sets.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::Bound;

use hubbub_core::queue::TakeFilter;
use hubbub_core::rules::queues::{Availability, Candidate, Order, Query, Selected, select};

use super::Queues;
use super::entry::{Entry, State};
use super::order::sender_key;

/// Expired messages that one call passes over without finding anything, before it looks on behind them.
const EXPIRED_MAX: usize = 2_000;

/// How often the takes of one batch look on at most, so that none waits long.
pub(crate) const ROUNDS_MAX: usize = 4;

/// What is wanted, in numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selection {
    /// `None` = all.
    pub(super) queue: Option<u32>,
    /// 0 = what waits for anybody alone.
    pub(super) receiver: u32,
    pub(super) query: Query<u32>,
}

/// A part of the ordered sets.
#[derive(Debug, Clone, Copy)]
struct Source {
    queue: u32,
    receiver: u32,
    /// `None` = of all.
    sender: Option<u32>,
}

impl Queues {
    /// `None` when nothing can be meant: a sender nobody knows.
    pub(super) fn selection(
        &self,
        wanted: &TakeFilter<'_>,
        queue: Option<u32>,
        (max, bytes_max): (usize, u64),
        through_groups: bool,
    ) -> Option<Selection> {
        let sender = match wanted.sender {
            Some(sender) => Some(self.client_number(sender)?),
            None => None,
        };
        let receiver = wanted.receiver.and_then(|receiver| self.client_number(receiver)).unwrap_or(0);
        let newest_first = wanted.newest_first;
        Some(Selection {
            queue,
            receiver,
            query: Query { sender, newest_first, max, bytes_max, through_groups },
        })
    }

    /// What is wanted of the messages with ids up to `visible` that are available now. Ends the expired ones that are in front
    /// of them. Behind very many of these it looks on in `rounds` left; then it finds nothing, and the next sweep has whoever
    /// waits look again.
    pub(super) fn choose(
        &mut self,
        selection: &Selection,
        (visible, now): (u64, i64),
        rounds: &mut usize,
    ) -> Vec<Candidate<u32, Entry>> {
        loop {
            let Selected { chosen, expired } = self.select(selection, visible, now);
            let is_cut = chosen.is_empty() && expired.len() >= EXPIRED_MAX;
            if is_cut && *rounds == 0 {
                let queues = expired.iter().filter_map(|id| Some(self.find(*id)?.1.queue));
                let queues: Vec<u32> = queues.collect();
                self.woken.extend(queues);
                return chosen;
            }
            self.expire(&expired);
            if !is_cut {
                return chosen;
            }
            *rounds -= 1;
        }
    }

    fn select(&self, selection: &Selection, visible: u64, now: i64) -> Selected<u32, Entry> {
        let order = Available { queues: self, newest_first: selection.query.newest_first, visible, now };
        let Ok(selected) = select(&order, &self.sources_of(selection), &selection.query);
        selected
    }

    fn sources_of(&self, &Selection { queue, receiver, query }: &Selection) -> Vec<Source> {
        let sender = query.sender;
        let mut sources = Vec::new();
        for receiver in [receiver, 0].into_iter().take(1 + usize::from(receiver != 0)) {
            let source = |queue| Source { queue, receiver, sender };
            match (queue, sender) {
                (Some(queue), _) => sources.push(source(queue)),
                (None, None) => sources.extend(self.queues.keys().copied().map(source)),
                (None, Some(sender)) => sources.extend(self.queues_with(receiver, sender).map(source)),
            }
        }
        sources
    }

    /// Queues in which messages of a sender are available to a receiver.
    fn queues_with(&self, receiver: u32, sender: u32) -> impl Iterator<Item = u32> {
        let next = move |from| {
            let last = sender_key(receiver, sender, u32::MAX, u64::MAX);
            let found = self.by_sender.range(sender_key(receiver, sender, from, 0)..=last).next();
            found.map(|[.., queue, _, _]| *queue)
        };
        let queues = std::iter::successors(next(0), move |queue| next(queue.checked_add(1)?));
        queues.filter(|queue| self.queues.contains_key(queue))
    }

    /// Whether a queue has something that a receiver may have.
    pub(super) fn holds_for(&self, queue: u32, receiver: u32, visible: u64, now: i64) -> bool {
        let query =
            Query { sender: None, newest_first: false, max: 1, bytes_max: u64::MAX, through_groups: false };
        let selection = Selection { queue: Some(queue), receiver, query };
        !self.select(&selection, visible, now).chosen.is_empty()
    }
}

/// Messages that are available at a moment.
struct Available<'a> {
    queues: &'a Queues,
    newest_first: bool,
    /// The newest message that may be seen.
    visible: u64,
    now: i64,
}

fn candidate(entry: Entry) -> Candidate<u32, Entry> {
    Candidate {
        id: entry.id,
        queue: entry.queue,
        sender: entry.sender,
        deliveries: entry.deliveries,
        bytes: entry.payload_bytes(),
        handle: entry,
    }
}

impl Order for Available<'_> {
    type Number = u32;
    type Handle = Entry;
    type Source = Source;
    type LoadRequest = Infallible;

    const EXPIRED_MAX: usize = EXPIRED_MAX;

    fn next(&self, source: &Source, behind: Option<u64>) -> Result<Option<u64>, Infallible> {
        let Source { queue, receiver, sender } = *source;
        let Some(sender) = sender else {
            let found = next_in(&self.queues.ready, |id| (queue, receiver, id), behind, self.newest_first);
            return Ok(found.map(|(.., id)| *id));
        };
        let key = |id| sender_key(receiver, sender, queue, id);
        let found = next_in(&self.queues.by_sender, key, behind, self.newest_first);
        Ok(found.map(|[.., high, low]| (u64::from(*high) << 32) | u64::from(*low)))
    }

    fn message(&self, id: u64) -> Option<(Candidate<u32, Entry>, Availability)> {
        let (_, entry) = self.queues.find(id)?;
        let availability = if entry.expires <= self.now {
            Availability::Expired
        } else if id <= self.visible {
            Availability::Available
        } else {
            Availability::Hidden
        };
        Some((candidate(entry), availability))
    }

    fn next_in_group(
        &self,
        message: &Candidate<u32, Entry>,
    ) -> Result<Option<Candidate<u32, Entry>>, Infallible> {
        let entry = &message.handle;
        if entry.group == 0 {
            return Ok(None);
        }
        let next = self.queues.next_of_group(entry).map(|(_, next)| next);
        Ok(next.filter(|next| next.state == State::Ready).map(candidate))
    }
}

/// The first key of a set behind that of `behind`, in one direction, among the keys of all ids.
fn next_in<K: Ord>(
    set: &BTreeSet<K>,
    key: impl Fn(u64) -> K,
    behind: Option<u64>,
    newest_first: bool,
) -> Option<&K> {
    let (first, last) = (key(0), key(u64::MAX));
    let behind = behind.map(|id| Bound::Excluded(key(id)));
    // Open at the other end: that one search among many messages is enough.
    if newest_first {
        let range = (Bound::Unbounded, behind.unwrap_or(Bound::Included(last)));
        set.range(range).next_back().filter(|found| **found >= first)
    } else {
        let range = (behind.unwrap_or(Bound::Included(first)), Bound::Unbounded);
        set.range(range).next().filter(|found| **found <= last)
    }
}
