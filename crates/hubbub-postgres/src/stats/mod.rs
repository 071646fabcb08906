//! Statistics: counts of stored messages, and users' histories.
//!
//! [`rollup`] counts new messages, [`pending_deletes`] subtracts deleted ones. Both work in bounded steps: in the background
//! with rests, and before a query is answered, everything that was there when it came. So the tables of counts are never
//! rebuilt, and answers only read them ([`read`]). [`audit`] recounts everything and compares.

mod audit;
mod pending_deletes;
mod read;
mod rollup;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hubbub_core::Timestamp;
use tokio::sync::Mutex;

use crate::db::Result;
use crate::maintenance::Tick;
use crate::partitions::retention::{self, SearchProgress, SearchStep};
use crate::step_size::StepSize;
use crate::store::{Context, Postgres};
pub(crate) use read::CountReader;
use rollup::{RollupScope, RollupStep};

/// Longest wait of a query for current counts. After that it is answered as of when they were current.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Pacing of the rollup. Shortest time between two steps; the pause after a step, as a multiple of the step's duration, which
/// leaves room for writers and readers; and the pause if nothing was due.
const COUNT_EVERY: Duration = Duration::from_millis(50);
const COUNT_REST: u32 = 3;
const COUNT_LATER: Duration = Duration::from_secs(1);

/// A tick starts no further step after this time.
const TICK_MAX: Duration = Duration::from_millis(100);

/// The pause after a tick, as a multiple of its duration.
const REST: u32 = 4;

/// Shortest time between two searches for expired messages, and the same as a multiple of a search's duration.
const SEARCH_EVERY: Duration = Duration::from_secs(2);
const SEARCH_SHARE: u32 = 100;

/// Kinds of work of a tick.
#[derive(Debug, Clone, Copy)]
enum Work {
    Uncount,
    Expire,
    Delete,
}

/// How current the counts are.
#[derive(Debug, Default)]
struct Freshness {
    /// Number of the last finished run.
    run: u64,
    /// Everything acknowledged by this time was counted when that run ended, and nothing that was hidden.
    as_of: Timestamp,
    /// How much is uncounted in a step.
    uncounting: StepSize,
    /// When a tick may delete again.
    rest_until: Option<Instant>,
    retention: SearchProgress,
    /// How long the search for expired messages took so far.
    searched: Duration,
    /// When expired messages are searched again.
    next_search: Option<Instant>,
}

pub(crate) struct Stats {
    context: Arc<Context>,
    /// Number of runs started. A run answers every query that came before it started.
    begun: AtomicU64,
    current: Mutex<Freshness>,
}

