//! Keeps the order of one connection's messages when a batch fails.
//!
//! A connection may have further submissions queued behind the one that fails. If those were stored, a retry of the
//! failed one would come after them. So the commit thread refuses them ([`Refusal::OutOfOrder`]): per connection, and
//! per room or queue. A connection that has seen the failure says so ([`SenderOrder::learn`]); its submissions carry
//! what it knew ([`Group::known`]), and those that know of the failure are stored again. What a broker does not take is
//! noted, too, and the broker's queue takes nothing more for these rooms until the connection has seen it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::store::Store;
use hubbub_core::{Op, OpBatch, Outcome, QueueOp, Refusal};
use parking_lot::Mutex;

use crate::batcher::{Batcher, Chunk, Group, Outcomes, Waiter};

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendLane {
    /// A room.
    Room(String),
    /// A queue.
    Queue(String),
}

impl SendLane {
    /// `None` for anything but a message: reads, marks and acknowledgements have no place in an order of messages.
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

/// The number of what a broker did not take; batches count from 1 on.
pub(crate) const BY_BROKER: u64 = 0;

/// What one connection knows of its failed submissions.
#[derive(Debug, Default)]
pub(crate) struct SenderOrder {
    /// Number of the last failed batch the connection has seen.
    known: AtomicU64,
    /// Batches that failed and were not seen yet, and where their messages went. No longer than the connection's
    /// unanswered messages are many.
    failed: Mutex<Vec<(u64, SendLane)>>,
}

impl SenderOrder {
    pub(crate) fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    /// What failed with a broker, which has no batches, is known by itself.
    pub(crate) fn learn(&self, batch: u64) -> Vec<SendLane> {
        self.known.fetch_max(batch, Ordering::AcqRel);
        let is_known = |number: u64| number <= batch && (number == BY_BROKER) == (batch == BY_BROKER);
        let mut failed = self.failed.lock();
        failed.extract_if(.., |(number, _)| is_known(*number)).map(|(_, lane)| lane).collect()
    }

    /// Notes that the broker did not take messages of a room.
    #[cfg(feature = "amqp")]
    pub(crate) fn fail_by_broker(&self, room: &str) {
        let mut failed = self.failed.lock();
        let lane = SendLane::Room(room.to_owned());
        if !failed.iter().any(|(number, known)| *number == BY_BROKER && *known == lane) {
            failed.push((BY_BROKER, lane));
        }
    }

    /// Whether the broker did not take messages of one of these rooms, and the connection has not seen that yet.
    #[cfg(feature = "amqp")]
    pub(crate) fn has_failed_by_broker<'a>(&self, mut rooms: impl Iterator<Item = &'a str>) -> bool {
        let failed = self.failed.lock();
        let is_failed = |room: &str| {
            let mut lanes = failed.iter().filter(|(number, _)| *number == BY_BROKER).map(|(_, lane)| lane);
            lanes.any(|lane| matches!(lane, SendLane::Room(failed) if failed == room))
        };
        !failed.is_empty() && rooms.any(is_failed)
    }
}

/// One room or queue in which a connection's message was not stored.
struct FailedLane {
    lane: SendLane,
    /// The batch that failed.
    batch: u64,
    /// Once the connection has seen it: the last chunk that may hold submissions from before.
    ends: Option<u64>,
}

struct FailedSender {
    /// Also keeps the address, which is the key, from being used again.
    sender: Arc<Waiter>,
    lanes: Vec<FailedLane>,
}

/// Connections that do not know of a failed submission yet. Belongs to the commit thread; empty unless a batch failed.
#[derive(Default)]
pub(crate) struct FailedSends {
    senders: HashMap<usize, FailedSender>,
}

