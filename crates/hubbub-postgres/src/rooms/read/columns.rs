//! What rows hold.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::store::RoomInfo;
use hubbub_core::{Message, MessageRun, MessageType, RoomId, Send, Timestamp};
use tokio_postgres::Row;

use crate::db::{Fault, PgTime};

/// The columns that [`room_info`] reads, of the table `rooms r`.
macro_rules! room_columns {
    () => {
        "r.id, r.head, r.oldest, r.messages, r.last_received_at, r.title, r.members_only, r.retention_s, r.members"
    };
}

/// The columns that [`push`] reads, of a table called so.
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

/// A number of a message or a count, as a column has it.
pub(in crate::rooms) fn count(row: &Row, column: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}

/// The room that stands in the first columns of a row.
pub(in crate::rooms) fn room_info(row: &Row) -> Result<RoomInfo, Fault> {
    let name: &str = row.get(0);
    let room = RoomId::new(name)
        .map_err(|_| Fault::Nonsense { what: "reading a room", found: format!("the name {name:?}") })?;
    Ok(RoomInfo {
        room,
        head: count(row, 1),
        oldest: count(row, 2),
        messages: count(row, 3),
        last_received_at: row.get::<_, Option<PgTime>>(4).map(|time: PgTime| -> Timestamp { time.0 }),
        title: row.get(5),
        members_only: row.get(6),
        retention_s: row.get::<_, Option<i64>>(7).map(i64::unsigned_abs),
        members: count(row, 8),
    })
}

/// Adds the message that stands in a row from a column on.
pub(in crate::rooms) fn push(
    run: &mut MessageRun,
    (row, at): (&Row, usize),
    room: &str,
    senders: &HashMap<i32, Arc<str>>,
) -> Result<(), Fault> {
    let nonsense = |found: String| Fault::Nonsense { what: "reading messages", found };
    let sender: i32 = row.get(at + 2);
    let user = senders.get(&sender).ok_or_else(|| nonsense(format!("no user has the number {sender}")))?;
    let kind: i8 = row.get(at + 4);
    let kind = u8::try_from(kind).ok().and_then(MessageType::from_u8);
    run.push(&Message {
        seq: count(row, at),
        received_at: row.get::<_, PgTime>(at + 1).0,
        sent: Send {
            room,
            user,
            id: row.get(at + 5),
            username: Some(row.get(at + 6)).filter(|name: &&str| !name.is_empty()),
            text: row.get(at + 7),
            kind: kind.ok_or_else(|| nonsense("a message of no type".into()))?,
            timestamp: row.get::<_, PgTime>(at + 3).0,
        },
    });
    Ok(())
}
