//! Reading a room's messages from a cursor and within a window of time.

use std::ops::Range;

use hubbub_core::MessageRun;
use hubbub_core::store::HistoryQuery;

use super::index::RoomEntry;
use super::open::Segment;
use crate::embedded::file::FileError;
use crate::embedded::file::cursor::index;
use crate::embedded::rooms::{Hidden, HistoryWindow};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// The page is full and the window holds more: at least one more message here.
    Full,
    /// Everything the window holds here was added.
    Exhausted,
}

impl Segment {
    /// Adds the room's messages inside the query's window that are not hidden to `out`: oldest first for
    /// [`Cursor::After`](hubbub_core::store::Cursor::After), newest first for `Before` (turn the page round at the end).
    /// `limit` and `bytes_max` hold for all of `out`, so a page can be filled from one
    /// segment after another; an empty `out` gets at least one message.
    pub(crate) fn read_room(
        &self,
        room: &str,
        query: &HistoryQuery,
        hidden: &Hidden,
        out: &mut MessageRun,
    ) -> Result<ReadEnd, FileError> {
        let Some(entry) = self.room(room) else { return Ok(ReadEnd::Exhausted) };
        let window = HistoryWindow::of(query, hidden);
        let too_early = |seq, received| window.begins_behind(seq, received);
        let in_time = |seq, received| window.ends_behind(seq, received);
        if too_early(entry.last_seq, entry.last_received) || !in_time(entry.first_seq, entry.first_received) {
            return Ok(ReadEnd::Exhausted);
        }
        let blocks = self.last_block_from(entry, too_early)..self.last_block_from(entry, in_time) + 1;
        for place in window.in_order(blocks) {
            let block = self.block(place)?;
            let range = self.indexes(place, entry);
            let begin = block.partition_point(range.clone(), too_early);
            for index in window.in_order(begin..block.partition_point(range, in_time)) {
                let message = self.message(place, &block, index, room)?;
                if !hidden.hides(message.seq) && !out.push_within(&message, query.limit, query.bytes_max) {
                    return Ok(ReadEnd::Full);
                }
            }
        }
        Ok(ReadEnd::Exhausted)
    }

    /// The last of the room's blocks that begins with a message for which `before` holds, else its first block.
    fn last_block_from(&self, entry: &RoomEntry, before: impl Fn(u64, i64) -> bool) -> usize {
        let first = self.block_of(entry.first_ordinal);
        let last = self.block_of(entry.end().saturating_sub(1));
        // The first block may begin with another room; all others begin with this one.
        let others = self.inner.blocks.get(first + 1..=last).unwrap_or_default();
        first + others.partition_point(|block| before(block.first_seq, block.first_received))
    }

    /// Which messages of the block at `place` belong to the room.
    fn indexes(&self, place: usize, entry: &RoomEntry) -> Range<usize> {
        let block = self.ordinals(place);
        let place = |ordinal: u32| index(ordinal.saturating_sub(block.start));
        place(entry.first_ordinal)..place(entry.end().min(block.end))
    }
}
