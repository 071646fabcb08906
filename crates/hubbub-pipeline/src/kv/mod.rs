//! Cache of keys' values in front of the store, and the revision that wakes those who watch keys.
//!
//! [`Keys::get`] answers from the cache if it can. Otherwise one load reads the key from the store, for all requests that
//! wait for it. The dispatcher passes each committed batch to [`Keys::apply_committed`] before any sender wakes: values
//! that were put enter the cache, deleted and expired keys leave it, and the last revision is published.
//!
//! **No answer is older than what any client knows.** No client knows a change of key `k` with revision `r` before `r`
//! is published: senders wake after [`Keys::apply_committed`], and everything read from the store itself (a load, a
//! list, watched changes) is held back until all that the store had committed by then is published
//! ([`Keys::caught_up`]). So it suffices that a GET which begins after `r` is published finds no older state of `k` in
//! the cache. An entry of `k` comes from one of these:
//! - The update by `r` itself, or a later one: updates are made by one task, in the order of revisions.
//! - A load whose placeholder was made after that update. It began to read after `r` was durable, and a store's reads
//!   see everything durable.
//! - A load whose placeholder is older. The update removed that placeholder: inserting a value replaces it, removing a
//!   key removes it. The load finds its placeholder gone and inserts nothing. It answers only requests from before the
//!   update, which may see the key as it was then. This holds even if the written value was evicted since, or another
//!   load has begun, because a placeholder is compared by identity.
//!
//! An update must not insert a value that is too large for the cache: the cache refuses it without a look at
//! placeholders. Therefore keys with values beyond [`Cache::copied_max`] are removed, which also saves the copy.
//!
//! An entry expires by its own time, before the sweep that deletes it is committed, by the clock and the rule of the
//! store ([`hubbub_core::kv::has_expired`]), so that lists and conditions agree. The changes that the store reports for
//! that sweep remove it. The absence of a key is cached like a value, with the time at which it was found.
//!
//! **Where other servers write to the same store** ([`Keys::shared`]) clients of those servers know their changes before
//! this server does. So before the cache answers a GET, it is validated ([`validator`]): the changes since the last
//! validation are read from the store and applied. One validation, started after the GETs came, serves all that wait. It
//! sees everything durable, hence everything any client knew. What a GET finds then:
//! - An entry is the state of its key at the revision that the validation saw, or a later one. A change removes what is
//!   older, and the placeholder of a load that may have read what is older. Own changes are applied at once, unless a
//!   validation has passed them already.
//! - A running load has the same right: no change up to that revision has removed its placeholder.
//!
//! **With the lease** ([`KvStore::kv_lease`]) nobody else changes keys. Once a validation that started under it
//! succeeded, GETs need none as long as the lease is the same: own changes are applied to the cache. But other clients may
//! read them before that, so a GET of a key that is being changed ([`changing`]) validates as if there were no lease.
//!
//! A GET of a key that is not cached reads it after it came, without a validation. Nothing is held back. The published
//! revision follows the store's ([`Keys::poll_revision`]): it only wakes watchers, and promises nothing about later
//! revisions. It goes back with the store's epoch. What a store has is read from the store ([`Keys::kept`]): it may have
//! less than what is published, for a moment after another epoch began, or once it lost its last changes.

mod cache;
mod changing;
mod failures;
mod revision_watch;
#[cfg(test)]
mod tests;
mod validator;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hubbub_core::clock::Clock;
use hubbub_core::invariant::saturate;
use hubbub_core::kv::{KvChanged, KvChangesRead, KvEntry, KvOp, KvOutcome, has_expired};
use hubbub_core::store::{KvStore, ReadError};
use hubbub_core::{Op, OpBatch, Outcome, Timestamp};
use quick_cache::sync::GuardResult;
use tokio::sync::watch;

use crate::metrics::Metrics;
use cache::{Cache, Cached, Guard};
use failures::Failures;
use revision_watch::PublishedRevision;
pub use revision_watch::RevisionWatch;
use validator::CacheValidator;
pub use validator::EpochSource;

/// Bounds of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Bytes of keys and values with their overhead; 0 = no cache.
    pub bytes: u64,
    /// Keys.
    pub entries: usize,
    /// Bytes of the longest value that should fit, as far as `bytes` allows.
    pub value_bytes: u64,
}

/// A value that has not expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The bytes, shared without a copy.
    pub bytes: Bytes,
    /// Its revision.
    pub revision: u64,
    /// When it expires, by the store's clock.
    pub expires_at: Option<Timestamp>,
}

/// Result of a GET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRead {
    /// `None` = there is no such key.
    pub value: Option<Value>,
    /// Whether the cache had it.
    pub is_hit: bool,
}

