//! Validates the cache of a shared store: reads the changes since the last validation, and removes from the cache what
//! they replace.
//!
//! One validation serves all reads that wait for it; it starts after the last of them came. Few are in flight at a time.
//! Its changes are applied to the cache before any of these reads is answered.
//!
//! Invariants
//! 1. Every entry of the cache is the state of its key at [`Position::revision`], or a later one.
//! 2. The position advances only after the changes up to it are applied, under the lock of the position.
//! 3. A lease is validated by a validation that started while the server held it. Own changes are applied at once; after an
//!    own sweep the lease has to be validated again.
//! 4. Nothing of another epoch is applied: the store's epoch is the same before and after a read. The epoch of the position
//!    never goes back, because it is read under the position's lock.
//! 5. No read waits for the answer of an old epoch: after a new one began, the validation starts again.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::kv::{KvChange, KvChangesRead, KvOp, KvOutcome};
use hubbub_core::store::{KvStore, ReadError};
use hubbub_core::waiting_calls::{Pushed, WaitingCalls};
use hubbub_core::{Op, OpBatch, Outcome};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::cache::{Cache, Cached};
use super::changing::Changing;
use crate::metrics::Metrics;

/// Changes in one page.
const PAGE: usize = 1_000;
/// Pages of one validation. Beyond that, clearing the cache is cheaper than applying the changes.
const PAGES_MAX: usize = 8;
/// Starts of one validation in a row. A new epoch of the store makes one necessary.
const ATTEMPTS_MAX: usize = 4;
/// Validations in flight. Each serves all reads that wait, so few are enough.
const VALIDATIONS_MAX: usize = 2;
/// Reads that may wait for a validation.
const WAITING_MAX: usize = 10_000;
/// The longest wait for a validation. Stores give up their reads by then.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two checks of the store's epoch while an answer is awaited.
const EPOCH_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the store's epoch.
pub type EpochSource = Arc<dyn Fn() -> Arc<str> + Send + Sync>;

type Answer = Result<(), ReadError>;

/// The revision up to which the cache is valid.
struct Position {
    epoch: Arc<str>,
    revision: u64,
    /// Start of the last validation that succeeded, by the monotonic clock.
    validated_at: Option<Duration>,
    /// Own sweeps so far. The keys that they removed are not known here.
    sweeps: u64,
}

/// The state in which a validation starts.
struct ValidationStart {
    at: Duration,
    epoch: Arc<str>,
    lease: Option<NonZeroU64>,
    sweeps: u64,
}

pub(super) struct CacheValidator {
    store: Arc<dyn KvStore>,
    epoch: EpochSource,
    cache: Arc<Cache>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    position: Mutex<Position>,
    reads: WaitingCalls<oneshot::Sender<Answer>>,
    /// The lease under which the cache has all changes of other servers; 0 = none.
    validated_lease: AtomicU64,
    changing: Changing,
}

impl CacheValidator {
    /// The validator of an empty cache.
    pub(super) fn new(
        store: Arc<dyn KvStore>,
        epoch: EpochSource,
        cache: Arc<Cache>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        // In this order: the first validation notices an epoch that begins in between.
        let position = Position { epoch: epoch(), revision: store.revision(), validated_at: None, sweeps: 0 };
        let (position, reads) = (Mutex::new(position), WaitingCalls::new(WAITING_MAX, VALIDATIONS_MAX));
        let (validated_lease, changing) = (AtomicU64::new(0), Changing::default());
        Arc::new(Self { store, epoch, cache, clock, metrics, position, reads, validated_lease, changing })
    }

    /// The changes by this server that the cache does not have yet.
    pub(super) const fn changing(&self) -> &Changing {
        &self.changing
    }

    /// Whether a key needs no validation: no other server changes keys, and this one is not changing the key.
    pub(super) fn is_current(&self, key: &[u8]) -> bool {
        let validated = self.validated_lease.load(Ordering::SeqCst);
        validated != 0
            && self.store.kv_lease().map_or(0, NonZeroU64::get) == validated
            && !self.changing.has(key)
    }

    /// After an own sweep, the keys of which are not known here: the lease has to be validated again.
    pub(super) fn invalidate_lease(&self) {
        self.position.lock().sweeps += 1;
        self.validated_lease.store(0, Ordering::SeqCst);
    }

