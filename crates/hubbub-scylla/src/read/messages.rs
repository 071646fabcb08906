//! Rows of messages.

use hubbub_core::Timestamp;
use hubbub_core::message::{Message, MessageRun, MessageType, Send};

use crate::db::{Db, DbError, Result};

/// Columns of a message, in the order of the statements that read messages.
pub(super) type Row = (i64, String, String, Option<String>, Option<String>, Option<i32>, i8, i64, i64);

/// A message as it is stored.
pub(super) struct Stored {
    pub(super) seq: i64,
    pub(super) text: String,
    id: String,
    user: String,
    username: Option<String>,
    kind: MessageType,
    sent_at: i64,
    received_at: i64,
}

impl Stored {
    /// A row with its text, which is read if it is elsewhere.
    pub(super) async fn of(db: &Db, room: &str, bucket: i64, row: Row) -> Result<Self> {
        let (seq, id, user, username, text, chunks, kind, sent_at, received_at) = row;
        let damaged =
            || DbError::new("reading messages", format!("message {seq} of {room} has the type {kind}"));
        let kind = u8::try_from(kind).ok().and_then(MessageType::from_u8).ok_or_else(damaged)?;
        let mut text = text.unwrap_or_default();
        if chunks.is_some() {
            let values = (room, bucket, seq);
            let parts =
                db.rows::<(String,)>("reading a large text", &db.statements.large_text, values).await?;
            text = parts.into_iter().map(|(part,)| part).collect();
        }
        Ok(Self { seq, text, id, user, username, kind, sent_at, received_at })
    }

    /// Adds it to a page.
    pub(super) fn push_to(&self, run: &mut MessageRun, room: &str) {
        let sent = Send {
            room,
            user: &self.user,
            id: &self.id,
            username: self.username.as_deref(),
            text: &self.text,
            kind: self.kind,
            timestamp: Timestamp::from_micros(self.sent_at),
        };
        let received_at = Timestamp::from_micros(self.received_at);
        run.push(&Message { seq: self.seq.unsigned_abs(), received_at, sent });
    }
}

/// Bounds of a page while it is being filled.
pub(super) struct Page {
    pub(super) run: MessageRun,
    /// Whether there is more behind the last one.
    pub(super) more: bool,
    limit: usize,
    bytes_max: usize,
}

impl Page {
    pub(super) fn new(limit: usize, bytes_max: usize) -> Self {
        Self { run: MessageRun::default(), more: false, limit, bytes_max }
    }

    /// Adds a message, unless the page is full. Whether it was added.
    pub(super) fn add(&mut self, message: &Stored, room: &str) -> bool {
        if !self.run.has_room(message.text.len(), self.limit, self.bytes_max) {
            self.more = true;
            return false;
        }
        message.push_to(&mut self.run, room);
        true
    }

    /// Messages that fit in, and one more that says whether there are more.
    pub(super) fn wanted(&self) -> usize {
        self.limit.saturating_sub(self.run.len()).saturating_add(1)
    }
}
