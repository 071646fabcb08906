//! Waits for changes of keys, for those who read them page by page.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;

/// Time between two reads of a store that has less than it was known to have.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What those who follow changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PublishedRevision {
    pub(super) revision: u64,
    /// Histories of a shared store that have begun since the start.
    pub(super) epochs_begun: u64,
}

/// Wakes a reader of changes. [`Self::begin_read`] is called before each read but the first, [`Self::more`] behind one that
/// brought all there was.
#[derive(Debug)]
pub struct RevisionWatch {
    published: watch::Receiver<PublishedRevision>,
    /// When the last read began.
    before: PublishedRevision,
}

impl RevisionWatch {
    pub(super) fn new(published: watch::Receiver<PublishedRevision>) -> Self {
        let before = *published.borrow();
        Self { published, before }
    }

    /// What is published from now on may be missing from the read.
    pub fn begin_read(&mut self) {
        self.before = *self.published.borrow();
    }

    /// Waits until another read may find something behind `through`, or another history. What was published before the last
    /// read began does not wake: if it is behind `through`, the store did not have it, and another read at once would be
    /// followed by the next.
    pub async fn more(&mut self, through: u64) {
        let before = self.before;
        let is_news = |now: &PublishedRevision| {
            now.revision > through.max(before.revision) || now.epochs_begun != before.epochs_begun
        };
        let news = async {
            if self.published.wait_for(is_news).await.is_err() {
                // Nothing is published any more.
                pending().await
            }
        };
        if before.revision > through {
            // A store that lost its last changes may tell nothing while it makes as many anew.
            let _ = tokio::time::timeout(LOOK_AGAIN, news).await;
        } else {
            news.await;
        }
    }
}
