//! Keeps the numbers of rooms and messages without a query. Changes by this server count at once, changes by others when
//! the database is counted again.

use std::time::{Duration, Instant};

use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use super::write::Totals as Change;
use crate::db::{Db, Result, Sql};

const COUNT: Sql = Sql {
    what: "counting rooms",
    text: "select count(*), coalesce(sum(messages), 0)::int8 from rooms where not deleted",
};

/// Shortest time between two counts.
const EVERY: Duration = Duration::from_secs(5);
/// A count may take one part in so many of the time.
const SHARE: u32 = 50;
/// Most counts in a row disturbed by local changes; then the count is used all the same.
const MET_MAX: u32 = 3;

#[derive(Debug, Default)]
struct State {
    sums: Change,
    /// Number of local changes. A count during which it grows is inexact.
    changes: u64,
    next: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct RoomTotals {
    state: Mutex<State>,
}

impl RoomTotals {
    pub(super) fn add(&self, change: Change) {
        let mut state = self.state.lock();
        state.sums.messages += change.messages;
        state.sums.rooms += change.rooms;
        state.changes += 1;
    }

    /// Stored messages, and rooms.
    pub(super) fn sums(&self) -> (u64, u64) {
        let sums = self.state.lock().sums;
        (saturate(sums.messages), saturate(sums.rooms))
    }

    /// Counts in the database, if due.
    pub(super) async fn refresh(&self, db: &Db) -> Result<()> {
        for met in 1..=MET_MAX {
            let begin = Instant::now();
            let before = {
                let state = self.state.lock();
                if state.next.is_some_and(|next| begin < next) {
                    return Ok(());
                }
                state.changes
            };
            let row = db.read_one(&COUNT, &[]).await?;
            let sums = Change { rooms: row.get(0), messages: row.get(1) };
            let mut state = self.state.lock();
            if state.changes == before || met == MET_MAX {
                state.sums = sums;
                state.next = Some(Instant::now() + EVERY.max(begin.elapsed() * SHARE));
                return Ok(());
            }
        }
        Ok(())
    }
}
