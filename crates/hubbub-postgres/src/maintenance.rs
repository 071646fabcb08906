//! Maintenance loop: runs every subsystem's due work on each tick, and records whether the database answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_core::Essential;
use hubbub_core::essential::supervise;
use hubbub_core::store::{StoreFigures, StoreHealth};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::db::{Result, clock};
use crate::kv::Kv;
use crate::partitions;
use crate::queues::Queues;
use crate::rooms::Rooms;
use crate::stats::Stats;
use crate::store::Context;

const TICK_EVERY: Duration = Duration::from_millis(500);

/// The state of the database as of the last tick.
#[derive(Debug, Default)]
pub(crate) struct Status {
    /// Why the database does not answer.
    unreachable: Mutex<Option<String>>,
    figures: Mutex<StoreFigures>,
    /// What an operator must fix before it stops the store: partitions that could not be made.
    alarm: Mutex<Option<String>>,
    /// Background work that failed, though the database answers. Batches are applied without it.
    failed: Mutex<Vec<String>>,
}

impl Status {
    /// Up, unless the last tick failed or raised an alarm.
    pub(crate) fn health(&self) -> StoreHealth {
        if let Some(reason) = &*self.unreachable.lock() {
            return StoreHealth::Unreachable(reason.clone());
        }
        let alarm = self.alarm.lock().clone();
        let failed = self.failed.lock();
        let failed = (!failed.is_empty())
            .then(|| format!("messages are stored, but work in the background fails: {}", failed.join("; ")));
        let reasons: Vec<String> = alarm.into_iter().chain(failed).collect();
        if reasons.is_empty() { StoreHealth::Up } else { StoreHealth::Alarm(reasons.join("; ")) }
    }

    /// Sets or clears what an operator must fix before it stops the store.
    pub(crate) fn set_alarm(&self, reason: Option<String>) {
        *self.alarm.lock() = reason;
    }

    pub(crate) fn figures(&self) -> StoreFigures {
        *self.figures.lock()
    }

    /// Records whether the database answers, and what work failed.
    fn record(&self, answered: Result<()>, failed: Vec<String>) {
        let reason = answered.err().map(|fault| fault.to_string());
        let mut unreachable = self.unreachable.lock();
        if let (Some(fault), None) = (&reason, &*unreachable) {
            tracing::warn!(%fault, "the database does not answer; retrying in 0.5 s");
        }
        let is_reached = reason.is_none();
        *unreachable = reason;
        if is_reached {
            let mut before = self.failed.lock();
            if let (Some(fault), true) = (failed.first(), before.is_empty()) {
                tracing::warn!(%fault, "maintenance of the database failed; retrying in 0.5 s");
            }
            *before = failed;
        }
    }
}

/// The tasks of the loop. They end when this is dropped, and with them what keeps the store's connections.
pub(crate) struct Maintenance {
    task: JoinHandle<()>,
    copy_task: JoinHandle<()>,
}

pub(crate) struct Subsystems {
    pub(crate) context: Arc<Context>,
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) kv: Arc<Kv>,
    pub(crate) stats: Arc<Stats>,
}

impl Subsystems {
    /// Records whether the database answers, and what failed: of all work that is due, and of counting before it.
    async fn tick(&self, counted: Result<()>) {
        let mut failed = vec![counted];
        let answered = self.work(&mut failed).await;
        let failed = failed.into_iter().filter_map(Result::err).map(|fault| fault.to_string());
        self.context.status.record(answered, failed.collect());
    }

    /// Runs all work that is due, if the database answers.
    async fn work(&self, done: &mut Vec<Result<()>>) -> Result<()> {
        let Context { db, options, database_clock, status, .. } = &*self.context;
        db.reap(&options.pool).await?;
        match database_clock {
            Some(clock) => clock.measure(db).await?,
            None => clock::ask(db).await?,
        }
        // What cannot be read now stays as it was.
        let mut figures = StoreFigures { partitions_missing: 0, ..status.figures() };
        partitions::tick(&self.context, &mut figures).await;
        // None waits for another one to succeed.
        done.push(self.rooms.tick().await);
        done.push(self.queues.tick(&mut figures).await);
        done.push(self.kv.tick(&mut figures).await);
        done.push(self.stats.tick().await);
        *status.figures.lock() = figures;
        Ok(())
    }

    /// Updates the counts until the next tick. `next` is when the next step may start; each step moves it by its rest.
    async fn count(&self, next: &mut Instant) -> Result<()> {
        let end = Instant::now() + TICK_EVERY;
        let mut counted = Ok(());
        while counted.is_ok() && *next < end {
            tokio::time::sleep_until((*next).into()).await;
            let rest = self.stats.count().await;
            *next = Instant::now() + rest.as_ref().map_or(TICK_EVERY, |rest| *rest);
            counted = rest.map(drop);
        }
        tokio::time::sleep_until(end.into()).await;
        counted
    }
}

impl Maintenance {
    /// Runs one tick, then starts the loop.
    pub(crate) async fn start(subsystems: Subsystems) -> Self {
        let queues = subsystems.queues.clone();
        let copying = Box::pin(async move { queues.make_copies().await });
        subsystems.tick(Ok(())).await;
        let ticking = async move {
            let mut next = Instant::now();
            loop {
                let counted = subsystems.count(&mut next).await;
                subsystems.tick(counted).await;
            }
        };
        Self {
            task: tokio::spawn(supervise(Essential::new("database maintenance"), ticking)),
            copy_task: tokio::spawn(supervise(Essential::new("copies of messages to everybody"), copying)),
        }
    }

    /// Aborts the tasks at their next await.
    pub(crate) fn stop(&self) {
        self.task.abort();
        self.copy_task.abort();
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.stop();
    }
}
