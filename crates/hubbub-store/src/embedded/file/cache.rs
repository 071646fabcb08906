//! Decoded blocks, bounded by bytes, shared by all files of a kind.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::cache;
use hubbub_core::invariant::saturate;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// About what a decoded block takes, to size the cache's own table.
const BLOCK_MEMORY_BYTES: u64 = 24 * 1024;

/// Largest decoded block that is kept in any case: a block has one message or value at least, however large that is.
const LARGEST_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    owner: u64,
    block: u32,
}

pub(crate) trait Cached {
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
pub(crate) struct BlockCache<B: Cached> {
    blocks: Cache<Key, Arc<B>, ByBytes>,
    owners: AtomicU64,
}

impl<B: Cached> BlockCache<B> {
    /// A cache that holds at most about `bytes_max` bytes of memory.
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        let items: usize = saturate(bytes_max / BLOCK_MEMORY_BYTES);
        let options = cache::options(items.max(16), bytes_max, LARGEST_BYTES);
        Arc::new(Self {
            blocks: Cache::with_options(options, ByBytes, Default::default(), Default::default()),
            owners: AtomicU64::new(0),
        })
    }
}

/// The cached blocks of one open file.
#[derive(Debug)]
pub(crate) struct CachedBlocks<B: Cached> {
    cache: Arc<BlockCache<B>>,
    /// A number no other open file has: file numbers alone could come again with other content.
    owner: u64,
}

impl<B: Cached> CachedBlocks<B> {
    pub(crate) fn new(cache: Arc<BlockCache<B>>) -> Self {
        let owner = cache.owners.fetch_add(1, Ordering::Relaxed);
        Self { cache, owner }
    }

    /// The block with this index in the file, from the cache, or loaded and put into it.
    pub(crate) fn get_or_load<E>(
        &self,
        index: usize,
        load: impl FnOnce() -> Result<B, E>,
    ) -> Result<Arc<B>, E> {
        // A block whose index has no such key is not kept; an index of 2^32 blocks does not fit in memory.
        let Ok(block) = u32::try_from(index) else { return load().map(Arc::new) };
        let key = Key { owner: self.owner, block };
        if let Some(block) = self.cache.blocks.get(&key) {
            return Ok(block);
        }
        let block = Arc::new(load()?);
        self.cache.blocks.insert(key, Arc::clone(&block));
        Ok(block)
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
        let block = Kilobytes(20);
        let cache = BlockCache::new(100 * block.memory_bytes());
        let (first, second) = (CachedBlocks::new(Arc::clone(&cache)), CachedBlocks::new(Arc::clone(&cache)));
        for index in 0..1_000 {
            first.get_or_load(index, || Ok::<_, ()>(Kilobytes(20))).unwrap();
            assert!(second.get_or_load(index, || Err(())).is_err());
            assert!(cache.blocks.weight() <= 100 * block.memory_bytes());
        }
        assert!((0..1_000).any(|index| first.get_or_load(index, || Err(())).is_ok()));
    }
}