impl FailedSends {
    /// Applies what keeps its order of a chunk, and refuses the rest.
    pub(crate) fn apply(&mut self, store: &dyn Store, batcher: &Batcher, chunk: &Chunk) -> Outcomes {
        let outcomes = match self.out_of_order(chunk) {
            None => store.apply(&chunk.ops),
            Some(refused) => apply_others(store, &chunk.ops, &refused),
        };
        if outcomes.is_err() {
            self.insert(chunk);
        }
        self.prune(chunk.batch.number(), batcher);
        outcomes
    }

    /// For each operation whether it must not be stored; `None` when all may be.
    fn out_of_order(&self, chunk: &Chunk) -> Option<Vec<bool>> {
        if self.senders.is_empty() {
            return None;
        }
        let refused: Vec<bool> = groups(chunk)
            .map(|(sender, group, op)| {
                let failed = self.senders.get(&address(sender));
                failed.is_some_and(|failed| {
                    failed.lanes.iter().any(|lane| group.known < lane.batch && lane.lane.is_of(&op))
                })
            })
            .collect();
        refused.contains(&true).then_some(refused)
    }

    /// Remembers the messages of a chunk that failed.
    fn insert(&mut self, chunk: &Chunk) {
        let batch = chunk.batch.number();
        for (sender, _, op) in groups(chunk) {
            let Some(order) = sender.order() else { continue };
            let failed = self
                .senders
                .entry(address(sender))
                .or_insert_with(|| FailedSender { sender: sender.clone(), lanes: Vec::new() });
            let lane = match failed.lanes.iter_mut().find(|lane| lane.lane.is_of(&op)) {
                Some(known) if known.batch == batch => continue,
                Some(known) => {
                    (known.batch, known.ends) = (batch, None);
                    known.lane.clone()
                }
                None => {
                    let Some(lane) = SendLane::of(&op) else { continue };
                    failed.lanes.push(FailedLane { lane: lane.clone(), batch, ends: None });
                    lane
                }
            };
            order.failed.lock().push((batch, lane));
        }
    }

    /// Forgets connections that are gone, and failures behind which nothing is queued that does not know of them.
    fn prune(&mut self, done: u64, batcher: &Batcher) {
        if self.senders.is_empty() {
            return;
        }
        self.senders.retain(|_, FailedSender { sender, lanes }| {
            let known = sender.order().map_or(u64::MAX, SenderOrder::known);
            lanes.retain_mut(|lane| {
                if lane.ends.is_none() && known >= lane.batch {
                    // Asked after `known` was read: what is submitted from here on knows of the failure.
                    lane.ends = Some(batcher.newest_chunk());
                }
                lane.ends.is_none_or(|ends| ends > done)
            });
            !lanes.is_empty() && Arc::strong_count(sender) > 1
        });
    }
}

fn address(sender: &Arc<Waiter>) -> usize {
    Arc::as_ptr(sender).addr()
}

/// Each operation with its submission and sender.
fn groups(chunk: &Chunk) -> impl Iterator<Item = (&Arc<Waiter>, &Group, Op<'_>)> {
    let submissions = chunk.groups.iter().flat_map(|group| std::iter::repeat_n(group, group.count));
    submissions
        .zip(chunk.ops.iter())
        .filter_map(|(group, op)| Some((chunk.wakes.get(group.sender)?, group, op)))
}

/// Applies the operations that are not refused. The outcomes are those of all.
fn apply_others(store: &dyn Store, ops: &OpBatch, refused: &[bool]) -> Outcomes {
    let mut others = OpBatch::default();
    for (op, _) in ops.iter().zip(refused).filter(|(_, refused)| !**refused) {
        others.push(&op);
    }
    let stored = if others.is_empty() { Vec::new() } else { store.apply(&others)? };
    let mut stored = stored.into_iter();
    let out_of_order = Outcome::Refused(Refusal::OutOfOrder);
    Ok(refused
        .iter()
        .map(|refused| if *refused { Some(out_of_order.clone()) } else { stored.next() })
        .map(|outcome| outcome.unwrap_or(Outcome::Refused(Refusal::Unreadable)))
        .collect())
}

#[cfg(test)]
mod tests;
