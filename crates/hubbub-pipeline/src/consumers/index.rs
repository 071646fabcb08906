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

/// The consumers of one queue, or of all queues: all of them, by receiver, and by the sender that is all they accept.
#[derive(Debug, Default)]
struct QueueConsumers {
    all: BTreeSet<u64>,
    by_receiver: ByName,
    of_any_sender: BTreeSet<u64>,
    by_sender: ByName,
}

impl QueueConsumers {
    fn insert(&mut self, number: u64, filter: &WaitFilter) {
        self.all.insert(number);
        if let Some(receiver) = &filter.receiver {
            self.by_receiver.insert(receiver.as_str(), number);
        }
        match &filter.sender {
            Some(sender) => self.by_sender.insert(sender.as_str(), number),
            None => drop(self.of_any_sender.insert(number)),
        }
    }

    fn remove(&mut self, number: u64, filter: &WaitFilter) {
        self.all.remove(&number);
        if let Some(receiver) = &filter.receiver {
            self.by_receiver.remove(receiver.as_str(), number);
        }
        match &filter.sender {
            Some(sender) => self.by_sender.remove(sender.as_str(), number),
            None => drop(self.of_any_sender.remove(&number)),
        }
    }

    /// The first that may have a message for anybody from `sender`.
    fn first_of_sender(&self, sender: &str) -> Option<u64> {
        let of_sender = self.by_sender.0.get(sender).and_then(BTreeSet::first);
        of_sender.into_iter().chain(self.of_any_sender.first()).min().copied()
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

    /// The first consumer that may have a message. `accepts` says whether one with the right receiver accepts its sender: of
    /// one receiver there are few, of all together there may be very many, who are found by the sender.
    pub(super) fn first(&self, message: &Freed, accepts: impl Fn(u64) -> bool) -> Option<u64> {
        let firsts = self.consumers_of(&message.queue).filter_map(|consumers| match &message.receiver {
            Some(receiver) => {
                let numbers = consumers.by_receiver.0.get(receiver)?;
                numbers.iter().copied().find(|number| accepts(*number))
            }
            None => consumers.first_of_sender(&message.sender),
        });
        firsts.min()
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
        let QueueConsumers { all, by_receiver, of_any_sender, by_sender } = &self.any_queue;
        self.by_queue.is_empty()
            && (all.is_empty() && of_any_sender.is_empty())
            && (by_receiver.0.is_empty() && by_sender.0.is_empty())
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
    fn a_message_for_anybody_tries_nobody_who_waits_for_another_sender() {
        let mut index = ConsumerIndex::default();
        let filters = [
            filter("", "ann", "eve"),
            filter("jobs", "bob", "eve"),
            filter("jobs", "bob", "boss"),
            filter("", "cyd", "boss"),
            filter("jobs", "dan", ""),
        ];
        (0..).zip(&filters).for_each(|(number, filter)| index.insert(number, filter));
        let message = |receiver: Option<&str>| Freed {
            queue: "jobs".into(),
            id: 7,
            sender: "boss".into(),
            receiver: receiver.map(Into::into),
        };
        for expected in [Some(2), Some(3), Some(4), None] {
            let found = index.first(&message(None), |number| panic!("{number} is tried"));
            assert_eq!(found, expected);
            found.into_iter().for_each(|number| index.remove(number, &filters[number as usize]));
        }
        assert_eq!(index.first(&message(Some("bob")), |number| number != 1), None);
        (0..2).for_each(|number| index.remove(number, &filters[number as usize]));
        assert!(index.is_empty());
    }
}
