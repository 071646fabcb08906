//! Index of consumer numbers by the queue and the receiver that they wait for.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::WaitFilter;

/// The consumers of one queue, or of all queues: all of them, and by receiver.
#[derive(Debug, Default)]
struct QueueConsumers {
    all: BTreeSet<u64>,
    by_receiver: HashMap<Arc<str>, BTreeSet<u64>>,
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
        consumers.all.insert(number);
        if let Some(receiver) = &filter.receiver {
            consumers.by_receiver.entry(receiver.as_str().into()).or_default().insert(number);
        }
    }

    pub(super) fn remove(&mut self, number: u64, filter: &WaitFilter) {
        let queue = filter.queue.as_ref().map(|queue| queue.as_str());
        let consumers = match queue {
            Some(queue) => self.by_queue.get_mut(queue),
            None => Some(&mut self.any_queue),
        };
        let Some(consumers) = consumers else { return };
        consumers.all.remove(&number);
        if let Some(receiver) = filter.receiver.as_ref().map(|receiver| receiver.as_str())
            && let Some(numbers) = consumers.by_receiver.get_mut(receiver)
        {
            numbers.remove(&number);
            if numbers.is_empty() {
                consumers.by_receiver.remove(receiver);
            }
        }
        if let Some(queue) = queue.filter(|_| consumers.all.is_empty()) {
            self.by_queue.remove(queue);
        }
    }

    /// The first consumer that may have a message of `queue` for `receiver` (`None` = for anybody), and `accepts` it.
    pub(super) fn first(
        &self,
        queue: &str,
        receiver: Option<&str>,
        accepts: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let firsts = self.consumers_of(queue).filter_map(|consumers| {
            let numbers = match receiver {
                Some(receiver) => consumers.by_receiver.get(receiver)?,
                None => &consumers.all,
            };
            numbers.iter().copied().find(|number| accepts(*number))
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
        self.by_queue.is_empty() && self.any_queue.all.is_empty() && self.any_queue.by_receiver.is_empty()
    }
}
