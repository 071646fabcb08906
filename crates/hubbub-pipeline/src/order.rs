//! Keeps the order of one connection's messages when a batch fails.
//!
//! A connection may have further submissions queued behind the failed one. If those were stored, a retry of the failed
//! one would come after them. So a commit thread refuses them ([`Refusal::OutOfOrder`]), for this connection and each
//! room or queue. A connection that has seen the failure acknowledges it ([`SenderOrder::acknowledge`]). Submissions
//! carry what the connection had acknowledged ([`Group::acknowledged_failure`]); those made after the acknowledgement
//! are stored again. Failures of the broker are recorded, too: its queue refuses messages for these rooms until the
//! connection has acknowledged the failure.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::invariant::broken;
use hubbub_core::store::Store;
use hubbub_core::{Op, OpBatch, Outcome, QueueOp, Refusal};
use parking_lot::Mutex;

use crate::batcher::{Batcher, Chunk, Group, Outcomes, Waiter, epoch_changed};

/// The room or queue of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendLane {
    /// A room.
    Room(String),
    /// A queue.
    Queue(String),
}

impl SendLane {
    /// `None` for anything but a message: takes, read marks and acknowledgements are not ordered with messages.
    fn of(op: &Op<'_>) -> Option<Self> {
        match op {
            Op::Send(send) => Some(Self::Room(send.room.to_owned())),
            Op::Queue(QueueOp::Send(send)) => Some(Self::Queue(send.queue.to_owned())),
            _ => None,
        }
    }

    fn is_of(&self, op: &Op<'_>) -> bool {
        match (self, op) {
            (Self::Room(room), Op::Send(send)) => *room == send.room,
            (Self::Queue(queue), Op::Queue(QueueOp::Send(send))) => *queue == send.queue,
            _ => false,
        }
    }
}

/// The batch number of submissions to a broker; batches count from 1.
pub(crate) const BROKER_BATCH: u64 = 0;

/// The failed submissions of one connection.
#[derive(Debug, Default)]
pub(crate) struct SenderOrder {
    /// Number of the last failed batch that the connection acknowledged.
    acknowledged: AtomicU64,
    /// Failed batches that are not acknowledged, and the lanes of their messages. Bounded by the number of the connection's
    /// unanswered messages.
    failed: Mutex<Vec<(u64, SendLane)>>,
}

impl SenderOrder {
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// Acknowledges failures up to `batch`, or those of the broker, and returns their lanes.
    pub(crate) fn acknowledge(&self, batch: u64) -> Vec<SendLane> {
        self.acknowledged.fetch_max(batch, Ordering::AcqRel);
        let is_acknowledged =
            |number: u64| number <= batch && (number == BROKER_BATCH) == (batch == BROKER_BATCH);
        let mut failed = self.failed.lock();
        failed.extract_if(.., |(number, _)| is_acknowledged(*number)).map(|(_, lane)| lane).collect()
    }

    /// Records that the broker did not confirm messages of a room.
    #[cfg(any(feature = "amqp", feature = "kafka"))]
    pub(crate) fn insert_broker_failure(&self, room: &str) {
        let mut failed = self.failed.lock();
        let lane = SendLane::Room(room.to_owned());
        if !failed.iter().any(|(number, failed)| *number == BROKER_BATCH && *failed == lane) {
            failed.push((BROKER_BATCH, lane));
        }
    }

    /// Whether one of these rooms has a failure of the broker that is not acknowledged.
    #[cfg(any(feature = "amqp", feature = "kafka"))]
    pub(crate) fn has_broker_failure<'a>(&self, mut rooms: impl Iterator<Item = &'a str>) -> bool {
        let failed = self.failed.lock();
        let is_failed = |room: &str| {
            let mut lanes = failed.iter().filter(|(number, _)| *number == BROKER_BATCH).map(|(_, lane)| lane);
            lanes.any(|lane| matches!(lane, SendLane::Room(failed) if failed == room))
        };
        !failed.is_empty() && rooms.any(is_failed)
    }
}

/// One room or queue in which a connection's message was not stored.
struct FailedLane {
    lane: SendLane,
    batch: u64,
    /// After the acknowledgement: the last chunk that may contain earlier submissions.
    last_chunk: Option<u64>,
}

struct FailedSender {
    /// Also keeps its address, the key of the map, from being reused.
    sender: Arc<Waiter>,
    lanes: Vec<FailedLane>,
}

/// Connections with failures that are not acknowledged; empty unless a batch failed. Where there are several commit threads
/// everything comes from a log, and no sender is in it.
#[derive(Default)]
pub(crate) struct FailedSends {
    senders: HashMap<usize, FailedSender>,
}

/// Applies the operations of a chunk that keep their order, and refuses the rest.
/// With an `epoch` they are applied in that history only, and not confirmed if the store has another one afterwards.
pub(crate) fn apply(
    failed: &Mutex<FailedSends>,
    store: &dyn Store,
    batcher: &Batcher,
    chunk: &Chunk,
    epoch: Option<&Arc<str>>,
) -> Outcomes {
    let apply = |ops: &OpBatch| match epoch {
        Some(epoch) => store.apply_in(epoch, ops),
        None => store.apply(ops),
    };
    let refused = failed.lock().out_of_order(chunk);
    // Not under the lock, which the dispatcher takes, too.
    let mut outcomes = match refused {
        None => apply(&chunk.ops),
        Some(refused) => Ok(apply_remaining(apply, &chunk.ops, &refused)),
    };
    if outcomes.is_ok() && epoch.is_some_and(|epoch| *epoch != store.epoch()) {
        outcomes = Err(epoch_changed());
    }
    let mut failed = failed.lock();
    failed.record(chunk, &mut outcomes);
    failed.prune(chunk.batch.number, batcher);
    outcomes
}

