//! Maintenance loop: runs every subsystem's due work on each tick, and records whether the database answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_core::Essential;
use hubbub_core::essential::supervise;
use hubbub_core::store::{ApplyError, HANGING, StoreFigures, StoreHealth};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::db::{DbError, Result, clock};
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
    /// Background work that failed, though the database answers.
    failed: Mutex<Vec<FailedWork>>,
}

#[derive(Debug)]
struct FailedWork {
    reason: String,
    /// Batches are refused for the same.
    is_disk_full: bool,
}

impl Status {
    /// Up, unless the database did not answer the last tick, or work of it failed.
    pub(crate) fn health(&self) -> StoreHealth {
        if let Some(reason) = &*self.unreachable.lock() {
            return StoreHealth::Unreachable(reason.clone());
        }
        let failed = self.failed.lock();
        let reasons: Vec<&str> = failed.iter().map(|work| &*work.reason).collect();
        let reason = format!("work in the background fails: {}", reasons.join("; "));
        match &**failed {
            [] => StoreHealth::Up,
            failed if failed.iter().any(|work| work.is_disk_full) => StoreHealth::DiskFull(reason),
            _ => StoreHealth::Alarm(reason),
        }
    }

    pub(crate) fn figures(&self) -> StoreFigures {
        *self.figures.lock()
    }

    /// Records whether the database answers, and what work failed.
    fn record(&self, answered: Result<()>, failed: Vec<FailedWork>) {
        let reason = answered.err().map(|fault| fault.to_string());
        let mut unreachable = self.unreachable.lock();
        if let (Some(fault), None) = (&reason, &*unreachable) {
            tracing::warn!(%fault, "the database does not answer; retrying in 0.5 s");
        }
        let is_reached = reason.is_none();
        *unreachable = reason;
        if is_reached {
            let mut before = self.failed.lock();
            if let (Some(FailedWork { reason, .. }), true) = (failed.first(), before.is_empty()) {
                tracing::warn!(reason, "maintenance of the database failed; retrying in 0.5 s");
            }
            *before = failed;
        }
    }
}

/// A tick under way.
pub(crate) struct Tick<'a> {
    context: &'a Context,
    failed: Vec<FailedWork>,
}

impl<'a> Tick<'a> {
    fn new(context: &'a Context) -> Self {
        Self { context, failed: Vec::new() }
    }

    /// Notes a part of the work that failed. Fails if the database does not answer any more: each other part would wait as long
    /// for it. One that waited in vain for a lock of somebody else stops no other.
    pub(crate) async fn note(&mut self, fault: &DbError, reason: String) -> Result<()> {
        let is_disk_full = matches!(fault.before_commit(), ApplyError::DiskFull { .. });
        self.failed.push(FailedWork { reason, is_disk_full });
        if !fault.may_be_outage() {
            return Ok(());
        }
        let asked = tokio::time::timeout(HANGING, self.ask()).await;
        asked.unwrap_or(Err(DbError::Timeout { what: "asking whether the database answers" }))
    }

    /// [`Self::note`] for what failed.
    pub(crate) async fn done(&mut self, done: Result<()>) -> Result<()> {
        match done {
            Ok(()) => Ok(()),
            Err(fault) => self.note(&fault, fault.to_string()).await,
        }
    }

    /// Whether the database answers. If its clock is followed, it is asked for the time.
    async fn ask(&self) -> Result<()> {
        let Context { db, database_clock, .. } = self.context;
        match database_clock {
            Some(clock) => clock.measure(db).await,
            None => clock::ask(db).await,
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
        let mut tick = Tick::new(&self.context);
        let answered = match tick.done(counted).await {
            Ok(()) => self.work(&mut tick).await,
            Err(fault) => Err(fault),
        };
        self.context.status.record(answered, tick.failed);
    }

    /// Runs all work that is due, as long as the database answers.
    async fn work(&self, tick: &mut Tick<'_>) -> Result<()> {
        let Context { db, options, status, .. } = &*self.context;
        db.reap(&options.pool).await?;
        tick.ask().await?;
        // What cannot be read now stays as it was.
        let mut figures = StoreFigures { partitions_missing: 0, ..status.figures() };
        // None waits for another one to succeed. On the heap, so that the stack of whoever opens the store is enough.
        Box::pin(partitions::tick(&self.context, &mut figures, tick)).await?;
        tick.done(Box::pin(self.rooms.tick()).await).await?;
        tick.done(Box::pin(self.queues.tick(&mut figures)).await).await?;
        tick.done(Box::pin(self.kv.tick(&mut figures)).await).await?;
        Box::pin(self.stats.tick(tick)).await?;
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
