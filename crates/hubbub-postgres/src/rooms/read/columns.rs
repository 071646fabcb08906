//! Reads rooms and messages from rows.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::store::RoomInfo;
use hubbub_core::{Message, MessageRun, MessageType, RoomId, Send, Timestamp};
use tokio_postgres::Row;

use crate::db::row::{non_negative, unsigned};
use crate::db::{DbError, PgTime};

/// The operation, for messages.
const READING: &str = "reading a room";

/// The columns that [`room_info`] reads, of the table `rooms r`.
macro_rules! room_columns {
    () => {
        "r.id, r.head, r.oldest, r.messages, r.last_received_at, r.title, r.members_only, r.retention_s, r.members"
    };
}

/// The columns that [`push`] reads. `$of` is the table's alias.
macro_rules! message_columns {
    ($of:literal) => {
        concat!(
            $of,
            ".seq, ",
            $of,
            ".received_at, ",
            $of,
            ".sender, ",
            $of,
            ".sent_at, ",
            $of,
            ".kind, ",
            $of,
            ".message_id, ",
            $of,
            ".username, ",
            $of,
            ".body"
        )
    };
}

pub(in crate::rooms) use {message_columns, room_columns};

/// Columns of a room.
pub(in crate::rooms) const ROOM_COLUMNS: usize = 9;
/// Columns of a message.
pub(in crate::rooms) const MESSAGE_COLUMNS: usize = 8;

/// A number of a message, or a count.
pub(in crate::rooms) fn count(row: &Row, column: usize) -> Result<u64, DbError> {
    unsigned(row, column, "reading a number of a room")
}

/// The room in the first columns of a row.
pub(in crate::rooms) fn room_info(row: &Row) -> Result<RoomInfo, DbError> {
    let name: &str = row.get(0);
    let room = RoomId::new(name)
        .map_err(|_| DbError::UnexpectedRow { what: READING, found: format!("the name {name:?}") })?;
    Ok(RoomInfo {
        room,
        head: count(row, 1)?,
        oldest: count(row, 2)?,
        messages: count(row, 3)?,
        last_received_at: row.get::<_, Option<PgTime>>(4).map(|time: PgTime| -> Timestamp { time.0 }),
        title: row.get(5),
        members_only: row.get(6),
        retention_s: row.get::<_, Option<i64>>(7).map(|kept| non_negative(kept, READING)).transpose()?,
        members: count(row, 8)?,
    })
}

/// Adds the message in a row, whose columns begin at `at`.
pub(in crate::rooms) fn push(
    run: &mut MessageRun,
    (row, at): (&Row, usize),
    room: &str,
    senders: &HashMap<i32, Arc<str>>,
) -> Result<(), DbError> {
    let unexpected = |found: String| DbError::UnexpectedRow { what: "reading messages", found };
    let sender: i32 = row.get(at + 2);
    let user = senders.get(&sender).ok_or_else(|| unexpected(format!("no user has the number {sender}")))?;
    let kind: i8 = row.get(at + 4);
    let kind = u8::try_from(kind).ok().and_then(MessageType::from_u8);
    run.push(&Message {
        seq: count(row, at)?,
        received_at: row.get::<_, PgTime>(at + 1).0,
        sent: Send {
            room,
            user,
            id: row.get(at + 5),
            username: Some(row.get(at + 6)).filter(|name: &&str| !name.is_empty()),
            text: row.get(at + 7),
            kind: kind.ok_or_else(|| unexpected("a message of no type".into()))?,
            timestamp: row.get::<_, PgTime>(at + 3).0,
        },
    });
    Ok(())
}
