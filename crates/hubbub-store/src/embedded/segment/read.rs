//! Reading a room's messages from a cursor and within a window of time.

use std::ops::Range;

use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{Message, MessageRun, Timestamp};

use super::block::MessageBlock;
use super::index::RoomEntry;
use super::open::Segment;
use crate::embedded::file::FileError;
use crate::embedded::file::cursor::index;
use crate::embedded::rooms::{Hidden, add_to_page};

/// How a read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// The page is full and the window holds more: at least one more message here.
    Full,
    /// Everything the window holds here was added.
    Exhausted,
}

impl Segment {
    /// Adds the room's messages inside the query's window that are not hidden to `out`: oldest first for [`Cursor::After`], newest
    /// first for [`Cursor::Before`] (turn the page round at the end). `limit` and `bytes_max` hold for all of
    /// `out`, strings of every kind counted, so a page can be filled from one segment after another; an empty
    /// `out` gets at least one message.
    pub(crate) fn read_room(
        &self,
        room: &str,
        query: &HistoryQuery,
        hidden: &Hidden,
        out: &mut MessageRun,
    ) -> Result<ReadEnd, FileError> {
        let Some(entry) = self.room(room) else { return Ok(ReadEnd::Exhausted) };
        match query.cursor {
            Cursor::After(seq) => self.read_forward((room, entry), seq, query, hidden, out),
            Cursor::Before(seq) => self.read_backward((room, entry), seq, query, hidden, out),
        }
    }

    fn read_forward(
        &self,
        (room, entry): (&str, &RoomEntry),
        after: u64,
        query: &HistoryQuery,
        hidden: &Hidden,
        out: &mut MessageRun,
    ) -> Result<ReadEnd, FileError> {
        let after = after.max(hidden.low_watermark);
        let too_early = |seq, received| seq <= after || query.from.is_some_and(|from| received < from);
        let too_late = |received| query.to.is_some_and(|to| received >= to);
        if too_early(entry.last_seq, Timestamp::from_micros(entry.last_received))
            || too_late(Timestamp::from_micros(entry.first_received))
        {
            return Ok(ReadEnd::Exhausted);
        }
        let last = self.block_of(entry.end().saturating_sub(1));
        for place in self.last_block_from(entry, too_early)..=last {
            let block = self.block(place)?;
            let range = self.indexes(place, entry);
            for index in block.partition_point(range.clone(), too_early)..range.end {
                let message = self.message(place, &block, index, room)?;
                if too_late(message.received_at) {
                    return Ok(ReadEnd::Exhausted);
                }
                if !hidden.hides(message.seq) && !add_to_page(&message, query, out) {
                    return Ok(ReadEnd::Full);
                }
            }
        }
        Ok(ReadEnd::Exhausted)
    }

    fn read_backward(
        &self,
        (room, entry): (&str, &RoomEntry),
        before: u64,
        query: &HistoryQuery,
        hidden: &Hidden,
        out: &mut MessageRun,
    ) -> Result<ReadEnd, FileError> {
        let early_enough = |seq, received| seq < before && query.to.is_none_or(|to| received < to);
        let too_early =
            |seq, received| seq <= hidden.low_watermark || query.from.is_some_and(|from| received < from);
        if !early_enough(entry.first_seq, Timestamp::from_micros(entry.first_received))
            || too_early(entry.last_seq, Timestamp::from_micros(entry.last_received))
        {
            return Ok(ReadEnd::Exhausted);
        }
        let first = self.block_of(entry.first_ordinal);
        for place in (first..=self.last_block_from(entry, early_enough)).rev() {
            let block = self.block(place)?;
            let range = self.indexes(place, entry);
            for index in (range.start..block.partition_point(range.clone(), early_enough)).rev() {
                let message = self.message(place, &block, index, room)?;
                if too_early(message.seq, message.received_at) {
                    return Ok(ReadEnd::Exhausted);
                }
                if !hidden.hides(message.seq) && !add_to_page(&message, query, out) {
                    return Ok(ReadEnd::Full);
                }
            }
        }
        Ok(ReadEnd::Exhausted)
    }

    /// The last of the room's blocks that begins with a message for which `before` holds, else its first block.
    fn last_block_from(&self, entry: &RoomEntry, before: impl Fn(u64, Timestamp) -> bool) -> usize {
        let first = self.block_of(entry.first_ordinal);
        let last = self.block_of(entry.end().saturating_sub(1));
        // The first block may begin with another room; all others begin with this one.
        let others = self.inner.blocks.get(first + 1..=last).unwrap_or_default();
        first + others.partition_point(|b| before(b.first_seq, Timestamp::from_micros(b.first_received)))
    }

    /// Which messages of the block at `place` belong to the room.
    fn indexes(&self, place: usize, entry: &RoomEntry) -> Range<usize> {
        let block = self.ordinals(place);
        let place = |ordinal: u32| index(ordinal.saturating_sub(block.start));
        place(entry.first_ordinal)..place(entry.end().min(block.end))
    }

    fn message<'a>(
        &self,
        place: usize,
        block: &'a MessageBlock,
        index: usize,
        room: &'a str,
    ) -> Result<Message<'a>, FileError> {
        let offset = || self.inner.blocks.get(place).map_or(0, |entry| entry.offset);
        block.message(index, room).ok_or_else(|| self.damaged(offset(), "a message does not fit its block"))
    }
}
