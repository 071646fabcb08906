//! Keeps the cache of a shared store correct: asks the store for the changes since the last question, and removes from
//! the cache what they concern.
//!
//! A question begins after all reads that wait for it came, and answers them together; few are on their way at a time. The
//! changes it brings are in the cache before anybody is answered.
//!
//! Invariants
//! - Every entry of the cache is the state of its key at [`Position::revision`], or a later one.
//! - The position moves on only after the changes up to it are in the cache, under the lock of the position.
//! - A lease is confirmed by a question that began while the server had it. Own changes, but sweeps, enter anyway.
//! - What was said or stored in another history never enters: the store's epoch is the same before and after. The epoch of
//!   the position never goes back, because it is looked up under its lock.
//! - Nobody waits for the answer of an old history: once another one began, the question is asked anew.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::kv::{KvChange, KvHistory, KvOp, KvOutcome};
use hubbub_core::store::{KvStore, ReadError};
use hubbub_core::{Op, OpBatch, Outcome};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::cache::{Cache, Cached};
use super::changing::Changing;
use crate::metrics::Metrics;

/// Changes in one answer.
const PAGE: usize = 1_000;
/// Answers to one question. Where there is more, forgetting everything is cheaper than correcting it.
const PAGES_MAX: usize = 8;
/// Questions in a row that a new history of the store may spoil.
const ATTEMPTS_MAX: usize = 4;
/// Questions on their way. Each takes all reads that wait, so few are enough.
const QUESTIONS_MAX: usize = 2;
/// Reads that may wait for a question.
const WAITING_MAX: usize = 10_000;

/// Time between two looks whether the store's history is still the one that was asked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The name of the store's history.
pub type EpochOf = Arc<dyn Fn() -> Arc<str> + Send + Sync>;

type Answer = Result<(), ReadError>;

/// Up to where the cache is correct.
struct Position {
    epoch: Arc<str>,
    revision: u64,
    /// When the last question was asked that was answered, by the monotonic clock.
    asked_at: Option<Duration>,
    /// Own sweeps so far, of which it is not known here what they removed.
    sweeps: u64,
}

/// What a question is asked in.
struct Asked {
    at: Duration,
    epoch: Arc<str>,
    lease: Option<NonZeroU64>,
    sweeps: u64,
}

#[derive(Default)]
struct Questions {
    waiting: Vec<oneshot::Sender<Answer>>,
    /// On their way.
    asked: usize,
}

pub(super) struct Corrections {
    store: Arc<dyn KvStore>,
    epoch: EpochOf,
    cache: Arc<Cache>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    position: Mutex<Position>,
    questions: Mutex<Questions>,
    /// The lease with which the cache has everything that others changed; 0 = none.
    confirmed: AtomicU64,
    changing: Changing,
}

impl Corrections {
    /// Of an empty cache.
    pub(super) fn new(
        store: Arc<dyn KvStore>,
        epoch: EpochOf,
        cache: Arc<Cache>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        // In this order: a history that begins in between is noticed by the first question.
        let position = Position { epoch: epoch(), revision: store.revision(), asked_at: None, sweeps: 0 };
        let (position, questions) = (Mutex::new(position), Mutex::default());
        let (confirmed, changing) = (AtomicU64::new(0), Changing::default());
        Arc::new(Self { store, epoch, cache, clock, metrics, position, questions, confirmed, changing })
    }

    /// The changes by this server that the cache does not have yet.
    pub(super) const fn changing(&self) -> &Changing {
        &self.changing
    }

    /// Whether the cache has everything that is known of a key, without a question: nobody else changes keys, and nobody
    /// is changing this one.
    pub(super) fn is_current(&self, key: &[u8]) -> bool {
        let confirmed = self.confirmed.load(Ordering::SeqCst);
        confirmed != 0
            && self.store.kv_lease().map_or(0, NonZeroU64::get) == confirmed
            && !self.changing.has(key)
    }

    /// It is not known which keys an own sweep has removed.
    pub(super) fn forget_lease(&self) {
        self.position.lock().sweeps += 1;
        self.confirmed.store(0, Ordering::SeqCst);
    }

    /// Waits until the cache has everything that was durable at `since`, a time of the monotonic clock that has passed.
    pub(super) async fn confirm(self: &Arc<Self>, since: Duration) -> Answer {
        if self.position.lock().asked_at.is_some_and(|asked_at| asked_at > since) {
            return Ok(());
        }
        let (sender, answer) = oneshot::channel();
        let is_first = {
            let mut questions = self.questions.lock();
            if questions.waiting.len() >= WAITING_MAX {
                return Err(unavailable("too many reads of keys wait already"));
            }
            questions.waiting.push(sender);
            let is_first = questions.asked < QUESTIONS_MAX;
            questions.asked += usize::from(is_first);
            is_first
        };
        if is_first {
            // A task of its own: the caller may go away while others wait for the same answer.
            tokio::spawn(self.clone().ask());
        }
        answer.await.unwrap_or_else(|_| Err(unavailable("the server is stopping")))
    }

