//! Values of keys, in memory and from the store, and who is told that keys changed.
//!
//! A GET asks [`Keys::get`]: what is in the cache is answered at once, else one load per key asks the store however
//! many wait for it. The dispatcher hands each committed batch to [`Keys::correct`] before anybody is told of it: values
//! that were put go into the cache, what was deleted or ran out leaves it, and the last revision is published.
//!
//! **No answer is older than what anybody knows.** A change of key `k` with revision `r` is known to nobody before it
//! is published: senders are woken after [`Keys::correct`], and whatever a reader learns from the store itself (a load,
//! a list, the changes one watches) is held back until all that the store had done by then is published
//! ([`Keys::caught_up`]). So it is enough that, once `r` is published, no GET that begins then finds an older state of
//! `k` in the cache. An entry of `k` comes from one of these:
//! - The correction by `r` itself, or a later one: corrections are made by one task, in the order of revisions.
//! - A load whose placeholder was made after that correction. It began to read after `r` was durable, and a store's
//!   reads see everything durable.
//! - A load whose placeholder is older. The correction took that placeholder out of the cache: inserting a value
//!   replaces it, removing a key removes it. Such a load finds its placeholder gone and inserts nothing; it answers
//!   only those who asked before the correction, who may see the key as it was then. This holds when the written value
//!   has been evicted since, and when another load has begun, because a placeholder is known by its identity.
//!
//! A value too large for the cache must not be inserted by a correction: the cache refuses it without looking at
//! placeholders. Values beyond [`Cache::copied_max`] are therefore removed, which spares copying them, too.
//!
//! An entry that runs out is told from its own time before the sweep that deletes it is committed, by the clock and the
//! rule of the store ([`hubbub_core::kv::has_expired`]), so that lists and conditions say the same; and it is removed by
//! the changes which the store names for that sweep. That a key is not there is remembered like a value.
//!
//! **Where other servers write to the same store** ([`Keys::shared`]) none of this would hold: their changes are known to
//! their clients before anybody here hears of them. So nothing is remembered. Each GET asks the store after it came, and
//! a store's reads see everything durable, hence whatever anybody knew; nothing need be held back. What is published
//! follows the store's revision ([`Keys::follow`]): it says only that there is something to find, never that what lies
//! beyond is unknown to all.

mod cache;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hubbub_core::clock::Clock;
use hubbub_core::kv::{KvChanged, KvEntry, KvHistory, KvOp, KvOutcome};
use hubbub_core::store::{KvStore, ReadError};
use hubbub_core::{Op, OpBatch, Outcome, Timestamp};
use tokio::sync::watch;

use crate::metrics::Metrics;
use cache::{Cache, Cached};

/// How much is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Bytes of keys, values and what keeping them takes; 0 = nothing is remembered.
    pub bytes: u64,
    /// Keys.
    pub entries: usize,
    /// Bytes of the longest value that is to be remembered, if `bytes` allow it.
    pub value_bytes: u64,
}

/// A value that has not run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The bytes; sharing them costs nothing.
    pub bytes: Bytes,
    /// Its revision.
    pub revision: u64,
    /// When it runs out, by the store's clock.
    pub expires_at: Option<Timestamp>,
}

/// What a GET found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// `None` = the key is not there.
    pub value: Option<Value>,
    /// Whether it was in memory.
    pub is_hit: bool,
}

/// Longest wait for the dispatcher. Only a store whose commits were not confirmed can be ahead of it for longer.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);
/// Changes read at once, to learn which keys ran out.
const CHANGES_PAGE: usize = 1_000;

/// How often it is looked at whether the store has gone on, where others write to it.
const FOLLOW_EVERY: Duration = Duration::from_millis(50);

/// The keys of this server.
pub struct Keys {
    store: Arc<dyn KvStore>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// `None` = switched off.
    cache: Option<Cache>,
    /// Whether other servers write to the store.
    is_shared: bool,
    /// The last revision that the cache is corrected by, or that is known to be in a shared store.
    published: watch::Sender<u64>,
}

impl Keys {
    /// The keys of `store`, on which nothing may be under way yet.
    pub fn new(
        store: Arc<dyn KvStore>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        limits: CacheLimits,
    ) -> Self {
        let cache = (limits.bytes > 0).then(|| Cache::new(limits, metrics.kv_evictions.clone()));
        let published = watch::Sender::new(store.revision());
        Self { store, clock, metrics, cache, is_shared: false, published }
    }

    /// The keys of a store that other servers write to, too: nothing is remembered.
    pub fn shared(store: Arc<dyn KvStore>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        let published = watch::Sender::new(store.revision());
        Self { store, clock, metrics, cache: None, is_shared: true, published }
    }

