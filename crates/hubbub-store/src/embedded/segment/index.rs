//! The indexes kept in memory: rooms, blocks, and the first hash of every page of ids.

use std::ops::Range;

use hubbub_core::Timestamp;

use crate::embedded::file::Cursor;
use crate::embedded::file::cursor::index;
use crate::embedded::file::varint;

/// A room's part of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoomEntry {
    name_at: u32,
    name_bytes: u8,
    pub(crate) count: u32,
    pub(super) first_ordinal: u32,
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    /// When these were received, in microseconds.
    pub(crate) first_received: i64,
    pub(crate) last_received: i64,
}

impl RoomEntry {
    /// Ordinal behind the room's last message.
    pub(super) fn end(&self) -> u32 {
        self.first_ordinal.saturating_add(self.count)
    }

    pub(crate) fn ordinals(&self) -> Range<u32> {
        self.first_ordinal..self.end()
    }
}

#[derive(Debug, Default)]
pub(super) struct RoomIndex {
    rooms: Vec<RoomEntry>,
    names: String,
}

impl RoomIndex {
    pub(super) fn len(&self) -> usize {
        self.rooms.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &RoomEntry)> {
        self.rooms.iter().map(|entry| (self.name(entry), entry))
    }

    /// The room at `place` in the order of names.
    pub(super) fn get(&self, place: usize) -> Option<(&str, &RoomEntry)> {
        self.rooms.get(place).map(|entry| (self.name(entry), entry))
    }

    pub(super) fn end(&self) -> u32 {
        self.rooms.last().map_or(0, RoomEntry::end)
    }

    fn name(&self, entry: &RoomEntry) -> &str {
        let start = index(entry.name_at);
        self.names.get(start..start + usize::from(entry.name_bytes)).unwrap_or_default()
    }

    pub(super) fn find(&self, room: &str) -> Option<&RoomEntry> {
        let place = self.rooms.binary_search_by(|entry| self.name(entry).cmp(room)).ok()?;
        self.rooms.get(place)
    }

    pub(super) fn of_ordinal(&self, ordinal: u32) -> Option<(&str, &RoomEntry)> {
        let behind = self.rooms.partition_point(|entry| entry.first_ordinal <= ordinal);
        self.get(behind.checked_sub(1)?)
    }

    pub(super) fn last_name(&self) -> Option<&str> {
        self.rooms.last().map(|entry| self.name(entry))
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut RoomEntry> {
        self.rooms.last_mut()
    }

    /// Adds a room behind the others that has one message so far.
    pub(super) fn push(&mut self, room: &str, ordinal: u32, seq: u64, received: i64) -> Option<()> {
        let name_at = u32::try_from(self.names.len()).ok()?;
        let name_bytes = u8::try_from(room.len()).ok()?;
        self.names.push_str(room);
        self.rooms.push(RoomEntry {
            name_at,
            name_bytes,
            count: 1,
            first_ordinal: ordinal,
            first_seq: seq,
            last_seq: seq,
            first_received: received,
            last_received: received,
        });
        Some(())
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for entry in &self.rooms {
            out.push(entry.name_bytes);
            out.extend_from_slice(self.name(entry).as_bytes());
            varint::write(entry.count.into(), &mut out);
            varint::write(entry.first_seq, &mut out);
            varint::write(entry.last_seq.wrapping_sub(entry.first_seq), &mut out);
            varint::write_zigzag(entry.first_received, &mut out);
            varint::write_zigzag(entry.last_received.wrapping_sub(entry.first_received), &mut out);
        }
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let mut index = Self::default();
        let mut ordinal = 0_u32;
        while !cursor.is_empty() {
            let name = cursor.name()?;
            if index.last_name().is_some_and(|last| last >= name) {
                return None;
            }
            let count = cursor.varint_u32()?;
            let first_seq = cursor.varint()?;
            let last_seq = first_seq.wrapping_add(cursor.varint()?);
            let first_received = cursor.zigzag()?;
            let last_received = first_received.wrapping_add(cursor.zigzag()?);
            index.push(name, ordinal, first_seq, first_received)?;
            let entry = index.last_mut()?;
            (entry.count, entry.last_seq, entry.last_received) = (count, last_seq, last_received);
            ordinal = ordinal.checked_add(count)?;
        }
        index.rooms.shrink_to_fit();
        index.names.shrink_to_fit();
        Some(index)
    }

    /// The time to which those in postings are differences.
    pub(super) fn base_time(&self) -> i64 {
        self.times().map_or(0, |(first, _)| first.as_micros())
    }

    pub(super) fn times(&self) -> Option<(Timestamp, Timestamp)> {
        let first = self.rooms.iter().map(|entry| entry.first_received).min()?;
        let last = self.rooms.iter().map(|entry| entry.last_received).max()?;
        Some((Timestamp::from_micros(first), Timestamp::from_micros(last)))
    }
}

/// Where a block stands and what its first message is. 32 bytes of memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockEntry {
    pub(super) offset: u64,
    pub(super) first_seq: u64,
    pub(super) first_received: i64,
    pub(super) first_ordinal: u32,
    pub(super) stored_bytes: u32,
}

pub(super) fn write_blocks(blocks: &[BlockEntry], messages: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let ends = blocks.iter().skip(1).map(|block| block.first_ordinal).chain([messages]);
    for (block, end) in blocks.iter().zip(ends) {
        varint::write(block.stored_bytes.into(), &mut out);
        varint::write(end.wrapping_sub(block.first_ordinal).into(), &mut out);
        varint::write(block.first_seq, &mut out);
        varint::write_zigzag(block.first_received, &mut out);
    }
    out
}

/// The blocks, how many messages they hold and where the last one ends; the first begins at `offset`.
pub(super) fn read_blocks(bytes: &[u8], mut offset: u64) -> Option<(Vec<BlockEntry>, u32, u64)> {
    let mut cursor = Cursor::new(bytes);
    let mut blocks = Vec::new();
    let mut ordinal = 0_u32;
    while !cursor.is_empty() {
        let (stored_bytes, messages) = (cursor.varint_u32()?, cursor.varint_u32()?);
        let (first_seq, first_received) = (cursor.varint()?, cursor.zigzag()?);
        blocks.push(BlockEntry { offset, first_seq, first_received, first_ordinal: ordinal, stored_bytes });
        offset = offset.checked_add(stored_bytes.into())?;
        ordinal = ordinal.checked_add(messages)?;
    }
    blocks.shrink_to_fit();
    Some((blocks, ordinal, offset))
}