/// Which changes a store keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRange {
    /// The epoch that the revisions belong to.
    pub epoch: Arc<str>,
    /// The revision behind which all changes are kept.
    pub oldest: u64,
    /// Revision of the last change.
    pub head: u64,
}

/// Longest wait for the dispatcher. The store is ahead of it for longer only after unconfirmed commits.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);
/// Changes in one read, to find the keys that expired.
const CHANGES_PAGE: usize = 1_000;

/// Pause between two polls of a shared store's revision.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn cache_of(limits: CacheLimits, metrics: &Metrics) -> Option<Arc<Cache>> {
    (limits.bytes > 0).then(|| Arc::new(Cache::new(limits, metrics.kv_evictions.clone())))
}

fn published_by(store: &dyn KvStore) -> watch::Sender<PublishedRevision> {
    watch::Sender::new(PublishedRevision { revision: store.revision(), epochs_begun: 0 })
}

/// The last revision that an operation used.
fn revision_of(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Kv(KvOutcome::Put { revision, .. }) => Some(*revision),
        Outcome::Kv(KvOutcome::Deleted { revision } | KvOutcome::Swept { revision, .. }) => *revision,
        _ => None,
    }
}

/// The key-value reads of this server.
pub struct Keys {
    store: Arc<dyn KvStore>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// `None` = caching is switched off.
    cache: Option<Arc<Cache>>,
    /// Of the cache, where other servers write to the store.
    validator: Option<Arc<CacheValidator>>,
    failures: Failures,
    /// Names the history of a store that other servers write to; `None` = none does.
    epoch: Option<EpochSource>,
    /// The last revision that the cache contains, or that was seen in a shared store.
    published: watch::Sender<PublishedRevision>,
}

impl Keys {
    /// The keys of `store`, before its first operation.
    pub(crate) fn new(
        store: Arc<dyn KvStore>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        limits: CacheLimits,
    ) -> Self {
        let cache = cache_of(limits, &metrics);
        let published = published_by(&*store);
        let failures = Failures::default();
        Self { store, clock, metrics, cache, validator: None, failures, epoch: None, published }
    }

    /// The keys of a store that other servers write to, too. `epoch` names its history.
    pub(crate) fn shared(
        store: Arc<dyn KvStore>,
        epoch: EpochSource,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        limits: CacheLimits,
    ) -> Self {
        let cache = cache_of(limits, &metrics);
        let validator = cache.clone().map(|cache| {
            CacheValidator::new(store.clone(), epoch.clone(), cache, clock.clone(), metrics.clone())
        });
        let (failures, epoch) = (Failures::default(), Some(epoch));
        let published = published_by(&*store);
        Self { store, clock, metrics, cache, validator, failures, epoch, published }
    }

    /// The value of a key, not older than what any client knew when this was called.
    pub async fn get(&self, key: &[u8]) -> Result<KeyRead, ReadError> {
        self.get_as_of(key, self.clock.monotonic()).await
    }

    /// The value of a key, not older than what any client knew at `since`, a time of the monotonic clock that has passed.
    pub async fn get_as_of(&self, key: &[u8], since: Duration) -> Result<KeyRead, ReadError> {
        let Some(cache) = &self.cache else {
            // The store has left out expired keys by its own clock, which for a shared store is not this server's.
            return Ok(KeyRead { value: self.read(key).await?, is_hit: false });
        };
        if let Some(validator) = self.validator.as_ref().filter(|validator| !validator.is_current(key)) {
            if !cache.inner.contains_key(key)
                && let GuardResult::Guard(guard) = cache.inner.get_value_or_guard(key, Some(Duration::ZERO))
            {
                self.metrics.kv_misses.inc();
                return self.load(key, guard).await;
            }
            validator.validate_since(since).await?;
        }
        if let Some(cached) = cache.inner.get(key).filter(|cached| !self.forget_future(cache, key, cached)) {
            self.metrics.kv_hits.inc();
            return Ok(KeyRead { value: self.unexpired(cached), is_hit: true });
        }
        self.metrics.kv_misses.inc();
        self.load_or_wait(cache, key).await
    }

    /// Loads a key, or waits for the load that is on its way, and shares its failure.
    async fn load_or_wait(&self, cache: &Cache, key: &[u8]) -> Result<KeyRead, ReadError> {
        let cached = match cache.inner.get_value_or_guard(key, Some(Duration::ZERO)) {
            GuardResult::Value(cached) => cached,
            GuardResult::Guard(guard) => return self.load(key, guard).await,
            GuardResult::Timeout => {
                let waiting = self.failures.wait(key);
                match (cache.inner.get_value_or_guard_async(key).await, waiting.error()) {
                    (Ok(cached), _) => cached,
                    // The guard goes to the next who waits.
                    (Err(_), Some(error)) => return Err(error),
                    // It was given up.
                    (Err(guard), None) => return self.load(key, guard).await,
                }
            }
        };
        Ok(KeyRead { value: self.unexpired(cached), is_hit: false })
    }

