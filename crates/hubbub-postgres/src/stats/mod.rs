//! Counts of what is stored, and users' histories.
//!
//! What is new is counted by [`roll`] and what is gone taken out by [`takeouts`], both in bounded steps: what is due with
//! rests, and before a question is answered everything that was there when it was asked. So the tables of counts are
//! never made anew, and an answer ([`read`]) only reads them. [`history`] reads messages
//! themselves, [`audit`] counts everything again and compares.

mod audit;
mod hand_on;
mod history;
mod read;
mod roll;
mod takeouts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hubbub_core::stats::{
    ActiveUsers, ActiveUsersQuery, Audit, Counted, HoursPage, HoursQuery, PairStats, ParticipationPage,
    RoomStats, StatsStore, Totals, UserHistoryPage, UserHistoryQuery, UserStats,
};
use hubbub_core::store::{Read, ReadError};
use hubbub_core::{RoomId, Timestamp, UserId};
use tokio::sync::Mutex;

use crate::db::Fault;
use crate::db::connect::OpenError;
use crate::db::source::Source;
use crate::partitions::retention::{self, Progress};
use crate::replicas::Reader;
use crate::store::{Context, Postgres};
pub(crate) use hand_on::hand_on_counts;
use roll::{Reach, Step};

/// Longest time that a question waits for the counts to become current; then it is answered as of when they were.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Shortest time between two steps of counting; a step is followed by so many times its own time without one, so that
/// writers and readers get what it leaves. Where nothing was due, it is looked again after the last.
const COUNT_EVERY: Duration = Duration::from_millis(50);
const COUNT_REST: u32 = 3;
const COUNT_LATER: Duration = Duration::from_secs(1);

/// A beat begins no step after so long.
const BEAT_MAX: Duration = Duration::from_millis(100);

/// A beat that took some time is followed by so many times that time without one.
const REST: u32 = 4;

/// Time between two looks for what is too old, at least, and how many times as long as one took.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const LOOK_SHARE: u32 = 100;

/// How current the counts are.
#[derive(Debug)]
struct Current {
    /// Number of the run that ended last.
    run: u64,
    /// Everything acknowledged up to here was counted when it ended, and nothing hidden then.
    as_of: Timestamp,
    /// When a beat may take out and remove again.
    rest_until: Option<Instant>,
    retention: Progress,
    /// When old messages are looked for again.
    look_at: Option<Instant>,
}

/// Counts.
pub(crate) struct Stats {
    context: Arc<Context>,
    /// Runs begun. Who asked before a run began is answered by it.
    begun: AtomicU64,
    current: Mutex<Current>,
}

impl Stats {
    pub(crate) async fn open(context: Arc<Context>) -> Result<Self, OpenError> {
        let current = Current {
            run: 0,
            as_of: Timestamp::from_micros(0),
            rest_until: None,
            retention: Progress::default(),
            look_at: None,
        };
        Ok(Self { context, begun: AtomicU64::new(0), current: Mutex::new(current) })
    }

    /// Makes the counts current, unless that takes too long. What is answered from them is as of the time told.
    async fn catch_up(&self) -> Result<Timestamp, Fault> {
        let asked = self.begun.load(Ordering::SeqCst);
        let mut current = self.current.lock().await;
        if current.run > asked {
            return Ok(current.as_of);
        }
        let run = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let (now, deadline) = (self.context.clock.now(), Instant::now() + WAIT_MAX);
        if self.work(deadline, true).await? {
            current.as_of = now;
        }
        current.run = run;
        Ok(current.as_of)
    }

