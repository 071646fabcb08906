//! Maintenance loop: runs every subsystem's due work on each tick, and records whether the database answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_core::Essential;
use hubbub_core::essential::supervise;
use hubbub_core::store::{StoreFigures, StoreHealth};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::db::Result;
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
    state: Mutex<(Option<String>, StoreFigures)>,
    alarm: Mutex<Option<String>>,
}

impl Status {
    /// Up, unless the last tick failed or raised an alarm.
    pub(crate) fn health(&self) -> StoreHealth {
        if let Some(reason) = &self.state.lock().0 {
            return StoreHealth::Unreachable(reason.clone());
        }
        self.alarm.lock().clone().map_or(StoreHealth::Up, StoreHealth::Alarm)
    }

    /// Sets or clears what an operator must fix before it stops the store.
    pub(crate) fn set_alarm(&self, reason: Option<String>) {
        *self.alarm.lock() = reason;
    }

    pub(crate) fn figures(&self) -> StoreFigures {
        self.state.lock().1
    }

    fn record(&self, ticked: Result<StoreFigures>) {
        let mut state = self.state.lock();
        match ticked {
            Ok(figures) => *state = (None, figures),
            Err(fault) => state.0 = Some(fault.to_string()),
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
    async fn tick(&self) -> Result<StoreFigures> {
        let mut figures = StoreFigures::default();
        self.context.db.reap(&self.context.options.pool).await?;
        if let Some(clock) = &self.context.database_clock {
            clock.measure(&self.context.db).await?;
        }
        partitions::tick(&self.context, &mut figures).await;
        self.rooms.tick().await?;
        self.queues.tick(&mut figures).await?;
        self.kv.tick(&mut figures).await?;
        self.stats.tick().await?;
        Ok(figures)
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
        let (context, queues) = (subsystems.context.clone(), subsystems.queues.clone());
        let copying = Box::pin(async move { queues.make_copies().await });
        context.status.record(subsystems.tick().await);
        let ticking = async move {
            let record = |ticked: Result<StoreFigures>| {
                if let Err(fault) = &ticked
                    && !matches!(context.status.health(), StoreHealth::Unreachable(_))
                {
                    tracing::warn!(%fault, "maintenance of the database failed; retrying in 0.5 s");
                }
                context.status.record(ticked);
            };
            let mut next = Instant::now();
            loop {
                let counted = subsystems.count(&mut next).await;
                let is_counting = counted.is_ok();
                if let Err(fault) = counted {
                    record(Err(fault));
                }
                // Also if counting fails: partitions must be created.
                let ticked = subsystems.tick().await;
                if is_counting || ticked.is_err() {
                    record(ticked);
                }
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