    /// Reads a key from the store, for all who wait for it.
    async fn load(&self, key: &[u8], guard: Guard<'_>) -> Result<KeyRead, ReadError> {
        let before = self.now();
        let read = self.read(key).await.inspect_err(|error| self.failures.notify(key, error))?;
        let cached = read.map_or_else(|| Cached::Absent(before.max(self.now())), Cached::Value);
        if self.caught_up().await {
            // The cache refuses it when the key changed in between; see above.
            let _ = guard.insert(cached.clone());
        }
        Ok(KeyRead { value: self.unexpired(cached), is_hit: false })
    }

    /// The time by which keys expire.
    fn now(&self) -> Timestamp {
        self.store.kv_now().unwrap_or_else(|| self.clock.now())
    }

    /// How long a value stays, by the time by which keys expire; `None` = it does not expire.
    pub fn time_left(&self, value: &Value) -> Option<Duration> {
        let left = value.expires_at?.as_micros().saturating_sub(self.now().as_micros());
        Some(Duration::from_micros(saturate(left)))
    }

    /// Reads the clock only if the value can expire.
    fn unexpired(&self, cached: Cached) -> Option<Value> {
        match cached {
            Cached::Value(value) => {
                let is_there = value.expires_at.is_none() || !has_expired(value.expires_at, self.now());
                is_there.then_some(value)
            }
            Cached::Absent(_) => None,
        }
    }

    /// Removes an absence that was found at a time which is in the future now. Whether it was one.
    fn forget_future(&self, cache: &Cache, key: &[u8], cached: &Cached) -> bool {
        let is_future = matches!(cached, Cached::Absent(at) if self.now() < *at);
        if is_future {
            cache.inner.remove(key);
        }
        is_future
    }

    async fn read(&self, key: &[u8]) -> Result<Option<Value>, ReadError> {
        let started = self.clock.monotonic();
        let entry = self.store.value(key).await?;
        let took = self.clock.monotonic().saturating_sub(started);
        self.metrics.kv_load_time.record(saturate(took.as_micros()), 1);
        Ok(entry.map(|KvEntry { value, revision, expires_at }| Value {
            bytes: Bytes::from_owner(value),
            revision,
            expires_at,
        }))
    }

    /// Which changes the store keeps, none before it is published. `epoch` names the store's history.
    pub async fn change_range(&self, epoch: impl Fn() -> Arc<str>) -> Result<ChangeRange, ReadError> {
        loop {
            let asked_in = epoch();
            // No store has a change behind it, so this says what there is.
            let (oldest, head) = match self.store.changes(&[], u64::MAX, 1).await? {
                KvChangesRead::Compacted { oldest, head } => (oldest, head),
                KvChangesRead::Changes(_) => (0, self.store.revision()),
            };
            self.caught_up().await;
            if epoch() == asked_in {
                return Ok(ChangeRange { epoch: asked_in, oldest, head });
            }
        }
    }

    /// The last published revision.
    fn revision(&self) -> u64 {
        self.published.borrow().revision
    }

    /// For a reader of changes whose first read begins after this. Woken, it finds the changes in the store.
    pub fn following(&self) -> RevisionWatch {
        RevisionWatch::new(self.published.subscribe())
    }

    const fn is_shared(&self) -> bool {
        self.epoch.is_some()
    }

    /// Waits until everything is published that an earlier read of the store may have seen. Returns false when that takes
    /// too long: then what was read is correct, but must not be cached.
    pub async fn caught_up(&self) -> bool {
        let seen = self.store.revision();
        if self.is_shared() {
            self.publish(seen);
        }
        if self.revision() >= seen {
            return true;
        }
        let mut published = self.published.subscribe();
        let waiting = published.wait_for(|published| published.revision >= seen);
        matches!(tokio::time::timeout(CATCH_UP_MAX, waiting).await, Ok(Ok(_)))
    }

    /// Called before the store gets a batch. [`Self::end_changes`] follows once the cache has what became of it.
    pub(crate) fn begin_changes(&self, ops: &OpBatch) {
        self.validator.iter().for_each(|validator| validator.changing().begin(ops));
    }

    #[cfg(test)]
    pub(crate) fn is_changing(&self, key: &[u8]) -> bool {
        self.validator.as_ref().is_some_and(|validator| validator.changing().has(key))
    }

