//! Which messages a taker may have, in order.
//!
//! What is wanted stands in one place or in several of the ordered sets; the first of each place are kept in a heap, and
//! whatever is taken from it is followed by the next of its place. So the work grows with what is taken, and not with what
//! waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Bound;

use hubbub_core::queue::Wanted;

use super::Queues;
use super::entry::{Entry, State};
use super::order::sender_key;

/// Messages that outlived their time, and that one look passes over at most. Behind more of them it finds nothing, until
/// they are cleared away moments later.
const OVER_MAX: usize = 2_000;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Selected {
    pub(super) chosen: Vec<(u32, Entry)>,
    /// Those that were passed over because they outlived their time.
    pub(super) over: Vec<u32>,
}

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

/// A place in the ordered sets.
#[derive(Debug, Clone, Copy)]
enum Place {
    Queue {
        queue: u32,
        receiver: u32,
    },
    Sender {
        receiver: u32,
        sender: u32,
        queue: u32,
    },
    /// One message alone.
    One,
}

impl Queues {
    /// `None` when nothing can be meant: a sender nobody knows.
    pub(super) fn selection(&self, wanted: &Wanted<'_>, queue: Option<u32>) -> Option<Selection> {
        let sender = match wanted.sender {
            Some(sender) => Some(self.client_number(sender)?),
            None => None,
        };
        let receiver = wanted.receiver.and_then(|receiver| self.client_number(receiver)).unwrap_or(0);
        Some(Selection { queue, receiver, sender, newest_first: wanted.newest_first })
    }

    /// Up to `max` messages that may be had now, with ids up to `visible`. With `through_groups`, as if each were gone
    /// when the next is chosen.
    pub(super) fn select(
        &self,
        selection: &Selection,
        max: usize,
        through_groups: bool,
        visible: u64,
        now: i64,
    ) -> Selected {
        let key = |id: u64| if selection.newest_first { !id } else { id };
        let Selected { mut chosen, mut over } = Selected::default();
        let mut places = self.places(selection);
        let mut first = BinaryHeap::with_capacity(places.len());
        for (index, place) in (0_usize..).zip(&places) {
            if let Some(id) = self.next_of(place, None, selection.newest_first) {
                first.push(Reverse((key(id), index)));
            }
        }
        places.push(Place::One);
        let single = places.len() - 1;
        while chosen.len() < max
            && let Some(Reverse((found, index))) = first.pop()
        {
            let id = key(found);
            let found = self.find(id);
            if let Some((number, _)) = found.filter(|(_, entry)| entry.expires <= now) {
                over.push(number);
                if over.len() >= OVER_MAX {
                    break;
                }
            }
            let takeable = found.filter(|(_, entry)| entry.expires > now && id <= visible);
            chosen.extend(takeable);
            if chosen.len() >= max {
                break;
            }
            if let Some(place) = places.get(index)
                && let Some(next) = self.next_of(place, Some(id), selection.newest_first)
            {
                first.push(Reverse((key(next), index)));
            }
            if let Some((_, entry)) = takeable
                && through_groups
                && entry.group != 0
                && let Some((_, next)) = self.first_of_group(&entry, id.saturating_add(1))
                && next.state == State::Ready
                && selection.sender.is_none_or(|sender| sender == next.sender)
            {
                first.push(Reverse((key(next.id), single)));
            }
        }
        Selected { chosen, over }
    }

    fn places(&self, selection: &Selection) -> Vec<Place> {
        let receivers = [selection.receiver, 0];
        let receivers = if selection.receiver == 0 { &receivers[..1] } else { &receivers[..] };
        let mut places = Vec::new();
        for receiver in receivers.iter().copied() {
            match (selection.queue, selection.sender) {
                (Some(queue), None) => places.push(Place::Queue { queue, receiver }),
                (Some(queue), Some(sender)) => places.push(Place::Sender { receiver, sender, queue }),
                (None, None) => {
                    places.extend(self.queues.keys().map(|queue| Place::Queue { queue: *queue, receiver }));
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
                            places.push(Place::Sender { receiver, sender, queue: *queue });
                        }
                        from = queue.checked_add(1);
                    }
                }
            }
        }
        places
    }

    /// The first message of a place, or the first behind one.
    fn next_of(&self, place: &Place, behind: Option<u64>, newest_first: bool) -> Option<u64> {
        match *place {
            Place::One => None,
            Place::Queue { queue, receiver } => {
                let (first, last) = ((queue, receiver, 0), (queue, receiver, u64::MAX));
                let behind = behind.map(|id| (queue, receiver, id));
                let found = if newest_first {
                    let end = behind.map_or(Bound::Included(last), Bound::Excluded);
                    self.ready.range((Bound::Included(first), end)).next_back()
                } else {
                    let begin = behind.map_or(Bound::Included(first), Bound::Excluded);
                    self.ready.range((begin, Bound::Included(last))).next()
                };
                found.map(|(.., id)| *id)
            }
            Place::Sender { receiver, sender, queue } => {
                let key = |id| sender_key(receiver, sender, queue, id);
                let behind = behind.map(key);
                let found = if newest_first {
                    let end = behind.map_or(Bound::Included(key(u64::MAX)), Bound::Excluded);
                    self.by_sender.range((Bound::Included(key(0)), end)).next_back()
                } else {
                    let begin = behind.map_or(Bound::Included(key(0)), Bound::Excluded);
                    self.by_sender.range((begin, Bound::Included(key(u64::MAX)))).next()
                };
                found.map(|[.., high, low]| (u64::from(*high) << 32) | u64::from(*low))
            }
        }
    }

    /// Whether a queue has something that a receiver may have.
    pub(super) fn holds_for(&self, queue: u32, receiver: u32, visible: u64, now: i64) -> bool {
        let selection = Selection { queue: Some(queue), receiver, sender: None, newest_first: false };
        !self.select(&selection, 1, false, visible, now).chosen.is_empty()
    }
}
