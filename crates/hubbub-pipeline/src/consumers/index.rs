//! Index of consumer numbers by the queue, the receiver and the sender that they wait for.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::{Freed, WaitFilter};

/// Consumers by a name. Names without consumers have no entry.
#[derive(Debug, Default)]
struct ByName(HashMap<Arc<str>, BTreeSet<u64>>);

impl ByName {
    fn insert(&mut self, name: &str, number: u64) {
        self.0.entry(name.into()).or_default().insert(number);
    }

    fn remove(&mut self, name: &str, number: u64) {
        if let Some(numbers) = self.0.get_mut(name) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.0.remove(name);
            }
        }
    }
}

/// Consumers by the sender that is all they accept.
#[derive(Debug, Default)]
struct BySender {
    of_any: BTreeSet<u64>,
    of_one: ByName,
}

impl BySender {
    fn insert(&mut self, number: u64, filter: &WaitFilter) {
        match &filter.sender {
            Some(sender) => self.of_one.insert(sender.as_str(), number),
            None => drop(self.of_any.insert(number)),
        }
    }

    fn remove(&mut self, number: u64, filter: &WaitFilter) {
        match &filter.sender {
            Some(sender) => self.of_one.remove(sender.as_str(), number),
            None => drop(self.of_any.remove(&number)),
        }
    }

    /// The first that accepts messages from `sender`.
    fn first(&self, sender: &str) -> Option<u64> {
        let of_sender = self.of_one.0.get(sender).and_then(BTreeSet::first);
        of_sender.into_iter().chain(self.of_any.first()).min().copied()
    }

    fn is_empty(&self) -> bool {
        self.of_any.is_empty() && self.of_one.0.is_empty()
    }
}

/// The consumers of one queue, or of all queues. Of all together and of one receiver there may be very many, so both are found
/// by the sender.
#[derive(Debug, Default)]
struct QueueConsumers {
    all: BTreeSet<u64>,
    by_receiver: HashMap<Arc<str>, BySender>,
    by_sender: BySender,
}

impl QueueConsumers {
    fn insert(&mut self, number: u64, filter: &WaitFilter) {
        self.all.insert(number);
        if let Some(receiver) = &filter.receiver {
            self.by_receiver.entry(receiver.as_str().into()).or_default().insert(number, filter);
        }
        self.by_sender.insert(number, filter);
    }

    fn remove(&mut self, number: u64, filter: &WaitFilter) {
        self.all.remove(&number);
        if let Some(receiver) = filter.receiver.as_ref().map(|receiver| receiver.as_str())
            && let Some(consumers) = self.by_receiver.get_mut(receiver)
        {
            consumers.remove(number, filter);
            if consumers.is_empty() {
                self.by_receiver.remove(receiver);
            }
        }
        self.by_sender.remove(number, filter);
    }

    /// The first that may have the message.
    fn first(&self, message: &Freed) -> Option<u64> {
        let consumers = match &message.receiver {
            Some(receiver) => self.by_receiver.get(receiver)?,
            None => &self.by_sender,
        };
        consumers.first(&message.sender)
    }
}

/// The whole index. Queues without consumers have no entry.
#[derive(Debug, Default)]
pub(super) struct ConsumerIndex {
    by_queue: HashMap<Arc<str>, QueueConsumers>,
    any_queue: QueueConsumers,
}

impl ConsumerIndex {
    pub(super) fn insert(&mut self, number: u64, filter: &WaitFilter) {
        let consumers = match &filter.queue {
            Some(queue) => self.by_queue.entry(queue.as_str().into()).or_default(),
            None => &mut self.any_queue,
        };
        consumers.insert(number, filter);
    }

    pub(super) fn remove(&mut self, number: u64, filter: &WaitFilter) {
        let queue = filter.queue.as_ref().map(|queue| queue.as_str());
        let consumers = match queue {
            Some(queue) => self.by_queue.get_mut(queue),
            None => Some(&mut self.any_queue),
        };
        let Some(consumers) = consumers else { return };
        consumers.remove(number, filter);
        if let Some(queue) = queue.filter(|_| consumers.all.is_empty()) {
            self.by_queue.remove(queue);
        }
    }

    /// The first consumer that may have a message.
    pub(super) fn first(&self, message: &Freed) -> Option<u64> {
        self.consumers_of(&message.queue).filter_map(|consumers| consumers.first(message)).min()
    }

    /// The first `limit` consumers numbered `after + 1 ..= upto` that may have a message of `queue`.
    pub(super) fn range(&self, queue: &str, (after, upto): (u64, u64), limit: usize) -> Vec<u64> {
        let bounds = (Bound::Excluded(after), Bound::Included(upto.max(after)));
        let consumers = self.consumers_of(queue);
        let mut numbers: Vec<u64> =
            consumers.flat_map(|consumers| consumers.all.range(bounds).copied().take(limit)).collect();
        numbers.sort_unstable();
        numbers.truncate(limit);
        numbers
    }

    fn consumers_of(&self, queue: &str) -> impl Iterator<Item = &QueueConsumers> {
        self.by_queue.get(queue).into_iter().chain([&self.any_queue])
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let QueueConsumers { all, by_receiver, by_sender } = &self.any_queue;
        self.by_queue.is_empty() && all.is_empty() && by_receiver.is_empty() && by_sender.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use hubbub_core::{ClientId, QueueId};

    use super::*;

    fn filter(queue: &str, receiver: &str, sender: &str) -> WaitFilter {
        WaitFilter {
            queue: QueueId::new(queue).ok(),
            receiver: ClientId::new(receiver).ok(),
            sender: ClientId::new(sender).ok(),
        }
    }

    #[test]
    fn the_first_is_found_by_queue_receiver_and_sender() {
        let mut index = ConsumerIndex::default();
        let filters = [
            filter("", "ann", "eve"),
            filter("jobs", "bob", "eve"),
            filter("jobs", "bob", "boss"),
            filter("", "cyd", "boss"),
            filter("jobs", "dan", ""),
            filter("", "bob", ""),
        ];
        (0..).zip(&filters).for_each(|(number, filter)| index.insert(number, filter));
        let message = |receiver: Option<&str>| Freed {
            queue: "jobs".into(),
            id: 7,
            sender: "boss".into(),
            receiver: receiver.map(Into::into),
        };
        assert_eq!(index.first(&message(Some("bob"))), Some(2), "1 waits for another sender");
        assert_eq!(index.first(&message(Some("ann"))), None);
        for expected in [Some(2), Some(3), Some(4), Some(5), None] {
            assert_eq!(index.first(&message(None)), expected);
            expected.into_iter().for_each(|number| index.remove(number, &filters[number as usize]));
        }
        assert_eq!(index.first(&message(Some("bob"))), None);
        (0..2).for_each(|number| index.remove(number, &filters[number as usize]));
        assert!(index.is_empty());
    }
}
