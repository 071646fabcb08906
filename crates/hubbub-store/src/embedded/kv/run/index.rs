//! Which block holds which keys: the first key of each.

use crate::embedded::file::Cursor;
use crate::embedded::file::block::BlockLocation;
use crate::embedded::file::cursor::index;
use crate::embedded::file::varint;

#[derive(Debug, Clone, Copy)]
struct BlockEntry {
    location: BlockLocation,
    /// Where its first key ends among all of them.
    key_end: u32,
}

/// The blocks of a run in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct BlockIndex {
    keys: Vec<u8>,
    blocks: Vec<BlockEntry>,
}

impl BlockIndex {
    /// Adds the next block. `None` when the keys are too long together.
    pub(super) fn push(&mut self, key: &[u8], location: BlockLocation) -> Option<()> {
        self.keys.extend_from_slice(key);
        let key_end = u32::try_from(self.keys.len()).ok()?;
        self.blocks.push(BlockEntry { location, key_end });
        Some(())
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn get(&self, place: usize) -> Option<&BlockLocation> {
        self.blocks.get(place).map(|block| &block.location)
    }

    pub(super) fn offset(&self, place: usize) -> u64 {
        self.get(place).map_or(0, |block| block.offset)
    }

    pub(super) fn first_key(&self, place: usize) -> &[u8] {
        let end = |place: usize| self.blocks.get(place).map_or(0, |block| index(block.key_end));
        let start = place.checked_sub(1).map_or(0, end);
        self.keys.get(start..end(place)).unwrap_or_default()
    }

    /// Place of the only block that may hold `key`; 0 when it is before all.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.count_while(|first| first <= key).saturating_sub(1)
    }

    /// Place behind the last block that may hold keys that begin with `prefix`.
    pub(super) fn end_of(&self, prefix: &[u8]) -> usize {
        self.count_while(|first| first <= prefix || first.starts_with(prefix))
    }

    /// How many blocks have a first key that is `before` the others.
    fn count_while(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.blocks.len());
        while low < high {
            let middle = low.midpoint(high);
            if before(self.first_key(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.keys.len() + 8 * self.blocks.len());
        let mut before = 0;
        for (place, block) in self.blocks.iter().enumerate() {
            let BlockLocation { offset, stored_bytes } = block.location;
            varint::write_bytes(self.first_key(place), &mut out);
            varint::write(offset.wrapping_sub(before), &mut out);
            varint::write(stored_bytes.into(), &mut out);
            before = offset;
        }
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (mut index, mut from, mut offset) = (Self::default(), Cursor::new(bytes), 0_u64);
        while !from.is_empty() {
            let key = from.bytes()?;
            offset = offset.checked_add(from.varint()?)?;
            index.push(key, BlockLocation { offset, stored_bytes: from.varint_u32()? })?;
        }
        Some(index)
    }
}
