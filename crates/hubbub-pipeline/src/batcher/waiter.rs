//! Wakes a connection when the outcomes of its submissions are known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use super::Ticket;
use crate::order::{SendLane, SenderOrder};

/// Woken when a batch has its outcomes. A connection has one for all its submissions.
#[derive(Debug, Default)]
pub struct Waiter {
    waker: AtomicWaker,
    /// Number of the last chunk whose wake list contains it, so that each list has it once.
    listed: AtomicU64,
    listed_at: AtomicUsize,
    /// Only for a sender with several unanswered submissions, whose order must survive a failure.
    order: Option<SenderOrder>,
    is_of_log: bool,
}

impl Waiter {
    /// For a connection that submits again before it has an answer. When a submission fails, its later messages to the
    /// same rooms and queues fail, too, until it calls [`Self::acknowledge_failure`].
    pub fn ordered() -> Self {
        Self { order: Some(SenderOrder::default()), ..Self::default() }
    }

    /// For a consumer of the broker: the senders of what it submits were answered before. What fails it submits again.
    #[cfg(any(feature = "amqp", feature = "kafka", test))]
    pub(crate) fn of_log() -> Self {
        Self { is_of_log: true, ..Self::default() }
    }

    pub(super) fn is_of_log(&self) -> bool {
        self.is_of_log
    }

    /// Adds it to a chunk's wake list, unless it is there already. Returns its index. Called under the batcher's lock.
    pub(super) fn list(self: &Arc<Self>, chunk: u64, wakes: &mut Vec<Arc<Self>>) -> usize {
        if self.listed.swap(chunk, Ordering::Relaxed) != chunk {
            self.listed_at.store(wakes.len(), Ordering::Relaxed);
            wakes.push(self.clone());
        }
        self.listed_at.load(Ordering::Relaxed)
    }

    pub(crate) fn order(&self) -> Option<&SenderOrder> {
        self.order.as_ref()
    }

    /// Call when the sender sees that a ticket failed: later submissions may be stored again. Returns the lanes in which
    /// messages failed since the last call, so that the sender can refuse messages that it received but did not submit.
    pub fn acknowledge_failure(&self, failed: &Ticket) -> Vec<SendLane> {
        self.order.as_ref().map(|order| order.acknowledge(failed.batch_number())).unwrap_or_default()
    }

    /// Registers the current task to be woken. Call before polling tickets.
    pub fn register(&self, context: &Context<'_>) {
        self.waker.register(context.waker());
    }

    /// Wakes the task that registered.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Waits for the outcomes of `ticket`, which must have been submitted with this waiter.
    pub async fn wait(&self, ticket: &Ticket) {
        std::future::poll_fn(|context| {
            self.register(context);
            if ticket.outcomes().is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
