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

use hubbub_core::RoomTotals;
use hubbub_core::store::StoreFigures;
use parking_lot::Mutex;

use crate::db::{DbError, Result, Sql};
use crate::replicas::Reader;
use crate::store::Context;
use names::Names;
pub(crate) use read::history::read as history;
pub(crate) use read::{message_columns, not_erased, push_of};
use recent::RecentCache;
pub(crate) use versions::{newest_version, next_version};
pub(crate) use write::{apply, seq_of};

const COUNT: Sql = Sql {
    what: "counting rooms",
    text: "select count(*), coalesce(sum(messages), 0)::int8 from rooms where not deleted",
};

/// Shortest time between two counts.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// A count may take one part in so many of the time.
const COUNT_SHARE: u32 = 50;

pub(crate) struct Rooms {
    context: Arc<Context>,
    /// Reads from the primary only.
    primary: Reader,
    room_names: Names,
    /// Names of rooms that are only listed, so that these displace none of the rooms that are written to.
    listed_names: Names,
    user_names: Names,
    totals: RoomTotals,
    /// When they are counted in the database again.
    next_count: Mutex<Option<Instant>>,
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
            next_count: Mutex::default(),
            expects_repeats: AtomicBool::new(false),
        }
    }

    pub(crate) async fn tick(&self) -> Result<()> {
        let begin = Instant::now();
        if self.next_count.lock().is_some_and(|next| begin < next) {
            return Ok(());
        }
        let count = || async {
            let row = self.context.db.read_one(&COUNT, &[]).await?;
            Ok::<_, DbError>((row.get(1), row.get(0), ()))
        };
        self.totals.count(count).await?;
        let rest = COUNT_EVERY.max(begin.elapsed() * COUNT_SHARE);
        *self.next_count.lock() = Some(Instant::now() + rest);
        Ok(())
    }

    /// Adds the current figures.
    pub(crate) fn report(&self, figures: &mut StoreFigures) {
        (figures.messages, figures.rooms) = self.totals.sums();
        if let Some(recent) = &self.recent {
            figures.cache = recent.figures();
        }
    }
}
