//! Rooms, messages, members.
//!
//! [`apply`] runs a batch through [`write`] in one transaction. [`read`] answers reads, some of them from memory
//! ([`recent`]). All use numbers for rooms and users ([`names`]).

mod names;
mod read;
mod recent;
mod totals;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hubbub_core::store::StoreFigures;

use crate::db::Result;
use crate::replicas::Reader;
use crate::store::Context;
use names::Names;
pub(crate) use read::history::read as history;
pub(crate) use read::{message_columns, push_of};
use recent::RecentCache;
use totals::RoomTotals;
pub(crate) use write::apply;

pub(crate) struct Rooms {
    context: Arc<Context>,
    /// Reads from the primary only.
    primary: Reader,
    room_names: Names,
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
