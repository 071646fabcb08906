//! Numbers the changes that a node writes to a partition of the bus: a reader that meets a number which does not follow has
//! missed a change, and compares the rooms of the partition with the store.
//!
//! The bus may lose any record. A lost message leaves a gap in its room, which is read from the store; a lost change leaves
//! none. So each record says how many changes its node had written to the partition, itself included. A node that takes over a
//! partition counts one more: the one before it may have died before it told of its last change.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Nodes and partitions whose numbers are kept. Beyond that all are forgotten, and every room is compared once more: a node has
/// another name after each start.
const HEARD_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct ChangeNumbers {
    /// By partition: the number of the last change that this node wrote.
    written: Mutex<HashMap<u32, u64>>,
    /// By partition and node: the number of the last record that was read.
    heard: Mutex<HashMap<(u32, u64), u64>>,
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

    /// Whether a change was missed before this record of a node, which is a change itself or says only how many there were.
    pub(super) fn has_missed(&self, partition: u32, node: u64, number: u64, is_change: bool) -> bool {
        let mut heard = self.heard.lock();
        if heard.len() >= HEARD_MAX {
            heard.clear();
        }
        let before = heard.insert((partition, node), number).unwrap_or(0);
        number != before.wrapping_add(u64::from(is_change))
    }

    /// The partition is read from another place on.
    pub(super) fn forget(&self, is_partition: impl Fn(u32) -> bool) {
        self.heard.lock().retain(|(partition, _), _| !is_partition(*partition));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_change_is_noticed_by_the_next_record() {
        let (writer, reader) = (ChangeNumbers::default(), ChangeNumbers::default());
        let message = |reader: &ChangeNumbers| reader.has_missed(3, 7, writer.last(3), false);
        let change = |reader: &ChangeNumbers| {
            writer.count(3);
            reader.has_missed(3, 7, writer.last(3), true)
        };
        assert!(!message(&reader), "the node has changed nothing yet");
        assert!(!change(&reader) && !message(&reader) && !change(&reader));
        writer.count(3);
        assert!(message(&reader), "one was lost");
        assert!(!message(&reader), "noticed once");
        writer.count(3);
        assert!(change(&reader) && !message(&reader), "two, of which one was lost");
        // Other partitions and nodes have numbers of their own.
        assert!(!reader.has_missed(4, 7, 0, false) && !reader.has_missed(3, 8, 0, false));
        assert!(reader.has_missed(3, 9, 5, false), "it had changed something before it was read");
        reader.forget(|partition| partition == 3);
        assert!(message(&reader), "nobody knows what was missed meanwhile");
    }
}
