//! Reads a user's messages from all rooms.

use hubbub_core::invariant::saturate;
use hubbub_core::stats::{UserHistoryPage, UserHistoryQuery};
use hubbub_core::{Message, MessageRun, MessageType, Send, Timestamp, UserId};
use tokio_postgres::Row;

use crate::db::read_source::ReadSource;
use crate::db::row::unsigned;
use crate::db::{DbError, PgTime, Sql};

/// The newest messages before a cursor, one more than requested. Texts beyond those that fit are counted, not read. What rooms
/// hide is read in the same snapshot.
const PAGE: Sql = Sql {
    what: "reading a user's messages",
    text: "select id, seq, received_at, kind, sent_at, message_id, username, body, found from ( \
               select *, row_number() over page as place, sum(octet_length(body)) over page as bytes, \
                   count(*) over () as found from ( \
                   select r.id, m.seq, m.received_at, m.kind, m.sent_at, m.message_id, m.username, m.body \
                   from messages m join rooms r on r.no = m.room and r.oldest <= m.seq \
                   where m.sender = (select no from users where id = $1) \
                       and m.received_at >= $2 and m.received_at < $3 and m.received_at <= $4 \
                       and (m.received_at < $4 or r.id < $5 or r.id = $5 and m.seq < $6) \
                       and (r.erased = 0 or not exists ( \
                           select from erased e where e.room = m.room and e.seq = m.seq)) \
                   order by m.received_at desc, r.id desc, m.seq desc limit $7) one \
               window page as (order by received_at desc, id desc, seq desc)) m \
           where place = 1 or place < $7 and bytes <= $8 order by place",
};

pub(super) async fn read(
    source: ReadSource,
    user: UserId,
    query: UserHistoryQuery,
) -> Result<UserHistoryPage, DbError> {
    let (begin, end) = (Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX));
    let (before, room, seq) = match &query.before {
        Some(before) => (before.received_at, before.room.as_str(), before.seq),
        None => (end, "", 0),
    };
    let number = |number: usize| -> i64 { saturate(number) };
    let rows = source
        .read(
            &PAGE,
            &[
                &user.as_str(),
                &PgTime(query.from.unwrap_or(begin)),
                &PgTime(query.to.unwrap_or(end)),
                &PgTime(before),
                &room,
                &saturate::<u64, i64>(seq),
                &number(query.limit).saturating_add(1),
                &number(query.bytes_max),
            ],
        )
        .await?;
    let found: i64 = rows.first().map_or(0, |row| row.get(8));
    let mut messages = MessageRun::default();
    for row in rows.iter().rev() {
        push(&mut messages, user.as_str(), row)?;
    }
    let more = found > number(messages.len());
    Ok(UserHistoryPage { messages, more })
}

fn push(run: &mut MessageRun, user: &str, row: &Row) -> Result<(), DbError> {
    let kind: i8 = row.get(3);
    let kind = u8::try_from(kind).ok().and_then(MessageType::from_u8).ok_or_else(|| {
        DbError::UnexpectedRow { what: PAGE.what, found: format!("a message of the type {kind}") }
    })?;
    let sent = Send {
        room: row.get(0),
        user,
        id: row.get(5),
        username: Some(row.get(6)).filter(|name: &&str| !name.is_empty()),
        text: row.get(7),
        kind,
        timestamp: row.get::<_, PgTime>(4).0,
    };
    let seq = unsigned(row, 1, PAGE.what)?;
    run.push(&Message { seq, received_at: row.get::<_, PgTime>(2).0, sent });
    Ok(())
}
