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
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) file: DataFile,
    footer: Footer,
    pub(super) index: BlockIndex,
    pub(super) filter: BloomFilter,
    cached: CachedBlocks<KeyBlock>,
}

pub(super) const UNREADABLE_ENTRY: &str = "an entry of a block is unreadable";

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

    /// Shows `visit` the key with its hash, if it has a version here.
    pub(crate) fn find<T>(
        &self,
        key: &[u8],
        hash: u64,
        patience: Patience,
        visit: impl FnOnce(KeyEntry<'_>) -> Result<T, FileError>,
    ) -> Result<Option<T>, FileError> {
        let Inner { file, index, filter, cached, .. } = &*self.inner;
        if !filter.may_contain(hash) || index.len() == 0 {
            return Ok(None);
        }
        let place = index.find(key);
        let block = cached.get_or_load(place, || self.load_block(place, patience))?;
        let found = block.search(key).ok_or_else(|| file.damaged(index.offset(place), UNREADABLE_ENTRY))?;
        block.entry(found).filter(|entry| entry.key == key).map(visit).transpose()
    }

    pub(crate) fn value(&self, value: StoredValue<'_>, patience: Patience) -> Result<Arc<[u8]>, FileError> {
        match value {
            StoredValue::Inline(value) => Ok(value.into()),
            StoredValue::Outside(location) => Ok(self.stored_value(location, patience)?.1.into()),
        }
    }

    /// A value outside the blocks, as it stands there and unpacked.
    pub(super) fn stored_value(
        &self,
        BlockLocation { offset, stored_bytes }: BlockLocation,
        patience: Patience,
    ) -> Result<(Vec<u8>, Vec<u8>), FileError> {
        let file = &self.inner.file;
        if offset.saturating_add(stored_bytes.into()) > self.inner.footer.index.offset {
            return Err(file.damaged(offset, "a value stands behind the last block"));
        }
        let stored = file.read_patiently(offset, stored_bytes.into(), patience)?;
        let raw = file.unpack(&stored, offset)?;
        Ok((stored, raw))
    }

    pub(crate) fn each_expiring(&self, mut visit: impl FnMut(Expiring<'_>)) -> Result<(), FileError> {
        let (file, section) = (&self.inner.file, self.inner.footer.expiring);
        let bytes = file.read_section(&section, "the keys that run out do not match their checksum")?;
        let mut from = Cursor::new(&bytes);
        let mut next =
            || Some(Expiring { expires: from.i64()?, revision: from.varint()?, key: from.bytes()? });
        for _ in 0..self.inner.footer.expiring_keys {
            visit(next().ok_or_else(|| file.damaged(section.offset, "the keys that run out are too few"))?);
        }
        let too_many = || file.damaged(section.offset, "the keys that run out are too many");
        from.is_empty().then_some(()).ok_or_else(too_many)
    }

    /// The block at `place`, past the cache.
    pub(super) fn load_block(&self, place: usize, patience: Patience) -> Result<KeyBlock, FileError> {
        let Inner { file, index, .. } = &*self.inner;
        let entry = index.get(place).ok_or_else(|| file.damaged(0, "there is no such block"))?;
        let stored = file.read_patiently(entry.offset, entry.stored_bytes.into(), patience)?;
        let raw = file.unpack(&stored, entry.offset)?;
        KeyBlock::decode(raw)
            .ok_or_else(|| file.damaged(entry.offset, "a block is too short for its entries"))
    }
}

impl fmt::Debug for KeyRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyRun").field(&self.inner.file).finish()
    }
}
