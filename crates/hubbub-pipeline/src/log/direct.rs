//! The log inside the process: submitted means queued for the next commit, and the answer is the store's.

use std::sync::Arc;
use std::thread::JoinHandle;

use hubbub_core::OpBatch;
use hubbub_core::clock::Clock;
use hubbub_core::store::Store;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::batcher::{BatchTuning, Batcher, QueueLimits, SubmitError, Ticket, Waiter};
use crate::committer::{COMMITTED_MAX, Followers, commit, dispatch};
use crate::hub::{self, Hub};
use crate::kv::Keys;
use crate::members::Members;
use crate::metrics::Metrics;
use crate::sweeper;
use crate::takers::{self, Takers};

/// How the log works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// How much may wait.
    pub queue: QueueLimits,
    /// Experiments with batching.
    pub tuning: BatchTuning,
}

/// The commit thread could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the commit thread: {0}")]
pub struct StartError(#[from] std::io::Error);

/// Orders what is submitted by its arrival and commits it to a store.
pub struct DirectLog {
    batcher: Arc<Batcher>,
    clock: Arc<dyn Clock>,
    takers: Arc<Takers>,
    running: Mutex<Option<Running>>,
}

struct Running {
    lane: JoinHandle<()>,
    dispatcher: tokio::task::JoinHandle<()>,
    /// Tasks that nothing of what was accepted waits for.
    helpers: Vec<tokio::task::JoinHandle<()>>,
}

impl DirectLog {
    /// Starts the commit thread, and the dispatcher and the sweeper on the current tokio runtime.
    pub fn start(
        options: LogOptions,
        store: Arc<dyn Store>,
        hub: Arc<Hub>,
        members: Arc<Members>,
        keys: Arc<Keys>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StartError> {
        let batcher = Arc::new(Batcher::new(options.queue, options.tuning, store.batch_cap()));
        let (sender, receiver) = mpsc::channel(COMMITTED_MAX);
        let (takers, nudge) = (Arc::new(Takers::new(metrics.clone())), sweeper::Nudge::default());
        let mut helpers = Vec::new();
        if store.is_shared() {
            helpers.push(tokio::spawn(keys.clone().follow()));
            helpers.push(tokio::spawn(takers::follow(takers.clone(), store.clone())));
            hub.expect_others();
            helpers.push(tokio::spawn(hub::follow(hub.clone(), store.clone(), clock.clone())));
        }
        let followers = Followers { hub, members, keys, takers: takers.clone(), sweeper: nudge.clone() };
        let dispatcher =
            tokio::spawn(dispatch(receiver, batcher.clone(), followers, clock.clone(), metrics.clone()));
        helpers.push(tokio::spawn(sweeper::sweep(batcher.clone(), store.clone(), clock.clone(), nudge)));
        let lane = {
            let (batcher, clock) = (batcher.clone(), clock.clone());
            std::thread::Builder::new().name("commit".into()).spawn(move || {
                let _guard = AbortOnPanic;
                commit(&batcher, &*store, &*clock, &metrics, &sender);
            })?
        };
        let running = Running { lane, dispatcher, helpers };
        Ok(Self { batcher, clock, takers, running: Mutex::new(Some(running)) })
    }

    /// Queues all operations or none, in order; `waiter` is woken when the ticket has its outcomes.
    ///
    /// Dropping the ticket abandons the wait, not the write.
    pub fn submit(&self, ops: &OpBatch, waiter: &Arc<Waiter>) -> Result<Ticket, SubmitError> {
        self.batcher.submit(ops, waiter, self.clock.monotonic())
    }

    /// Who waits for messages of queues.
    pub fn takers(&self) -> &Arc<Takers> {
        &self.takers
    }

    /// Refuses what comes from now on, and returns when everything queued before is answered and published.
    pub async fn close(&self) {
        self.batcher.close();
        let running = self.running.lock().take();
        if let Some(Running { lane, dispatcher, helpers }) = running {
            // Nothing depends on a sweep that has not begun, or on what others committed.
            helpers.iter().for_each(tokio::task::JoinHandle::abort);
            // The dispatcher ends when the commit thread has dropped its sender.
            if dispatcher.await.is_err() {
                tracing::error!("the dispatcher ended by a panic");
            }
            if tokio::task::spawn_blocking(move || lane.join().is_err()).await.unwrap_or(true) {
                tracing::error!("the commit thread ended by a panic");
            }
        }
    }
}

/// A store that panicked may have done half of a batch, and nobody would answer the senders any more: the process
/// ends, and what was acknowledged is found again at the next start.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the commit thread panicked; the process ends, restart it to recover");
            std::process::abort();
        }
    }
}
