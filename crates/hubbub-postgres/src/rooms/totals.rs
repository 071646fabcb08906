//! How many rooms and messages there are, without asking. What this server changed is counted at once, what others did
//! whenever the database is asked again.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_postgres::types::Type;

use super::write::Totals as Change;
use crate::db::{Db, Fault, Sql};

const COUNT: Sql = Sql {
    what: "counting rooms",
    text: "select count(*), coalesce(sum(messages), 0)::int8 from rooms where not deleted",
    types: &[] as &[Type],
};

/// Time between two counts, at least.
const EVERY: Duration = Duration::from_secs(5);
/// A count may take so small a part of the time.
const SHARE: u32 = 50;
/// Counts in a row that met changes, after which one is believed all the same.
const MET_MAX: u32 = 3;

#[derive(Debug, Default)]
struct State {
    sums: Change,
    /// Grows with every change made here: a count that met one says nothing certain.
    changes: u64,
    next: Option<Instant>,
}

/// The sums.
#[derive(Debug, Default)]
pub(super) struct Totals {
    state: Mutex<State>,
}

impl Totals {
    pub(super) fn add(&self, change: Change) {
        let mut state = self.state.lock();
        state.sums.messages += change.messages;
        state.sums.rooms += change.rooms;
        state.changes += 1;
    }

    /// Messages kept, and rooms.
    pub(super) fn sums(&self) -> (u64, u64) {
        let sums = self.state.lock().sums;
        let sum = |sum: i64| u64::try_from(sum).unwrap_or(0);
        (sum(sums.messages), sum(sums.rooms))
    }

    /// Counts, if it is time to.
    pub(super) async fn refresh(&self, db: &Db) -> Result<(), Fault> {
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
