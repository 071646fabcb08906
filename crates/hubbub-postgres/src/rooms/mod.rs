//! Rooms, messages, members.
//!
//! A batch comes to [`Rooms::apply`] and goes through [`write`] in one transaction; [`read`] answers questions, some of
//! them from memory ([`recent`]). All know rooms and users by numbers ([`names`]).

mod names;
mod read;
mod recent;
mod totals;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hubbub_core::Outcome;
use hubbub_core::store::StoreFigures;

use crate::apply::RoomOp;
use crate::db::connect::OpenError;
use crate::db::{Failure, Fault};
use crate::replicas::Reader;
use crate::store::Context;
use names::Names;
pub(crate) use read::history::read as history;
use recent::Recent;
use totals::Totals;

/// Rooms, messages, members.
pub(crate) struct Rooms {
    context: Arc<Context>,
    /// Reads that no replica may answer.
    primary: Reader,
    room_names: Names,
    user_names: Names,
    totals: Totals,
    /// What is in memory; `None` = nothing is to be.
    recent: Option<Recent>,
    /// Whether the last batch that was looked through had messages that were stored before.
    expects_repeats: AtomicBool,
}

impl Rooms {
    pub(crate) async fn open(context: Arc<Context>) -> Result<Self, OpenError> {
        let bytes = context.options.recent_cache_bytes;
        let recent = (bytes > 0).then(|| Recent::new(&context, bytes));
        let primary = Reader::new(&context.db, None);
        Ok(Self {
            context,
            primary,
            recent,
            room_names: Names::of_rooms(),
            user_names: Names::of_users(),
            totals: Totals::default(),
            expects_repeats: AtomicBool::new(false),
        })
    }

    /// Does what is due.
    pub(crate) async fn beat(&self, _figures: &mut StoreFigures) -> Result<(), Fault> {
        self.totals.refresh(&self.context.db).await
    }

    /// Enters what is known at this moment.
    pub(crate) fn tell(&self, figures: &mut StoreFigures) {
        (figures.messages, figures.rooms) = self.totals.sums();
        if let Some(recent) = &self.recent {
            figures.cache = recent.figures();
        }
    }

    /// Does operations in their order, in one transaction.
    pub(crate) async fn apply(&self, ops: &[RoomOp<'_>]) -> Result<Vec<Outcome>, Failure> {
        write::apply(self, ops).await
    }
}
