//! The contract in its plainest form: lists in memory, searched from end to end.

use std::collections::BTreeMap;

use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{Message, MessageType, Outcome, Receipt, Refusal, Send, Timestamp};

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// The room it goes to.
    pub room: String,
    /// The sender.
    pub user: String,
    /// The idempotency key.
    pub id: String,
    /// The sender's display name.
    pub username: Option<String>,
    /// What is said.
    pub text: String,
    /// What it stands for.
    pub kind: MessageType,
    /// The sender's clock.
    pub timestamp: Timestamp,
}

impl Post {
    /// A message by "ada" whose text follows from room and id.
    pub fn new(room: &str, id: &str) -> Self {
        Self {
            room: room.to_owned(),
            user: "ada".to_owned(),
            id: id.to_owned(),
            username: None,
            text: format!("{id} in {room}"),
            kind: MessageType::Text,
            timestamp: Timestamp::from_micros(1_600_000_000_000_000),
        }
    }

    /// The same with another text.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// The same from another user.
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// The same with another type.
    pub fn kind(mut self, kind: MessageType) -> Self {
        self.kind = kind;
        self
    }

    /// The same with a display name.
    pub fn username(mut self, username: &str) -> Self {
        self.username = Some(username.to_owned());
        self
    }

    /// As a store takes it.
    pub fn as_send(&self) -> Send<'_> {
        Send {
            room: &self.room,
            user: &self.user,
            id: &self.id,
            username: self.username.as_deref(),
            text: &self.text,
            kind: self.kind,
            timestamp: self.timestamp,
        }
    }

    /// Bytes of all its strings.
    pub fn bytes(&self) -> usize {
        let username = self.username.as_ref().map_or(0, String::len);
        self.room.len() + self.user.len() + self.id.len() + username + self.text.len()
    }
}

/// A message as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Place in the room.
    pub seq: u64,
    /// When it was numbered.
    pub received_at: Timestamp,
    /// What was sent.
    pub post: Post,
}

impl Kept {
    /// A copy of what a store gave.
    pub fn of(message: &Message<'_>) -> Self {
        let sent = &message.sent;
        let post = Post {
            room: sent.room.to_owned(),
            user: sent.user.to_owned(),
            id: sent.id.to_owned(),
            username: sent.username.map(str::to_owned),
            text: sent.text.to_owned(),
            kind: sent.kind,
            timestamp: sent.timestamp,
        };
        Self { seq: message.seq, received_at: message.received_at, post }
    }

    /// As a store gives it.
    pub fn as_message(&self) -> Message<'_> {
        Message { seq: self.seq, received_at: self.received_at, sent: self.post.as_send() }
    }

    /// Number and time.
    pub fn receipt(&self) -> Receipt {
        Receipt { seq: self.seq, received_at: self.received_at }
    }
}

/// Rooms and what they hold.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The messages of each room, oldest first.
    pub rooms: BTreeMap<String, Vec<Kept>>,
}

impl Model {
    /// Stores what is new at the time `now`.
    pub fn apply(&mut self, posts: &[Post], now: Timestamp, autocreate: bool) -> Vec<Outcome> {
        posts.iter().map(|post| self.apply_one(post, now, autocreate)).collect()
    }

    fn apply_one(&mut self, post: &Post, now: Timestamp, autocreate: bool) -> Outcome {
        if !autocreate && !self.rooms.contains_key(&post.room) {
            return Outcome::Refused(Refusal::UnknownRoom);
        }
        let room = self.rooms.entry(post.room.clone()).or_default();
        if let Some(first) = room.iter().find(|kept| kept.post.id == post.id) {
            return if first.post.as_send().same_content(&post.as_send()) {
                Outcome::Duplicate(first.receipt())
            } else {
                Outcome::Refused(Refusal::IdReused { seq: first.seq })
            };
        }
        let (seq, last) = room.last().map_or((0, now), |last| (last.seq, last.received_at));
        let kept = Kept { seq: seq + 1, received_at: now.max(last), post: post.clone() };
        let receipt = kept.receipt();
        room.push(kept);
        Outcome::Stored(receipt)
    }

    /// What a room holds; nothing when there is none of that name.
    pub fn room(&self, room: &str) -> &[Kept] {
        self.rooms.get(room).map(Vec::as_slice).unwrap_or_default()
    }

    /// Everything the window of a query holds, as if it had no limits, oldest first.
    pub fn window(&self, room: &str, query: &HistoryQuery) -> Vec<&Kept> {
        let inside = |kept: &&Kept| {
            let in_cursor = match query.cursor {
                Cursor::After(seq) => kept.seq > seq,
                Cursor::Before(seq) => kept.seq < seq,
            };
            in_cursor
                && query.from.is_none_or(|from| kept.received_at >= from)
                && query.to.is_none_or(|to| kept.received_at < to)
        };
        self.room(room).iter().filter(inside).collect()
    }
}
