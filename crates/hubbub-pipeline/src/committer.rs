//! The commit thread, or several of them, applies chunks to the store; the dispatcher answers their senders and publishes them.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::essential;
use hubbub_core::invariant::saturate;
use hubbub_core::queue::{Settle, TakeMode};
use hubbub_core::store::{ApplyError, Store};
use hubbub_core::{
    ErrorCode, Essential, KvOutcome, LogLimit, Op, Outcome, QueueOp, QueueOutcome, Refusal, RoomId, UserId,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::batcher::{Batch, Batcher, Chunk, Outcomes};
use crate::consumers::WaitingConsumers;
use crate::hub::Hub;
use crate::kv::Keys;
use crate::members::Members;
use crate::metrics::Metrics;
use crate::order::{self, FailedSends};
use crate::sweeper::{WakeupSignal, has_deadline};
use crate::timeline::BatchSpans;

/// What a commit thread passes to the dispatcher.
pub(crate) enum DispatcherMessage {
    Chunk(Committed),
    /// Answered once everything before it has been dispatched.
    Flush(oneshot::Sender<()>),
}

/// A chunk with its outcomes, and the times for the histograms.
pub(crate) struct Committed {
    chunk: Chunk,
    taken_at: Duration,
    done_at: Duration,
    /// The history of a shared store that it was committed in.
    epoch: Option<Arc<str>>,
}

/// Chunks between the commit threads and the dispatcher. A commit thread waits while there are as many: a slow
/// fan-out slows the senders instead of filling memory.
pub(crate) const COMMITTED_MAX: usize = 8;

/// A commit thread. It writes the store: after a panic, half of a batch may be applied.
pub(crate) const COMMIT: Essential = Essential::writer("commit");

/// A batch waits as long as this for more operations, and no longer than the last one took to commit.
const GATHER_MAX: Duration = Duration::from_micros(200);

/// How long a commit thread waits for the report of the dispatcher's death.
const DISPATCHER_DEATH_TIMEOUT: Duration = Duration::from_secs(1);

/// Applies chunks until the batcher is closed and empty. Blocks its thread. Nothing is committed in another history of the
/// store before the dispatcher has said which chunks of the last one are lost: what a sender submitted behind them must fail,
/// too.
///
/// There are as many as the store takes batches at
/// once: a sender of the log submits no more of a partition before the last is answered. Where a partition was lost and came
/// back, two chunks may hold records of it; the store takes care of that.
pub(crate) fn commit(
    batcher: &Batcher,
    store: &dyn Store,
    clock: &dyn Clock,
    metrics: &Metrics,
    keys: &Keys,
    failed: &Mutex<FailedSends>,
    committed: &mpsc::Sender<DispatcherMessage>,
) {
    let is_only_thread = store.batches_at_once() <= 1;
    // A database takes longer than a sync, so that enough come meanwhile.
    let gathers = is_only_thread && !store.is_shared();
    let mut patience = Duration::ZERO;
    let mut last_epoch = store.is_shared().then(|| store.epoch());
    loop {
        batcher.gather(patience);
        let Some(chunk) = batcher.take() else { return };
        COMMIT.step();
        let taken_at = clock.monotonic();
        let operations: i64 = saturate(chunk.ops.len());
        metrics.in_flight.inc_by(operations);
        let epoch = store.is_shared().then(|| store.epoch());
        if epoch != last_epoch {
            if !flush(committed) {
                return;
            }
            last_epoch.clone_from(&epoch);
        }
        keys.begin_changes(&chunk.ops);
        let outcomes = order::apply(failed, store, batcher, &chunk, epoch.as_ref());
        // Before anybody sees the outcomes: an answer is not older than what it is of.
        let done_at = clock.monotonic();
        epoch.iter().for_each(|epoch| chunk.batch.set_epoch(epoch.clone()));
        log_failure(&chunk, &outcomes, done_at);
        publish_outcomes(&chunk.batch, outcomes, is_only_thread);
        metrics.in_flight.dec_by(operations);
        if gathers {
            patience = done_at.saturating_sub(taken_at).min(GATHER_MAX);
        }
        let done = Committed { chunk, taken_at, done_at, epoch };
        if !pass_on(committed, DispatcherMessage::Chunk(done)) {
            return;
        }
        batcher.set_cap(store.batch_cap());
    }
}

/// Whether there is a dispatcher to take it. If it has died nobody can be answered any more, and its death ends the process.
fn pass_on(committed: &mpsc::Sender<DispatcherMessage>, what: DispatcherMessage) -> bool {
    let is_sent = committed.blocking_send(what).is_ok();
    if !is_sent {
        essential::wait_for_shutdown(DISPATCHER_DEATH_TIMEOUT);
    }
    is_sent
}

/// Waits until the dispatcher has done all that it was passed. As [`pass_on`].
fn flush(committed: &mpsc::Sender<DispatcherMessage>) -> bool {
    let (sender, done) = oneshot::channel();
    pass_on(committed, DispatcherMessage::Flush(sender)) && done.blocking_recv().is_ok()
}

/// Says why senders are told of failures. A broker's consumer writes lines of its own.
fn log_failure(chunk: &Chunk, outcomes: &Outcomes, now: Duration) {
    static LINES: LogLimit = LogLimit::new();
    let mut failures = chunk.reported_failures(outcomes);
    let Some((error, first)) = failures.next() else { return };
    let Some(left_out) = LINES.next(now) else { return };
    let operations = chunk.ops.len();
    let failed = first + failures.map(|(_, failed)| failed).sum::<usize>();
    tracing::warn!(operations, failed, %error, left_out, "committing a batch failed; the senders are told");
}

/// Sets the outcomes of a batch. Senders that poll see them at once, unless a cache must be updated first; or another thread
/// might pass on what they submit next before this one has passed on the batch.
fn publish_outcomes(batch: &Batch, outcomes: Outcomes, is_only_thread: bool) {
    let is_held =
        !is_only_thread || outcomes.as_ref().is_ok_and(|outcomes| outcomes.iter().any(invalidates_cache));
    batch.set(outcomes);
    if !is_held {
        batch.make_visible();
    }
}

/// The parts of the server that each committed batch is passed to.
pub(crate) struct CommitListeners {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) members: Arc<Members>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) consumers: Arc<WaitingConsumers>,
    pub(crate) sweep_signal: WakeupSignal,
}

