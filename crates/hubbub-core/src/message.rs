//! Messages: as sent, as stored, and their one JSON shape.

use crate::invariant::cast_or_nearest;
use crate::time::Timestamp;

/// The type of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum MessageType {
    /// A text.
    #[default]
    Text = 0,
    /// The user entered the room.
    Join = 1,
    /// The user left the room.
    Leave = 2,
}

impl MessageType {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::Join => "JOIN",
            Self::Leave => "LEAVE",
        }
    }

    /// From the name in any case. `CHAT` means `TEXT`: other publishers use it.
    pub fn parse(text: &str) -> Option<Self> {
        [("TEXT", Self::Text), ("JOIN", Self::Join), ("LEAVE", Self::Leave), ("CHAT", Self::Text)]
            .into_iter()
            .find_map(|(name, kind)| text.eq_ignore_ascii_case(name).then_some(kind))
    }

    /// From the number that stores keep.
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Text),
            1 => Some(Self::Join),
            2 => Some(Self::Leave),
            _ => None,
        }
    }
}

/// A message before the store numbers it. Always valid: [`crate::draft::MessageDraft::check`] makes it, and stores return
/// only what was made that way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Send<'a> {
    /// The room it goes to.
    pub room: &'a str,
    /// The sender.
    pub user: &'a str,
    /// The idempotency key within the room.
    pub id: &'a str,
    /// The sender's display name; at most 255 bytes.
    pub username: Option<&'a str>,
    /// The text.
    pub text: &'a str,
    /// The type.
    pub kind: MessageType,
    /// The sender's clock. Stored and returned, never used for order.
    pub timestamp: Timestamp,
}

impl Send<'_> {
    /// Appends the JSON members of a message that is not stored yet, without the braces.
    pub fn write_json_members(&self, out: &mut Vec<u8>) {
        // Ids are ASCII without quotes or backslashes, so they need no escaping.
        out.extend_from_slice(b"\"messageId\":\"");
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(b"\",\"roomId\":\"");
        out.extend_from_slice(self.room.as_bytes());
        out.extend_from_slice(b"\",\"userId\":\"");
        out.extend_from_slice(self.user.as_bytes());
        if let Some(username) = self.username {
            out.extend_from_slice(b"\",\"username\":");
            write_json_string(username, out);
            out.extend_from_slice(b",\"message\":");
        } else {
            out.extend_from_slice(b"\",\"message\":");
        }
        write_json_string(self.text, out);
        out.extend_from_slice(b",\"messageType\":\"");
        out.extend_from_slice(self.kind.as_str().as_bytes());
        out.extend_from_slice(b"\",\"timestamp\":\"");
        self.timestamp.write(out);
        out.push(b'"');
    }

    /// Whether a message with the same id is the same message: user, text and type are equal.
    pub fn same_content(&self, other: &Send<'_>) -> bool {
        self.user == other.user && self.text == other.text && self.kind == other.kind
    }
}

/// A stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Number within the room: from 1, strictly increasing, gaps allowed.
    pub seq: u64,
    /// When the store numbered it. Never decreases within a room.
    pub received_at: Timestamp,
    /// The message as sent.
    pub sent: Send<'a>,
}

impl Message<'_> {
    /// Appends the JSON members, without the braces, so that a frame can add its own.
    pub fn write_json_members(&self, out: &mut Vec<u8>) {
        self.sent.write_json_members(out);
        out.extend_from_slice(b",\"seq\":");
        write_u64(self.seq, out);
        out.extend_from_slice(b",\"receivedAt\":\"");
        self.received_at.write(out);
        out.push(b'"');
    }

    /// Appends the message as a JSON object.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.write_json_members(out);
        out.push(b'}');
    }
}

/// Appends `text` as a JSON string.
pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    // Serialising a str into a Vec cannot fail.
    let _ = serde_json::to_writer(out, text);
}

