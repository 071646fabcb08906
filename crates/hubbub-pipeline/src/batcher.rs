//! Adaptive group commit: collects submissions into chunks. While one chunk commits, the next fills; an idle server
//! commits a single operation at once, a busy one waits a moment for as many as came lately.

mod batch;
mod chunk;
mod load;
mod waiter;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::OpBatch;
use hubbub_core::invariant::saturate;
use hubbub_core::store::BatchCap;
use parking_lot::{Condvar, Mutex};
use prometheus_client::metrics::gauge::Gauge;

use crate::order::SenderOrder;
pub(crate) use batch::epoch_changed;
pub use batch::{Batch, Outcomes, Ticket};
pub(crate) use chunk::{Chunk, Group};
pub use load::QueueLimits;
pub(crate) use load::{LaneLoad, Load, WaitingLoad, lane_loads};
pub use waiter::Waiter;

/// Options of the message log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Bound of the submission queue.
    pub queue: QueueLimits,
    /// For experiments: how long a chunk waits for more operations after its first one.
    pub linger: Duration,
    /// For experiments: most operations of one batch, below the store's own cap; 1 = no batching.
    pub ops_max: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { queue: QueueLimits::default(), linger: Duration::ZERO, ops_max: usize::MAX }
    }
}

/// Why a submission was refused. Nothing of it was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue, or the half of it that one room, queue or key may hold, is full. Retry after a moment.
    #[error("too many operations are waiting; nothing was stored")]
    Overloaded,
    /// The server is shutting down.
    #[error("the server is shutting down; nothing was stored")]
    ShuttingDown,
    /// The broker cannot be reached, or accepts no messages now. Retry after a moment.
    #[error("the broker accepts no messages now; nothing was stored")]
    Unavailable,
}

/// Emptied chunks kept for reuse: as many as one commit thread has in use. Several share them.
const SPARE_CHUNKS: usize = 4;
/// A larger chunk is not kept for reuse, so that a burst does not keep its memory.
const SPARE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Where chunks have been smaller than this, nobody waits for a larger one.
const GATHERED_MIN: usize = 8;

#[derive(Debug)]
struct State {
    filling: Chunk,
    full: VecDeque<Chunk>,
    spare: Vec<Chunk>,
    load: WaitingLoad,
    next_number: u64,
    cap: BatchCap,
    /// Threads that wait for operations, and have not been notified.
    parked: usize,
    /// Operations of the last two chunks taken.
    taken: [usize; 2],
    /// Whether a thread waits for as many operations again.
    is_gathering: bool,
    is_closed: bool,
}

/// The queue between the connections and the commit threads.
#[derive(Debug)]
pub(crate) struct Batcher {
    state: Mutex<State>,
    filled: Condvar,
    /// For threads that could take what there is, but wait for more. Apart, so that they take no notification from one
    /// that is parked.
    lingering: Condvar,
    options: LogOptions,
    /// Whether a chunk holds operations of one partition of the log only.
    is_by_partition: bool,
    /// Shows how many operations wait, also while no batch ends.
    waiting: Gauge,
}

impl Batcher {
    pub(crate) fn new(options: LogOptions, cap: BatchCap) -> Self {
        let state = State {
            filling: Chunk { batch: Batch::new(1), ..Chunk::default() },
            full: VecDeque::new(),
            spare: Vec::new(),
            load: WaitingLoad::new(options.queue),
            next_number: 2,
            cap,
            parked: 0,
            taken: [0; 2],
            is_gathering: false,
            is_closed: false,
        };
        let (filled, lingering) = (Condvar::new(), Condvar::new());
        let waiting = Gauge::default();
        Self { state: Mutex::new(state), filled, lingering, options, is_by_partition: false, waiting }
    }

    /// Shows by `gauge` how many operations wait.
    pub(crate) fn shown_by(self, gauge: Gauge) -> Self {
        Self { waiting: gauge, ..self }
    }

    /// Whether each partition of the log has chunks of its own. They neither fail nor wait together then.
    pub(crate) fn by_partition(self, is_by_partition: bool) -> Self {
        Self { is_by_partition, ..self }
    }

