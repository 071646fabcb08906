//! Rooms, messages, members.
//!
//! [`apply`] runs a batch through [`write`] in one transaction. [`read`] answers reads, some of them from memory
//! ([`recent`]). All use numbers for rooms and users ([`names`]).

mod names;
mod read;
mod recent;
mod versions;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hubbub_core::invariant::saturate;
use hubbub_core::store::StoreFigures;
use parking_lot::Mutex;

use crate::db::{Db, Result, Sql};
use crate::replicas::Reader;
use crate::store::Context;
use names::Names;
pub(crate) use read::history::read as history;
pub(crate) use read::{message_columns, not_erased, push_of};
use recent::RecentCache;
pub(crate) use versions::next_version;
use write::Totals;
pub(crate) use write::{apply, seq_of};

const COUNT: Sql = Sql {
    what: "counting rooms",
    text: "select count(*), coalesce(sum(messages), 0)::int8 from rooms where not deleted",
};

/// Shortest time between two counts.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// A count may take one part in so many of the time.
const COUNT_SHARE: u32 = 50;
/// Most counts in a row disturbed by local changes; then the count is used all the same.
const COUNTS_MAX: u32 = 3;

pub(crate) struct Rooms {
    context: Arc<Context>,
    /// Reads from the primary only.
    primary: Reader,
    room_names: Names,
    /// Names of rooms that are only listed, so that these displace none of the rooms that are written to.
    listed_names: Names,
    user_names: Names,
    totals: RoomTotals,
    /// The cache; `None` if it is switched off.
    recent: Option<RecentCache>,
    /// Whether the last batch checked had messages that were stored before.
    expects_repeats: AtomicBool,
}

impl Rooms {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let bytes = context.options.recent_cache_bytes;
        let recent = (bytes > 0).then(|| RecentCache::new(&context, bytes));
        let primary = Reader::new(&context.db, None);
        Self {
            context,
            primary,
            recent,
            room_names: Names::of_rooms(),
            listed_names: Names::of_rooms(),
            user_names: Names::of_users(),
            totals: RoomTotals::default(),
            expects_repeats: AtomicBool::new(false),
        }
    }

    pub(crate) async fn tick(&self) -> Result<()> {
        self.totals.refresh(&self.context.db).await
    }

    /// Adds the current figures.
    pub(crate) fn report(&self, figures: &mut StoreFigures) {
        (figures.messages, figures.rooms) = self.totals.sums();
        if let Some(recent) = &self.recent {
            figures.cache = recent.figures();
        }
    }
}

#[derive(Debug, Default)]
struct TotalsState {
    sums: Totals,
    /// Number of local changes. A count during which it grows is inexact.
    changes: u64,
    next: Option<Instant>,
}

/// The numbers of rooms and messages, kept without a query: changes by this server count at once, changes by others when the
/// database is counted again.
#[derive(Debug, Default)]
struct RoomTotals {
    state: Mutex<TotalsState>,
}

impl RoomTotals {
    fn add(&self, change: Totals) {
        let mut state = self.state.lock();
        state.sums.messages += change.messages;
        state.sums.rooms += change.rooms;
        state.changes += 1;
    }

    /// Stored messages, and rooms.
    fn sums(&self) -> (u64, u64) {
        let sums = self.state.lock().sums;
        (saturate(sums.messages), saturate(sums.rooms))
    }

    /// Counts in the database, if due.
    async fn refresh(&self, db: &Db) -> Result<()> {
        for met in 1..=COUNTS_MAX {
            let begin = Instant::now();
            let before = {
                let state = self.state.lock();
                if state.next.is_some_and(|next| begin < next) {
                    return Ok(());
                }
                state.changes
            };
            let row = db.read_one(&COUNT, &[]).await?;
            let sums = Totals { rooms: row.get(0), messages: row.get(1) };
            let mut state = self.state.lock();
            if state.changes == before || met == COUNTS_MAX {
                state.sums = sums;
                state.next = Some(Instant::now() + COUNT_EVERY.max(begin.elapsed() * COUNT_SHARE));
                return Ok(());
            }
        }
        Ok(())
    }
}
