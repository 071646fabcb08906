//! Decoded blocks, bounded by bytes, shared by all segments.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::cache;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Default bound of [`BlockCache`], in bytes of memory.
pub const BLOCK_CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// About what a decoded block takes, to size the cache's own table.
const BLOCK_MEMORY_BYTES: u64 = 24 * 1024;

/// Largest decoded block that is kept in any case: a block has one message or value at least, however large that is.
const LARGEST_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    owner: u64,
    block: u32,
}

/// What the cache keeps.
pub trait Cached {
    /// Memory it takes.
    fn memory_bytes(&self) -> u64;
}

#[derive(Debug, Clone)]
struct ByBytes;

impl<B: Cached> Weighter<Key, Arc<B>> for ByBytes {
    fn weight(&self, _: &Key, block: &Arc<B>) -> u64 {
        block.memory_bytes()
    }
}

/// Decoded blocks of all files of one kind. A block stays until the bytes are needed for others.
pub struct BlockCache<B: Cached> {
    blocks: Cache<Key, Arc<B>, ByBytes>,
    owners: AtomicU64,
}

impl<B: Cached> BlockCache<B> {
    /// A cache that holds at most about `bytes_max` bytes of memory.
    pub fn new(bytes_max: u64) -> Arc<Self> {
        let items = usize::try_from(bytes_max / BLOCK_MEMORY_BYTES).unwrap_or(usize::MAX);
        let options = cache::options(items.max(16), bytes_max, LARGEST_BYTES);
        Arc::new(Self {
            blocks: Cache::with_options(options, ByBytes, Default::default(), Default::default()),
            owners: AtomicU64::new(0),
        })
    }

    /// A number no other open file has: file numbers alone could come again with other content.
    pub(crate) fn new_owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self, owner: u64, block: u32) -> Option<Arc<B>> {
        self.blocks.get(&Key { owner, block })
    }

    pub(crate) fn insert(&self, owner: u64, block: u32, content: Arc<B>) {
        self.blocks.insert(Key { owner, block }, content);
    }
}

impl<B: Cached> fmt::Debug for BlockCache<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("blocks", &self.blocks.len())
            .field("bytes", &self.blocks.weight())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Kilobytes(u64);

    impl Cached for Kilobytes {
        fn memory_bytes(&self) -> u64 {
            self.0 * 1024
        }
    }

    #[test]
    fn it_stays_within_its_bound_and_owners_do_not_meet() {
        let block = Arc::new(Kilobytes(20));
        let cache = BlockCache::new(100 * block.memory_bytes());
        let (first, second) = (cache.new_owner(), cache.new_owner());
        for place in 0..1_000 {
            cache.insert(first, place, Arc::clone(&block));
            assert!(cache.get(second, place).is_none());
            assert!(cache.blocks.weight() <= 100 * block.memory_bytes());
        }
        assert!((0..1_000).any(|place| cache.get(first, place).is_some()));
    }
}
