//! Where a user's messages stand: ordinal, time and type of each, in the order of ordinals.

use hubbub_core::MessageType;

use super::paged::PagedReader;
use crate::embedded::file::varint::{self, unzigzag, zigzag};
use crate::embedded::file::{Cursor, FileError};

const KIND_MASK: u64 = 0b11;

/// More than any posting takes: two numbers.
const POSTING_BYTES_MAX: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posting {
    pub(crate) ordinal: u32,
    /// When it was received, in microseconds.
    pub(crate) received: i64,
    pub(crate) kind: MessageType,
}

impl Posting {
    /// From a time with the type in its two lowest bits.
    pub(super) fn unpack(ordinal: u32, time: i64) -> Self {
        let kind = u8::try_from(time & 0b11).ok().and_then(MessageType::from_u8).unwrap_or_default();
        Self { ordinal, received: time >> 2, kind }
    }
}

/// Writes postings, each as difference to the one before.
pub(super) struct PostingEncoder {
    next_ordinal: u32,
    received: i64,
}

impl PostingEncoder {
    /// Begins a list; the first time is a difference to `base`.
    pub(super) fn new(base: i64) -> Self {
        Self { next_ordinal: 0, received: base }
    }

    pub(super) fn write(&mut self, posting: &Posting, out: &mut Vec<u8>) {
        varint::write(posting.ordinal.wrapping_sub(self.next_ordinal).into(), out);
        let step = posting.received.wrapping_sub(self.received);
        // Times fit 58 bits, so two more have room in a number.
        varint::write(zigzag(step) << 2 | u64::from(posting.kind as u8), out);
        self.next_ordinal = posting.ordinal.wrapping_add(1);
        self.received = posting.received;
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PostingDecoder {
    left: u64,
    next_ordinal: u32,
    received: i64,
    ordinals: u32,
}

impl PostingDecoder {
    pub(super) fn new(count: u64, base: i64, ordinals: u32) -> Self {
        Self { left: count, next_ordinal: 0, received: base, ordinals }
    }

    /// The next posting; `None` behind the last one; an error when there are fewer than the user's entry says.
    #[inline]
    pub(super) fn next(&mut self, reader: &mut PagedReader) -> Result<Option<Posting>, FileError> {
        if self.left == 0 {
            return Ok(None);
        }
        let posting = reader.take(POSTING_BYTES_MAX, "a posting is unreadable", |from| self.decode(from))?;
        self.left -= 1;
        Ok(Some(posting))
    }

    #[inline]
    fn decode(&mut self, cursor: &mut Cursor<'_>) -> Option<Posting> {
        let ordinal = self.next_ordinal.checked_add(cursor.varint_u32()?)?;
        let packed = cursor.varint()?;
        let kind = MessageType::from_u8(u8::try_from(packed & KIND_MASK).ok()?)?;
        self.received = self.received.wrapping_add(unzigzag(packed >> 2));
        self.next_ordinal = ordinal.checked_add(1)?;
        (ordinal < self.ordinals).then_some(Posting { ordinal, received: self.received, kind })
    }
}