/// Answers the senders of each chunk and publishes it, until the commit threads end.
///
/// The key cache is updated before any sender wakes. A chunk that changes rooms or members is published before its
/// senders wake: once a client knows of a removal, the removed user must get nothing more.
///
/// Of a chunk that was committed in another history of the store than there is now, nothing is told or published.
pub(crate) async fn dispatch(
    mut receiver: mpsc::Receiver<DispatcherMessage>,
    batcher: Arc<Batcher>,
    failed: Arc<Mutex<FailedSends>>,
    listeners: CommitListeners,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
) {
    let CommitListeners { store, hub, members, keys, consumers, sweep_signal } = &listeners;
    let access = |room: RoomId, user: UserId| members.access(room, user);
    let mut spans = BatchSpans::default();
    while let Some(what) = receiver.recv().await {
        let Committed { mut chunk, taken_at, done_at, epoch } = match what {
            DispatcherMessage::Chunk(committed) => committed,
            DispatcherMessage::Flush(done) => {
                // The thread that waits has ended if nobody receives it.
                let _ = done.send(());
                continue;
            }
        };
        metrics.batch_size.record(chunk.ops.len() as u64, 1);
        metrics.store_time.record(micros(done_at, taken_at), 1);
        // Before the epoch is compared: what is published later in this history is published in its own one.
        let history = hub.history();
        let is_lost = || epoch.as_ref().is_some_and(|epoch| *epoch != store.epoch());
        let was_lost = is_lost();
        if was_lost {
            chunk.batch.lose();
        }
        let outcomes = chunk.batch.outcomes();
        let committed = outcomes.and_then(|outcomes| outcomes.as_ref().ok()).filter(|_| !was_lost);
        let is_change = committed.is_some_and(|outcomes| outcomes.iter().any(Outcome::may_change_access));
        if let Some(outcomes) = committed.filter(|outcomes| outcomes.iter().any(is_of_queues_or_keys)) {
            keys.apply_committed(&chunk.ops, outcomes, epoch.as_ref()).await;
            consumers.notify(&chunk.ops, outcomes);
            if chunk.ops.iter().any(|op| has_deadline(&op)) {
                sweep_signal.notify_one();
            }
        }
        match outcomes {
            Some(Ok(outcomes)) if !was_lost && chunk.batch.has_failures() => {
                let failed = chunk.ops.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_failed());
                keys.invalidate(failed.map(|(op, _)| op));
            }
            Some(Ok(_)) if !was_lost => {}
            _ => keys.invalidate(chunk.ops.iter()),
        }
        // They may be stored all the same.
        let has_failures = committed.is_none() || chunk.batch.has_failures();
        if has_failures && chunk.ops.iter().any(|op| matches!(op, Op::Change(_))) {
            members.clear();
        }
        keys.end_changes(&chunk.ops);
        if let Some(outcomes) = committed.filter(|_| is_change) {
            members.apply_committed(&chunk.ops, outcomes);
            hub.publish(&chunk.ops, outcomes, &access, history).await;
        }
        // That may have taken as long as it took to begin another one.
        if is_lost() {
            chunk.batch.lose();
        }
        if chunk.batch.is_lost() {
            failed.lock().insert_all(&chunk);
        }
        let outcomes = chunk.batch.outcomes();
        // Before any sender wakes, so that a client that has its answer finds it counted.
        if let Some(outcomes) = outcomes {
            count_outcomes(&chunk, outcomes, &metrics);
            if chunk.batch.is_lost() {
                log_failure(&chunk, outcomes, clock.monotonic());
            }
        }
        let committed = committed.filter(|_| !chunk.batch.is_lost());
        chunk.batch.make_visible();
        let notified_at = clock.monotonic();
        metrics.answer_time.record(micros(notified_at, done_at), chunk.ops.len() as u64);
        record_times(&chunk, taken_at, notified_at, &metrics);
        for waiter in chunk.wakes.drain(..) {
            waiter.wake();
        }
        if let Some(outcomes) = committed.filter(|_| hub.timeline().is_on()) {
            let times = chunk.times(taken_at, done_at, notified_at);
            hub.timeline().record_batch((&chunk.ops, outcomes), chunk.runs(), &times, &mut spans);
        }
        if let Some(tracer) = hub.timeline().tracer().filter(|_| !chunk.ops.traces().is_empty()) {
            let times = chunk.times(taken_at, done_at, notified_at);
            tracer.committed(&chunk.ops, committed.map(Vec::as_slice), &times);
        }
        if let Some(outcomes) = committed.filter(|_| !is_change) {
            hub.publish(&chunk.ops, outcomes, &access, history).await;
        }
        if committed.is_some() {
            metrics.fan_out_time.record(micros(clock.monotonic(), done_at), 1);
        }
        batcher.recycle(chunk);
    }
}

