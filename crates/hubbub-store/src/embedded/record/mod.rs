//! One operation as the journal keeps it.
//!
//! ```text
//! kind u8 | type u8 | room, user, id: length u8 each | username: length + 1, varint, 0 for none | text: length varint
//! | seq varint | received_at i64 LE, microseconds | timestamp − received_at, zigzag varint
//! | room | user | id | username | text
//! ```
//!
//! The first byte says what kind of operation follows, so that every kind can stand in the same block. Changes of
//! rooms stand in [`logged`], those of keys in [`kv`], operations on queues in [`queue`], proven times in [`time`].

mod kv;
mod logged;
mod queue;
mod time;

use hubbub_core::invariant::{BrokenInvariant, cast};
use hubbub_core::{Message, MessageType, Send, Timestamp};

use crate::embedded::file::varint;
use crate::embedded::journal::block::{BlockHeader, HEADER_BYTES};
use kv::KIND_KEY;
pub(crate) use kv::{KEY_GONE_BYTES_MAX, KeyChange, code_of, from_code, read_key_change, write_key_change};
use logged::KIND_CHANGE;
pub(crate) use logged::{ChangeRecord, SEQ_BYTES_MAX};
use queue::KIND_QUEUE;
pub(crate) use queue::*;
use time::KIND_TIME;
pub(crate) use time::{TIME_BYTES, TimeProven};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Message(Message<'a>),
    Change(ChangeRecord<'a>),
    Key(KeyChange<'a>),
    Queue(QueueRecord<'a>),
    Time(TimeProven),
}

/// Takes a record off the front of `input`. `None` when the bytes are none.
pub(crate) fn read<'a>(input: &mut &'a [u8]) -> Option<Record<'a>> {
    match input.first() {
        Some(&KIND_CHANGE) => ChangeRecord::read(input).map(Record::Change),
        Some(&KIND_KEY) => read_key_change(input).map(Record::Key),
        Some(&KIND_QUEUE) => read_queue(input).map(Record::Queue),
        Some(&KIND_TIME) => TimeProven::read(input).map(Record::Time),
        _ => read_message(input).map(Record::Message),
    }
}

/// The records of a block, each with where it begins in the slot and how long it is; an error is the place of one that is
/// damaged, and the last.
pub(crate) struct Records<'a> {
    rest: &'a [u8],
    offset: u64,
    left: u32,
}

impl<'a> Records<'a> {
    pub(crate) fn new(start: u64, header: &BlockHeader, records: &'a [u8]) -> Self {
        Self { rest: records, offset: start + HEADER_BYTES as u64, left: header.records }
    }

    fn read(&mut self) -> Option<(u32, u32, Record<'a>)> {
        let (begin, before) = (u32::try_from(self.offset).ok()?, self.rest.len());
        let record = read(&mut self.rest)?;
        let bytes = u32::try_from(before - self.rest.len()).ok()?;
        self.offset += u64::from(bytes);
        Some((begin, bytes, record))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(u32, u32, Record<'a>), u64>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let found = self.read();
        if found.is_none() {
            self.left = 0;
        }
        Some(found.ok_or(self.offset))
    }
}

const KIND_MESSAGE: u8 = 1;

/// More than the fixed part of any record takes.
pub(crate) const RECORD_OVERHEAD_MAX: usize = 5 + 4 * varint::VARINT_BYTES_MAX + 8;

/// Appends a message; nothing of it when an id has more bytes than it may.
#[inline]
pub(crate) fn write_message(message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), BrokenInvariant> {
    let Send { room, user, id, username, text, kind, timestamp } = message.sent;
    let short =
        |part: &str| cast(part.len(), "ids have 64 bytes at most, as checked when the message was made");
    out.extend_from_slice(&[KIND_MESSAGE, kind as u8, short(room)?, short(user)?, short(id)?]);
    varint::write(username.map_or(0, |name| name.len() as u64 + 1), out);
    varint::write(text.len() as u64, out);
    varint::write(message.seq, out);
    let received = message.received_at.as_micros();
    out.extend_from_slice(&received.to_le_bytes());
    varint::write_zigzag(timestamp.as_micros().wrapping_sub(received), out);
    for part in [room, user, id, username.unwrap_or_default(), text] {
        out.extend_from_slice(part.as_bytes());
    }
    Ok(())
}

/// Takes a message off the front of `input`. `None` when the bytes are no message: another kind, cut short, strings
/// that are no UTF-8.
pub(crate) fn read_message<'a>(input: &mut &'a [u8]) -> Option<Message<'a>> {
    let (&[operation, kind, room, user, id], mut rest) = input.split_first_chunk::<5>()?;
    if operation != KIND_MESSAGE {
        return None;
    }
    let kind = MessageType::from_u8(kind)?;
    let name = usize::try_from(varint::read(&mut rest)?).ok()?;
    let text = usize::try_from(varint::read(&mut rest)?).ok()?;
    let seq = varint::read(&mut rest)?;
    let (received, mut rest) = rest.split_first_chunk::<8>()?;
    let received = i64::from_le_bytes(*received);
    let timestamp = received.wrapping_add(varint::unzigzag(varint::read(&mut rest)?));
    let lengths = [usize::from(room), usize::from(user), usize::from(id), name.saturating_sub(1), text];
    let total = lengths.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length))?;
    let (strings, after) = rest.split_at_checked(total)?;
    let mut strings = std::str::from_utf8(strings).ok()?;
    let mut take = |length: usize| {
        let (part, after) = strings.split_at_checked(length)?;
        strings = after;
        Some(part)
    };
    let (room, user, id) = (take(usize::from(room))?, take(usize::from(user))?, take(usize::from(id))?);
    let username = take(name.saturating_sub(1))?;
    let sent = Send {
        room,
        user,
        id,
        username: (name > 0).then_some(username),
        text: take(text)?,
        kind,
        timestamp: Timestamp::from_micros(timestamp),
    };
    *input = after;
    Some(Message { seq, received_at: Timestamp::from_micros(received), sent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_come_back(
            seq: u64,
            received in 0_i64..4_000_000_000_000_000,
            timestamp in 0_i64..4_000_000_000_000_000,
            strings in ("[a-z]{1,64}", "[a-z]{1,64}", "[a-z]{1,64}", proptest::option::of("\\PC{0,60}"), "\\PC{0,300}"),
            kind in 0_u8..3,
        ) {
            let (room, user, id, username, text) = &strings;
            let message = Message {
                seq,
                received_at: Timestamp::from_micros(received),
                sent: Send {
                    room, user, id, username: username.as_deref(), text,
                    kind: MessageType::from_u8(kind).unwrap(),
                    timestamp: Timestamp::from_micros(timestamp),
                },
            };
            let mut bytes = Vec::new();
            write_message(&message, &mut bytes).unwrap();
            let strings = room.len() + user.len() + id.len() + username.as_ref().map_or(0, String::len) + text.len();
            prop_assert!(bytes.len() <= strings + RECORD_OVERHEAD_MAX);
            bytes.push(7);
            let mut input = bytes.as_slice();
            prop_assert_eq!(read_message(&mut input), Some(message));
            prop_assert_eq!(input, &[7]);
            prop_assert_eq!(read_message(&mut &bytes[..bytes.len() - 2]), None);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut with_kind = vec![KIND_MESSAGE, 0];
            with_kind.extend_from_slice(&bytes);
            let _ = read_message(&mut bytes.as_slice());
            let _ = read_message(&mut with_kind.as_slice());
        }
    }
}
