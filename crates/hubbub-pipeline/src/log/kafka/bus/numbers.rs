//! Numbers the changes that a node writes to a partition of the bus: a reader that meets a number which does not follow has
//! missed a change, and compares the rooms of the partition with the store.
//!
//! The bus may lose any record. A lost message leaves a gap in its room, which is read from the store; a lost change leaves
//! none. So each record says how many changes its node had written to the partition, itself included. Read marks do not count:
//! they end nobody's subscription. A node that takes over a partition counts one more: the one before it may have died before it
//! told of its last change. For the same reason a record of another node than before is one that follows nothing, which also
//! holds for nodes of older versions, that number nothing.

use std::collections::HashMap;

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct ChangeNumbers {
    /// By partition: the number of the last change that this node wrote.
    written: Mutex<HashMap<u32, u64>>,
    /// By partition: the node of the last record that was read, and its number, if it had one.
    heard: Mutex<HashMap<u32, (u64, Option<u64>)>>,
}

impl ChangeNumbers {
    /// Counts a change of this node, or that there may be one that nobody was told of.
    pub(super) fn count(&self, partition: u32) {
        *self.written.lock().entry(partition).or_default() += 1;
    }

    /// Number of the last change of this node.
    pub(super) fn last(&self, partition: u32) -> u64 {
        self.written.lock().get(&partition).copied().unwrap_or(0)
    }

    /// Whether a change may have been missed before this record of a node, which is a counted change itself or not.
    pub(super) fn has_missed(
        &self,
        partition: u32,
        node: u64,
        number: Option<u64>,
        is_counted: bool,
    ) -> bool {
        let before = self.heard.lock().insert(partition, (node, number));
        let Some((_, last)) = before.filter(|(last, _)| *last == node) else { return true };
        let next = |last: u64| last.wrapping_add(u64::from(is_counted));
        last.zip(number).is_some_and(|(last, number)| number != next(last))
    }

    /// These partitions are read from another place on.
    pub(super) fn forget(&self, is_partition: impl Fn(u32) -> bool) {
        self.heard.lock().retain(|partition, _| !is_partition(*partition));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_change_is_noticed_by_the_next_record() {
        let (writer, reader) = (ChangeNumbers::default(), ChangeNumbers::default());
        let message = |reader: &ChangeNumbers| reader.has_missed(3, 7, Some(writer.last(3)), false);
        let change = |reader: &ChangeNumbers| {
            writer.count(3);
            reader.has_missed(3, 7, Some(writer.last(3)), true)
        };
        assert!(message(&reader), "nobody knows what was before");
        assert!(!message(&reader) && !change(&reader) && !message(&reader) && !change(&reader));
        writer.count(3);
        assert!(message(&reader), "one was lost");
        assert!(!message(&reader), "noticed once");
        writer.count(3);
        assert!(change(&reader) && !message(&reader), "two, of which one was lost");
        // Other partitions have numbers of their own.
        assert!(reader.has_missed(4, 7, Some(0), false) && !reader.has_missed(4, 7, Some(0), false));
        assert!(!message(&reader));
        reader.forget(|partition| partition == 3);
        assert!(message(&reader), "nobody knows what was missed meanwhile");
    }

    #[test]
    fn whoever_takes_over_may_not_know_the_last_change() {
        let reader = ChangeNumbers::default();
        // The second is of an older version.
        for (node, number) in [(7, Some(5)), (8, None), (7, Some(5)), (8, None)] {
            assert!(reader.has_missed(3, node, number, false), "{node}");
            assert!(!reader.has_missed(3, node, number, false), "{node}");
        }
    }
}
