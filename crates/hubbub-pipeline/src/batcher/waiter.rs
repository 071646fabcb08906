//! Who waits for the outcomes of what it submitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use super::Ticket;
use crate::order::{SendLane, SenderOrder};

/// Who is woken when a batch is through: one for each connection, for all its submissions.
#[derive(Debug, Default)]
pub struct Waiter {
    waker: AtomicWaker,
    /// Number of the last chunk whose wake list has it, so that it is listed once.
    listed: AtomicU64,
    /// Its index in that list.
    listed_at: AtomicUsize,
    /// Only for a sender with several submissions under way, whose order must survive a failure.
    order: Option<SenderOrder>,
}

impl Waiter {
    /// For a connection that submits again before it has an answer. When a submission fails, messages that it submitted
    /// to the same rooms and queues before it called [`Self::learn`] fail too.
    pub fn ordered() -> Self {
        Self { order: Some(SenderOrder::default()), ..Self::default() }
    }

    /// Its index in the wake list of a chunk, where it is put if it is not there yet. Called under the batcher's lock.
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

    /// To be called when the sender sees that a ticket failed: what it submits from now on may be stored. Returns where
    /// messages were refused since the last call, so that the sender can refuse what it has received but not submitted.
    pub fn learn(&self, failed: &Ticket) -> Vec<SendLane> {
        self.order.as_ref().map(|order| order.learn(failed.batch_number())).unwrap_or_default()
    }

    /// Has the current task woken from now on. Call before looking at tickets.
    pub fn register(&self, context: &Context<'_>) {
        self.waker.register(context.waker());
    }

    /// Wakes the task that registered.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Waits until `ticket` has its outcomes. The waiter must be the one it was submitted with.
    pub async fn wait(&self, ticket: &Ticket) {
        std::future::poll_fn(|context| {
            self.register(context);
            if ticket.outcomes().is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
