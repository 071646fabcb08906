//! How far the primary has come, and since when.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use hubbub_core::store::ReadError;
use tokio_postgres::types::PgLsn;

use crate::db::shared::Question;
use crate::db::{Db, Sql};

/// A place in the write-ahead log. Whoever has replayed it shows every transaction that anybody could see when it was
/// asked for.
pub(super) type Position = PgLsn;

/// A transaction is seen once its record is flushed; with `synchronous_commit = off`, once it is written to memory.
const POSITION: Sql = Sql {
    what: "asking how far the primary has come",
    text: "select case current_setting('synchronous_commit') when 'off' then pg_current_wal_insert_lsn() \
               else pg_current_wal_flush_lsn() end",
    types: &[],
};

/// Positions remembered: some eight minutes of writes.
const TRAIL_MAX: usize = 1_000;

/// The question how far the primary has come.
pub(super) struct Positions {
    pub(super) primary: Db,
}

impl Question for Positions {
    type Key = ();
    type Value = Position;

    const OF: &'static str = "the primary's position";
    const KEYS_MAX: usize = 10_000;

    async fn ask(&self, _keys: &[()]) -> Result<HashMap<(), Position>, ReadError> {
        let row = self.primary.read_one(&POSITION, &[]).await?;
        Ok(HashMap::from([((), row.get(0))]))
    }
}

/// Where the primary stood, and since when, oldest first.
#[derive(Debug, Default)]
pub(super) struct Trail {
    positions: VecDeque<(Position, Instant)>,
}

impl Trail {
    pub(super) fn add(&mut self, position: Position, now: Instant) {
        if self.positions.back().is_some_and(|(last, _)| *last >= position) {
            return;
        }
        if self.positions.len() >= TRAIL_MAX {
            self.positions.pop_front();
        }
        self.positions.push_back((position, now));
    }

    /// For how long there has been something that is not replayed yet, and whether it may be longer than that.
    pub(super) fn lag(&self, replayed: Position, now: Instant) -> (Duration, bool) {
        match self.positions.iter().position(|(position, _)| *position > replayed) {
            Some(first) => {
                let since = self.positions.get(first).map_or(now, |(_, since)| *since);
                (now.saturating_duration_since(since), first == 0)
            }
            None => (Duration::ZERO, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_the_age_of_what_is_missing() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut trail = Trail::default();
        for (position, after) in [(10, 0), (10, 1), (20, 60), (20, 61), (30, 62)] {
            trail.add(PgLsn::from(position), begin + second * after);
        }
        let lag = |replayed: u64| trail.lag(PgLsn::from(replayed), begin + second * 63);
        assert_eq!(lag(30), (Duration::ZERO, false));
        assert_eq!(lag(29), (second, false));
        assert_eq!(lag(10), (second * 3, false), "nothing was missing while the primary stood still");
        assert_eq!(lag(9), (second * 63, true));
    }
}
