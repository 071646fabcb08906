//! Opening a run, and getting checked blocks and values out of its file.

use std::fmt;
use std::sync::Arc;

use crc32c::crc32c_append;

use super::block::{KeyBlock, KeyEntry, StoredValue};
use super::footer::{FOOTER_BYTES, Footer, KEY_RUN};
use super::index::BlockIndex;
use crate::embedded::dedup::filter::BloomFilter;
use crate::embedded::disk::Disk;
use crate::embedded::file::block::BlockLocation;
use crate::embedded::file::{BlockCache, CachedBlocks, Cursor, DataFile, FileError, Patience, Section};

/// An open run. Cheap to clone; reads from many threads at once. Removing the file does not disturb it.
#[derive(Clone)]
pub(crate) struct KeyRun {
    inner: Arc<Inner>,
}

struct Inner {
    file: DataFile,
    footer: Footer,
    index: BlockIndex,
    filter: BloomFilter,
    cached: CachedBlocks<KeyBlock>,
}

/// A key that was found, in its block.
pub(crate) struct FoundKey {
    block: Arc<KeyBlock>,
    index: usize,
    offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiring<'a> {
    pub(crate) expires: i64,
    pub(crate) revision: u64,
    pub(crate) key: &'a [u8],
}

impl KeyRun {
    /// Opens run `number` and checks everything but blocks, values and the list of keys that expire, which are checked
    /// as they are read.
    pub(crate) fn open(
        disk: &dyn Disk,
        number: u64,
        cache: Arc<BlockCache<KeyBlock>>,
    ) -> Result<Self, FileError> {
        let mut file = DataFile::open(disk, &KEY_RUN, number)?;
        let (end, footer_bytes) = file.read_footer(FOOTER_BYTES)?;
        let footer = Footer::read(&footer_bytes)
            .filter(|footer| footer.number == number)
            .ok_or_else(|| file.damaged(end, "its end does not match its checksum or its name"))?;
        let Footer { index, filter, expiring, .. } = footer;
        let follows = |section: Section, next: u64| section.end() == Some(next);
        if !follows(index, filter.offset) || !follows(filter, expiring.offset) || !follows(expiring, end) {
            return Err(file.damaged(end, "its parts do not fit each other"));
        }
        let bytes = file.read_section(&index, "the index does not match its checksum")?;
        let key_index =
            BlockIndex::read(&bytes).ok_or_else(|| file.damaged(index.offset, "the index is unreadable"))?;
        let bytes = file.read_section(&filter, "the filter does not match its checksum")?;
        let filter = BloomFilter::from_bytes(&bytes)
            .ok_or_else(|| file.damaged(filter.offset, "the filter is unreadable"))?;
        file.crc32c = crc32c_append(footer.body_crc, &footer_bytes);
        let cached = CachedBlocks::new(cache);
        Ok(Self { inner: Arc::new(Inner { file, footer, index: key_index, filter, cached }) })
    }

    pub(crate) fn file(&self) -> &DataFile {
        &self.inner.file
    }

    pub(crate) fn number(&self) -> u64 {
        self.inner.file.number
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.inner.file.bytes
    }

    /// Its entries, those that say that a key is deleted included.
    pub(crate) fn keys(&self) -> u64 {
        self.inner.footer.keys
    }

    pub(crate) fn revision(&self) -> u64 {
        self.inner.footer.revision
    }

    /// The key with its hash, if it has a version here.
    pub(crate) fn find(
        &self,
        key: &[u8],
        hash: u64,
        patience: Patience,
    ) -> Result<Option<FoundKey>, FileError> {
        if !self.inner.filter.may_contain(hash) || self.inner.index.len() == 0 {
            return Ok(None);
        }
        let place = self.inner.index.find(key);
        let block = self.inner.cached.get_or_load(place, || self.load_block(place, patience))?;
        let offset = self.block_offset(place);
        let index =
            block.search(key).ok_or_else(|| self.damaged(offset, "an entry of a block is unreadable"))?;
        let found = block.entry(index).is_some_and(|entry| entry.key == key);
        Ok(found.then_some(FoundKey { block, index, offset }))
    }

    pub(crate) fn entry<'a>(&self, found: &'a FoundKey) -> Result<KeyEntry<'a>, FileError> {
        let entry = found.block.entry(found.index);
        entry.ok_or_else(|| self.damaged(found.offset, "an entry of a block is unreadable"))
    }

    pub(crate) fn value(&self, value: StoredValue<'_>, patience: Patience) -> Result<Arc<[u8]>, FileError> {
        match value {
            StoredValue::Inline(value) => Ok(value.into()),
            StoredValue::Outside(BlockLocation { offset, stored_bytes }) => {
                let stored = self.stored_value(offset, stored_bytes, patience)?;
                let raw = self.unpack(&stored, offset)?;
                Ok(raw.into())
            }
        }
    }

    /// A value outside the blocks, as it stands there, unchecked.
    pub(super) fn stored_value(
        &self,
        offset: u64,
        stored_bytes: u32,
        patience: Patience,
    ) -> Result<Vec<u8>, FileError> {
        if offset.saturating_add(stored_bytes.into()) > self.inner.footer.index.offset {
            return Err(self.damaged(offset, "a value stands behind the last block"));
        }
        self.inner.file.read_patiently(offset, stored_bytes.into(), patience)
    }

    pub(crate) fn each_expiring(&self, mut visit: impl FnMut(Expiring<'_>)) -> Result<(), FileError> {
        let section = self.inner.footer.expiring;
        let what = "the keys that run out do not match their checksum";
        let bytes = self.inner.file.read_section(&section, what)?;
        let mut from = Cursor::new(&bytes);
        let mut next =
            || Some(Expiring { expires: from.i64()?, revision: from.varint()?, key: from.bytes()? });
        for _ in 0..self.inner.footer.expiring_keys {
            visit(next().ok_or_else(|| self.damaged(section.offset, "the keys that run out are too few"))?);
        }
        if from.is_empty() {
            Ok(())
        } else {
            Err(self.damaged(section.offset, "the keys that run out are too many"))
        }
    }

    pub(super) fn index(&self) -> &BlockIndex {
        &self.inner.index
    }

    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.inner.filter.may_contain(hash)
    }

    pub(super) fn block_offset(&self, place: usize) -> u64 {
        self.inner.index.get(place).map_or(0, |block| block.offset)
    }

    pub(super) fn damaged(&self, offset: u64, what: &'static str) -> FileError {
        self.inner.file.damaged(offset, what)
    }

    /// The block at `place`, past the cache.
    pub(super) fn load_block(&self, place: usize, patience: Patience) -> Result<KeyBlock, FileError> {
        let entry = self.inner.index.get(place).ok_or_else(|| self.damaged(0, "there is no such block"))?;
        let stored = self.inner.file.read_patiently(entry.offset, entry.stored_bytes.into(), patience)?;
        let raw = self.unpack(&stored, entry.offset)?;
        KeyBlock::decode(raw)
            .ok_or_else(|| self.damaged(entry.offset, "a block is too short for its entries"))
    }

    pub(super) fn unpack(&self, stored: &[u8], offset: u64) -> Result<Vec<u8>, FileError> {
        self.inner.file.unpack(stored, offset)
    }
}

impl fmt::Debug for KeyRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyRun").field(&self.inner.file).finish()
    }
}
