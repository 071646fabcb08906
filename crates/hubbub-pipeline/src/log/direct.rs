//! The log inside the process: submitted means queued for the next commit, and the answer is the store's.

use std::sync::Arc;
use std::thread::JoinHandle;

use hubbub_core::OpBatch;
use hubbub_core::clock::Clock;
use hubbub_core::essential::{self, Essential};
use hubbub_core::store::Store;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::batcher::{BatchTuning, Batcher, QueueLimits, SubmitError, Ticket, Waiter};
use crate::committer::{COMMIT, COMMITTED_MAX, Followers, commit, dispatch};
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
            helpers.push(spawn("keys of other servers", keys.clone().follow()));
            helpers.push(spawn("queues of other servers", takers::follow(takers.clone(), store.clone())));
            hub.expect_others();
            let rooms = hub::follow(hub.clone(), store.clone(), clock.clone());
            helpers.push(spawn("rooms of other servers", rooms));
        }
        let followers = Followers { hub, members, keys, takers: takers.clone(), sweeper: nudge.clone() };
        let dispatching = dispatch(receiver, batcher.clone(), followers, clock.clone(), metrics.clone());
        let dispatcher = spawn("dispatcher", dispatching);
        helpers.push(spawn("waking of consumers", takers::wake_rest(takers.clone())));
        let sweeping = sweeper::sweep(batcher.clone(), store.clone(), clock.clone(), nudge);
        helpers.push(spawn("sweeper", sweeping));
        let lane = {
            let (batcher, clock) = (batcher.clone(), clock.clone());
            std::thread::Builder::new().name(COMMIT.name.into()).spawn(move || {
                essential::run(COMMIT, || commit(&batcher, &*store, &*clock, &metrics, &sender));
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

/// Starts a task without which the log does not work.
fn spawn(name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(essential::supervise(Essential::new(name), task))
}
