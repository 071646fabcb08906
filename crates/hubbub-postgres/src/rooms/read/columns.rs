//! Reads rooms and messages from rows.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::store::{Access, RoomInfo};
use hubbub_core::{Message, MessageRun, MessageType, RoomId, Send, Timestamp};
use tokio_postgres::Row;

use crate::db::sql::{non_negative, unsigned};
use crate::db::{DbError, PgTime, Result};

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
        concat! {
            $of, ".seq, ", $of, ".received_at, ", $of, ".sender, ", $of, ".sent_at, ", $of, ".kind, ", $of,
            ".message_id, ", $of, ".username, ", $of, ".body"
        }
    };
}

/// Whether a message of the room `r` is not erased. `$room` is the room's number.
macro_rules! not_erased {
    ($room:literal, $seq:literal) => {
        concat!(
            "(r.erased = 0 or not exists (select from erased e where e.room = ",
            $room,
            " and e.seq = ",
            $seq,
            "))"
        )
    };
}

pub(in crate::rooms) use room_columns;
pub(crate) use {message_columns, not_erased};

/// Columns of a room.
pub(in crate::rooms) const ROOM_COLUMNS: usize = 9;
/// Columns of a message.
pub(in crate::rooms) const MESSAGE_COLUMNS: usize = 8;

/// A number of a message, or a count.
pub(in crate::rooms) fn count(row: &Row, column: usize) -> Result<u64> {
    unsigned(row, column, "reading a number of a room")
}

/// The room in the first columns of a row.
pub(in crate::rooms) fn room_info(row: &Row) -> Result<RoomInfo> {
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

/// The access in a row that begins with whether the room is for members only, and the member's read mark.
pub(in crate::rooms) fn access_of(row: &Row) -> Result<Access> {
    Ok(match row.get::<_, Option<i64>>(1) {
        Some(read_seq) => Access::Member { read_seq: non_negative(read_seq, "looking up a member")? },
        None if row.get(0) => Access::Closed,
        None => Access::Open,
    })
}

/// Adds the message in a row, whose columns begin at `at`. `senders` has the names of the users' numbers.
pub(in crate::rooms) fn push(
    run: &mut MessageRun,
    (row, at): (&Row, usize),
    room: &str,
    senders: &HashMap<i32, Arc<str>>,
) -> Result<()> {
    let sender: i32 = row.get(at + 2);
    match senders.get(&sender) {
        Some(user) => push_of(run, (row, at), room, user),
        None => Err(unexpected(format!("no user has the number {sender}"))),
    }
}

/// Adds the message of a user in a row, whose columns begin at `at`.
pub(crate) fn push_of(run: &mut MessageRun, (row, at): (&Row, usize), room: &str, user: &str) -> Result<()> {
    let kind = u8::try_from(row.get::<_, i8>(at + 4)).ok().and_then(MessageType::from_u8);
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

fn unexpected(found: String) -> DbError {
    DbError::UnexpectedRow { what: "reading messages", found }
}
