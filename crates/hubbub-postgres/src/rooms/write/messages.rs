//! Inserts messages.

use hubbub_core::{Send, Timestamp};
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use crate::db::{DbError, PgTime, Sql, Tx};

/// A message that has its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewMessage<'a> {
    pub(super) room: i32,
    pub(super) sender: i32,
    pub(super) seq: i64,
    pub(super) received_at: Timestamp,
    pub(super) hash: Uuid,
    pub(super) send: Send<'a>,
}

const INSERT: Sql = Sql {
    what: "inserting messages",
    text: "insert into messages (room, sender, seq, received_at, sent_at, kind, message_id, username, body) \
           select * from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)",
};

/// Inserts messages.
pub(super) async fn insert(tx: &Tx<'_>, stored: &[NewMessage<'_>]) -> Result<(), DbError> {
    if stored.is_empty() {
        return Ok(());
    }
    // Room by room: so pages of the index fill up before the next ones begin, and a room's messages lie together.
    let mut stored = stored.to_vec();
    stored.sort_unstable_by_key(|new| (new.room, new.seq));
    let rooms: Vec<i32> = stored.iter().map(|new| new.room).collect();
    let senders: Vec<i32> = stored.iter().map(|new| new.sender).collect();
    let seqs: Vec<i64> = stored.iter().map(|new| new.seq).collect();
    let received: Vec<PgTime> = stored.iter().map(|new| PgTime(new.received_at)).collect();
    let sent: Vec<PgTime> = stored.iter().map(|new| PgTime(new.send.timestamp)).collect();
    let kinds: Vec<i8> = stored.iter().map(|new| i8::try_from(new.send.kind as u8).unwrap_or(0)).collect();
    let ids: Vec<&str> = stored.iter().map(|new| new.send.id).collect();
    let usernames: Vec<&str> = stored.iter().map(|new| new.send.username.unwrap_or_default()).collect();
    let bodies: Vec<&str> = stored.iter().map(|new| new.send.text).collect();
    tx.execute(&INSERT, &[&rooms, &senders, &seqs, &received, &sent, &kinds, &ids, &usernames, &bodies])
        .await?;
    Ok(())
}

/// Whether a message was refused because no partition holds its time.
pub(super) fn lacks_partition(fault: &DbError) -> bool {
    match fault {
        DbError::Statement { what, error } => {
            *what == INSERT.what && error.code() == Some(&SqlState::CHECK_VIOLATION)
        }
        _ => false,
    }
}
