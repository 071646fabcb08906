//! Answers the senders of committed chunks, and publishes these.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::store::Store;
use hubbub_core::{Op, Outcome, RoomId, UserId};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::count::{count_outcomes, micros, record_times};
use super::{Committed, DispatcherMessage, log_failure};
use crate::access_cache::AccessCache;
use crate::batcher::{Batcher, Chunk};
use crate::consumers::WaitingConsumers;
use crate::hub::Hub;
use crate::kv::Keys;
use crate::metrics::Metrics;
use crate::order::FailedSends;
use crate::sweeper::{WakeupSignal, has_deadline};
use crate::timeline::BatchSpans;

/// The parts of the server that each committed batch is passed to.
pub(crate) struct CommitListeners {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) members: Arc<AccessCache>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) consumers: Arc<WaitingConsumers>,
    pub(crate) sweep_signal: WakeupSignal,
}

/// Answers the senders of each chunk and publishes it, until the commit threads end.
pub(crate) async fn dispatch(
    mut receiver: mpsc::Receiver<DispatcherMessage>,
    batcher: Arc<Batcher>,
    failed: Arc<Mutex<FailedSends>>,
    listeners: CommitListeners,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
) {
    let mut dispatcher = Dispatcher { failed, listeners, clock, metrics, spans: BatchSpans::default() };
    while let Some(message) = receiver.recv().await {
        match message {
            DispatcherMessage::Chunk(committed) => batcher.recycle(dispatcher.dispatch(committed).await),
            // The thread that waits has ended if nobody receives it.
            DispatcherMessage::Flush(done) => drop(done.send(())),
        }
    }
}

struct Dispatcher {
    failed: Arc<Mutex<FailedSends>>,
    listeners: CommitListeners,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    spans: BatchSpans,
}

impl Dispatcher {
    /// 1. The caches are updated before any sender wakes.
    /// 2. A chunk that changes rooms or members is published before its senders wake: once a client knows of a removal, the
    ///    removed user must get nothing more.
    /// 3. Senders are told.
    /// 4. Any other chunk is published after that.
    ///
    /// Of a chunk that was committed in another history of the store than there is now, nothing is told or published.
    async fn dispatch(&mut self, committed: Committed) -> Chunk {
        let Committed { mut chunk, taken_at, done_at, epoch } = committed;
        self.metrics.batch_size.record(chunk.ops.len() as u64, 1);
        self.metrics.store_time.record(micros(done_at, taken_at), 1);
        let CommitListeners { store, hub, members, .. } = &self.listeners;
        // Before the epoch is compared: what is published later in this epoch is published in its own one.
        let epoch_number = hub.epoch_number();
        let is_of_another = || epoch.as_ref().is_some_and(|epoch| *epoch != store.epoch());
        let was_lost = is_of_another();
        let batch = chunk.batch.clone();
        if was_lost {
            batch.lose();
        }
        let stored = batch.outcomes().and_then(|outcomes| outcomes.as_ref().ok()).filter(|_| !was_lost);
        self.listeners.update_caches(&chunk, stored, epoch.as_ref()).await;
        let access = |room: RoomId, user: UserId| members.access(room, user);
        let is_change = stored.is_some_and(|outcomes| outcomes.iter().any(Outcome::may_change_access));
        if let Some(outcomes) = stored.filter(|_| is_change) {
            members.apply_committed(&chunk.ops, outcomes);
            hub.publish(&chunk.ops, outcomes, &access, epoch_number).await;
        }
        // That may have taken as long as it took to begin another one.
        if is_of_another() {
            batch.lose();
        }
        if batch.is_lost() {
            self.failed.lock().insert_all(&chunk);
        }
        let stored = stored.filter(|_| !batch.is_lost());
        let answered_at = self.answer(&mut chunk, taken_at, done_at);
        record_timeline(hub, &mut self.spans, &chunk, stored, [taken_at, done_at, answered_at]);
        if let Some(outcomes) = stored {
            if !is_change {
                hub.publish(&chunk.ops, outcomes, &access, epoch_number).await;
            }
            self.metrics.fan_out_time.record(micros(self.clock.monotonic(), done_at), 1);
        }
        chunk
    }

    /// Shows the senders of a chunk their outcomes, and returns when that was.
    fn answer(&self, chunk: &mut Chunk, taken_at: Duration, done_at: Duration) -> Duration {
        // Before any sender wakes, so that a client that has its answer finds it counted.
        if let Some(outcomes) = chunk.batch.outcomes() {
            count_outcomes(chunk, outcomes, &self.metrics);
            if chunk.batch.is_lost() {
                log_failure(chunk, outcomes, self.clock.monotonic());
            }
        }
        chunk.batch.make_visible();
        let answered_at = self.clock.monotonic();
        self.metrics.answer_time.record(micros(answered_at, done_at), chunk.ops.len() as u64);
        record_times(chunk, taken_at, answered_at, &self.metrics);
        for waiter in chunk.wakes.drain(..) {
            waiter.wake();
        }
        answered_at
    }
}

impl CommitListeners {
    /// Updates what is cached of keys, wakes consumers, and forgets what a batch whose outcome is not known (`None`), or a part
    /// of it that failed, may have changed.
    async fn update_caches(&self, chunk: &Chunk, stored: Option<&Vec<Outcome>>, epoch: Option<&Arc<str>>) {
        let Self { members, keys, consumers, sweep_signal, .. } = self;
        if let Some(outcomes) = stored.filter(|outcomes| outcomes.iter().any(is_of_queues_or_keys)) {
            keys.apply_committed(&chunk.ops, outcomes, epoch).await;
            consumers.notify(&chunk.ops, outcomes);
            if chunk.ops.iter().any(|op| has_deadline(&op)) {
                sweep_signal.notify_one();
            }
        }
        let has_failures = chunk.batch.has_failures();
        match stored {
            None => keys.invalidate(chunk.ops.iter()),
            Some(outcomes) if has_failures => {
                let failed = chunk.ops.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_failed());
                keys.invalidate(failed.map(|(op, _)| op));
            }
            Some(_) => {}
        }
        // They may be stored all the same.
        if (stored.is_none() || has_failures) && chunk.ops.iter().any(|op| matches!(op, Op::Change(_))) {
            members.clear();
        }
        keys.end_changes(&chunk.ops);
    }
}

fn record_timeline(
    hub: &Hub,
    spans: &mut BatchSpans,
    chunk: &Chunk,
    stored: Option<&Vec<Outcome>>,
    [taken_at, done_at, answered_at]: [Duration; 3],
) {
    let times = || chunk.times(taken_at, done_at, answered_at);
    if let Some(outcomes) = stored.filter(|_| hub.timeline().is_on()) {
        hub.timeline().record_batch((&chunk.ops, outcomes), chunk.runs(), &times(), spans);
    }
    if let Some(tracer) = hub.timeline().tracer().filter(|_| !chunk.ops.traces().is_empty()) {
        tracer.committed(&chunk.ops, stored.map(Vec::as_slice), &times());
    }
}

fn is_of_queues_or_keys(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Queue(_) | Outcome::Kv(_))
}
