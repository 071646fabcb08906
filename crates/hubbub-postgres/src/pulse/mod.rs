//! What time brings: each face is asked again and again to do what is due, and whether the database answers is noted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_core::Essential;
use hubbub_core::essential::supervise;
use hubbub_core::store::{StoreFigures, StoreHealth};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::db::Fault;
use crate::kv::Kv;
use crate::partitions;
use crate::queues::Queues;
use crate::rooms::Rooms;
use crate::stats::Stats;
use crate::store::Context;

/// Time between two beats.
const BEAT_EVERY: Duration = Duration::from_millis(500);

/// What is known of the database without asking it.
#[derive(Debug, Default)]
pub(crate) struct Status {
    state: Mutex<(Option<String>, StoreFigures)>,
    alarm: Mutex<Option<String>>,
}

impl Status {
    /// Up, unless the last beat found out otherwise.
    pub(crate) fn health(&self) -> StoreHealth {
        if let Some(reason) = &self.state.lock().0 {
            return StoreHealth::Unreachable(reason.clone());
        }
        self.alarm.lock().clone().map_or(StoreHealth::Up, StoreHealth::Alarm)
    }

    /// What somebody has to see to before it stops the store; `None` = nothing.
    pub(crate) fn alarm(&self, reason: Option<String>) {
        *self.alarm.lock() = reason;
    }

    pub(crate) fn figures(&self) -> StoreFigures {
        self.state.lock().1
    }

    fn note(&self, beaten: Result<StoreFigures, Fault>) {
        let mut state = self.state.lock();
        match beaten {
            Ok(figures) => *state = (None, figures),
            Err(fault) => state.0 = Some(fault.to_string()),
        }
    }
}

/// The task that does it.
pub(crate) struct Pulse {
    task: JoinHandle<()>,
    copying: JoinHandle<()>,
}

/// What beats.
struct Faces {
    context: Arc<Context>,
    rooms: Arc<Rooms>,
    queues: Arc<Queues>,
    kv: Arc<Kv>,
    stats: Arc<Stats>,
}

impl Faces {
    async fn beat(&self) -> Result<StoreFigures, Fault> {
        let mut figures = StoreFigures::default();
        self.context.db.keep(&self.context.options.pool).await?;
        if let Some(clock) = &self.context.database_clock {
            clock.measure(&self.context.db).await?;
        }
        partitions::beat(&self.context, &mut figures).await;
        self.rooms.beat(&mut figures).await?;
        self.queues.beat(&mut figures).await?;
        self.kv.beat(&mut figures).await?;
        self.stats.beat().await?;
        Ok(figures)
    }

    /// Counts until the next beat, but not before `next`, which it moves on by the rest that each step is to have.
    async fn count(&self, next: &mut Instant) -> Result<(), Fault> {
        let end = Instant::now() + BEAT_EVERY;
        let mut counted = Ok(());
        while counted.is_ok() && *next < end {
            tokio::time::sleep_until((*next).into()).await;
            let rest = self.stats.count().await;
            *next = Instant::now() + rest.as_ref().map_or(BEAT_EVERY, |rest| *rest);
            counted = rest.map(drop);
        }
        tokio::time::sleep_until(end.into()).await;
        counted
    }
}

impl Pulse {
    /// Beats once, and from then on by itself.
    pub(crate) async fn start(
        context: Arc<Context>,
        rooms: Arc<Rooms>,
        queues: Arc<Queues>,
        kv: Arc<Kv>,
        stats: Arc<Stats>,
    ) -> Self {
        let copies = queues.clone();
        let copying = Box::pin(async move { copies.make_copies().await });
        let faces = Faces { context: context.clone(), rooms, queues, kv, stats };
        context.status.note(faces.beat().await);
        let beating = async move {
            let tell = |beaten: Result<StoreFigures, Fault>| {
                if let Err(fault) = &beaten
                    && !matches!(context.status.health(), StoreHealth::Unreachable(_))
                {
                    tracing::warn!(%fault, "the database does not answer as it should");
                }
                context.status.note(beaten);
            };
            let mut next = Instant::now();
            loop {
                let counted = faces.count(&mut next).await;
                let is_counting = counted.is_ok();
                if let Err(fault) = counted {
                    tell(Err(fault));
                }
                // Also where counting fails: there are partitions to be made.
                let beaten = faces.beat().await;
                if is_counting || beaten.is_err() {
                    tell(beaten);
                }
            }
        };
        Self {
            task: tokio::spawn(supervise(Essential::new("database maintenance"), beating)),
            copying: tokio::spawn(supervise(Essential::new("copies of messages to everybody"), copying)),
        }
    }

    /// Ends it, wherever it is.
    pub(crate) fn stop(&self) {
        self.task.abort();
        self.copying.abort();
    }
}
