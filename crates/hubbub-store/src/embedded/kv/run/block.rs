//! A block of a run: entries in the order of their keys, and where each begins.

use std::io;

use hubbub_core::invariant::cast;

use crate::embedded::file::block::BlockLocation;
use crate::embedded::file::cursor::index;
use crate::embedded::file::varint;
use crate::embedded::file::{Cached, Cursor};
use crate::embedded::kv::Version;

const BLOCK_BYTES: usize = 4 * 1024;

/// A longer value stands outside, so that looking for a key or listing keys does not read it.
pub(super) const INLINE_BYTES_MAX: usize = 1_024;

const DELETED: u8 = 1;
const EXPIRES: u8 = 2;
const OUTSIDE: u8 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredValue<'a> {
    Inline(&'a [u8]),
    /// In a block of its own.
    Outside(BlockLocation),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) version: Version,
    pub(crate) value: StoredValue<'a>,
}

impl<'a> KeyEntry<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        let Version { revision, expires, deleted, value_bytes } = self.version;
        let outside = if matches!(self.value, StoredValue::Outside(_)) { OUTSIDE } else { 0 };
        let deleted = if deleted { DELETED } else { 0 };
        out.push(deleted | outside | if expires.is_some() { EXPIRES } else { 0 });
        varint::write(self.key.len() as u64, out);
        varint::write(revision, out);
        varint::write(value_bytes.into(), out);
        if let Some(expires) = expires {
            out.extend_from_slice(&expires.to_le_bytes());
        }
        if let StoredValue::Outside(BlockLocation { offset, stored_bytes }) = self.value {
            varint::write(offset, out);
            varint::write(stored_bytes.into(), out);
        }
        out.extend_from_slice(self.key);
        if let StoredValue::Inline(value) = self.value {
            out.extend_from_slice(value);
        }
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut from = Cursor::new(bytes);
        let flags = from.byte()?;
        let key = from.length()?;
        let (revision, value_bytes) = (from.varint()?, from.varint_u32()?);
        let expires = if flags & EXPIRES != 0 { Some(from.i64()?) } else { None };
        let (key, value) = if flags & OUTSIDE != 0 {
            let location = BlockLocation { offset: from.varint()?, stored_bytes: from.varint_u32()? };
            (from.take(key)?, StoredValue::Outside(location))
        } else {
            (from.take(key)?, StoredValue::Inline(from.take(index(value_bytes))?))
        };
        let version = Version { revision, expires, deleted: flags & DELETED != 0, value_bytes };
        Some(Self { key, version, value })
    }
}

#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    entries: Vec<u8>,
    starts: Vec<u16>,
}

impl BlockBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub(super) fn is_full_for(&self, bytes: usize) -> bool {
        !self.is_empty() && self.entries.len() + bytes > BLOCK_BYTES
    }

    pub(super) fn push(&mut self, entry: &KeyEntry<'_>) -> io::Result<()> {
        let start = cast(self.entries.len(), "an entry but the first begins within 4 KiB of its block");
        self.starts.push(start.map_err(io::Error::other)?);
        entry.write(&mut self.entries);
        Ok(())
    }

    /// Puts the block into `raw` and begins the next.
    pub(super) fn finish_into(&mut self, raw: &mut Vec<u8>) -> io::Result<()> {
        raw.clear();
        raw.append(&mut self.entries);
        for start in &self.starts {
            raw.extend_from_slice(&start.to_le_bytes());
        }
        let entries: u16 = cast(self.starts.len(), "a block of 4 KiB has fewer than 65,536 entries")
            .map_err(io::Error::other)?;
        raw.extend_from_slice(&entries.to_le_bytes());
        self.starts.clear();
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct KeyBlock {
    raw: Vec<u8>,
    starts_at: usize,
    entries: usize,
}

impl KeyBlock {
    pub(super) fn decode(raw: Vec<u8>) -> Option<Self> {
        let entries = usize::from(u16::from_le_bytes(*raw.last_chunk()?));
        let starts_at = raw.len().checked_sub(2 * (entries + 1))?;
        Some(Self { raw, starts_at, entries })
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// The entry at `index`; `None` when there is none, or when it is damaged.
    pub(crate) fn entry(&self, index: usize) -> Option<KeyEntry<'_>> {
        let (entries, starts) = self.raw.split_at_checked(self.starts_at)?;
        let start = starts.get(2 * index..)?.first_chunk().filter(|_| index < self.entries)?;
        KeyEntry::read(entries.get(usize::from(u16::from_le_bytes(*start))..)?)
    }

    /// Index of the first entry whose key is `key` or behind it. `None` when the block is damaged.
    pub(super) fn search(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle)?.key < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }
}

impl Cached for KeyBlock {
    fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.raw.capacity()) as u64
    }
}
