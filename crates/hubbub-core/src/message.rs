//! A message: as it is sent, as it is kept, and its one JSON shape.

use crate::time::Timestamp;

/// What a message stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum MessageType {
    /// Somebody wrote something.
    #[default]
    Text = 0,
    /// Somebody entered the room.
    Join = 1,
    /// Somebody left the room.
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

    /// From the name in any case; `CHAT` is another name of `TEXT`, as other publishers use it.
    pub fn parse(text: &str) -> Option<Self> {
        [("TEXT", Self::Text), ("JOIN", Self::Join), ("LEAVE", Self::Leave), ("CHAT", Self::Text)]
            .into_iter()
            .find_map(|(name, kind)| text.eq_ignore_ascii_case(name).then_some(kind))
    }

    /// From the number a store keeps.
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Text),
            1 => Some(Self::Join),
            2 => Some(Self::Leave),
            _ => None,
        }
    }
}

/// A message before the store numbered it. Valid: [`crate::draft::MessageDraft::check`] makes it, and stores read
/// back what was made that way.
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
    /// What is said.
    pub text: &'a str,
    /// What it stands for.
    pub kind: MessageType,
    /// The sender's clock; kept and returned, never used for order.
    pub timestamp: Timestamp,
}

impl Send<'_> {
    /// Appends the members of the one JSON shape that a message has before it is stored, without the braces.
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

    /// Whether a message with the same id is the same message: user, text and type agree.
    pub fn same_content(&self, other: &Send<'_>) -> bool {
        self.user == other.user && self.text == other.text && self.kind == other.kind
    }
}

/// A message as the store keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Place in the room: from 1, strictly increasing, gaps allowed.
    pub seq: u64,
    /// When the store numbered it; never decreases within a room.
    pub received_at: Timestamp,
    /// What was sent.
    pub sent: Send<'a>,
}

impl Message<'_> {
    /// Appends the members of the one JSON shape, without the braces, so that a frame can add its own.
    pub fn write_json_members(&self, out: &mut Vec<u8>) {
        self.sent.write_json_members(out);
        out.extend_from_slice(b",\"seq\":");
        write_u64(self.seq, out);
        out.extend_from_slice(b",\"receivedAt\":\"");
        self.received_at.write(out);
        out.push(b'"');
    }

    /// Appends the one JSON shape of a message.
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
pub fn write_u64(mut value: u64, out: &mut Vec<u8>) {
    let start = out.len();
    loop {
        out.push(b'0' + u8::try_from(value % 10).unwrap_or(0));
        value /= 10;
        if value == 0 {
            break;
        }
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
}

#[derive(Debug, Clone, Copy)]
struct Head {
    seq: u64,
    received_at: Timestamp,
    sent: SendHead,
}

/// Messages read from a store, in one allocation for all their texts.
#[derive(Debug, Clone, Default)]
pub struct MessageRun {
    heads: Vec<Head>,
    text: String,
}

impl MessageRun {
    /// How many messages.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Bytes of all texts and ids together.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Adds a copy of `message` at the end.
    pub fn push(&mut self, message: &Message<'_>) {
        let sent = SendHead::write(&message.sent, &mut self.text);
        self.heads.push(Head { seq: message.seq, received_at: message.received_at, sent });
    }

    /// Turns the order round; for pages that were read backwards.
    pub fn reverse(&mut self) {
        self.heads.reverse();
    }

    /// The message at `index`.
    pub fn get(&self, index: usize) -> Option<Message<'_>> {
        let head = self.heads.get(index)?;
        Some(Message { seq: head.seq, received_at: head.received_at, sent: head.sent.read(&self.text)? })
    }

    /// All messages in order.
    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// The fixed part of a [`Send`] whose strings stand one after another in a shared text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendHead {
    start: usize,
    text_bytes: u32,
    timestamp: Timestamp,
    room_bytes: u8,
    user_bytes: u8,
    id_bytes: u8,
    /// `u8::MAX + 1` would be too long for a name, so the length plus one fits with 0 for "none".
    username_bytes_plus_one: u16,
    kind: MessageType,
}

impl SendHead {
    pub(crate) fn write(send: &Send<'_>, into: &mut String) -> Self {
        let start = into.len();
        let name = send.username.unwrap_or_default();
        for part in [send.room, send.user, send.id, name, send.text] {
            into.push_str(part);
        }
        // Lengths were limited when the message was checked; the casts cannot cut.
        Self {
            start,
            text_bytes: u32::try_from(send.text.len()).unwrap_or(u32::MAX),
            timestamp: send.timestamp,
            room_bytes: u8::try_from(send.room.len()).unwrap_or(u8::MAX),
            user_bytes: u8::try_from(send.user.len()).unwrap_or(u8::MAX),
            id_bytes: u8::try_from(send.id.len()).unwrap_or(u8::MAX),
            username_bytes_plus_one: send
                .username
                .map_or(0, |n| u16::try_from(n.len()).unwrap_or(u16::MAX - 1) + 1),
            kind: send.kind,
        }
    }

    /// The same message after its strings moved by `offset` bytes, as when one text is appended to another.
    pub(crate) fn moved_by(mut self, offset: usize) -> Self {
        self.start += offset;
        self
    }

    pub(crate) fn read<'a>(&self, from: &'a str) -> Option<Send<'a>> {
        let mut rest = from.get(self.start..)?;
        let mut take = |bytes: usize| {
            let (head, tail) = rest.split_at_checked(bytes)?;
            rest = tail;
            Some(head)
        };
        let room = take(usize::from(self.room_bytes))?;
        let user = take(usize::from(self.user_bytes))?;
        let id = take(usize::from(self.id_bytes))?;
        let username = match self.username_bytes_plus_one {
            0 => None,
            more => Some(take(usize::from(more - 1))?),
        };
        let text = take(usize::try_from(self.text_bytes).ok()?)?;
        Some(Send { room, user, id, username, text, kind: self.kind, timestamp: self.timestamp })
    }
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
    fn a_run_gives_back_what_was_pushed() {
        let mut run = MessageRun::default();
        let mut nameless = example();
        nameless.sent.username = None;
        run.push(&example());
        run.push(&nameless);
        assert_eq!(run.iter().collect::<Vec<_>>(), [example(), nameless]);
    }
}
