//! Reads of single values: as long as very few are under way, each has a statement of its own, which its caller's task
//! awaits. A batch of reads passes through a task and back, which takes longer than it saves as long as it is one of few.
//! With more of them batches win: a statement costs the database more than the keys in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hubbub_core::kv::KvEntry;
use hubbub_core::store::ReadError;

use super::lists::{Values, entry};
use crate::db::statements;
use crate::options::PoolOptions;

/// Most such reads at the same time; at most half of the pool.
const READS_MAX: usize = 2;

statements! {
    VALUE("reading the value of a key") = "select value, revision, expires_at from kv where key = $1";
}

/// Counts such reads.
pub(super) struct Singles {
    max: usize,
    under_way: AtomicUsize,
}

/// The right to one such read.
pub(super) struct Single {
    singles: Arc<Singles>,
}

impl Singles {
    pub(super) fn new(pool: &PoolOptions) -> Arc<Self> {
        Arc::new(Self { max: (pool.max / 2).clamp(1, READS_MAX), under_way: AtomicUsize::new(0) })
    }

    /// `None` = as many are under way as may be.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Single> {
        let begin = |under_way| (under_way < self.max).then_some(under_way + 1);
        self.under_way.fetch_update(Relaxed, Relaxed, begin).ok()?;
        Some(Single { singles: self.clone() })
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        self.singles.under_way.fetch_sub(1, Relaxed);
    }
}

impl Values {
    /// The value of a key; `None` if there is none.
    pub(super) async fn read_one(&self, _right: Single, key: &[u8]) -> Result<Option<KvEntry>, ReadError> {
        let rows = self.context.db.read(&VALUE, &[&key]).await?;
        let found = |row| entry(row, 0, &self.position, self.context.clock.now());
        Ok(rows.first().and_then(found))
    }
}
