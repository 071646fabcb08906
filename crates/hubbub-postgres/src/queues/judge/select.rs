//! Which messages a taker may have, in order.
//!
//! What is wanted stands in one place or in several; the first of each are kept in a heap, and whatever is taken from it
//! is followed by the next of its place.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hubbub_core::queue::{TAKE_BYTES_MAX, Wanted};

use crate::queues::image::{ANYBODY, Image, Need, Place};

/// What is wanted, in numbers.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    places: Vec<Place>,
    sender: Option<i32>,
    newest_first: bool,
}

impl Image {
    /// `None` when nothing can be meant: a sender nobody knows.
    pub(super) fn selection(&self, wanted: &Wanted<'_>, queue: Option<i32>) -> Option<Selection> {
        let sender = match wanted.sender {
            Some(sender) => Some(self.client(sender)?),
            None => None,
        };
        let newest_first = wanted.newest_first;
        let receiver = wanted.receiver.and_then(|receiver| self.client(receiver));
        let queues: Vec<i32> = match queue {
            Some(queue) => vec![queue],
            None => self.names.values().copied().collect(),
        };
        let places_of = |queue| {
            let receivers = receiver.into_iter().chain([ANYBODY]);
            receivers.map(move |receiver| Place { queue, receiver, sender, newest_first })
        };
        Some(Selection { places: queues.into_iter().flat_map(places_of).collect(), sender, newest_first })
    }

    /// Up to `max` messages that may be had now and whose texts are not too many bytes. With `through_groups`, as if
    /// each were gone when the next is chosen.
    pub(super) fn select(
        &self,
        selection: &Selection,
        max: usize,
        through_groups: bool,
    ) -> Result<Vec<i64>, Need> {
        let key = |id: i64| if selection.newest_first { -id } else { id };
        let mut chosen = Vec::new();
        let mut bytes = 0;
        let mut first = BinaryHeap::with_capacity(selection.places.len());
        if max == 0 {
            return Ok(chosen);
        }
        for place in &selection.places {
            if let Some(id) = self.next_of(place, None)? {
                first.push(Reverse((key(id), Some(place))));
            }
        }
        while let Some(Reverse((found, place))) = first.pop() {
            let id = key(found);
            let takeable = self.messages.get(&id).filter(|message| {
                let queue = self.queues.get(&message.queue);
                !message.is_expired(self.now)
                    && queue.is_some_and(|queue| !queue.settings.exhausts(message.deliveries))
            });
            if let Some(message) = takeable {
                bytes += usize::try_from(message.bytes).unwrap_or(usize::MAX);
                if !chosen.is_empty() && bytes > TAKE_BYTES_MAX {
                    break;
                }
                chosen.push(id);
                if chosen.len() >= max {
                    break;
                }
            }
            if let Some(place) = place
                && let Some(next) = self.next_of(place, Some(id))?
            {
                first.push(Reverse((key(next), Some(place))));
            }
            if let Some(message) = takeable
                && through_groups
                && let Some(group) = message.group_key()
                && let Some(next) = self.next_in_group(&group, id)?
                && let Some(message) = self.messages.get(&next)
                && message.state == crate::queues::image::State::Ready
                && selection.sender.is_none_or(|sender| sender == message.sender)
            {
                first.push(Reverse((key(next), None)));
            }
        }
        Ok(chosen)
    }
}
