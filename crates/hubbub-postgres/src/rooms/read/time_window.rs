//! Turns a time window into a range of message numbers, by bisection over the primary key.
//!
//! Times never decrease with the numbers of a room, so no index on room and time is needed.

use hubbub_core::Timestamp;

use crate::db::read_source::ReadSource;
use crate::db::{DbError, PgTime, Sql};

/// Ranges of this size are scanned instead of divided.
const ENOUGH: i64 = 64;

/// A range that holds the first message received at a time or later.
const SEARCH: Sql = Sql {
    what: "searching for a time in a room",
    text: "with recursive search (low, high) as ( \
               select $2, $3 \
               union all \
               select case when probe.received_at < $4 then probe.seq + 1 else span.low end, \
                   case when probe.received_at < $4 then span.high else span.middle end \
               from (select low, high, (low + high) / 2 as middle from search where high - low > $5) span \
               left join lateral (select m.seq, m.received_at from messages m \
                   where m.room = $1 and m.seq >= span.middle and m.seq < span.high \
                   order by m.seq limit 1) probe on true) \
           select low, high from search order by high - low limit 1",
};

/// A range, both ends included, that holds all numbers of the window, and maybe some others at its edges.
pub(super) async fn narrow(
    source: &ReadSource,
    room: i32,
    (low, high): (i64, i64),
    from: Option<Timestamp>,
    to: Option<Timestamp>,
) -> Result<(i64, i64), DbError> {
    let end = high.saturating_add(1);
    let search = async |time: Option<Timestamp>| match time {
        Some(time) if end - low > ENOUGH => {
            let row = source.read_one(&SEARCH, &[&room, &low, &end, &PgTime(time), &ENOUGH]).await?;
            Ok(Some((row.get::<_, i64>(0), row.get::<_, i64>(1))))
        }
        _ => Ok(None),
    };
    let (from, to) = tokio::try_join!(biased; search(from), search(to))?;
    Ok((from.map_or(low, |(low, _)| low), to.map_or(high, |(_, end)| end - 1)))
}
