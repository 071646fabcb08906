//! Fills the working set: with what a batch is known to touch, in two rounds of statements, and later with whatever else it
//! turns out to need.
//!
//! [`names`] locks queues and finds clients; [`first`] reads what the operations are known to touch, [`more`] what deciding
//! asks for. Both read [`places`] and [`pending`], and [`insert`] puts rows into the working set.

mod first;
mod insert;
mod more;
mod names;
mod pending;
mod places;

use hubbub_core::{Clock, QueueOp};

pub(super) use insert::{insert_pending, pending_chunk, rules_of};

use super::working_set::WorkingSet;
use super::{repair, sql};
use crate::db::{Result, Tx};

/// Rows read of a place, a group or a queue when it turns out that more are needed.
const MORE: i64 = 1_000;

pub(super) struct Loader<'a> {
    pub(super) tx: &'a Tx<'a>,
    pub(super) clock: &'a dyn Clock,
    /// Whether what is read is to be changed.
    pub(super) locks: bool,
}

impl Loader<'_> {
    /// Locks what the batch touches and reads what it needs for sure. `due_from` is the time up to which a sweep need
    /// not look.
    pub(super) async fn begin(&self, set: &mut WorkingSet, ops: &[QueueOp<'_>], due_from: i64) -> Result<()> {
        let sweeps = self.names(set, ops, due_from).await?;
        // Behind the locks: whoever had them before is done by now.
        set.now = self.clock.now().as_micros();
        set.proven = self.clock.proven().as_micros().min(set.now);
        if self.locks {
            repair::of_working_set(self.tx, set, self.clock).await?;
        }
        self.first_messages(set, ops, sweeps.then_some(due_from)).await?;
        self.first_groups(set, ops).await
    }

    async fn ids(&self, count: i64) -> Result<std::ops::Range<i64>> {
        let first: i64 = self.tx.query_one(&sql::NEXT_IDS, &[&count]).await?.get(0);
        Ok(first..first.saturating_add(count))
    }
}