impl Stats {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, begun: AtomicU64::new(0), current: Mutex::default() }
    }

    /// Makes the counts current, unless that takes too long. Returns the time as of which they are.
    async fn catch_up(&self) -> Result<Timestamp> {
        let begun = self.begun.load(Ordering::SeqCst);
        let mut current = self.current.lock().await;
        if current.run > begun {
            return Ok(current.as_of);
        }
        let run = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let (now, deadline) = (self.context.clock.now(), Instant::now() + WAIT_MAX);
        current.as_of = match self.work(&mut current.uncounting, deadline).await? {
            true => now,
            false => current.as_of.max(rollup::counted_to(&self.context.db).await?),
        };
        current.run = run;
        Ok(current.as_of)
    }

    /// Counts and uncounts until nothing is left or the deadline passes. Returns whether nothing is left.
    async fn work(&self, uncounting: &mut StepSize, deadline: Instant) -> Result<bool> {
        let (db, is_over) = (&self.context.db, || Instant::now() >= deadline);
        loop {
            while !matches!(rollup::step(db, RollupScope::All, true).await?, RollupStep::Done) {
                if is_over() {
                    return Ok(false);
                }
            }
            loop {
                if !pending_deletes::are_pending(db).await? {
                    return Ok(true);
                }
                if is_over() {
                    return Ok(false);
                }
                // What is hidden was stored after it was counted last: it is counted first.
                match pending_deletes::uncount_step(db, uncounting, true).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    // The next one takes on less. Others wait for the answer.
                    Err(fault) if fault.took_too_long() => return Ok(false),
                    Err(fault) => return Err(fault),
                }
            }
        }
    }

    /// Counts everything stored, and deletes everything pending.
    pub(crate) async fn finish_maintenance(&self) -> Result<()> {
        let (db, mut uncounting) = (&self.context.db, StepSize::default());
        loop {
            let has_expired = self.finish_retention().await?;
            while !matches!(rollup::step(db, RollupScope::All, true).await?, RollupStep::Done) {}
            while pending_deletes::uncount_step(db, &mut uncounting, true).await? {}
            if !has_expired && !pending_deletes::are_pending(db).await? {
                break;
            }
        }
        while pending_deletes::delete_messages(db, true).await? {}
        Ok(())
    }

    /// Searches for expired messages until a whole search finds none. Returns whether there were any.
    async fn finish_retention(&self) -> Result<bool> {
        let (mut progress, mut has_changed) = (SearchProgress::default(), false);
        loop {
            // A tick would do the same.
            let _current = self.current.lock().await;
            match retention::step(&self.context, &mut progress).await? {
                SearchStep::Changed => has_changed = true,
                SearchStep::More => {}
                SearchStep::Done => return Ok(has_changed),
            }
        }
    }

    /// Runs one rollup step of what is due. Returns the pause after it.
    pub(crate) async fn count(&self) -> Result<Duration> {
        // A waiting query does the same.
        let Ok(_current) = self.current.try_lock() else { return Ok(COUNT_LATER) };
        let (begin, due) = (Instant::now(), RollupScope::Due(self.context.clock.now()));
        Ok(match rollup::step(&self.context.db, due, false).await? {
            RollupStep::Done | RollupStep::Busy => COUNT_LATER,
            RollupStep::More => COUNT_EVERY.max(begin.elapsed() * COUNT_REST),
        })
    }

    /// Runs due deletes, unless it is resting. What fails is noted, and stops nothing else.
    pub(crate) async fn tick(&self, tick: &mut Tick<'_>) -> Result<()> {
        let Ok(mut current) = self.current.try_lock() else { return Ok(()) };
        let begin = Instant::now();
        if current.rest_until.is_some_and(|until| begin < until) {
            return Ok(());
        }
        let done = self.run_steps(&mut current, tick).await;
        current.rest_until = Some(Instant::now() + begin.elapsed() * REST);
        done
    }

    /// Runs steps of the first kind of work that is due, until none is or it was long enough.
    async fn run_steps(&self, current: &mut Freshness, tick: &mut Tick<'_>) -> Result<()> {
        let (db, mut until) = (&self.context.db, Instant::now() + TICK_MAX);
        let mut kinds = vec![Work::Uncount, Work::Expire, Work::Delete];
        let mut next = 0;
        while let Some(kind) = kinds.get(next).copied()
            && Instant::now() < until
        {
            let done = match kind {
                Work::Uncount => pending_deletes::uncount_step(db, &mut current.uncounting, false).await,
                Work::Expire => self.expire(current).await,
                Work::Delete => pending_deletes::delete_messages(db, false).await,
            };
            next = match done {
                Ok(true) => 0,
                Ok(false) => next + 1,
                Err(fault) => {
                    tick.done(Err(fault)).await?;
                    kinds.remove(next);
                    // It may have taken all the time there was.
                    until = Instant::now() + TICK_MAX;
                    0
                }
            };
        }
        Ok(())
    }

    /// Runs one step of retention, unless it was searched recently. Returns whether there may be more to do.
    async fn expire(&self, current: &mut Freshness) -> Result<bool> {
        let begin = Instant::now();
        if current.next_search.is_some_and(|at| begin < at) {
            return Ok(false);
        }
        let done = retention::step(&self.context, &mut current.retention).await?;
        if done != SearchStep::Changed {
            current.searched += begin.elapsed();
        }
        if done == SearchStep::Done {
            let searched = std::mem::take(&mut current.searched);
            current.next_search = Some(Instant::now() + SEARCH_EVERY.max(searched * SEARCH_SHARE));
        }
        Ok(done != SearchStep::Done)
    }
}

/// Delegates the methods of [`hubbub_core::StatsStore`]: `delegate_stats!(Postgres, |postgres| postgres.counts)`.
macro_rules! delegate_stats {
    ($kind:ty, |$from:ident| $to:expr) => {
        $crate::stats::delegate_stats! { @ $kind, $from, $to,
            totals() -> Counted<Totals>;
            room_stats(room: hubbub_core::RoomId) -> Counted<Option<RoomStats>>;
            top_rooms(limit: usize) -> Counted<Vec<RoomStats>>;
            user_stats(user: hubbub_core::UserId) -> Counted<Option<UserStats>>;
            top_users(limit: usize) -> Counted<Vec<UserStats>>;
            top_pairs(limit: usize) -> Counted<Vec<PairStats>>;
            hours(query: HoursQuery) -> Counted<HoursPage>;
            active_users(query: ActiveUsersQuery) -> Counted<ActiveUsers>;
            participation(
                user: hubbub_core::UserId,
                after: Option<hubbub_core::RoomId>,
                limit: usize
            ) -> Counted<ParticipationPage>;
            user_history(user: hubbub_core::UserId, query: UserHistoryQuery) -> UserHistoryPage;
            audit() -> Counted<Audit>;
        }
    };
    (@ $kind:ty, $from:ident, $to:expr,
        $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        const _: () = {
            use hubbub_core::stats::*;
            impl StatsStore for $kind {
                $(fn $name(&self $(, $argument: $type)*) -> hubbub_core::store::Read<'_, $answer> {
                    let $from = self;
                    ($to).$name($($argument),*)
                })*
            }
        };
    };
}

pub(crate) use delegate_stats;

delegate_stats!(Postgres, |postgres| postgres.counts);
