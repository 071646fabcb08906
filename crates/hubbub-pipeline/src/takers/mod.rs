//! Who waits for messages of queues, in the order in which they came.
//!
//! Somebody who wants to wait lines up ([`Takers::line_up`]) and then tries to take, in this order, so that nothing can
//! come in between unnoticed: [`Place::begin`], the take, [`Place::found_nothing`], [`Place::called`], and again. The
//! dispatcher hands everything that is committed to [`Takers::notice`]; each message that may be taken now calls the
//! first in line that may have it and is not called already.
//! What other servers store in a shared store calls nobody here; for that, the store is asked now and then ([`follow`]).
//!
//! Invariants
//! - One message calls one; only a message to everybody, and what the store tells of whole queues, calls all of a queue.
//! - A call is never lost: whoever leaves without the message it was called for passes the call on.
//! - Who finds nothing keeps its place.
//! - Where nobody waits a batch costs one look at a counter.

mod all;
mod lines;
mod others;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;
pub use hubbub_core::queue::Wants;
use hubbub_core::queue::{Audience, Due, Freed, QueueSend};
use hubbub_core::{Op, OpBatch, Outcome, QueueOp, QueueOutcome, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics::Metrics;
use all::WakeAlls;
pub(crate) use all::wake_rest;
use lines::Lines;
pub(crate) use others::follow;

/// A message that may be taken now.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    message: Freed,
    /// Whether it is one of several, each called for on its own: then nothing is passed on.
    is_for_all: bool,
}

#[derive(Debug)]
struct Waiting {
    wants: Wants,
    waker: Arc<AtomicWaker>,
    /// What it is called for since its last try began.
    call: Option<Call>,
    /// What it was called for before.
    trying: Option<Call>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: HashMap<u64, Waiting>,
    /// Those who are not called.
    lines: Lines,
    wake_alls: WakeAlls,
}

/// All who wait.
#[derive(Debug, Default)]
pub struct Takers {
    count: AtomicUsize,
    state: Mutex<State>,
    /// Some are left to be woken.
    left_over: Notify,
    metrics: Arc<Metrics>,
}

/// A place in the line, given up when it is dropped.
#[derive(Debug)]
pub struct Place {
    takers: Arc<Takers>,
    number: u64,
    waker: Arc<AtomicWaker>,
}

impl Takers {
    /// Nobody yet.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Takes the last place.
    pub fn line_up(self: &Arc<Self>, wants: Wants) -> Place {
        let waker = Arc::new(AtomicWaker::new());
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        state.lines.add(number, &wants);
        let waiting = Waiting { wants, waker: waker.clone(), call: None, trying: None };
        state.waiting.insert(number, waiting);
        self.set_count(state.waiting.len());
        Place { takers: self.clone(), number, waker }
    }

    fn set_count(&self, count: usize) {
        self.count.store(count, Ordering::SeqCst);
        self.metrics.queue_waiting_takers.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls those who may have what a committed batch brought.
    pub(crate) fn notice(&self, ops: &OpBatch, outcomes: &[Outcome]) {
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
                        all_are_woken = state.sent(&send, *id);
                    }
                }
                QueueOutcome::Settled { ready, .. } => state.freed(ready),
                QueueOutcome::Deleted { ready, .. } => {
                    state.freed(ready);
                    // Whoever waits at a queue that is gone is to be told.
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
                self.left_over.notify_one();
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
    /// Returns whether all were woken who are to be.
    fn sent(&mut self, send: &QueueSend<'_>, id: u64) -> bool {
        let receiver = match send.audience {
            Audience::Anyone => None,
            Audience::One(receiver) => Some(receiver.into()),
            Audience::All => return self.wake_all(send.queue, send.sender),
        };
        let message = Freed { queue: send.queue.into(), id, sender: send.sender.into(), receiver };
        self.call_one(Call { message, is_for_all: false });
        true
    }

    fn freed(&mut self, messages: &[Freed]) {
        for message in messages {
            self.call_one(Call { message: message.clone(), is_for_all: false });
        }
    }

    /// Calls the first that may have it, if there is one that is not called already. One that is called tries anyway.
    fn call_one(&mut self, call: Call) {
        let message = &call.message;
        let takes = |number| {
            let wants = self.waiting.get(&number).map(|waiting| &waiting.wants);
            wants.is_some_and(|wants| takes_from(wants, &message.sender))
        };
        if let Some(number) = self.lines.first(&message.queue, message.receiver.as_deref(), takes) {
            self.call(number, call);
        }
    }

    fn call(&mut self, number: u64, call: Call) {
        if let Some(waiting) = self.waiting.get_mut(&number) {
            waiting.call = Some(call);
            waiting.waker.wake();
            self.lines.remove(number, &waiting.wants);
        }
    }

    fn pass_on(&mut self, call: Option<Call>) {
        if let Some(call) = call.filter(|call| !call.is_for_all) {
            self.call_one(call);
        }
    }
}

/// Whether somebody takes messages of this sender.
fn takes_from(wants: &Wants, sender: &str) -> bool {
    wants.sender.as_ref().is_none_or(|wanted| wanted.as_str() == sender)
}

impl Place {
    /// Call it before each try: what comes from now on calls again.
    pub fn begin(&self) {
        let mut state = self.takers.state.lock();
        let State { waiting, lines, .. } = &mut *state;
        if let Some(waiting) = waiting.get_mut(&self.number)
            && let Some(call) = waiting.call.take()
        {
            waiting.trying = Some(call);
            lines.add(self.number, &waiting.wants);
        }
    }

    /// Call it after a try that gave nothing: what it was called for is gone.
    pub fn found_nothing(&self) {
        if let Some(waiting) = self.takers.state.lock().waiting.get_mut(&self.number) {
            waiting.trying = None;
        }
    }

    /// Call it after a try that gave these, and go: what else it was called for is passed on.
    pub fn took(self, ids: impl Iterator<Item = u64>) {
        let mut state = self.takers.state.lock();
        let Some(waiting) = state.waiting.get_mut(&self.number) else { return };
        for id in ids {
            for call in [&mut waiting.call, &mut waiting.trying] {
                call.take_if(|call| call.message.id == id);
            }
        }
    }

    /// Comes back when there may be something to take.
    pub async fn called(&self) {
        std::future::poll_fn(|context| {
            self.waker.register(context.waker());
            let state = self.takers.state.lock();
            match state.waiting.get(&self.number) {
                Some(Waiting { call: None, .. }) => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.takers.state.lock();
        if let Some(Waiting { wants, call, trying, .. }) = state.waiting.remove(&self.number) {
            state.lines.remove(self.number, &wants);
            self.takers.set_count(state.waiting.len());
            state.pass_on(trying);
            state.pass_on(call);
        }
    }
}
