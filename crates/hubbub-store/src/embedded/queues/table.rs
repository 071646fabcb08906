//! Queues and clients by name and by number.

use std::ops::Bound;
use std::sync::Arc;

use hubbub_core::QueueRules;
use hubbub_core::rules::queues::number_named;
use roaring::{RoaringBitmap, RoaringTreemap};

use super::Queues;
use crate::embedded::file::cursor::index;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) ready: u64,
    pub(super) delayed: u64,
    pub(super) leased: u64,
    pub(super) bytes: u64,
    /// Those that came from other queues as dead letters.
    pub(super) dead_letters: u64,
    /// Since the queue was made.
    pub(super) sent: u64,
    pub(super) done: u64,
    pub(super) dropped: u64,
    pub(super) dead: u64,
}

impl Counts {
    pub(super) fn messages(&self) -> u64 {
        self.ready + self.delayed + self.leased
    }
}

/// One queue.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) number: u32,
    pub(super) name: Arc<str>,
    /// Whether it was made for dead letters.
    pub(super) is_dead_letter: bool,
    pub(super) settings: QueueRules,
    pub(super) counts: Counts,
    /// Ids of all its messages, those that wait to be cleared away included.
    pub(super) all: RoaringTreemap,
}

impl Queues {
    pub(super) fn queue_named(&self, name: &str) -> Option<&Queue> {
        self.queues.get(self.queue_numbers.get(name)?)
    }

    /// Names of queues in their order, beginning behind `after`.
    pub(super) fn queue_names(&self, after: Option<&str>) -> impl Iterator<Item = &Arc<str>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.queue_order.range::<str, _>((from, Bound::Unbounded))
    }

    /// The number of a client, who need not be registered any more.
    pub(super) fn client_number(&self, name: &str) -> Option<u32> {
        self.client_numbers.get(name).copied()
    }

    /// The name of a client, who need not be registered any more.
    pub(super) fn client(&self, number: u32) -> Option<&Arc<str>> {
        self.clients.get(index(number).checked_sub(1)?)
    }

    /// The same; empty when there is none of that number.
    pub(super) fn client_name(&self, number: u32) -> Arc<str> {
        self.client(number).map_or_else(|| Arc::from(""), Arc::clone)
    }

    /// Registered clients but one, by number: in the order in which they registered first.
    pub(super) fn registered_but(&self, sender: u32) -> RoaringBitmap {
        let mut others = self.registered.clone();
        others.remove(sender);
        others
    }

    pub(super) fn add_queue(&mut self, queue: Queue) {
        self.next_queue = self.next_queue.max(queue.number.saturating_add(1));
        self.highest_named = self.highest_named.max(number_named(&queue.name).unwrap_or(0));
        self.queue_numbers.insert(Arc::clone(&queue.name), queue.number);
        self.queue_order.insert(Arc::clone(&queue.name));
        self.queues.insert(queue.number, queue);
    }

    /// Takes a queue out of sight. Its messages are cleared away bit by bit.
    pub(super) fn drop_queue(&mut self, number: u32) {
        let Some(queue) = self.queues.remove(&number) else { return };
        self.queue_numbers.remove(&queue.name);
        self.queue_order.remove(&queue.name);
        self.woken.remove(&number);
        self.drop_pending_of(number);
        if !queue.all.is_empty() {
            self.deleted.push(queue);
        }
    }

    pub(super) fn set_client(&mut self, number: u32, name: &str, is_registered: bool) {
        let known = self.client(number).cloned();
        let name = known.unwrap_or_else(|| {
            let name: Arc<str> = Arc::from(name);
            self.client_numbers.insert(Arc::clone(&name), number);
            self.clients.push(Arc::clone(&name));
            name
        });
        if is_registered {
            self.registered.insert(number);
        } else {
            self.registered.remove(number);
        }
        self.client_changes.push((name, is_registered));
    }
}
