//! Reads pages of a room's history.
//!
//! Cursors are numbers, but partitions are time spans. For a page near the head, only recent partitions are searched at
//! first, so that an old room costs no more than a new one. The numbers found show whether that was enough. A time window
//! is first turned into a range of numbers ([`narrow`]), by bisection over the primary key: times never decrease with the
//! numbers of a room, so no index on room and time is needed.

use hubbub_core::invariant::saturate;
use hubbub_core::store::{Cursor, HistoryPage, HistoryQuery, ReadError};
use hubbub_core::{MessageRun, RoomId, Timestamp};
use tokio_postgres::Row;

use super::columns::{MESSAGE_COLUMNS, count, message_columns, not_erased, push};
use super::limit_of;
use crate::db::sql::non_negative;
use crate::db::{PgTime, ReadSource, Result, Sql};
use crate::replicas::Reader;
use crate::rooms::Rooms;
use crate::rooms::versions::newest_version;

/// Begins before every message, and ends after every one.
const ALL_TIME: (Timestamp, Timestamp) = (Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX));

/// Pages within this distance of the head are searched in recent partitions first.
const NEAR: i64 = 10_000;

const READING: &str = "reading a room";

const ROOM: Sql = Sql {
    what: READING,
    text: concat!(
        "select no, head, oldest, last_received_at from (",
        newest_version!("*", "id", "$1"),
        ") r where id = $1 and not deleted"
    ),
};

/// Messages and what the room hides are read in one snapshot. Texts beyond those that fit are counted, not read.
macro_rules! page {
    ($order:literal) => {
        Sql {
            what: "reading messages",
            text: concat!(
                "select ", message_columns!("m"), ", m.found, m.first, r.oldest from (",
                newest_version!("*", "no", "$1"),
                ") r cross join lateral ( \
                     select *, row_number() over page as place, sum(octet_length(body)) over page as bytes, \
                         count(*) over () as found, min(seq) over () as first \
                     from (select * from messages m \
                         where m.room = $1 and m.seq >= greatest($2, r.oldest) and m.seq <= $3 \
                             and m.received_at >= $4 and m.received_at < $5 \
                             and ", not_erased!("$1", "m.seq"), " \
                         order by m.seq ", $order, " limit $6) one \
                     window page as (order by seq ", $order, ")) m \
                 where r.no = $1 and (m.place = 1 or m.place < $6 and m.bytes <= $7) order by m.place"
            ),
        }
    };
}

const FORWARD: Sql = page!("asc");
const BACKWARD: Sql = page!("desc");

/// The numbers and times to search, and in which order.
#[derive(Clone, Copy)]
struct Span {
    low: i64,
    high: i64,
    from: Timestamp,
    to: Timestamp,
    is_forward: bool,
}

/// A page of a room's history; see [`hubbub_core::RoomStore::history`].
/// What memory does not hold is read by `reader`, after the primary was queried for the state of the room. So the answer
/// of a replica is no older than that.
pub(crate) async fn read(
    rooms: &Rooms,
    reader: &Reader,
    room: &RoomId,
    query: &HistoryQuery,
) -> Result<HistoryPage, ReadError> {
    let db = &rooms.context.db;
    let (no, head, oldest, last) = match &rooms.recent {
        Some(recent) => {
            let state = recent.room_state(room).await?.ok_or(ReadError::UnknownRoom)?;
            if let Some(page) = recent.page(&rooms.user_names, &state, query).await? {
                return Ok(page);
            }
            (state.no, seq(state.info.head), seq(state.info.oldest), state.info.last_received_at)
        }
        None => {
            let rows = db.read(&ROOM, &[&room.as_str()]).await?;
            let row = rows.first().ok_or(ReadError::UnknownRoom)?;
            (row.get(0), row.get(1), row.get(2), row.get::<_, Option<PgTime>>(3).map(|time| time.0))
        }
    };
    let mut page = HistoryPage {
        messages: MessageRun::default(),
        head: non_negative(head, READING)?,
        oldest: non_negative(oldest, READING)?,
        more: false,
    };
    let (low, high, is_forward) = match query.cursor {
        Cursor::After(after) => (oldest.max(seq(after).saturating_add(1)), head, true),
        Cursor::Before(before) => (oldest, head.min(seq(before).saturating_sub(1)), false),
    };
    let (from, to) = (query.from.unwrap_or(ALL_TIME.0), query.to.unwrap_or(ALL_TIME.1));
    let span = Span { low, high, from, to, is_forward };
    if span.low > span.high || from >= to {
        return Ok(page);
    }
    let length = saturate(rooms.context.options.partition.as_micros());
    let recent_from = last.map(|last| Timestamp::from_micros(last.as_micros().saturating_sub(length)));
    let (room_state, query) = ((no, head, recent_from), *query);
    let rows = reader.read(async move |source| rows_of(source, room_state, span, query).await).await?;
    let senders = rooms.user_names.names(db, rows.iter().map(|row| row.get(2))).await?;
    for row in &rows {
        push(&mut page.messages, (row, 0), room.as_str(), &senders)?;
    }
    // As of reading the messages: retention may have removed some since the room was looked up.
    page.oldest = match rows.first() {
        Some(row) => count(row, MESSAGE_COLUMNS + 2)?.max(page.oldest),
        None => oldest_now(rooms, room).await?.max(page.oldest),
    };
    let found = rows.first().map(|row| count(row, MESSAGE_COLUMNS)).transpose()?.unwrap_or(0);
    page.more = saturate::<usize, u64>(rows.len()) < found;
    if !is_forward {
        page.messages.reverse();
    }
    Ok(page)
}

/// The oldest message a room keeps.
async fn oldest_now(rooms: &Rooms, room: &RoomId) -> Result<u64, ReadError> {
    let rows = rooms.context.db.read(&ROOM, &[&room.as_str()]).await?;
    Ok(count(rows.first().ok_or(ReadError::UnknownRoom)?, 2)?)
}

/// `recent_from`: where the first search begins if the page is near the head.
async fn rows_of(
    source: ReadSource,
    (no, head, recent_from): (i32, i64, Option<Timestamp>),
    mut span: Span,
    query: HistoryQuery,
) -> Result<Vec<Row>> {
    (span.low, span.high) = narrow(&source, no, (span.low, span.high), query.from, query.to).await?;
    // One more than wanted, to know whether there is one.
    let limit = limit_of(query.limit.max(1)).saturating_add(1);
    let bytes_max = limit_of(query.bytes_max);
    let sql = if span.is_forward { &FORWARD } else { &BACKWARD };
    let read = async |from: Timestamp| {
        let (from, to) = (PgTime(from), PgTime(span.to));
        source.read(sql, &[&no, &span.low, &span.high, &from, &to, &limit, &bytes_max]).await
    };
    let is_near = head - if span.is_forward { span.low } else { span.high } < NEAR;
    if let Some(recent_from) = recent_from.filter(|from| is_near && *from > span.from) {
        let rows = read(recent_from).await?;
        let is_whole = rows.first().is_some_and(|row| {
            let (found, first): (i64, i64) = (row.get(MESSAGE_COLUMNS), row.get(MESSAGE_COLUMNS + 1));
            first == span.low || !span.is_forward && found == limit
        });
        if is_whole {
            return Ok(rows);
        }
    }
    read(span.from).await
}

/// A message number as a parameter: a search bound.
fn seq(seq: u64) -> i64 {
    saturate(seq)
}

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
async fn narrow(
    source: &ReadSource,
    room: i32,
    (low, high): (i64, i64),
    from: Option<Timestamp>,
    to: Option<Timestamp>,
) -> Result<(i64, i64)> {
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
