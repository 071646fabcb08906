//! Finds the row of a room at the same price, however many versions of it were replaced. Beside a session that holds a
//! snapshot open, none of them can be cleared away.
//!
//! The newest version stands last of its room in an index, so the search goes backwards and ends with the first that is
//! visible. It is for a range with one end, which the database neither sorts nor searches forwards; the caller compares
//! the rest. The indexes are not unique: an entry of a unique one costs a look at all versions
//! (`migrations/V6__heads.sql`).

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
            " desc limit 1"
        )
    };
}

pub(super) use newest_version;
