//! Queues: rows in the database, decided by the same rules as the embedded engine's.
//!
//! Path of a batch ([`apply`]): the rows of its queues are locked, in their order; what its operations can touch is read
//! into an [`working_set`] by a number of statements that does not grow with the batch ([`load`]); each operation is decided
//! by the rules all stores share, and its effects change the working set ([`decide`]); what has changed is written ([`write`]), and committed. The locks make
//! the order exact however many servers share a queue, and last for one batch.
//!
//! Time is looked at when a batch begins: what it has come for is read and changed with everything else, before the first
//! operation. Reads ([`read`]) take it into account without changing anything. [`memory`] is what can be read without
//! waiting; [`tick`] compares it with the database.
//!
//! A message to everybody is one row with bitmaps of its receivers ([`working_set`]); its copies become rows in slices
//! ([`pending_copies`]), or when a batch comes to them: before anything is chosen for a receiver all copies for it are made in the
//! working set, and the bits that say so are written with the rest. Reads show copies that are not made as if they were.
//!
//! Invariants
//! - Whoever makes copies of a message, or changes it, holds the row of its queue. Counts hold copies that are not made.
//! - A message that may be taken now, but for what time brings, has the state `Ready` and is not `behind`; the partial
//!   indexes of these are all that takes look at.
//! - `queue_lines.low` is never above a message of its receiver that may be taken, so that takes need not walk over what was
//!   taken before, which stays in the index as long as any transaction might still see it.
//! - Rows that every batch would have to change are added to instead (`queue_counts`), and brought together once a second
//!   in rows that no foreign key looks at (`queue_totals`).
//! - No statement leaves it to the planner where to begin ([`sql`]): what it knows of tables that fill and empty within
//!   seconds is never true.

mod apply;
mod decide;
mod load;
mod memory;
mod pending_copies;
mod read;
mod repair;
mod sql;
mod states;
mod tick;
mod working_set;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32};

use hubbub_core::store::StoreFigures;

use crate::db::connect::OpenError;
use crate::db::{Result, Tx};
use crate::store::Context;
use memory::Memory;

pub(crate) struct Queues {
    context: Arc<Context>,
    memory: Memory,
    /// Up to when the last sweep or tick knew what is due.
    queried_to: AtomicI64,
    /// Ids of senders are forgotten up to here.
    forgot_to: AtomicI64,
    ticks: AtomicU32,
    /// Rung when a message to everybody has copies to be made.
    pending: tokio::sync::Notify,
}

impl Queues {
    pub(crate) async fn open(context: Arc<Context>) -> Result<Self, OpenError> {
        let queues = Self {
            context,
            memory: Memory::default(),
            queried_to: AtomicI64::new(0),
            forgot_to: AtomicI64::new(0),
            ticks: AtomicU32::new(0),
            pending: tokio::sync::Notify::new(),
        };
        let ticked = queues.tick(&mut StoreFigures::default()).await;
        ticked.map(|()| queues).map_err(|fault| OpenError(fault.to_string()))
    }

    /// Runs `work` in one transaction, as [`sql::PLANNING`] wants it.
    async fn run<T>(&self, what: &'static str, work: impl AsyncFnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        self.context.db.run(what, async |tx| plan(tx, work).await).await
    }

    /// The same, reading one snapshot.
    async fn snapshot<T>(
        &self,
        what: &'static str,
        work: impl AsyncFnOnce(&Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.context.db.snapshot(what, async |tx| plan(tx, work).await).await
    }

    /// What is forgotten for good goes by this.
    fn proven(&self) -> i64 {
        self.context.clock.proven().as_micros()
    }

    fn now(&self) -> i64 {
        self.context.clock.now().as_micros()
    }
}

async fn plan<T>(tx: &Tx<'_>, work: impl AsyncFnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
    let ((), done) = tokio::try_join!(biased; tx.batch("preparing", sql::PLANNING), work(tx))?;
    Ok(done)
}
