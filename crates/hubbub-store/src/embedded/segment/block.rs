//! One block of messages: packed in columns on disk, laid out for searching in memory.

use std::io;

use hubbub_core::invariant::cast;
use hubbub_core::{Message, MessageType, Send, Timestamp};

use super::uuid::{UUID_BYTES, UUID_TEXT_BYTES, pack_uuid, unpack_uuid};
use crate::embedded::file::cursor::index;
use crate::embedded::file::varint;
use crate::embedded::file::{Cached, Cursor};

/// A block is closed before the message that would bring it over this; a larger message has a block of its own.
pub(super) const BLOCK_BYTES: usize = 16 * 1024;

const KIND_BITS: u8 = 0b0011;
const HAS_USERNAME: u8 = 0b0100;
const ID_IS_UUID: u8 = 0b1000;

#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    heads: Vec<u8>,
    uuids: Vec<u8>,
    names: Vec<u8>,
    payloads: Vec<u8>,
    pub(super) messages: u32,
    last_seq: u64,
    last_received: i64,
}

impl BlockBuilder {
    /// Whether the block must be closed before a message with so many bytes of strings.
    pub(super) fn is_full_for(&self, bytes: usize) -> bool {
        let now = self.heads.len() + self.uuids.len() + self.names.len() + self.payloads.len();
        self.messages > 0 && now + bytes > BLOCK_BYTES
    }

    pub(super) fn push(&mut self, message: &Message<'_>) -> io::Result<()> {
        let sent = &message.sent;
        let uuid = pack_uuid(sent.id);
        let name_bit = if sent.username.is_some() { HAS_USERNAME } else { 0 };
        let uuid_bit = if uuid.is_some() { ID_IS_UUID } else { 0 };
        self.heads.push(sent.kind as u8 | name_bit | uuid_bit);
        varint::write_zigzag(message.seq.wrapping_sub(self.last_seq).cast_signed(), &mut self.heads);
        let received = message.received_at.as_micros();
        varint::write_zigzag(received.wrapping_sub(self.last_received), &mut self.heads);
        varint::write_zigzag(sent.timestamp.as_micros().wrapping_sub(received), &mut self.heads);
        self.push_name(sent.user)?;
        if let Some(username) = sent.username {
            self.push_name(username)?;
        }
        match uuid {
            Some(uuid) => self.uuids.extend_from_slice(&uuid),
            None => self.push_name(sent.id)?,
        }
        varint::write(sent.text.len() as u64, &mut self.heads);
        self.payloads.extend_from_slice(sent.text.as_bytes());
        (self.last_seq, self.last_received) = (message.seq, received);
        self.messages += 1;
        Ok(())
    }

    fn push_name(&mut self, name: &str) -> io::Result<()> {
        self.heads.push(name_bytes(name)?);
        self.names.extend_from_slice(name.as_bytes());
        Ok(())
    }

    /// Writes the payload into `raw`, in place of what was there, and begins anew.
    pub(super) fn finish_into(&mut self, raw: &mut Vec<u8>) -> io::Result<()> {
        raw.clear();
        let uuids = self.uuids.len() / UUID_BYTES;
        for count in [self.heads.len(), uuids, self.names.len()] {
            let count: u32 = cast(count, "a block has less than 4 GiB").map_err(io::Error::other)?;
            raw.extend_from_slice(&count.to_le_bytes());
        }
        for part in [&mut self.heads, &mut self.uuids, &mut self.names, &mut self.payloads] {
            raw.extend_from_slice(part);
            part.clear();
        }
        (self.messages, self.last_seq, self.last_received) = (0, 0, 0);
        Ok(())
    }
}

pub(super) fn name_bytes(name: &str) -> io::Result<u8> {
    cast(name.len(), "a name of a checked message has 255 bytes at most").map_err(io::Error::other)
}

#[derive(Debug, Clone, Copy)]
struct MessageHead {
    seq: u64,
    received: i64,
    timestamp: i64,
    text_at: u32,
    text_bytes: u32,
    names_at: u32,
    user_bytes: u8,
    id_bytes: u8,
    username_bytes: Option<u8>,
    kind: MessageType,
}

/// A decoded block. Its messages' rooms follow from their ordinals and are given by the reader.
#[derive(Debug)]
pub(crate) struct MessageBlock {
    heads: Vec<MessageHead>,
    /// All payloads, then user, username and id of each message.
    strings: String,
}

