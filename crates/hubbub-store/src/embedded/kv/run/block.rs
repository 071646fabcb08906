//! A block of a run: entries in the order of their keys, and where each begins.

use crate::embedded::file::cache::Cached;
use crate::embedded::file::cursor::{Cursor, put_varint};
use crate::embedded::kv::Version;

/// Bytes of entries after which a block is full.
const BLOCK_BYTES: usize = 4 * 1024;

/// A longer value stands outside, so that looking for a key or listing keys does not read it.
pub(super) const INLINE_BYTES_MAX: usize = 1_024;

const DELETED: u8 = 1;
const RUNS_OUT: u8 = 2;
const OUTSIDE: u8 = 4;

/// Where the value of an entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// Here.
    Here(&'a [u8]),
    /// Compressed, with its checksum, elsewhere in the file.
    At { offset: u64, stored_bytes: u32 },
}

/// One key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) version: Version,
    pub(crate) value: Value<'a>,
}

impl<'a> Entry<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        let Version { revision, expires, deleted, value_bytes } = self.version;
        let outside = if matches!(self.value, Value::At { .. }) { OUTSIDE } else { 0 };
        let deleted = if deleted { DELETED } else { 0 };
        out.push(deleted | outside | if expires.is_some() { RUNS_OUT } else { 0 });
        put_varint(out, self.key.len() as u64);
        put_varint(out, revision);
        put_varint(out, value_bytes.into());
        if let Some(expires) = expires {
            out.extend_from_slice(&expires.to_le_bytes());
        }
        if let Value::At { offset, stored_bytes } = self.value {
            put_varint(out, offset);
            put_varint(out, stored_bytes.into());
        }
        out.extend_from_slice(self.key);
        if let Value::Here(value) = self.value {
            out.extend_from_slice(value);
        }
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut from = Cursor::new(bytes);
        let flags = from.byte()?;
        let key = usize::try_from(from.varint()?).ok()?;
        let revision = from.varint()?;
        let value_bytes = u32::try_from(from.varint()?).ok()?;
        let expires = if flags & RUNS_OUT != 0 { Some(i64::from_le_bytes(from.array()?)) } else { None };
        let at = if flags & OUTSIDE != 0 {
            Some(Value::At { offset: from.varint()?, stored_bytes: u32::try_from(from.varint()?).ok()? })
        } else {
            None
        };
        let key = from.take(key)?;
        let value = match at {
            Some(at) => at,
            None => Value::Here(from.take(usize::try_from(value_bytes).ok()?)?),
        };
        let version = Version { revision, expires, deleted: flags & DELETED != 0, value_bytes };
        Some(Self { key, version, value })
    }
}

/// Collects the entries of a block.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    entries: Vec<u8>,
    starts: Vec<u16>,
}

impl BlockBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Whether so many more bytes belong into the next block.
    pub(super) fn is_full_for(&self, bytes: usize) -> bool {
        !self.is_empty() && self.entries.len() + bytes > BLOCK_BYTES
    }

    pub(super) fn push(&mut self, entry: &Entry<'_>) {
        // Every entry but the first begins within the first 4 KiB.
        self.starts.push(u16::try_from(self.entries.len()).unwrap_or(u16::MAX));
        entry.write(&mut self.entries);
    }

    /// Puts the block into `raw` and begins the next.
    pub(super) fn finish_into(&mut self, raw: &mut Vec<u8>) {
        raw.clear();
        raw.append(&mut self.entries);
        for start in &self.starts {
            raw.extend_from_slice(&start.to_le_bytes());
        }
        raw.extend_from_slice(&u16::try_from(self.starts.len()).unwrap_or(u16::MAX).to_le_bytes());
        self.starts.clear();
    }
}

/// A block that was read.
#[derive(Debug)]
pub(crate) struct Block {
    raw: Vec<u8>,
    /// Where the list of starts begins.
    starts_at: usize,
    entries: usize,
}

impl Block {
    /// `None` when the bytes are no block.
    pub(super) fn decode(raw: Vec<u8>) -> Option<Self> {
        let entries = usize::from(u16::from_le_bytes(*raw.last_chunk()?));
        let starts_at = raw.len().checked_sub(2 * (entries + 1))?;
        Some(Self { raw, starts_at, entries })
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// The entry at `index`; `None` when there is none, or when it is damaged.
    pub(crate) fn entry(&self, index: usize) -> Option<Entry<'_>> {
        let (entries, starts) = self.raw.split_at_checked(self.starts_at)?;
        let start = starts.get(2 * index..)?.first_chunk().filter(|_| index < self.entries)?;
        Entry::read(entries.get(usize::from(u16::from_le_bytes(*start))..)?)
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

impl Cached for Block {
    fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.raw.capacity()) as u64
    }
}
