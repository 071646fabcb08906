//! The outcomes of a chunk, and the tickets by which senders read theirs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hubbub_core::Outcome;
use hubbub_core::store::ApplyError;

/// Results of a chunk: one outcome for each operation, or why the batch failed.
pub type Outcomes = Result<Vec<Outcome>, ApplyError>;

/// A batch was committed while, or right before, the store began another history.
pub(crate) fn epoch_changed() -> ApplyError {
    ApplyError::Unconfirmed { reason: "the database was promoted or restored meanwhile".into() }
}

/// The outcomes of one chunk, shared by the tickets of its submissions.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) number: u64,
    outcomes: OnceLock<Outcomes>,
    /// What senders are told instead: another history of the store has begun before they were told anything.
    lost: OnceLock<Outcomes>,
    /// The history of a shared store that it was committed in.
    epoch: OnceLock<Arc<str>>,
    /// Whether a part of it failed.
    has_failures: AtomicBool,
    /// Whether tickets return them.
    is_visible: AtomicBool,
}

impl Batch {
    pub(crate) fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, ..Self::default() })
    }

    pub(crate) fn set(&self, outcomes: Outcomes) {
        // Set once, by the commit thread that took the chunk.
        let _ = self.outcomes.set(outcomes);
    }

    /// Call before the outcomes are visible.
    pub(crate) fn set_epoch(&self, epoch: Arc<str>) {
        let _ = self.epoch.set(epoch);
    }

    /// The store has begun another history, which may lack the batch. Senders that have not been told of it are told so.
    pub(crate) fn lose(&self) {
        if !self.is_visible.load(Ordering::Acquire) {
            let _ = self.lost.set(Err(epoch_changed()));
        }
    }

    /// Whether its senders are told that another history began.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Makes the outcomes visible to senders, including those that poll before they are woken.
    pub(crate) fn make_visible(&self) {
        self.is_visible.store(true, Ordering::Release);
    }

    pub(crate) fn outcomes(&self) -> Option<&Outcomes> {
        self.lost.get().or_else(|| self.outcomes.get())
    }

    /// A part of the batch failed, and others did not. Call before the outcomes are set.
    pub(crate) fn mark_failures(&self) {
        self.has_failures.store(true, Ordering::Release);
    }

    /// Whether a part of the batch failed, and others did not.
    pub(crate) fn has_failures(&self) -> bool {
        self.has_failures.load(Ordering::Acquire)
    }
}

/// A submission's share of a batch: `count` operations from `first` on.
#[derive(Debug, Clone)]
pub struct Ticket {
    batch: Arc<Batch>,
    first: usize,
    count: usize,
}

impl Ticket {
    pub(crate) fn new(batch: Arc<Batch>, first: usize, count: usize) -> Self {
        Self { batch, first, count }
    }

    /// The outcomes of the submission in its order, or `None` while they are not known.
    pub fn outcomes(&self) -> Option<Result<&[Outcome], &ApplyError>> {
        if !self.batch.is_visible.load(Ordering::Acquire) {
            return None;
        }
        let outcomes = match self.batch.outcomes()? {
            Ok(all) => all.get(self.first..self.first + self.count).unwrap_or_default(),
            Err(error) => return Some(Err(error)),
        };
        if self.batch.has_failures()
            && let Some(error) = outcomes.iter().find_map(Outcome::failure)
        {
            return Some(Err(error));
        }
        Some(Ok(outcomes))
    }

    /// The history that a shared store committed it in; `None` without outcomes, or where there is but one history.
    pub fn epoch(&self) -> Option<&Arc<str>> {
        self.batch.epoch.get()
    }

    pub(crate) fn batch_number(&self) -> u64 {
        self.batch.number
    }

    /// Number of operations of the submission.
    pub fn count(&self) -> usize {
        self.count
    }
}