/// Appends a decimal number.
pub fn write_u64(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[derive(Debug, Clone, Copy)]
struct EncodedMessage {
    seq: u64,
    received_at: Timestamp,
    sent: EncodedSend,
}

/// Messages read from a store, with all their strings in one allocation.
#[derive(Debug, Clone, Default)]
pub struct MessageRun {
    messages: Vec<EncodedMessage>,
    text: String,
    /// Bytes of the messages' texts alone.
    texts_bytes: usize,
}

impl MessageRun {
    /// Number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes of all strings.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Adds a copy of `message` at the end.
    pub fn push(&mut self, message: &Message<'_>) {
        let sent = EncodedSend::write(&message.sent, &mut self.text);
        self.texts_bytes += message.sent.text.len();
        self.messages.push(EncodedMessage { seq: message.seq, received_at: message.received_at, sent });
    }

    /// Whether a page of at most `limit` messages and `bytes_max` bytes of texts has room for one with a text of `bytes`. The
    /// first one has it, however large it is.
    pub fn has_room(&self, bytes: usize, limit: usize, bytes_max: usize) -> bool {
        let fits = self.is_empty() || self.texts_bytes.saturating_add(bytes) <= bytes_max;
        self.len() < limit && fits
    }

    /// Adds a copy of `message` at the end of a page, unless the page is full. Returns whether it was added.
    pub fn push_within(&mut self, message: &Message<'_>, limit: usize, bytes_max: usize) -> bool {
        let has_room = self.has_room(message.sent.text.len(), limit, bytes_max);
        if has_room {
            self.push(message);
        }
        has_room
    }

    /// Reverses the order, for pages that were read backwards.
    pub fn reverse(&mut self) {
        self.messages.reverse();
    }

    /// The message at `index`.
    pub fn get(&self, index: usize) -> Option<Message<'_>> {
        let message = self.messages.get(index)?;
        let sent = message.sent.read(&self.text)?;
        Some(Message { seq: message.seq, received_at: message.received_at, sent })
    }

    /// All messages in order.
    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// The fixed-size part of a [`Send`] whose strings are stored in a shared buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedSend {
    start: usize,
    text_bytes: u32,
    timestamp: Timestamp,
    room_bytes: u8,
    user_bytes: u8,
    id_bytes: u8,
    /// 0 = no name.
    username_bytes_plus_one: u16,
    kind: MessageType,
}

impl EncodedSend {
    pub(crate) fn write(send: &Send<'_>, into: &mut String) -> Self {
        let start = into.len();
        let name = send.username.unwrap_or_default();
        for part in [send.room, send.user, send.id, name, send.text] {
            into.push_str(part);
        }
        Self {
            start,
            text_bytes: cast_or_nearest(send.text.len(), "a text is at most 16 MiB"),
            timestamp: send.timestamp,
            room_bytes: id_length(send.room),
            user_bytes: id_length(send.user),
            id_bytes: id_length(send.id),
            username_bytes_plus_one: send
                .username
                .map_or(0, |name| cast_or_nearest(name.len() + 1, "a user name is at most 255 bytes")),
            kind: send.kind,
        }
    }

    /// The same after its strings moved by `offset` bytes.
    pub(crate) fn moved_by(mut self, offset: usize) -> Self {
        self.start += offset;
        self
    }

    pub(crate) fn read<'a>(&self, from: &'a str) -> Option<Send<'a>> {
        let mut rest = from.get(self.start..)?;
        let mut take = |bytes: usize| {
            let (part, tail) = rest.split_at_checked(bytes)?;
            rest = tail;
            Some(part)
        };
        let room = take(usize::from(self.room_bytes))?;
        let user = take(usize::from(self.user_bytes))?;
        let id = take(usize::from(self.id_bytes))?;
        let username = match self.username_bytes_plus_one {
            0 => None,
            length => Some(take(usize::from(length - 1))?),
        };
        let text = take(usize::try_from(self.text_bytes).ok()?)?;
        Some(Send { room, user, id, username, text, kind: self.kind, timestamp: self.timestamp })
    }
}

fn id_length(id: &str) -> u8 {
    cast_or_nearest(id.len(), "an id is at most 64 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Message<'static> {
        Message {
            seq: 42,
            received_at: Timestamp::from_micros(1_769_860_800_001_000),
            sent: Send {
                room: "lobby",
                user: "ada",
                id: "m-1",
                username: Some("Ada \"L\""),
                text: "hi\n\u{1}ü",
                kind: MessageType::Text,
                timestamp: Timestamp::from_micros(1_769_860_800_000_001),
            },
        }
    }

    #[test]
    fn json_has_the_one_shape() {
        let mut out = Vec::new();
        example().write_json(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"messageId":"m-1","roomId":"lobby","userId":"ada","username":"Ada \"L\"","message":"hi\n\u0001ü","messageType":"TEXT","timestamp":"2026-01-31T12:00:00.000001Z","seq":42,"receivedAt":"2026-01-31T12:00:00.001Z"}"#
        );
    }

    #[test]
    fn a_run_returns_what_was_pushed() {
        let mut run = MessageRun::default();
        let mut nameless = example();
        nameless.sent.username = None;
        run.push(&example());
        run.push(&nameless);
        assert_eq!(run.iter().collect::<Vec<_>>(), [example(), nameless]);
    }
}
