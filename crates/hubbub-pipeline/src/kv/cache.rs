//! The cache: entries, their weights, and which values are inserted.

use bytes::Bytes;
use hubbub_core::invariant::saturate;
use hubbub_core::{Timestamp, cache};
use prometheus_client::metrics::counter::Counter;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter, sync};

use super::{CacheLimits, Value};

/// The cached state of a key.
#[derive(Debug, Clone)]
pub(super) enum Cached {
    Value(Value),
    /// It was not there, or had expired, at this time of the store's clock. Once that clock is set back to before it, an expired key
    /// may be there again.
    Absent(Timestamp),
}

/// Bytes of an entry besides key and value: its slot in the table, and the headers of two allocations.
const ENTRY_BYTES: u64 = 160;
/// Longest value that is copied into the cache when it is put: the copy delays all other answers. Longer values enter
/// the cache when they are read.
const COPIED_BYTES_MAX: u64 = 64 * 1024;

/// Weighs an entry by its bytes, but at least by an equal share of the capacity. So the number of entries is bounded,
/// too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weight {
    least: u64,
}

impl Weighter<Vec<u8>, Cached> for Weight {
    fn weight(&self, key: &Vec<u8>, cached: &Cached) -> u64 {
        let value = match cached {
            Cached::Value(value) => value.bytes.len(),
            Cached::Absent(_) => 0,
        };
        ((key.len() + value) as u64 + ENTRY_BYTES).max(self.least)
    }
}

/// Counts evictions, and frees what was evicted after the shard's lock is released.
#[derive(Debug, Clone)]
pub(super) struct Evictions(Counter);

impl Lifecycle<Vec<u8>, Cached> for Evictions {
    type RequestState = [Option<(Vec<u8>, Cached)>; 2];

    fn on_evict(&self, state: &mut Self::RequestState, key: Vec<u8>, cached: Cached) {
        self.0.inc();
        if let Some(slot) = state.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some((key, cached));
        }
    }
}

type Inner = sync::Cache<Vec<u8>, Cached, Weight, DefaultHashBuilder, Evictions>;

/// The right to insert what was loaded, until the key is inserted or removed.
pub(super) type Guard<'a> =
    sync::PlaceholderGuard<'a, Vec<u8>, Cached, Weight, DefaultHashBuilder, Evictions>;

pub(super) struct Cache {
    /// A load of a key holds a [`Guard`].
    pub(super) inner: Inner,
    copied_max: u64,
}

impl Cache {
    pub(super) fn new(limits: CacheLimits, evictions: Counter) -> Self {
        // A single entry would weigh the whole capacity, which the cache does not admit.
        let entries = limits.entries.max(2);
        let weight = Weight { least: limits.bytes / entries as u64 };
        let expected = entries.min(saturate(limits.bytes / ENTRY_BYTES));
        let largest = limits.value_bytes.saturating_add(ENTRY_BYTES).max(weight.least);
        let options = cache::options(expected, limits.bytes, largest);
        let hasher = DefaultHashBuilder::default();
        let inner = Inner::with_options(options, weight, hasher, Evictions(evictions));
        // A shard always admits an entry of half its capacity.
        let copied_max = COPIED_BYTES_MAX.min((inner.shard_capacity() / 2).saturating_sub(ENTRY_BYTES));
        Self { inner, copied_max }
    }

    /// Inserts a value that was put. Running loads of the key lose their right to insert.
    pub(super) fn put(&self, key: &[u8], value: &[u8], revision: u64, expires_at: Option<Timestamp>) {
        if (key.len() + value.len()) as u64 > self.copied_max {
            self.inner.remove(key);
            return;
        }
        let value = Value { bytes: Bytes::copy_from_slice(value), revision, expires_at };
        self.inner.insert(key.to_vec(), Cached::Value(value));
    }

    pub(super) fn size(&self) -> (i64, i64) {
        (saturate(self.inner.len()), saturate(self.inner.weight()))
    }
}
