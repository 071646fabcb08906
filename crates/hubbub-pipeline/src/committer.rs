//! The commit thread, or several of them, applies chunks to the store; the dispatcher answers their senders and publishes them.

mod count;
mod dispatcher;

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::essential;
use hubbub_core::invariant::saturate;
use hubbub_core::store::{ApplyError, Store};
use hubbub_core::{ErrorCode, Essential, LogLimit, Outcome, Refusal};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::batcher::{Batch, Batcher, Chunk, Outcomes};
use crate::kv::Keys;
use crate::metrics::Metrics;
use crate::order::{self, FailedSends};
#[cfg(any(feature = "amqp", feature = "kafka"))]
pub(crate) use count::count_failures;
pub(crate) use dispatcher::{CommitListeners, dispatch};

/// What a commit thread passes to the dispatcher.
#[allow(clippy::large_enum_variant, reason = "nearly all are chunks")]
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
    // Why the store is not asked any more: a server that stops does not wait for one that is away, once for each chunk.
    let mut given_up: Option<String> = None;
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
        let outcomes = match &given_up {
            Some(reason) => Err(ApplyError::Unavailable { reason: reason.clone() }),
            None => order::apply(failed, store, batcher, &chunk, epoch.as_ref()),
        };
        if let Some(reason) = why_away(&outcomes)
            && batcher.is_closed()
        {
            given_up = Some(reason);
        }
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

/// Why nothing of a batch is known to be stored, where the store is away.
fn why_away(outcomes: &Outcomes) -> Option<String> {
    let reason_of = |error: &ApplyError| match error {
        ApplyError::Unavailable { reason } | ApplyError::Unconfirmed { reason } => Some(reason.clone()),
        _ => None,
    };
    match outcomes {
        Err(error) => reason_of(error),
        Ok(outcomes) => {
            let mut reasons = outcomes.iter().map(|outcome| match outcome {
                Outcome::Failed(error) => reason_of(error),
                _ => None,
            });
            let first = reasons.next()??;
            reasons.all(|reason| reason.is_some()).then_some(first)
        }
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

/// Whether the outcome makes a cache entry stale. Then the cache is updated before anybody sees the outcome.
fn invalidates_cache(outcome: &Outcome) -> bool {
    outcome.may_change_access() || matches!(outcome, Outcome::Kv(_))
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

#[cfg(test)]
mod tests;

#[cfg(test)]
mod epoch_tests;
