//! All messages of a segment in order, for merging, exporting and checking.

use hubbub_core::Message;

use super::block::MessageBlock;
use super::open::Segment;
use crate::embedded::file::FileError;

/// Goes through a segment, every checksum on the way verified. Reads past the cache.
#[derive(Debug)]
pub(crate) struct MessageScan {
    segment: Segment,
    block: Option<MessageBlock>,
    next_block: usize,
    index: usize,
    pub(super) ordinal: u32,
    room: usize,
}

impl Segment {
    pub(crate) fn scan(&self) -> MessageScan {
        MessageScan { segment: self.clone(), block: None, next_block: 0, index: 0, ordinal: 0, room: 0 }
    }
}

impl MessageScan {
    /// Moves to the next message; `None` behind the last one.
    #[allow(clippy::should_implement_trait)] // what is lent cannot outlive the next call
    pub(crate) fn next(&mut self) -> Result<Option<Message<'_>>, FileError> {
        if self.block.is_some() {
            self.index += 1;
            self.ordinal = self.ordinal.saturating_add(1);
        }
        if self.block.as_ref().is_none_or(|block| self.index >= block.len()) {
            if self.next_block >= self.segment.inner.blocks.len() {
                return Ok(None);
            }
            self.block = Some(self.segment.load_block(self.next_block)?);
            self.next_block += 1;
            self.index = 0;
        }
        while self.segment.inner.rooms.get(self.room).is_some_and(|(_, room)| self.ordinal >= room.end()) {
            self.room += 1;
        }
        match self.current() {
            Some(message) => Ok(Some(message)),
            None => Err(self.segment.inner.file.damaged(0, "a message does not fit its block")),
        }
    }

    /// The message under the cursor, the one `next` gave last.
    pub(crate) fn current(&self) -> Option<Message<'_>> {
        let (room, _) = self.segment.inner.rooms.get(self.room)?;
        self.block.as_ref()?.message(self.index, room)
    }
}
