//! A batch, from the locks to the commit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::epoch_number;
use hubbub_core::{Outcome, QueueOp};

use super::load::Loader;
use super::memory::NextDue;
use super::working_set::{Stop, WorkingSet};
use super::{Queues, decide, write};
use crate::db::{Failure, Result, Tx};

/// What is remembered of a batch that is committed.
struct Done {
    set: WorkingSet,
    outcomes: Vec<Outcome>,
    /// Queues that its sweep reported.
    reported: BTreeSet<Arc<str>>,
    /// When something is due next, where a sweep queried it.
    next_due: Option<NextDue>,
}

impl Queues {
    /// Applies operations in order, in one transaction.
    pub(crate) async fn apply(&self, ops: &[QueueOp<'_>]) -> Result<Vec<Outcome>, Failure> {
        let sweeps = ops.iter().any(|op| matches!(op, QueueOp::Sweep));
        let queries_due = sweeps && self.memory.begin_due_query();
        let work = async |tx: &Tx<'_>| self.try_once(tx, ops, queries_due).await;
        let done = self.context.db.transact("changing queues", work).await;
        if queries_due {
            self.end_due_query(done.as_ref().ok().and_then(|done| done.next_due));
        }
        let done = done?;
        self.remember(&done);
        Ok(done.outcomes)
    }

    async fn try_once(&self, tx: &Tx<'_>, ops: &[QueueOp<'_>], queries_due: bool) -> Result<Done> {
        let context = &self.context;
        let loader = Loader { tx, clock: &*context.clock, locks: true };
        let woken_before = self.memory.woken();
        let mut set = WorkingSet {
            epoch: epoch_number(&context.history.epoch),
            autoregister: context.options.queues_autoregister,
            clients_max: saturate::<_, i64>(context.options.queues_clients_max),
            broadcasts: context.options.broadcasts,
            woken_before: woken_before.clone(),
            ..WorkingSet::default()
        };
        // Boxed where it branches, so that the stack of whoever calls does not grow with every branch.
        Box::pin(loader.begin(&mut set, ops, self.due_from())).await?;
        while let Err(need) = set.advance() {
            Box::pin(loader.more(&mut set, need)).await?;
        }
        let mut outcomes = Vec::with_capacity(ops.len());
        for op in ops {
            let outcome = loop {
                match decide::decide(&mut set, op) {
                    Ok(outcome) => break Outcome::Queue(outcome),
                    Err(Stop::Refused(refusal)) => break Outcome::Refused(refusal),
                    Err(Stop::LoadRequest(need)) => Box::pin(loader.more(&mut set, need)).await?,
                }
            };
            outcomes.push(outcome);
        }
        Box::pin(write::write(tx, &mut set)).await?;
        let mut next_due = None;
        if queries_due {
            let found = self.next_due(tx, false).await?;
            next_due =
                Some(NextDue { due: if set.has_more_due { Some(i64::MIN) } else { found.due }, ..found });
        }
        let reported = if set.has_swept { woken_before } else { BTreeSet::new() };
        Ok(Done { set, outcomes, reported, next_due })
    }

    fn remember(&self, done: &Done) {
        let Done { set, reported, next_due, .. } = done;
        if set.pending.values().any(|pending| pending.is_new && pending.unmade > 0) {
            self.pending.notify_one();
        }
        let changed = set.clients.iter().filter(|(_, client)| client.is_changed);
        let mut changed = changed.map(|(name, client)| (Arc::clone(name), client.is_registered)).peekable();
        if changed.peek().is_some() {
            self.memory.record_clients(changed, None);
        }
        let woken = set.woken.iter().filter_map(|no| set.queues.get(no));
        let woken = woken.filter(|queue| !queue.is_deleted).map(|queue| Arc::clone(&queue.name));
        self.memory.record_woken(reported, woken.collect());
        let leftover = set.has_more_due.then_some(i64::MIN);
        let due = write::due_of(set).into_iter().chain(leftover).min();
        // What a sweep has found out already holds what it wrote.
        let upto = next_due.map_or(i64::MIN, |found| found.upto);
        // Committed so late that others have looked past it.
        if let Some(due) = due.filter(|due| (1..self.due_from()).contains(due)) {
            self.queried_to.fetch_min(due, Ordering::Relaxed);
        }
        if let Some(due) = due.filter(|due| *due > upto || next_due.is_none()) {
            self.memory.record_due(due);
        }
        let live = set.queues.values();
        let sum = |value: fn(&super::working_set::Counts) -> i64| -> u64 {
            live.clone().map(|queue| saturate::<_, u64>(value(&queue.added))).sum()
        };
        self.memory.given_up.fetch_add(sum(|counts| counts.dead), Ordering::Relaxed);
        self.memory.dropped.fetch_add(sum(|counts| counts.dropped), Ordering::Relaxed);
    }
}