    /// Counts and takes out until nothing is left or the time is over. Says whether nothing is left.
    async fn work(&self, deadline: Instant, is_patient: bool) -> Result<bool, Fault> {
        let db = &self.context.db;
        while !matches!(roll::step(db, Reach::All, is_patient).await?, Step::Done) {
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
        while takeouts::are_pending(db).await? {
            if Instant::now() >= deadline || !takeouts::step(db, is_patient).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts everything stored, takes everything deleted out.
    pub(crate) async fn settle(&self) -> Result<(), Fault> {
        let db = &self.context.db;
        loop {
            while retention::step(&self.context, &mut self.current.lock().await.retention).await? {}
            while !matches!(roll::step(db, Reach::All, true).await?, Step::Done) {}
            while takeouts::step(db, true).await? {}
            let is_dropping =
                retention::step(&self.context, &mut self.current.lock().await.retention).await?;
            if !is_dropping && !takeouts::are_pending(db).await? {
                break;
            }
        }
        while takeouts::remove(db, true).await? {}
        Ok(())
    }

    /// Counts some of what is due. Says how long to wait before more is counted.
    pub(crate) async fn count(&self) -> Result<Duration, Fault> {
        // A question that waits does the same.
        let Ok(_current) = self.current.try_lock() else { return Ok(COUNT_LATER) };
        let (begin, due) = (Instant::now(), Reach::Due(self.context.clock.now()));
        Ok(match roll::step(&self.context.db, due, false).await? {
            Step::Done | Step::Busy => COUNT_LATER,
            Step::More => COUNT_EVERY.max(begin.elapsed() * COUNT_REST),
        })
    }

    /// Takes out and removes what is due, unless that was just done.
    pub(crate) async fn beat(&self) -> Result<(), Fault> {
        let Ok(mut current) = self.current.try_lock() else { return Ok(()) };
        let begin = Instant::now();
        if current.rest_until.is_some_and(|until| begin < until) {
            return Ok(());
        }
        while begin.elapsed() < BEAT_MAX && self.clear_away(&mut current).await? {}
        current.rest_until = Some(Instant::now() + begin.elapsed() * REST);
        Ok(())
    }

    /// One step of whatever is due first. Says whether something was.
    async fn clear_away(&self, current: &mut Current) -> Result<bool, Fault> {
        let db = &self.context.db;
        Ok(takeouts::step(db, false).await?
            || self.expire(current).await?
            || takeouts::remove(db, false).await?)
    }

    /// Removes some of what is too old, unless it has just been looked for. Says whether it did.
    async fn expire(&self, current: &mut Current) -> Result<bool, Fault> {
        let begin = Instant::now();
        if current.look_at.is_some_and(|at| begin < at) {
            return Ok(false);
        }
        let is_done = !retention::step(&self.context, &mut current.retention).await?;
        current.look_at = is_done.then(|| Instant::now() + LOOK_EVERY.max(begin.elapsed() * LOOK_SHARE));
        Ok(!is_done)
    }
}

/// Counts, and where they are read.
pub(crate) struct Counts {
    stats: Arc<Stats>,
    reader: Reader,
}

impl Counts {
    pub(crate) fn new(stats: &Arc<Stats>, reader: Reader) -> Self {
        Self { stats: stats.clone(), reader }
    }

    /// What `read` answers when the counts are current.
    async fn counted<T, F>(&self, read: impl Fn(Source) -> F + Sync) -> Result<Counted<T>, ReadError>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let as_of = self.stats.catch_up().await?;
        Ok(Counted { value: self.reader.read(read).await?, as_of })
    }
}

impl StatsStore for Counts {
    fn totals(&self) -> Read<'_, Counted<Totals>> {
        Box::pin(self.counted(read::totals))
    }

    fn room_stats(&self, room: RoomId) -> Read<'_, Counted<Option<RoomStats>>> {
        Box::pin(self.counted(move |source| read::room(source, room.clone())))
    }

    fn top_rooms(&self, limit: usize) -> Read<'_, Counted<Vec<RoomStats>>> {
        Box::pin(self.counted(move |source| read::top_rooms(source, limit)))
    }

    fn user_stats(&self, user: UserId) -> Read<'_, Counted<Option<UserStats>>> {
        Box::pin(self.counted(move |source| read::user(source, user.clone())))
    }

    fn top_users(&self, limit: usize) -> Read<'_, Counted<Vec<UserStats>>> {
        Box::pin(self.counted(move |source| read::top_users(source, limit)))
    }

    fn top_pairs(&self, limit: usize) -> Read<'_, Counted<Vec<PairStats>>> {
        Box::pin(self.counted(move |source| read::top_pairs(source, limit)))
    }

    fn hours(&self, query: HoursQuery) -> Read<'_, Counted<HoursPage>> {
        Box::pin(self.counted(move |source| read::hours(source, query)))
    }

    fn active_users(&self, query: ActiveUsersQuery) -> Read<'_, Counted<ActiveUsers>> {
        Box::pin(self.counted(move |source| read::active_users(source, query.clone())))
    }

    fn participation(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
    ) -> Read<'_, Counted<ParticipationPage>> {
        Box::pin(self.counted(move |source| read::participation(source, user.clone(), after.clone(), limit)))
    }

    fn user_history(&self, user: UserId, query: UserHistoryQuery) -> Read<'_, UserHistoryPage> {
        Box::pin(async move {
            let read = |source| history::read(source, user.clone(), query.clone());
            Ok(self.reader.read(read).await?)
        })
    }

    /// On the primary: it compares what stands there.
    fn audit(&self) -> Read<'_, Counted<Audit>> {
        Box::pin(async move {
            let as_of = self.stats.catch_up().await?;
            Ok(Counted { value: audit::run(&self.stats.context.db).await?, as_of })
        })
    }
}

hand_on_counts!(Postgres, |postgres| postgres.counts);