/// Whether the outcome makes a cache entry stale. Then the cache is updated before anybody sees the outcome.
fn invalidates_cache(outcome: &Outcome) -> bool {
    outcome.may_change_access() || matches!(outcome, Outcome::Kv(_))
}

fn is_of_queues_or_keys(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Queue(_) | Outcome::Kv(_))
}

/// Failures of what comes from a log are not counted: their senders were answered before, and they are repeated.
fn count_outcomes(chunk: &Chunk, outcomes: &Outcomes, metrics: &Metrics) {
    for (error, operations) in chunk.reported_failures(outcomes) {
        count_failures(error, operations as u64, metrics);
    }
    let Ok(outcomes) = outcomes else { return };
    let (mut stored, mut duplicate, mut changes, mut keys) = (0, 0, 0, 0);
    for (index, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Outcome::Stored(_) => stored += 1,
            Outcome::Duplicate(_) => duplicate += 1,
            Outcome::Refused(refusal) => metrics.reject(refusal_code(*refusal), 1),
            Outcome::Room { .. } | Outcome::Changed { .. } | Outcome::Read(_) | Outcome::Erased { .. } => {
                changes += 1;
            }
            Outcome::Kv(KvOutcome::Put { .. } | KvOutcome::Deleted { revision: Some(_) }) => keys += 1,
            Outcome::Queue(outcome) => count_queue(chunk.ops.get(index), outcome, metrics),
            Outcome::Accepted | Outcome::Kv(_) | Outcome::Failed(_) => {}
        }
    }
    metrics.changes.inc_by(changes);
    metrics.kv_changes.inc_by(keys);
    metrics.accepted.inc_by(stored + duplicate);
    metrics.stored.inc_by(stored);
    metrics.duplicate.inc_by(duplicate);
}

