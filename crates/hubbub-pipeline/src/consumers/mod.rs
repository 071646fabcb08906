//! Registry of the consumers that wait for messages of queues, served in the order of their registration.
//!
//! A consumer registers ([`WaitingConsumers::register`]) and then repeats these steps, in this order, so that it misses
//! nothing that is committed in between: [`WaiterHandle::begin_attempt`], the take, [`WaiterHandle::end_empty_attempt`],
//! [`WaiterHandle::woken`]. The dispatcher passes every committed batch to [`WaitingConsumers::notify`]. Each message
//! that becomes available wakes the first registered consumer that matches it and is not woken already.
//! Messages that other servers commit to a shared store wake nobody here; [`poll_store`] queries the store for those.
//!
//! Invariants
//! - One message wakes one consumer. A message to everybody, a sweep and a poll of the store wake all of a queue.
//! - No wakeup is lost: a consumer that leaves without the message it was woken for passes the wakeup on.
//! - A consumer that finds nothing keeps its position.
//! - While no consumer waits, a batch costs one atomic load.

mod broadcast;
mod index;
mod poll;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use hubbub_core::invariant::saturate;
pub use hubbub_core::queue::WaitFilter;
use hubbub_core::queue::{Audience, Due, Freed, QueueSend};
use hubbub_core::{Op, OpBatch, Outcome, QueueOp, QueueOutcome, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics::Metrics;
use broadcast::PendingBroadcasts;
pub(crate) use broadcast::wake_remaining;
use index::ConsumerIndex;
pub(crate) use poll::poll_store;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wakeup {
    /// This message is available.
    Message(Freed),
    /// Every consumer of the queue got a wakeup of its own: none is passed on.
    Broadcast,
}

#[derive(Debug)]
struct WaitingConsumer {
    filter: WaitFilter,
    waker: Arc<AtomicWaker>,
    /// The wakeup since its current attempt began.
    wakeup: Option<Wakeup>,
    /// The wakeup that led to the current attempt.
    attempt: Option<Wakeup>,
}

#[derive(Debug, Default)]
struct State {
    last_number: u64,
    waiting: HashMap<u64, WaitingConsumer>,
    /// The consumers without a wakeup.
    idle: ConsumerIndex,
    broadcasts: PendingBroadcasts,
}

/// All waiting consumers of this server.
#[derive(Debug, Default)]
pub struct WaitingConsumers {
    count: AtomicUsize,
    state: Mutex<State>,
    /// Signals that a broadcast still has consumers to wake.
    broadcast_pending: Notify,
    metrics: Arc<Metrics>,
}

/// The registration of one consumer, which ends when this is dropped.
#[derive(Debug)]
pub struct WaiterHandle {
    consumers: Arc<WaitingConsumers>,
    number: u64,
    waker: Arc<AtomicWaker>,
}

impl WaitingConsumers {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Registers a consumer behind all others.
    pub fn register(self: &Arc<Self>, filter: WaitFilter) -> WaiterHandle {
        let waker = Arc::new(AtomicWaker::new());
        let mut state = self.state.lock();
        state.last_number += 1;
        let number = state.last_number;
        state.idle.insert(number, &filter);
        let consumer = WaitingConsumer { filter, waker: waker.clone(), wakeup: None, attempt: None };
        state.waiting.insert(number, consumer);
        self.set_count(state.waiting.len());
        WaiterHandle { consumers: self.clone(), number, waker }
    }

    fn set_count(&self, count: usize) {
        self.count.store(count, Ordering::SeqCst);
        self.metrics.queue_waiting_consumers.set(saturate(count));
    }

    /// Number of registered consumers.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether no consumer is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wakes the consumers for which a committed batch made messages available.
    pub(crate) fn notify(&self, ops: &OpBatch, outcomes: &[Outcome]) {
        if self.is_empty() {
            return;
        }
        for (index, outcome) in outcomes.iter().enumerate() {
            let Outcome::Queue(outcome) = outcome else { continue };
            let mut state = self.state.lock();
            let mut all_are_woken = true;
            match outcome {
                QueueOutcome::Sent { id, copies, sent_at, duplicate: false } => {
                    if let Some(Op::Queue(QueueOp::Send(send))) = ops.get(index)
                        && *copies > 0
                        && is_due(send.due, *sent_at)
                    {
                        all_are_woken = state.wake_for_sent(&send, *id);
                    }
                }
                QueueOutcome::Settled { ready, .. } | QueueOutcome::Taken { ready, .. } => {
                    state.wake_for_freed(ready);
                }
                QueueOutcome::Deleted { ready, .. } => {
                    state.wake_for_freed(ready);
                    // Consumers of a deleted queue try again and learn that it is gone.
                    if let Some(Op::Queue(QueueOp::Delete { queue, .. })) = ops.get(index) {
                        all_are_woken = state.wake_all(queue, "");
                    }
                }
                QueueOutcome::Redriven { ready, .. } | QueueOutcome::Swept { ready, .. } => {
                    ready.iter().for_each(|queue| all_are_woken &= state.wake_all(queue, ""));
                }
                _ => {}
            }
            if !all_are_woken {
                self.broadcast_pending.notify_one();
            }
        }
    }
}

fn is_due(due: Due, now: Timestamp) -> bool {
    match due {
        Due::Now => true,
        Due::In(ms) => ms == 0,
        Due::At(time) => time <= now,
    }
}

impl State {
    /// Returns false when a broadcast still has consumers to wake.
    fn wake_for_sent(&mut self, send: &QueueSend<'_>, id: u64) -> bool {
        let receiver = match send.audience {
            Audience::Anyone => None,
            Audience::One(receiver) => Some(receiver.into()),
            Audience::All => return self.wake_all(send.queue, send.sender),
        };
        let message = Freed { queue: send.queue.into(), id, sender: send.sender.into(), receiver };
        self.wake_first(message);
        true
    }

    fn wake_for_freed(&mut self, messages: &[Freed]) {
        messages.iter().for_each(|message| self.wake_first(message.clone()));
    }

    /// Wakes the first idle consumer that matches the message. Those woken already will try anyway.
    fn wake_first(&mut self, message: Freed) {
        if let Some(number) = self.idle.first(&message) {
            self.wake(number, Wakeup::Message(message));
        }
    }

    fn wake(&mut self, number: u64, wakeup: Wakeup) {
        if let Some(consumer) = self.waiting.get_mut(&number) {
            consumer.wakeup = Some(wakeup);
            consumer.waker.wake();
            self.idle.remove(number, &consumer.filter);
        }
    }

    fn pass_on(&mut self, wakeup: Option<Wakeup>) {
        if let Some(Wakeup::Message(message)) = wakeup {
            self.wake_first(message);
        }
    }
}

/// Whether the filter matches messages of this sender.
fn accepts_sender(filter: &WaitFilter, sender: &str) -> bool {
    filter.sender.as_ref().is_none_or(|wanted| wanted.as_str() == sender)
}

impl WaiterHandle {
    /// Call before each attempt: messages that become available from now on wake the consumer again.
    pub fn begin_attempt(&self) {
        let mut state = self.consumers.state.lock();
        let State { waiting, idle, .. } = &mut *state;
        if let Some(consumer) = waiting.get_mut(&self.number)
            && let Some(wakeup) = consumer.wakeup.take()
        {
            consumer.attempt = Some(wakeup);
            idle.insert(self.number, &consumer.filter);
        }
    }

    /// Call after an attempt that found nothing: the message it was woken for is gone.
    pub fn end_empty_attempt(&self) {
        if let Some(consumer) = self.consumers.state.lock().waiting.get_mut(&self.number) {
            consumer.attempt = None;
        }
    }

    /// Ends the registration after an attempt that took the messages `ids`. Wakeups for other messages are passed on.
    pub fn complete(self, ids: impl Iterator<Item = u64>) {
        let mut state = self.consumers.state.lock();
        let Some(consumer) = state.waiting.get_mut(&self.number) else { return };
        for id in ids {
            for wakeup in [&mut consumer.wakeup, &mut consumer.attempt] {
                wakeup.take_if(|wakeup| matches!(wakeup, Wakeup::Message(message) if message.id == id));
            }
        }
    }

    /// Returns once the consumer has a wakeup.
    pub async fn woken(&self) {
        std::future::poll_fn(|context| {
            self.waker.register(context.waker());
            let state = self.consumers.state.lock();
            match state.waiting.get(&self.number) {
                Some(WaitingConsumer { wakeup: None, .. }) => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl Drop for WaiterHandle {
    fn drop(&mut self) {
        let mut state = self.consumers.state.lock();
        if let Some(WaitingConsumer { filter, wakeup, attempt, .. }) = state.waiting.remove(&self.number) {
            state.idle.remove(self.number, &filter);
            self.consumers.set_count(state.waiting.len());
            state.pass_on(attempt);
            state.pass_on(wakeup);
        }
    }
}
