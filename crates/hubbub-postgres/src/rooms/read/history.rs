//! Pages of a room's history.
//!
//! A cursor is a number, partitions are spans of time. Where a page is near the head, only what was received lately is
//! searched at first, so that a room with years behind it costs no more than a new one; whether that was enough shows
//! from the numbers found. A window of time is turned into one of numbers first ([`time`]).

use hubbub_core::store::{Cursor, HistoryPage, HistoryQuery, ReadError};
use hubbub_core::{MessageRun, RoomId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::columns::{MESSAGE_COLUMNS, count, message_columns, push};
use super::{limit_of, time};
use crate::db::source::Source;
use crate::db::{Fault, PgTime, Sql};
use crate::replicas::Reader;
use crate::rooms::Rooms;

/// Begins before every message, and ends behind every one.
const ALL_TIME: (Timestamp, Timestamp) = (Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX));

/// So near the head a page is expected among what was received lately.
const NEAR: i64 = 10_000;

const ROOM: Sql = Sql {
    what: "reading a room",
    text: "select no, head, oldest, last_received_at from rooms where id = $1 and not deleted",
    types: &[Type::TEXT],
};

/// What the room hides is looked at in the same moment as its messages. The texts behind those that fit are counted, but
/// not read.
macro_rules! page {
    ($order:literal) => {
        Sql {
            what: "reading messages",
            text: concat!(
                "select ", message_columns!("m"), ", m.found, m.first, r.oldest from rooms r cross join lateral ( \
                     select *, row_number() over page as place, sum(octet_length(body)) over page as bytes, \
                         count(*) over () as found, min(seq) over () as first \
                     from (select * from messages m \
                         where m.room = $1 and m.seq >= greatest($2, r.oldest) and m.seq <= $3 \
                             and m.received_at >= $4 and m.received_at < $5 \
                             and (r.erased = 0 or not exists ( \
                                 select from erased e where e.room = $1 and e.seq = m.seq)) \
                         order by m.seq ", $order, " limit $6) one \
                     window page as (order by seq ", $order, ")) m \
                 where r.no = $1 and (m.place = 1 or m.place < $6 and m.bytes <= $7) order by m.place"
            ),
            types: &[
                Type::INT4,
                Type::INT8,
                Type::INT8,
                Type::TIMESTAMPTZ,
                Type::TIMESTAMPTZ,
                Type::INT8,
                Type::INT8,
            ],
        }
    };
}

const FORWARD: Sql = page!("asc");
const BACKWARD: Sql = page!("desc");

/// Numbers and times to look at, and in which order.
#[derive(Clone, Copy)]
struct Span {
    low: i64,
    high: i64,
    from: Timestamp,
    to: Timestamp,
    is_forward: bool,
}

/// A page of a room's history; see [`hubbub_core::RoomStore::history`].
/// What memory does not hold is read by `reader`, after it was asked of the primary where the room stands: what a replica
/// answers then is no older than that.
pub(crate) async fn read(
    rooms: &Rooms,
    reader: &Reader,
    room: &RoomId,
    query: &HistoryQuery,
) -> Result<HistoryPage, ReadError> {
    let db = &rooms.context.db;
    let (no, head, oldest, last) = match &rooms.recent {
        Some(recent) => {
            let look = recent.look(room).await?.ok_or(ReadError::UnknownRoom)?;
            if let Some(page) = recent.page(&rooms.user_names, &look, query).await? {
                return Ok(page);
            }
            (look.no, seq(look.info.head), seq(look.info.oldest), look.info.last_received_at)
        }
        None => {
            let rows = db.read(&ROOM, &[&room.as_str()]).await?;
            let row = rows.first().ok_or(ReadError::UnknownRoom)?;
            (row.get(0), row.get(1), row.get(2), row.get::<_, Option<PgTime>>(3).map(|time| time.0))
        }
    };
    let mut page = HistoryPage {
        messages: MessageRun::default(),
        head: head.unsigned_abs(),
        oldest: oldest.unsigned_abs(),
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
    let length = i64::try_from(rooms.context.options.partition.as_micros()).unwrap_or(i64::MAX);
    let lately = last.map(|last| Timestamp::from_micros(last.as_micros().saturating_sub(length)));
    let rows = reader.read(|source| rows_of(source, (no, head, lately), span, *query)).await?;
    let senders = rooms.user_names.names(db, rows.iter().map(|row| row.get(2))).await?;
    for row in &rows {
        push(&mut page.messages, (row, 0), room.as_str(), &senders)?;
    }
    // As it was when the messages were read: retention may have removed some since the room was looked up.
    page.oldest = match rows.first() {
        Some(row) => count(row, MESSAGE_COLUMNS + 2).max(page.oldest),
        None => oldest_now(rooms, room).await?.max(page.oldest),
    };
    let found = rows.first().map_or(0, |row| count(row, MESSAGE_COLUMNS));
    page.more = u64::try_from(rows.len()).unwrap_or(u64::MAX) < found;
    if !is_forward {
        page.messages.reverse();
    }
    Ok(page)
}

/// The oldest message a room keeps.
async fn oldest_now(rooms: &Rooms, room: &RoomId) -> Result<u64, ReadError> {
    let rows = rooms.context.db.read(&ROOM, &[&room.as_str()]).await?;
    rows.first().map(|row| row.get::<_, i64>(2).unsigned_abs()).ok_or(ReadError::UnknownRoom)
}

/// `lately`: where to begin at first where the page is near the head.
async fn rows_of(
    source: Source,
    (no, head, lately): (i32, i64, Option<Timestamp>),
    mut span: Span,
    query: HistoryQuery,
) -> Result<Vec<Row>, Fault> {
    (span.low, span.high) = time::narrow(&source, no, (span.low, span.high), query.from, query.to).await?;
    // One more than wanted, to know whether there is one.
    let limit = limit_of(query.limit.max(1)).saturating_add(1);
    let bytes_max = limit_of(query.bytes_max);
    let sql = if span.is_forward { &FORWARD } else { &BACKWARD };
    let read = async |from: Timestamp| {
        let (from, to) = (PgTime(from), PgTime(span.to));
        source.read(sql, &[&no, &span.low, &span.high, &from, &to, &limit, &bytes_max]).await
    };
    let is_near = head - if span.is_forward { span.low } else { span.high } < NEAR;
    if let Some(lately) = lately.filter(|lately| is_near && *lately > span.from) {
        let rows = read(lately).await?;
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

/// A number as a parameter.
fn seq(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
