//! Which cached keys this server is changing: from before a change is sent to the store until the cache has it, others may
//! have read it already.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};

use hubbub_core::{Op, OpBatch};
use quick_cache::DefaultHashBuilder;

/// Counters that keys share. A power of two.
const SLOTS: usize = 16_384;

/// Counts the changes under way of all keys, by their hashes: a key that is not being changed may be taken for one that is.
pub(super) struct Changing {
    slots: Box<[AtomicU32]>,
    hasher: DefaultHashBuilder,
}

impl Default for Changing {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| AtomicU32::new(0)).collect();
        Self { slots, hasher: DefaultHashBuilder::default() }
    }
}

impl Changing {
    fn slot(&self, key: &[u8]) -> Option<&AtomicU32> {
        let hash: usize = hubbub_core::invariant::saturate(self.hasher.hash_one(key) % SLOTS as u64);
        self.slots.get(hash)
    }

    fn slots_of<'a>(&'a self, ops: &'a OpBatch) -> impl Iterator<Item = &'a AtomicU32> {
        let ops = ops.names_keys().then(|| ops.iter()).into_iter().flatten();
        ops.filter_map(|op| match op {
            Op::Kv(op) => self.slot(op.key()?),
            _ => None,
        })
    }

    /// Before the store gets a batch. Every call is followed by one of [`Self::end`], in any order.
    pub(super) fn begin(&self, ops: &OpBatch) {
        for slot in self.slots_of(ops) {
            slot.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// After the cache has what became of it.
    pub(super) fn end(&self, ops: &OpBatch) {
        for slot in self.slots_of(ops) {
            slot.fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.slot(key).is_some_and(|slot| slot.load(Ordering::SeqCst) > 0)
    }
}
