//! The primary's position in the write-ahead log, now and in the recent past.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use hubbub_core::store::ReadError;
use tokio_postgres::types::PgLsn;

use crate::db::query_batcher::BatchQuery;
use crate::db::{Db, Sql};

/// A position in the write-ahead log. A replica that has replayed it shows every transaction that was visible when the
/// position was queried.
pub(super) type LogPosition = PgLsn;

/// A transaction is visible once its record is flushed ([`crate::durability`]).
const POSITION: Sql =
    Sql { what: "reading the log position of the primary", text: "select pg_current_wal_flush_lsn()" };

/// Most positions kept: some eight minutes of writes.
const POSITIONS_MAX: usize = 1_000;

pub(super) struct LogPositionQuery {
    pub(super) primary: Db,
}

impl BatchQuery for LogPositionQuery {
    type Key = ();
    type Value = LogPosition;

    const SUBJECT: &'static str = "the primary's position";
    const KEYS_MAX: usize = 10_000;

    async fn query(&self, _keys: &[()]) -> Result<HashMap<(), LogPosition>, ReadError> {
        let row = self.primary.read_one(&POSITION, &[]).await?;
        Ok(HashMap::from([((), row.get(0))]))
    }
}

/// Past positions of the primary, each with the time it was first seen; oldest first.
#[derive(Debug, Default)]
pub(super) struct PositionHistory {
    positions: VecDeque<(LogPosition, Instant)>,
}

impl PositionHistory {
    pub(super) fn add(&mut self, position: LogPosition, now: Instant) {
        if self.positions.back().is_some_and(|(last, _)| *last >= position) {
            return;
        }
        if self.positions.len() >= POSITIONS_MAX {
            self.positions.pop_front();
        }
        self.positions.push_back((position, now));
    }

    /// The age of the first position that is not replayed, and whether it may be older than the history shows.
    pub(super) fn lag(&self, replayed: LogPosition, now: Instant) -> (Duration, bool) {
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
        let mut history_of_positions = PositionHistory::default();
        for (position, after) in [(10, 0), (10, 1), (20, 60), (20, 61), (30, 62)] {
            history_of_positions.add(PgLsn::from(position), begin + second * after);
        }
        let lag = |replayed: u64| history_of_positions.lag(PgLsn::from(replayed), begin + second * 63);
        assert_eq!(lag(30), (Duration::ZERO, false));
        assert_eq!(lag(29), (second, false));
        assert_eq!(lag(10), (second * 3, false), "nothing was missing while the primary stood still");
        assert_eq!(lag(9), (second * 63, true));
    }
}