    /// Asks as long as reads wait.
    async fn ask(self: Arc<Self>) {
        loop {
            let waiting = {
                let mut questions = self.questions.lock();
                if questions.waiting.is_empty() {
                    questions.asked -= 1;
                    return;
                }
                std::mem::take(&mut questions.waiting)
            };
            let answer = self.correct().await;
            for sender in waiting {
                // The caller may have gone.
                let _ = sender.send(answer.clone());
            }
        }
    }

    /// Whether the store is known to be further than the cache, and something is cached.
    pub(super) fn is_behind(&self) -> bool {
        !self.cache.inner.is_empty() && self.store.revision() > self.position.lock().revision
    }

    /// Brings the cache to the store's last revision.
    async fn correct(&self) -> Answer {
        for _ in 0..ATTEMPTS_MAX {
            let asked = self.begin();
            self.metrics.kv_questions.inc();
            if self.catch_up(&asked).await? {
                return Ok(());
            }
        }
        Err(unavailable("another history of the store begins again and again"))
    }

    /// Forgets everything of another history than the store's.
    fn begin(&self) -> Asked {
        // In this order: a lease in the next history is not confirmed by a question in this one.
        let (at, lease) = (self.clock.monotonic(), self.store.kv_lease());
        let mut position = self.position.lock();
        let epoch = (self.epoch)();
        if position.epoch != epoch {
            // In this order: what is read while this forgets may be older than a revision that is known afterwards.
            let (revision, sweeps) = (self.store.revision(), position.sweeps);
            self.cache.inner.clear();
            *position = Position { epoch: epoch.clone(), revision, asked_at: None, sweeps };
        }
        Asked { at, epoch, lease, sweeps: position.sweeps }
    }

    /// Enters all changes behind the position. Returns false if another history may have answered.
    async fn catch_up(&self, asked: &Asked) -> Result<bool, ReadError> {
        for page in 1..=PAGES_MAX {
            let after = self.position.lock().revision;
            let Some(history) = self.changes(after, &asked.epoch).await? else { return Ok(false) };
            let mut position = self.position.lock();
            if position.epoch != asked.epoch || (self.epoch)() != asked.epoch {
                return Ok(false);
            }
            let is_over = match history {
                KvHistory::Changes(page) => {
                    page.changes.iter().for_each(|change| self.enter(change));
                    position.revision = position.revision.max(page.through);
                    !page.more
                }
                KvHistory::Compacted { head, .. } => {
                    self.cache.inner.clear();
                    // Another question may have moved on meanwhile.
                    if position.revision == after {
                        position.revision = head;
                    }
                    true
                }
            };
            if !is_over && page == PAGES_MAX {
                // Durable, and not less than any revision that was read. Known before this forgets, as above.
                position.revision = position.revision.max(self.store.revision());
                self.cache.inner.clear();
            }
            if is_over || page == PAGES_MAX {
                position.asked_at = position.asked_at.max(Some(asked.at));
                if let Some(lease) = asked.lease.filter(|_| position.sweeps == asked.sweeps) {
                    self.confirmed.fetch_max(lease.get(), Ordering::SeqCst);
                }
                break;
            }
        }
        Ok(true)
    }

    /// A page of the changes behind a revision; `None` = another history than `epoch` has begun. The database of before may
    /// be gone without a word.
    async fn changes(&self, after: u64, epoch: &Arc<str>) -> Result<Option<KvHistory>, ReadError> {
        let mut reading = self.store.changes(&[], after, PAGE);
        loop {
            let answer = tokio::time::timeout(LOOK_EVERY, &mut reading).await;
            if (self.epoch)() != *epoch {
                return Ok(None);
            }
            if let Ok(history) = answer {
                return history.map(Some);
            }
        }
    }

    /// Removes what is older than a change, and the right of running loads to insert their value.
    fn enter(&self, change: &KvChange) {
        if !self.has_since(&change.key, change.revision) {
            self.cache.inner.remove(&*change.key);
        }
    }

    /// Whether the cache has the value of this revision or a later one.
    fn has_since(&self, key: &[u8], revision: u64) -> bool {
        let cached: Option<Cached> = self.cache.inner.peek(key);
        matches!(cached, Some(Cached::Value(value)) if value.revision >= revision)
    }

    /// Enters what this server committed in the history `epoch`. Changes of other servers may precede it, which the next
    /// question brings.
    pub(super) fn enter_own(&self, epoch: &Arc<str>, ops: &OpBatch, outcomes: &[Outcome]) {
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
                // It is not known here which keys expired.
                (KvOp::Sweep, KvOutcome::Swept { revision: Some(_), .. }) => {
                    is_next = false;
                    position.sweeps += 1;
                    self.confirmed.store(0, Ordering::SeqCst);
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
