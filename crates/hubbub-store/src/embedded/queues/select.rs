//! Shows the rules which messages are available, in sorted sources: parts of the ordered sets.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::Bound;

use hubbub_core::queue::TakeFilter;
use hubbub_core::rules::queues::{Availability, Candidate, Order, Query, Selected, select};

use super::Queues;
use super::entry::{Entry, State};
use super::order::sender_key;

/// What is wanted, in numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selection {
    /// `None` = all.
    queue: Option<u32>,
    /// 0 = what waits for anybody alone.
    receiver: u32,
    sender: Option<u32>,
    newest_first: bool,
}

impl Selection {
    /// So much of it.
    pub(super) fn query(&self, max: usize, bytes_max: u64, through_groups: bool) -> Query<u32> {
        let (sender, newest_first) = (self.sender, self.newest_first);
        Query { sender, newest_first, max, bytes_max, through_groups }
    }
}

/// A part of the ordered sets.
#[derive(Debug, Clone, Copy)]
enum Source {
    Queue { queue: u32, receiver: u32 },
    Sender { receiver: u32, sender: u32, queue: u32 },
}

impl Queues {
    /// `None` when nothing can be meant: a sender nobody knows.
    pub(super) fn selection(&self, wanted: &TakeFilter<'_>, queue: Option<u32>) -> Option<Selection> {
        let sender = match wanted.sender {
            Some(sender) => Some(self.client_number(sender)?),
            None => None,
        };
        let receiver = wanted.receiver.and_then(|receiver| self.client_number(receiver)).unwrap_or(0);
        Some(Selection { queue, receiver, sender, newest_first: wanted.newest_first })
    }

    /// What a query gives now of messages with ids up to `visible`.
    pub(super) fn select(
        &self,
        selection: &Selection,
        query: &Query<u32>,
        visible: u64,
        now: i64,
    ) -> Selected<u32, Entry> {
        let newest_first = selection.newest_first;
        let order = Available { queues: self, newest_first, visible, now };
        let Ok(selected) = select(&order, &self.sources_of(selection), query);
        selected
    }

    fn sources_of(&self, selection: &Selection) -> Vec<Source> {
        let receivers = [selection.receiver, 0];
        let receivers = if selection.receiver == 0 { &receivers[..1] } else { &receivers[..] };
        let mut sources = Vec::new();
        for receiver in receivers.iter().copied() {
            match (selection.queue, selection.sender) {
                (Some(queue), None) => sources.push(Source::Queue { queue, receiver }),
                (Some(queue), Some(sender)) => sources.push(Source::Sender { receiver, sender, queue }),
                (None, None) => {
                    sources.extend(self.queues.keys().map(|queue| Source::Queue { queue: *queue, receiver }));
                }
                (None, Some(sender)) => {
                    let mut from = Some(0);
                    while let Some(queue) = from
                        && let Some([.., queue, _, _]) = self
                            .by_sender
                            .range(
                                sender_key(receiver, sender, queue, 0)
                                    ..=sender_key(receiver, sender, u32::MAX, u64::MAX),
                            )
                            .next()
                    {
                        if self.queues.contains_key(queue) {
                            sources.push(Source::Sender { receiver, sender, queue: *queue });
                        }
                        from = queue.checked_add(1);
                    }
                }
            }
        }
        sources
    }

    /// Whether a queue has something that a receiver may have.
    pub(super) fn holds_for(&self, queue: u32, receiver: u32, visible: u64, now: i64) -> bool {
        let selection = Selection { queue: Some(queue), receiver, sender: None, newest_first: false };
        let query = selection.query(1, u64::MAX, false);
        !self.select(&selection, &query, visible, now).chosen.is_empty()
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
    type Need = Infallible;

    const EXPIRED_MAX: usize = 2_000;

    fn next(&self, source: &Source, behind: Option<u64>) -> Result<Option<u64>, Infallible> {
        Ok(match *source {
            Source::Queue { queue, receiver } => {
                let key = |id| (queue, receiver, id);
                let found = next_in(&self.queues.ready, key, behind, self.newest_first);
                found.map(|(.., id)| *id)
            }
            Source::Sender { receiver, sender, queue } => {
                let key = |id| sender_key(receiver, sender, queue, id);
                let found = next_in(&self.queues.by_sender, key, behind, self.newest_first);
                found.map(|[.., high, low]| (u64::from(*high) << 32) | u64::from(*low))
            }
        })
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
        let next = self.queues.first_of_group(entry, entry.id.saturating_add(1)).map(|(_, next)| next);
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
    if newest_first {
        let end = behind.map_or_else(|| Bound::Included(key(u64::MAX)), |id| Bound::Excluded(key(id)));
        set.range((Bound::Included(key(0)), end)).next_back()
    } else {
        let begin = behind.map_or_else(|| Bound::Included(key(0)), |id| Bound::Excluded(key(id)));
        set.range((begin, Bound::Included(key(u64::MAX)))).next()
    }
}