impl MessageBlock {
    /// From a payload that holds `messages` messages; `None` when it is not one.
    pub(super) fn decode(raw: &[u8], messages: usize) -> Option<Self> {
        let mut cursor = Cursor::new(raw);
        let [heads_bytes, uuids, names_bytes] = [cursor.u32()?, cursor.u32()?, cursor.u32()?];
        let mut packed = Cursor::new(cursor.take(index(heads_bytes))?);
        let mut uuids = Cursor::new(cursor.take(index(uuids).checked_mul(UUID_BYTES)?)?);
        let mut names = Cursor::new(cursor.take(index(names_bytes))?);
        let texts = std::str::from_utf8(cursor.rest()).ok()?;

        let mut heads = Vec::with_capacity(messages);
        let mut expanded =
            Vec::with_capacity(names.rest().len() + uuids.rest().len() / UUID_BYTES * UUID_TEXT_BYTES);
        let (mut seq, mut received, mut text_at) = (0_u64, 0_i64, 0_usize);
        for _ in 0..messages {
            let flags = packed.byte()?;
            seq = seq.wrapping_add(packed.zigzag()?.cast_unsigned());
            received = received.wrapping_add(packed.zigzag()?);
            let timestamp = received.wrapping_add(packed.zigzag()?);
            let names_at = u32::try_from(texts.len() + expanded.len()).ok()?;
            let user_bytes = packed.byte()?;
            expanded.extend_from_slice(names.take(user_bytes.into())?);
            let username_bytes = if flags & HAS_USERNAME == 0 { None } else { Some(packed.byte()?) };
            expanded.extend_from_slice(names.take(username_bytes.unwrap_or(0).into())?);
            let id_bytes = if flags & ID_IS_UUID == 0 {
                let id_bytes = packed.byte()?;
                expanded.extend_from_slice(names.take(id_bytes.into())?);
                id_bytes
            } else {
                expanded.extend_from_slice(&unpack_uuid(uuids.array()?));
                36
            };
            let text_bytes = packed.varint_u32()?;
            heads.push(MessageHead {
                seq,
                received,
                timestamp,
                text_at: u32::try_from(text_at).ok()?,
                text_bytes,
                names_at,
                user_bytes,
                id_bytes,
                username_bytes,
                kind: MessageType::from_u8(flags & KIND_BITS)?,
            });
            text_at = text_at.checked_add(index(text_bytes))?;
        }
        let all_used = packed.is_empty() && uuids.is_empty() && names.is_empty() && text_at == texts.len();
        let expanded = std::str::from_utf8(&expanded).ok()?;
        let mut strings = String::with_capacity(texts.len() + expanded.len());
        strings.push_str(texts);
        strings.push_str(expanded);
        all_used.then_some(Self { heads, strings })
    }

    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// The first index in `range` whose message fails `before`, which holds for a beginning of the range only.
    pub(super) fn partition_point(
        &self,
        range: std::ops::Range<usize>,
        before: impl Fn(u64, i64) -> bool,
    ) -> usize {
        let heads = self.heads.get(range.clone()).unwrap_or_default();
        range.start + heads.partition_point(|head| before(head.seq, head.received))
    }

    /// The message at `index`, which belongs to `room`; `None` when its parts do not fit their strings.
    #[inline]
    pub(super) fn message<'a>(&'a self, index: usize, room: &'a str) -> Option<Message<'a>> {
        let head = self.heads.get(index)?;
        let text = self.slice(head.text_at, head.text_bytes)?;
        let user = self.slice(head.names_at, head.user_bytes.into())?;
        let name_at = head.names_at + u32::from(head.user_bytes);
        let username = match head.username_bytes {
            Some(bytes) => Some(self.slice(name_at, bytes.into())?),
            None => None,
        };
        let id = self.slice(name_at + u32::from(head.username_bytes.unwrap_or(0)), head.id_bytes.into())?;
        let timestamp = Timestamp::from_micros(head.timestamp);
        Some(Message {
            seq: head.seq,
            received_at: Timestamp::from_micros(head.received),
            sent: Send { room, user, id, username, text, kind: head.kind, timestamp },
        })
    }

    #[inline]
    fn slice(&self, at: u32, bytes: u32) -> Option<&str> {
        let start = index(at);
        self.strings.get(start..start + index(bytes))
    }
}

impl Cached for MessageBlock {
    fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.heads.capacity() * size_of::<MessageHead>() + self.strings.capacity())
            as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rubbish_is_no_block(raw in proptest::collection::vec(any::<u8>(), 0..200), messages in 0_usize..9) {
            let _ = MessageBlock::decode(&raw, messages);
        }
    }
}
