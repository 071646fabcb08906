//! The cache itself: what an entry is, what it weighs, and what is admitted.

use std::sync::Arc;

use bytes::Bytes;
use hubbub_core::cache;
use prometheus_client::metrics::counter::Counter;
use quick_cache::sync::PlaceholderGuard;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter, sync};

use hubbub_core::Timestamp;
use hubbub_core::kv::has_expired;

use super::{CacheLimits, Value};

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cached {
    Value(Value),
    /// It is not there.
    Absent,
}

impl Cached {
    /// The value, unless it has run out; the time is asked for only where it matters.
    pub(super) fn value(self, now: impl FnOnce() -> Timestamp) -> Option<Value> {
        match self {
            Self::Value(value) => match value.expires_at {
                Some(expires_at) if has_expired(Some(expires_at), now()) => None,
                _ => Some(value),
            },
            Self::Absent => None,
        }
    }
}

/// What an entry takes besides key and value: its place in the table, and the headers of two allocations.
const ENTRY_BYTES: u64 = 160;
/// Longest value copied into the cache when it is put: copying holds up everybody else's answers. Longer ones come
/// into it when they are asked for.
const COPIED_BYTES_MAX: u64 = 64 * 1024;

/// Bounds entries as well as bytes: none weighs less than its share of the bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weight {
    least: u64,
}

impl Weighter<Vec<u8>, Cached> for Weight {
    fn weight(&self, key: &Vec<u8>, cached: &Cached) -> u64 {
        let value = match cached {
            Cached::Value(value) => value.bytes.len(),
            Cached::Absent => 0,
        };
        ((key.len() + value) as u64 + ENTRY_BYTES).max(self.least)
    }
}

/// Counts evictions, and frees what was evicted after the shard's lock is released.
#[derive(Debug, Clone)]
pub(super) struct Evictions(Arc<Counter>);

impl Lifecycle<Vec<u8>, Cached> for Evictions {
    type RequestState = [Option<(Vec<u8>, Cached)>; 2];

    fn on_evict(&self, state: &mut Self::RequestState, key: Vec<u8>, cached: Cached) {
        self.0.inc();
        if let Some(place) = state.iter_mut().find(|place| place.is_none()) {
            *place = Some((key, cached));
        }
    }
}

type Inner = sync::Cache<Vec<u8>, Cached, Weight, DefaultHashBuilder, Evictions>;

/// The right to say what is known of a key, until a change of the key takes it away.
pub(super) type Guard<'a> = PlaceholderGuard<'a, Vec<u8>, Cached, Weight, DefaultHashBuilder, Evictions>;

pub(super) struct Cache {
    inner: Inner,
    copied_max: u64,
}

impl Cache {
    pub(super) fn new(limits: CacheLimits, evictions: Arc<Counter>) -> Self {
        // With one entry alone its weight would be all there is, more than the cache admits.
        let entries = limits.entries.max(2);
        let weight = Weight { least: limits.bytes / entries as u64 };
        let expected = entries.min(usize::try_from(limits.bytes / ENTRY_BYTES).unwrap_or(usize::MAX));
        let largest = limits.value_bytes.saturating_add(ENTRY_BYTES).max(weight.least);
        let options = cache::options(expected, limits.bytes, largest);
        let hasher = DefaultHashBuilder::default();
        let inner = Inner::with_options(options, weight, hasher, Evictions(evictions));
        // Half of what a shard holds is always admitted.
        let copied_max = COPIED_BYTES_MAX.min((inner.shard_capacity() / 2).saturating_sub(ENTRY_BYTES));
        Self { inner, copied_max }
    }

    /// What is known, if anything is.
    pub(super) fn get(&self, key: &[u8]) -> Option<Cached> {
        self.inner.get(key)
    }

    /// What is known as soon as somebody knows it, or the right to find out.
    pub(super) async fn get_or_guard(&self, key: &[u8]) -> Result<Cached, Guard<'_>> {
        self.inner.get_value_or_guard_async(key).await
    }

    /// Enters a value that was put. Loads of the key that are under way lose their right.
    pub(super) fn put(&self, key: &[u8], value: &[u8], revision: u64, expires_at: Option<Timestamp>) {
        if (key.len() + value.len()) as u64 > self.copied_max {
            return self.remove(key);
        }
        let value = Value { bytes: Bytes::copy_from_slice(value), revision, expires_at };
        self.inner.insert(key.to_vec(), Cached::Value(value));
    }

    /// Forgets a key. Loads of it that are under way lose their right.
    pub(super) fn remove(&self, key: &[u8]) {
        self.inner.remove(key);
    }

    /// Forgets everything, as [`Self::remove`] does.
    pub(super) fn clear(&self) {
        self.inner.clear();
    }

    /// Entries, and the bytes they are counted with.
    pub(super) fn size(&self) -> (i64, i64) {
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        (count(self.inner.len() as u64), count(self.inner.weight()))
    }
}
