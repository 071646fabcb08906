//! Filling the image: what a batch is known to touch, in two rounds of statements, and later whatever else it turns out to
//! need.
//!
//! [`names`] locks queues and finds clients; [`first`] reads what the operations are known to touch, [`more`] what deciding
//! asks for, [`make`] a queue if need be; both read [`places`] and [`groups`], and [`enter`] takes rows into the image.

mod enter;
mod first;
mod groups;
mod make;
mod more;
mod names;
mod pending;
mod places;

use hubbub_core::{Clock, QueueOp};

pub(super) use enter::pending_chunk;

use super::image::Image;
use super::{repair, sql};
use crate::db::{Fault, Tx};

/// Rows read of a place, a group or a queue when it turns out that more are needed.
const MORE: i64 = 1_000;

/// Reads for one transaction.
pub(super) struct Loader<'a> {
    pub(super) tx: &'a Tx<'a>,
    pub(super) clock: &'a dyn Clock,
    /// Whether what is read is to be changed.
    pub(super) locks: bool,
}

impl Loader<'_> {
    /// Locks what the batch touches and reads what it needs for sure. `due_from` is the time up to which a sweep need
    /// not look.
    pub(super) async fn begin(
        &self,
        image: &mut Image,
        ops: &[QueueOp<'_>],
        due_from: i64,
    ) -> Result<(), Fault> {
        let sweeps = self.names(image, ops, due_from).await?;
        // Behind the locks: whoever had them before is done by now.
        image.now = self.clock.now().as_micros();
        image.proven = self.clock.proven().as_micros().min(image.now);
        if self.locks {
            repair::of_image(self.tx, image, self.clock).await?;
        }
        self.first_messages(image, ops, sweeps.then_some(due_from)).await?;
        self.first_groups(image, ops).await
    }

    async fn ids(&self, count: i64) -> Result<std::ops::Range<i64>, Fault> {
        let first: i64 = self.tx.query_one(&sql::NEXT_IDS, &[&count]).await?.get(0);
        Ok(first..first.saturating_add(count))
    }
}