    /// Queues all operations or none. They stay together and in order; an exclusive operation gets its own chunk, and
    /// operations of the log share none with others. What comes from the log is of one partition.
    pub(crate) fn submit(
        &self,
        ops: &OpBatch,
        waiter: &Arc<Waiter>,
        now: Duration,
    ) -> Result<Ticket, SubmitError> {
        let (load, lanes) = (Load { ops: ops.len(), bytes: ops.bytes() }, lane_loads(ops));
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(SubmitError::ShuttingDown);
        }
        if !state.load.admit(load, &lanes) {
            return Err(SubmitError::Overloaded);
        }
        if !state.filling.ops.is_empty() && self.needs_next_chunk(&state, ops) {
            state.start_chunk();
        }
        self.waiting.set(saturate(state.load.total().ops));
        let chunk = &mut state.filling;
        let ticket = Ticket::new(chunk.batch.clone(), chunk.ops.len(), ops.len());
        chunk.ops.append(ops);
        chunk.lanes.extend(lanes);
        let sender = waiter.list(chunk.batch.number, &mut chunk.wakes);
        let acknowledged_failure = waiter.order().map_or(0, SenderOrder::acknowledged);
        let (count, is_of_log) = (ops.len(), waiter.is_of_log());
        chunk.groups.push(Group { count, submitted_at: now, sender, acknowledged_failure, is_of_log });
        if state.is_gathering && state.has_gathered() {
            self.lingering.notify_one();
        }
        if state.parked > 0 {
            state.parked -= 1;
            self.filled.notify_one();
        }
        Ok(ticket)
    }

    fn needs_next_chunk(&self, state: &State, more: &OpBatch) -> bool {
        let filling = &state.filling.ops;
        filling.is_exclusive()
            || more.is_exclusive()
            || filling.is_from_log() != more.is_from_log()
            || self.is_by_partition && partition(filling) != partition(more)
            || filling.len() + more.len() > state.cap.ops.min(self.options.ops_max)
            || filling.bytes() + more.bytes() > state.cap.bytes
    }

    /// Waits until as many operations are there as the last two chunks had on average, but for `patience` at most. Only
    /// where these were not small: a few senders of single messages wait for nobody. For the only thread that takes chunks.
    ///
    /// Senders that wait for their answers send again together, so that the first of them would be committed alone and the
    /// others wait for that. Of 64 connections, batches of 1 and of 40 operations took turns.
    pub(crate) fn gather(&self, patience: Duration) {
        let mut state = self.state.lock();
        if patience.is_zero() || state.taken_lately() < GATHERED_MIN || state.has_gathered() {
            return;
        }
        state.is_gathering = true;
        self.lingering.wait_for(&mut state, patience);
        state.is_gathering = false;
    }

    /// Waits for the next chunk to apply. `None` when the batcher is closed and empty.
    pub(crate) fn take(&self) -> Option<Chunk> {
        let mut state = self.state.lock();
        let mut has_lingered = self.options.linger.is_zero();
        // Another thread may take what this one was notified of, or lingers for.
        while state.is_empty() || !has_lingered {
            if !state.is_empty() {
                has_lingered = true;
                if state.full.is_empty() && !state.is_closed {
                    self.lingering.wait_for(&mut state, self.options.linger);
                }
            } else if state.is_closed {
                return None;
            } else {
                state.parked += 1;
                self.filled.wait(&mut state);
            }
        }
        if state.full.is_empty() {
            state.start_chunk();
        }
        let chunk = state.full.pop_front()?;
        let [_, last] = state.taken;
        state.taken = [last, chunk.ops.len()];
        state.load.release(Load { ops: chunk.ops.len(), bytes: chunk.ops.bytes() }, &chunk.lanes);
        self.waiting.set(saturate(state.load.total().ops));
        Some(chunk)
    }

    /// Keeps a finished chunk for reuse, unless it is large.
    pub(crate) fn recycle(&self, mut chunk: Chunk) {
        if chunk.ops.bytes() > SPARE_BYTES_MAX {
            return;
        }
        chunk.reuse(0);
        let mut state = self.state.lock();
        if state.spare.len() < SPARE_CHUNKS {
            state.spare.push(chunk);
        }
    }

    pub(crate) fn set_cap(&self, cap: BatchCap) {
        self.state.lock().cap = cap;
    }

    /// Number of the filling chunk: every submission so far is in it or in an earlier one.
    pub(crate) fn newest_chunk(&self) -> u64 {
        self.state.lock().filling.batch.number
    }

    /// Whether it takes nothing more.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Refuses new submissions; waiting ones are still taken.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_all();
        self.lingering.notify_all();
    }
}

impl State {
    /// Operations of a chunk lately.
    fn taken_lately(&self) -> usize {
        let [before, last] = self.taken;
        before.midpoint(last)
    }

    fn is_empty(&self) -> bool {
        self.load.total().ops == 0
    }

    /// Whether there is no reason to wait for more.
    fn has_gathered(&self) -> bool {
        self.is_closed || !self.full.is_empty() || self.load.total().ops >= self.taken_lately()
    }

    fn start_chunk(&mut self) {
        let number = self.next_number;
        self.next_number += 1;
        let mut next = self.spare.pop().unwrap_or_default();
        next.reuse(number);
        self.full.push_back(std::mem::replace(&mut self.filling, next));
    }
}

/// The partition of the first operation.
fn partition(ops: &OpBatch) -> Option<u32> {
    ops.position(0).map(|position| position.partition)
}

#[cfg(test)]
mod tests;
