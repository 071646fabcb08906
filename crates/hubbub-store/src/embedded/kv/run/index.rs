//! Which block holds which keys: the first key of each.

use crate::embedded::file::cursor::{Cursor, put_varint};

/// A block, as the index knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockEntry {
    pub(super) offset: u64,
    pub(super) stored_bytes: u32,
    /// Where its first key ends among all of them.
    key_end: u32,
}

/// The blocks of a run in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Index {
    keys: Vec<u8>,
    blocks: Vec<BlockEntry>,
}

impl Index {
    /// Adds the next block. `None` when the keys are too long together.
    pub(super) fn push(&mut self, key: &[u8], offset: u64, stored_bytes: u32) -> Option<()> {
        self.keys.extend_from_slice(key);
        let key_end = u32::try_from(self.keys.len()).ok()?;
        self.blocks.push(BlockEntry { offset, stored_bytes, key_end });
        Some(())
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn get(&self, place: usize) -> Option<&BlockEntry> {
        self.blocks.get(place)
    }

    pub(super) fn first_key(&self, place: usize) -> &[u8] {
        let end = |place: usize| self.blocks.get(place).map_or(0, |block| block.key_end);
        let start = place.checked_sub(1).map_or(0, end);
        let (start, end) = (usize::try_from(start), usize::try_from(end(place)));
        match (start, end) {
            (Ok(start), Ok(end)) => self.keys.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Place of the only block that may hold `key`; 0 when it is before all.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.blocks.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.first_key(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.keys.len() + 8 * self.blocks.len());
        let mut before = 0;
        for (place, block) in self.blocks.iter().enumerate() {
            let key = self.first_key(place);
            put_varint(&mut out, key.len() as u64);
            out.extend_from_slice(key);
            put_varint(&mut out, block.offset.wrapping_sub(before));
            put_varint(&mut out, block.stored_bytes.into());
            before = block.offset;
        }
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (mut index, mut from, mut offset) = (Self::default(), Cursor::new(bytes), 0_u64);
        while !from.is_empty() {
            let key = usize::try_from(from.varint()?).ok()?;
            let key = from.take(key)?;
            offset = offset.checked_add(from.varint()?)?;
            index.push(key, offset, u32::try_from(from.varint()?).ok()?)?;
        }
        Some(index)
    }
}
