//! Finds the row of a room at the same price, however many versions of it were replaced. Beside a session that holds a
//! snapshot open, none of them can be cleared away.
//!
//! The newest versions stand last of their room in an index, by their turn (`migrations/V8__turns.sql`), so the search goes
//! backwards and ends with the first that is visible, after 16 committed versions at most. It is for a range with one end; the
//! caller compares the rest. Where the planner knows how many rows live, it neither sorts such a range nor searches it
//! forwards; where it does not, only transactions that write are sure of that (`walking!` in `db/conn.rs`). The indexes are not
//! unique: an entry of a unique one costs a look at all versions (`migrations/V6__heads.sql`).

/// A query for a row of `rooms` as `v`, whose `$column`, `no` or `id`, is `$wanted` if there is such a room.
macro_rules! newest_version {
    ($columns:literal, $column:literal, $wanted:literal) => {
        concat!(
            "select ",
            $columns,
            " from rooms v where v.",
            $column,
            " <= ",
            $wanted,
            " order by v.",
            $column,
            " desc, v.turn desc limit 1"
        )
    };
}

/// What every writer of a row of `rooms` as `r` sets: its turn among the versions.
macro_rules! next_version {
    () => {
        "writes = r.writes + 1, turn = (r.writes + 1) / 16"
    };
}

pub(crate) use newest_version;
pub(crate) use next_version;