    /// The value of a key, not older than what anybody knew when this was called.
    pub async fn get(&self, key: &[u8]) -> Result<Found, ReadError> {
        let Some(cache) = &self.cache else {
            // The store left out what has run out, by its own clock, which on a shared one is not this server's.
            let value = self.read(key).await?.value(|| Timestamp::MIN);
            return Ok(Found { value, is_hit: false });
        };
        if let Some(cached) = cache.get(key) {
            self.metrics.kv_hits.inc();
            return Ok(Found { value: cached.value(self.now()), is_hit: true });
        }
        self.metrics.kv_misses.inc();
        let cached = match cache.get_or_guard(key).await {
            Ok(cached) => cached,
            Err(guard) => {
                let cached = self.read(key).await?;
                if self.caught_up().await {
                    // Refused when a change of the key came in between; see above.
                    let _ = guard.insert(cached.clone());
                }
                cached
            }
        };
        Ok(Found { value: cached.value(self.now()), is_hit: false })
    }

    async fn read(&self, key: &[u8]) -> Result<Cached, ReadError> {
        let started = self.clock.monotonic();
        let entry = self.store.value(key).await?;
        let took = self.clock.monotonic().saturating_sub(started);
        self.metrics.kv_load_time.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), 1);
        Ok(match entry {
            Some(KvEntry { value, revision, expires_at }) => {
                Cached::Value(Value { bytes: Bytes::from_owner(value), revision, expires_at })
            }
            None => Cached::Absent,
        })
    }

    /// The last revision of which anybody was told.
    pub fn revision(&self) -> u64 {
        *self.published.borrow()
    }

    /// The same, and those to come. Whoever was woken by it finds the changes in
    /// the store.
    pub fn published(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    /// Waits until everything is published that a read answered before may have seen. `false` when that takes too
    /// long: what was read is true, but must not be remembered.
    pub async fn caught_up(&self) -> bool {
        let seen = self.store.revision();
        if self.is_shared {
            self.publish(seen);
        }
        if self.revision() >= seen {
            return true;
        }
        let mut published = self.published.subscribe();
        let waiting = published.wait_for(|published| *published >= seen);
        matches!(tokio::time::timeout(CATCH_UP_MAX, waiting).await, Ok(Ok(_)))
    }

    /// Enters what a committed batch did, and publishes it. To be called for every batch, in their order.
    pub(crate) async fn correct(&self, ops: &OpBatch, outcomes: &[Outcome]) {
        let mut last = self.revision();
        for (op, outcome) in ops.iter().zip(outcomes) {
            let (Op::Kv(op), Outcome::Kv(outcome)) = (op, outcome) else { continue };
            match (op, *outcome) {
                (KvOp::Put { key, value, .. }, KvOutcome::Put { revision, expires_at, .. }) => {
                    if let Some(cache) = &self.cache {
                        cache.put(key, value, revision, expires_at);
                    }
                    last = revision;
                }
                (KvOp::Delete { key, .. }, KvOutcome::Deleted { revision: Some(revision) }) => {
                    if let Some(cache) = &self.cache {
                        cache.remove(key);
                    }
                    last = revision;
                }
                (KvOp::Sweep, KvOutcome::Swept { revision: Some(revision), .. }) => {
                    self.forget_expired(last, revision).await;
                    last = revision;
                }
                _ => {}
            }
        }
        self.publish(last);
    }

    /// Wakes those who wait for changes, if there are any up to `revision` that were not published before.
    fn publish(&self, revision: u64) {
        self.published.send_if_modified(|published| {
            let is_news = revision > *published;
            *published = revision.max(*published);
            is_news
        });
    }

    /// Publishes what other servers did, until it is aborted.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(FOLLOW_EVERY).await;
            let seen = self.store.revision();
            // Less only when another history took the place of the store's: what lies ahead is news again.
            self.published.send_if_modified(|published| std::mem::replace(published, seen) != seen);
        }
    }

    /// Forgets the keys of a batch of which nobody knows whether it was committed.
    pub(crate) fn forget(&self, ops: &OpBatch) {
        let Some(cache) = &self.cache else { return };
        for op in ops.iter() {
            if let Op::Kv(op) = op
                && let Some(key) = op.key()
            {
                cache.remove(key);
            }
        }
    }

    /// Forgets what ran out between two revisions.
    async fn forget_expired(&self, mut after: u64, through: u64) {
        let Some(cache) = &self.cache else { return };
        loop {
            let Ok(KvHistory::Changes(page)) = self.store.changes(&[], after, CHANGES_PAGE).await else {
                // Which keys they were cannot be told.
                return cache.clear();
            };
            for change in page.changes.iter().take_while(|change| change.revision <= through) {
                if change.what == KvChanged::Expired {
                    cache.remove(&change.key);
                }
            }
            if page.through >= through || !page.more {
                return;
            }
            after = page.through;
        }
    }

    /// Shows in the metrics how much is remembered.
    pub fn measure(&self) {
        let (entries, bytes) = self.cache.as_ref().map_or((0, 0), Cache::size);
        self.metrics.kv_entries.set(entries);
        self.metrics.kv_bytes.set(bytes);
    }

    fn now(&self) -> impl FnOnce() -> Timestamp {
        || self.clock.now()
    }
}
