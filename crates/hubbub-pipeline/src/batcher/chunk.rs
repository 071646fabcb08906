//! Operations that are committed together, and who submitted them.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::store::ApplyError;
use hubbub_core::{OpBatch, Outcome};

use super::{Batch, LaneLoad, Outcomes, Waiter};
use crate::timeline::BatchTimes;

/// One submission inside a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) count: usize,
    pub(crate) submitted_at: Duration,
    /// Index of its sender in the chunk's wake list.
    pub(crate) sender: usize,
    /// Number of the last failed batch that the sender had acknowledged.
    pub(crate) acknowledged_failure: u64,
    /// Whether a broker's consumer submitted it, and no sender hears of it.
    pub(crate) is_of_log: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) batch: Arc<Batch>,
    pub(crate) ops: OpBatch,
    pub(crate) wakes: Vec<Arc<Waiter>>,
    pub(crate) groups: Vec<Group>,
    pub(super) lanes: Vec<LaneLoad>,
}

impl Chunk {
    /// Numbers of consecutive operations of one lane, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = usize> {
        self.lanes.iter().map(|lane| lane.load.ops)
    }

    /// For a batch of which a part failed, before its outcomes are set. A submission has one answer: where a part of it failed and
    /// another may be stored, the answer says so.
    pub(crate) fn mark_failures(&self, outcomes: &mut [Outcome]) {
        self.batch.mark_failures();
        let mut left = outcomes;
        for group in &self.groups {
            let Some((of_group, others)) = std::mem::take(&mut left).split_at_mut_checked(group.count) else {
                return;
            };
            left = others;
            if of_group.iter().any(Outcome::may_be_stored) {
                let failed = of_group.iter_mut().filter_map(Outcome::failure_mut);
                failed.for_each(|error| *error = error.clone().into_partial());
            }
        }
    }

    /// What failed and is told to senders, each error with the number of its operations.
    pub(crate) fn reported_failures<'a>(
        &'a self,
        outcomes: &'a Outcomes,
    ) -> impl Iterator<Item = (&'a ApplyError, usize)> {
        let told = self.groups.iter().map(|group| if group.is_of_log { 0 } else { group.count });
        let (whole, parts) = match outcomes {
            Err(error) => (Some((error, told.sum())), None),
            Ok(outcomes) => (None, self.batch.has_failures().then_some(outcomes)),
        };
        let are_told =
            self.groups.iter().flat_map(|group| std::iter::repeat_n(!group.is_of_log, group.count));
        let parts = parts.into_iter().flatten().zip(are_told);
        let parts = parts.filter_map(|(outcome, is_told)| Some((outcome.failure().filter(|_| is_told)?, 1)));
        whole.into_iter().filter(|(_, operations)| *operations > 0).chain(parts)
    }

    /// When its operations were queued, and the later times of the batch.
    pub(crate) fn times(&self, taken: Duration, stored: Duration, answered: Duration) -> BatchTimes {
        let queued = self.groups.iter().map(|group| group.submitted_at);
        let (first, last) = (queued.clone().min().unwrap_or(taken), queued.max().unwrap_or(taken));
        BatchTimes { queued: first, queued_last: last, taken, stored, answered }
    }

    pub(super) fn reuse(&mut self, number: u64) {
        self.batch = Batch::new(number);
        self.ops.clear();
        self.wakes.clear();
        self.groups.clear();
        self.lanes.clear();
    }
}