    /// Waits until the cache has all that was durable at `since`, a past time of the monotonic clock.
    pub(super) async fn validate_since(self: &Arc<Self>, since: Duration) -> Answer {
        if self.position.lock().validated_at.is_some_and(|validated_at| validated_at > since) {
            return Ok(());
        }
        let (sender, answer) = oneshot::channel();
        match self.reads.push(sender) {
            Pushed::Waits => {}
            // A task of its own: the caller may go away while others wait for the same answer.
            Pushed::StartsTask => self.start_task(),
            Pushed::Refused => return Err(unavailable("too many reads of keys wait already")),
        }
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(unavailable("the validation of cached keys ended early")),
            Err(_) => Err(unavailable("the store does not say in time which keys changed")),
        }
    }

    fn start_task(self: &Arc<Self>) {
        // Without a runtime the server has ended.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.clone().run_validations());
        }
    }

    /// Runs validations as long as reads wait.
    async fn run_validations(self: Arc<Self>) {
        let _right = self.reads.right(|| self.start_task());
        loop {
            let waiting = self.reads.take(usize::MAX);
            if waiting.is_empty() {
                return;
            }
            let answer = self.validate().await;
            for sender in waiting {
                // The caller may have gone.
                let _ = sender.send(answer.clone());
            }
        }
    }

    /// Whether something is cached, and the store has a later revision.
    pub(super) fn is_behind(&self) -> bool {
        !self.cache.inner.is_empty() && self.store.revision() > self.position.lock().revision
    }

    /// Validates the cache up to the store's last revision.
    async fn validate(&self) -> Answer {
        for _ in 0..ATTEMPTS_MAX {
            let start = self.start();
            self.metrics.kv_validations.inc();
            if self.apply_changes(&start).await? {
                return Ok(());
            }
        }
        Err(unavailable("the store's epoch keeps changing"))
    }

    /// Starts a validation. Clears the cache if the store has another epoch.
    fn start(&self) -> ValidationStart {
        // In this order: a lease of the next epoch is not validated in this one.
        let (at, lease) = (self.clock.monotonic(), self.store.kv_lease());
        let mut position = self.position.lock();
        let epoch = (self.epoch)();
        if position.epoch != epoch {
            // In this order: a load that runs meanwhile may be older than a revision read afterwards.
            let (revision, sweeps) = (self.store.revision(), position.sweeps);
            self.cache.inner.clear();
            *position = Position { epoch: epoch.clone(), revision, validated_at: None, sweeps };
        }
        ValidationStart { at, epoch, lease, sweeps: position.sweeps }
    }

    /// Applies all changes after the position. Returns false if another epoch may have answered.
    async fn apply_changes(&self, start: &ValidationStart) -> Result<bool, ReadError> {
        for page in 1..=PAGES_MAX {
            let after = self.position.lock().revision;
            let Some(history) = self.changes(after, &start.epoch).await? else { return Ok(false) };
            let mut position = self.position.lock();
            if position.epoch != start.epoch || (self.epoch)() != start.epoch {
                return Ok(false);
            }
            let is_over = match history {
                KvChangesRead::Changes(page) => {
                    page.changes.iter().for_each(|change| self.apply_change(change));
                    position.revision = position.revision.max(page.through);
                    !page.more
                }
                KvChangesRead::Compacted { head, .. } => {
                    self.cache.inner.clear();
                    // Another validation may have advanced meanwhile.
                    if position.revision == after {
                        position.revision = head;
                    }
                    true
                }
            };
            if !is_over && page == PAGES_MAX {
                // Durable, and not less than any revision that was read. Read before the cache is cleared, as above.
                position.revision = position.revision.max(self.store.revision());
                self.cache.inner.clear();
            }
            if is_over || page == PAGES_MAX {
                position.validated_at = position.validated_at.max(Some(start.at));
                if let Some(lease) = start.lease.filter(|_| position.sweeps == start.sweeps) {
                    self.validated_lease.fetch_max(lease.get(), Ordering::SeqCst);
                }
                break;
            }
        }
        Ok(true)
    }

    /// A page of the changes after a revision; `None` = an epoch other than `epoch` began. The old database may never answer.
    async fn changes(&self, after: u64, epoch: &Arc<str>) -> Result<Option<KvChangesRead>, ReadError> {
        let mut reading = self.store.changes(&[], after, PAGE);
        loop {
            let answer = tokio::time::timeout(EPOCH_CHECK_INTERVAL, &mut reading).await;
            if (self.epoch)() != *epoch {
                return Ok(None);
            }
            if let Ok(history) = answer {
                return history.map(Some);
            }
        }
    }

    /// Removes an entry that is older than a change, and the placeholder of a running load, which then inserts nothing.
    fn apply_change(&self, change: &KvChange) {
        if !self.has_since(&change.key, change.revision) {
            self.cache.inner.remove(&*change.key);
        }
    }

    /// Whether the cache has the value of this revision or a later one.
    fn has_since(&self, key: &[u8], revision: u64) -> bool {
        let cached: Option<Cached> = self.cache.inner.peek(key);
        matches!(cached, Some(Cached::Value(value)) if value.revision >= revision)
    }

    /// Applies what this server committed in `epoch`. Earlier changes of other servers come with the next validation.
    pub(super) fn apply_own(&self, epoch: &Arc<str>, ops: &OpBatch, outcomes: &[Outcome]) {
        let mut position = self.position.lock();
        if *epoch != position.epoch {
            return;
        }
        let (mut is_next, mut last) = (true, position.revision);
        for (op, outcome) in ops.iter().zip(outcomes) {
            let (Op::Kv(op), Outcome::Kv(outcome)) = (op, outcome) else { continue };
            let (revision, put) = match (op, *outcome) {
                (KvOp::Put { value, .. }, KvOutcome::Put { revision, expires_at, .. }) => {
                    (revision, Some((value, expires_at)))
                }
                (KvOp::Delete { .. }, KvOutcome::Deleted { revision: Some(revision) }) => (revision, None),
                // The keys that expired are not known here.
                (KvOp::Sweep, KvOutcome::Swept { revision: Some(_), .. }) => {
                    is_next = false;
                    position.sweeps += 1;
                    self.validated_lease.store(0, Ordering::SeqCst);
                    continue;
                }
                _ => continue,
            };
            is_next &= revision == last + 1;
            last = revision;
            let Some(key) = op.key().filter(|_| revision > position.revision) else { continue };
            match put {
                _ if self.has_since(key, revision) => {}
                Some((value, expires_at)) => self.cache.put(key, value, revision, expires_at),
                None => drop(self.cache.inner.remove(key)),
            }
        }
        if is_next {
            position.revision = last;
        }
    }
}

fn unavailable(reason: &str) -> ReadError {
    ReadError::Unavailable { reason: reason.into() }
}