impl FailedSends {
    /// Records all messages of a chunk. Call before its senders see its outcomes.
    pub(crate) fn insert_all(&mut self, chunk: &Chunk) {
        self.insert(chunk, |_| true);
    }

    /// Records what failed, all of the chunk or a part of it.
    fn record(&mut self, chunk: &Chunk, outcomes: &mut Outcomes) {
        match outcomes {
            Err(_) => self.insert_all(chunk),
            Ok(outcomes) if outcomes.iter().any(Outcome::is_failed) => {
                chunk.mark_failures(outcomes);
                self.insert(chunk, |index| outcomes.get(index).is_some_and(Outcome::is_failed));
            }
            Ok(_) => {}
        }
    }

    /// For each operation, whether it must be refused; `None` when none must.
    fn out_of_order(&self, chunk: &Chunk) -> Option<Vec<bool>> {
        if self.senders.is_empty() {
            return None;
        }
        let is_refused = |(sender, group, op): (&Arc<Waiter>, &Group, Op<'_>)| {
            let mut lanes = self.senders.get(&address(sender)).into_iter().flat_map(|failed| &failed.lanes);
            lanes.any(|lane| group.acknowledged_failure < lane.batch && lane.lane.is_of(&op))
        };
        let refused: Vec<bool> = groups(chunk).map(is_refused).collect();
        refused.contains(&true).then_some(refused)
    }

    /// Records the operations that failed, by their indexes.
    fn insert(&mut self, chunk: &Chunk, has_failed: impl Fn(usize) -> bool) {
        let batch = chunk.batch.number;
        for (index, (sender, _, op)) in groups(chunk).enumerate() {
            let Some(order) = sender.order().filter(|_| has_failed(index)) else { continue };
            let failed = self
                .senders
                .entry(address(sender))
                .or_insert_with(|| FailedSender { sender: sender.clone(), lanes: Vec::new() });
            let lane = match failed.lanes.iter_mut().find(|lane| lane.lane.is_of(&op)) {
                Some(failed) if failed.batch == batch => continue,
                Some(failed) => {
                    // The dispatcher may record an earlier chunk after a commit thread has recorded a later one.
                    (failed.batch, failed.last_chunk) = (failed.batch.max(batch), None);
                    failed.lane.clone()
                }
                None => {
                    let Some(lane) = SendLane::of(&op) else { continue };
                    failed.lanes.push(FailedLane { lane: lane.clone(), batch, last_chunk: None });
                    lane
                }
            };
            order.failed.lock().push((batch, lane));
        }
    }

    /// Removes connections that are gone, and failures whose earlier submissions have all been processed.
    fn prune(&mut self, done: u64, batcher: &Batcher) {
        if self.senders.is_empty() {
            return;
        }
        self.senders.retain(|_, FailedSender { sender, lanes }| {
            let acknowledged = sender.order().map_or(u64::MAX, SenderOrder::acknowledged);
            lanes.retain_mut(|lane| {
                if lane.last_chunk.is_none() && acknowledged >= lane.batch {
                    // Read after `acknowledged`: later submissions carry the acknowledgement.
                    lane.last_chunk = Some(batcher.newest_chunk());
                }
                lane.last_chunk.is_none_or(|last| last > done)
            });
            !lanes.is_empty() && Arc::strong_count(sender) > 1
        });
    }
}

fn address(sender: &Arc<Waiter>) -> usize {
    Arc::as_ptr(sender).addr()
}

fn groups(chunk: &Chunk) -> impl Iterator<Item = (&Arc<Waiter>, &Group, Op<'_>)> {
    let submissions = chunk.groups.iter().flat_map(|group| std::iter::repeat_n(group, group.count));
    submissions
        .zip(chunk.ops.iter())
        .filter_map(|(group, op)| Some((chunk.wakes.get(group.sender)?, group, op)))
}

/// Applies the operations that are not refused. Returns the outcomes of all.
fn apply_remaining(apply: impl Fn(&OpBatch) -> Outcomes, ops: &OpBatch, refused: &[bool]) -> Vec<Outcome> {
    let mut remaining = OpBatch::default();
    for (op, _) in ops.iter().zip(refused).filter(|(_, refused)| !**refused) {
        remaining.push(&op);
    }
    let stored = if remaining.is_empty() { Ok(Vec::new()) } else { apply(&remaining) };
    let failed = |error| vec![Outcome::Failed(Box::new(error)); remaining.len()];
    let mut stored = stored.unwrap_or_else(failed).into_iter();
    let out_of_order = Outcome::Refused(Refusal::OutOfOrder);
    refused
        .iter()
        .map(|refused| if *refused { Some(out_of_order.clone()) } else { stored.next() })
        .map(|outcome| {
            outcome.unwrap_or_else(|| Outcome::Refused(broken("a store answers every operation").into()))
        })
        .collect()
}

#[cfg(test)]
mod tests;
