//! The message log inside the process: a submission waits for the next commit, and its answer is the store's.

use std::sync::Arc;
use std::thread::JoinHandle;

use hubbub_core::OpBatch;
use hubbub_core::clock::Clock;
use hubbub_core::essential::{self, Essential};
use hubbub_core::store::Store;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::access_cache::AccessCache;
use crate::batcher::{Batcher, LogOptions, SubmitError, Ticket, Waiter};
use crate::committer::{COMMIT, COMMITTED_MAX, CommitListeners, commit, dispatch};
use crate::consumers::{self, WaitingConsumers};
use crate::hub::{self, Hub};
use crate::kv::Keys;
use crate::metrics::Metrics;
use crate::order::FailedSends;
use crate::sweeper::{self, WakeupSignal};

/// A commit thread could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a commit thread: {0}")]
pub struct StartError(#[from] std::io::Error);

/// Commits submissions to a store, in the order of their arrival.
pub struct DirectLog {
    batcher: Arc<Batcher>,
    clock: Arc<dyn Clock>,
    consumers: Arc<WaitingConsumers>,
    running: Mutex<Option<Running>>,
}

struct Running {
    committers: Vec<JoinHandle<()>>,
    dispatcher: tokio::task::JoinHandle<()>,
    /// Tasks that no accepted submission depends on.
    background: Vec<tokio::task::JoinHandle<()>>,
}

impl DirectLog {
    /// Starts the commit threads, and the dispatcher and the sweeper on the current tokio runtime.
    pub(crate) fn start(
        options: LogOptions,
        store: Arc<dyn Store>,
        hub: Arc<Hub>,
        members: Arc<AccessCache>,
        keys: Arc<Keys>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StartError> {
        let batcher = Batcher::new(options, store.batch_cap()).shown_by(metrics.waiting.clone());
        let batcher = Arc::new(batcher.by_partition(store.batches_at_once() > 1));
        let (sender, receiver) = mpsc::channel(COMMITTED_MAX);
        let consumers = Arc::new(WaitingConsumers::new(metrics.clone()));
        let (sweep_signal, failed) = (WakeupSignal::default(), Arc::new(Mutex::new(FailedSends::default())));
        let sweeping = sweeper::sweep(batcher.clone(), store.clone(), clock.clone(), sweep_signal.clone());
        let waking = consumers::wake_remaining(consumers.clone());
        let telling = hub::tell_presence(hub.clone());
        let mut background = vec![
            spawn("waking of consumers", waking),
            spawn("sweeper", sweeping),
            spawn("presence in large rooms", telling),
        ];
        hub.measure_waits(clock.clone());
        if store.is_shared() {
            hub.enable_remote();
            let rooms = hub::follow_remote(hub.clone(), store.clone(), clock.clone());
            let removed = hub::run_checks(hub.clone(), store.clone());
            let joins = hub::follow_joins(hub.clone(), store.clone(), clock.clone());
            let queues = consumers::poll_store(consumers.clone(), store.clone());
            background.extend([
                spawn("keys of other servers", keys.clone().poll_revision()),
                spawn("queues of other servers", queues),
                spawn("rooms of other servers", rooms),
                spawn("removals", removed),
                spawn("joins through other servers", joins),
            ]);
        }
        let changed_keys = keys.clone();
        let (consumers_of, store_of) = (consumers.clone(), store.clone());
        let listeners =
            CommitListeners { store: store_of, hub, members, keys, consumers: consumers_of, sweep_signal };
        let (clock_of, metrics_of) = (clock.clone(), metrics.clone());
        let dispatching =
            dispatch(receiver, batcher.clone(), failed.clone(), listeners, clock_of, metrics_of);
        let dispatcher = spawn("dispatcher", dispatching);
        let mut committers = Vec::new();
        for _ in 0..store.batches_at_once().max(1) {
            let (batcher, clock, store, failed) =
                (batcher.clone(), clock.clone(), store.clone(), failed.clone());
            let (metrics, keys, sender) = (metrics.clone(), changed_keys.clone(), sender.clone());
            committers.push(std::thread::Builder::new().name(COMMIT.name.into()).spawn(move || {
                essential::run(COMMIT, || {
                    commit(&batcher, &*store, &*clock, &metrics, &keys, &failed, &sender)
                });
            })?);
        }
        // The dispatcher ends when the last commit thread does.
        drop(sender);
        let running = Running { committers, dispatcher, background };
        Ok(Self { batcher, clock, consumers, running: Mutex::new(Some(running)) })
    }

    /// Queues all operations or none, in order. `waiter` is woken when the ticket has its outcomes.
    ///
    /// Dropping the ticket abandons the wait, not the write.
    pub fn submit(&self, ops: &OpBatch, waiter: &Arc<Waiter>) -> Result<Ticket, SubmitError> {
        self.batcher.submit(ops, waiter, self.clock.monotonic())
    }

    /// The consumers that wait for messages of queues.
    pub fn consumers(&self) -> &Arc<WaitingConsumers> {
        &self.consumers
    }

    /// Refuses new submissions, and returns when all earlier ones are answered and published.
    pub async fn close(&self) {
        self.batcher.close();
        let running = self.running.lock().take();
        if let Some(Running { committers, dispatcher, background }) = running {
            // No accepted submission depends on a sweep that has not begun, or on other servers' commits.
            background.iter().for_each(tokio::task::JoinHandle::abort);
            // The dispatcher ends when all commit threads have dropped their senders.
            if dispatcher.await.is_err() {
                tracing::error!("the dispatcher panicked");
            }
            let joining = move || committers.into_iter().any(|committer| committer.join().is_err());
            if tokio::task::spawn_blocking(joining).await.unwrap_or(true) {
                tracing::error!("a commit thread panicked");
            }
        }
    }
}

/// Starts an essential task: the log does not work without it.
fn spawn(name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(essential::supervise(Essential::new(name), task))
}