    /// Called after [`Self::apply_committed`] or [`Self::invalidate`], for every batch.
    pub(crate) fn end_changes(&self, ops: &OpBatch) {
        self.validator.iter().for_each(|validator| validator.changing().end(ops));
    }

    /// Updates the cache by a committed batch, and publishes its last revision. Called for every batch, in order. `epoch`
    /// names the history of a shared store that the batch was committed in; `None` = it may be one or another.
    pub(crate) async fn apply_committed(
        &self,
        ops: &OpBatch,
        outcomes: &[Outcome],
        epoch: Option<&Arc<str>>,
    ) {
        if self.is_shared() {
            match (&self.validator, epoch) {
                (Some(validator), Some(epoch)) => validator.apply_own(epoch, ops, outcomes),
                // It may be of the history that the cache is of.
                _ => self.invalidate(ops.iter()),
            }
            return self.publish(outcomes.iter().filter_map(revision_of).max().unwrap_or(0));
        }
        let mut last = self.revision();
        for (op, outcome) in ops.iter().zip(outcomes) {
            let (Op::Kv(op), Outcome::Kv(outcome)) = (op, outcome) else { continue };
            match (op, *outcome) {
                (KvOp::Put { key, value, .. }, KvOutcome::Put { revision, expires_at, .. }) => {
                    self.cache.iter().for_each(|cache| cache.put(key, value, revision, expires_at));
                    last = revision;
                }
                (KvOp::Delete { key, .. }, KvOutcome::Deleted { revision: Some(revision) }) => {
                    self.cache.iter().for_each(|cache| drop(cache.inner.remove(key)));
                    last = revision;
                }
                (KvOp::Sweep, KvOutcome::Swept { revision: Some(revision), .. }) => {
                    self.remove_expired(last, revision).await;
                    last = revision;
                }
                _ => {}
            }
        }
        self.publish(last);
    }

    /// Publishes `revision`, unless a later one is published. Wakes those who watch keys.
    fn publish(&self, revision: u64) {
        self.published.send_if_modified(|published| {
            let is_newer = revision > published.revision;
            published.revision = revision.max(published.revision);
            is_newer
        });
    }

    /// Publishes other servers' revisions until the task is aborted.
    pub(crate) async fn poll_revision(self: Arc<Self>) {
        let epoch = || self.epoch.as_ref().map(|epoch| epoch());
        let mut known_epoch = epoch();
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if let Some(validator) = self.validator.as_ref().filter(|validator| validator.is_behind()) {
                // So that the next GET finds little to correct. A failure is met again by those who read.
                let _ = validator.validate_since(self.clock.monotonic()).await;
            }
            // In this order: of a history that begins in between, the next round tells.
            let (epoch, seen) = (epoch(), self.store.revision());
            // Those who follow changes must begin anew there, whatever its revision is.
            let has_begun = u64::from(known_epoch != epoch);
            known_epoch = epoch;
            self.published.send_if_modified(|published| {
                // Less in another history, or once the store has lost its last changes.
                let now =
                    PublishedRevision { revision: seen, epochs_begun: published.epochs_begun + has_begun };
                std::mem::replace(published, now) != now
            });
        }
    }

    /// Removes the keys of operations that may or may not be committed.
    pub(crate) fn invalidate<'a>(&self, ops: impl Iterator<Item = Op<'a>>) {
        let Some(cache) = &self.cache else { return };
        for op in ops {
            if let Op::Kv(op) = op {
                match op.key() {
                    Some(key) => drop(cache.inner.remove(key)),
                    None => self.validator.iter().for_each(|validator| validator.invalidate_lease()),
                }
            }
        }
    }

    /// Removes the keys that expired between two revisions.
    async fn remove_expired(&self, mut after: u64, through: u64) {
        let Some(cache) = &self.cache else { return };
        loop {
            let Ok(KvChangesRead::Changes(page)) = self.store.changes(&[], after, CHANGES_PAGE).await else {
                // It is unknown which keys they were.
                return cache.inner.clear();
            };
            for change in page.changes.iter().take_while(|change| change.revision <= through) {
                if change.what == KvChanged::Expired {
                    cache.inner.remove(&*change.key);
                }
            }
            if page.through >= through || !page.more {
                return;
            }
            after = page.through;
        }
    }

    /// Updates the metrics of the cache's size.
    pub fn measure(&self) {
        let (entries, bytes) = self.cache.as_ref().map_or((0, 0), |cache| cache.size());
        self.metrics.kv_entries.set(entries);
        self.metrics.kv_bytes.set(bytes);
        self.metrics.kv_exclusive.set(self.store.kv_lease().is_some().into());
    }
}
