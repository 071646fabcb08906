//! Numbers of those who wait, by what they wait for.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::Wants;

/// Those who wait at one queue, or at all, whoever they are and by receiver.
#[derive(Debug, Default)]
struct Line {
    all: BTreeSet<u64>,
    by_receiver: HashMap<Arc<str>, BTreeSet<u64>>,
}

/// All lines. Empty ones are not kept.
#[derive(Debug, Default)]
pub(super) struct Lines {
    by_queue: HashMap<Arc<str>, Line>,
    any_queue: Line,
}

impl Lines {
    pub(super) fn add(&mut self, number: u64, wants: &Wants) {
        let line = match &wants.queue {
            Some(queue) => self.by_queue.entry(queue.as_str().into()).or_default(),
            None => &mut self.any_queue,
        };
        line.all.insert(number);
        if let Some(receiver) = &wants.receiver {
            line.by_receiver.entry(receiver.as_str().into()).or_default().insert(number);
        }
    }

    pub(super) fn remove(&mut self, number: u64, wants: &Wants) {
        let queue = wants.queue.as_ref().map(|queue| queue.as_str());
        let line = match queue {
            Some(queue) => self.by_queue.get_mut(queue),
            None => Some(&mut self.any_queue),
        };
        let Some(line) = line else { return };
        line.all.remove(&number);
        if let Some(receiver) = wants.receiver.as_ref().map(|receiver| receiver.as_str())
            && let Some(numbers) = line.by_receiver.get_mut(receiver)
        {
            numbers.remove(&number);
            if numbers.is_empty() {
                line.by_receiver.remove(receiver);
            }
        }
        if let Some(queue) = queue.filter(|_| line.all.is_empty()) {
            self.by_queue.remove(queue);
        }
    }

    /// The first who may have a message of `queue` for `receiver`, or for anybody, and `suits`.
    pub(super) fn first(
        &self,
        queue: &str,
        receiver: Option<&str>,
        suits: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let of_queue = self.by_queue.get(queue);
        let lines = of_queue.into_iter().chain([&self.any_queue]);
        let firsts = lines.filter_map(|line| {
            let numbers = match receiver {
                Some(receiver) => line.by_receiver.get(receiver)?,
                None => &line.all,
            };
            numbers.iter().copied().find(|number| suits(*number))
        });
        firsts.min()
    }

    /// The first `most` of those numbered `after + 1 ..= upto` who may have a message of `queue`.
    pub(super) fn some(&self, queue: &str, (after, upto): (u64, u64), most: usize) -> Vec<u64> {
        let of_queue = self.by_queue.get(queue);
        let lines = of_queue.into_iter().chain([&self.any_queue]);
        let numbers = (Bound::Excluded(after), Bound::Included(upto.max(after)));
        let mut some: Vec<u64> = lines.flat_map(|line| line.all.range(numbers).copied().take(most)).collect();
        some.sort_unstable();
        some.truncate(most);
        some
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_queue.is_empty() && self.any_queue.all.is_empty() && self.any_queue.by_receiver.is_empty()
    }
}