/// Counts operations whose senders are told that they failed, before they are told.
pub(crate) fn count_failures(error: &ApplyError, operations: u64, metrics: &Metrics) {
    match error {
        ApplyError::Unconfirmed { .. } => drop(metrics.unconfirmed.inc_by(operations)),
        error => metrics.reject(apply_error_code(error), operations),
    }
}

fn count_queue(op: Option<Op<'_>>, outcome: &QueueOutcome, metrics: &Metrics) {
    let (counter, count) = match (outcome, op) {
        (QueueOutcome::Sent { copies, duplicate: false, .. }, _) => (&metrics.queue_sent, (*copies).into()),
        (QueueOutcome::Taken { messages, .. }, Some(Op::Queue(QueueOp::Take(take)))) => match take.how {
            TakeMode::Away => (&metrics.queue_taken, messages.len() as u64),
            TakeMode::Lease { .. } => (&metrics.queue_leased, messages.len() as u64),
        },
        (QueueOutcome::Settled { .. }, Some(Op::Queue(QueueOp::Settle { how, .. }))) => match how {
            Settle::Ack => (&metrics.queue_acked, 1),
            Settle::Nack { .. } => (&metrics.queue_nacked, 1),
            Settle::Extend { .. } => return,
        },
        _ => return,
    };
    counter.inc_by(count);
}

/// The error code that clients get for a failed batch.
pub fn apply_error_code(error: &ApplyError) -> ErrorCode {
    match error {
        ApplyError::Unavailable { .. } | ApplyError::Unattached { .. } => ErrorCode::Unavailable,
        ApplyError::DiskFull { .. } => ErrorCode::DiskFull,
        ApplyError::TooLarge { .. } => ErrorCode::TooLarge,
        ApplyError::Overloaded => ErrorCode::Overloaded,
        ApplyError::Unconfirmed { .. } => ErrorCode::Unconfirmed,
    }
}

/// The error code that clients get for a refused operation.
pub fn refusal_code(refusal: Refusal) -> ErrorCode {
    match refusal {
        Refusal::IdReused { .. } => ErrorCode::IdReused,
        Refusal::UnknownRoom => ErrorCode::UnknownRoom,
        Refusal::NotMember => ErrorCode::NotMember,
        Refusal::UnknownQueue => ErrorCode::UnknownQueue,
        Refusal::QueueNotEmpty { .. } => ErrorCode::QueueNotEmpty,
        Refusal::QueueFull => ErrorCode::QueueFull,
        Refusal::NoQueueNumber => ErrorCode::Invalid,
        Refusal::UnknownClient => ErrorCode::UnknownClient,
        Refusal::UnknownReceiver => ErrorCode::UnknownReceiver,
        Refusal::TooManyClients => ErrorCode::TooManyClients,
        Refusal::TooManyBroadcasts => ErrorCode::Overloaded,
        Refusal::MessageIdReused { .. } => ErrorCode::IdReused,
        Refusal::StaleReceipt => ErrorCode::StaleReceipt,
        Refusal::UnknownMessage => ErrorCode::UnknownMessage,
        Refusal::Condition { .. } => ErrorCode::ConditionFailed,
        Refusal::Unreadable => ErrorCode::Unreadable,
        Refusal::Internal => ErrorCode::Internal,
        Refusal::OutOfOrder => ErrorCode::Overloaded,
    }
}

fn record_times(chunk: &Chunk, taken_at: Duration, notified_at: Duration, metrics: &Metrics) {
    for group in &chunk.groups {
        let (total, count) = (micros(notified_at, group.submitted_at), group.count as u64);
        metrics.wait_time.record(micros(taken_at, group.submitted_at), count);
        metrics.total_time.record(total, count);
        if !group.is_of_log {
            metrics.client_time.record(total, count);
        }
    }
}

fn micros(later: Duration, earlier: Duration) -> u64 {
    saturate(later.saturating_sub(earlier).as_micros())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod epoch_tests;
