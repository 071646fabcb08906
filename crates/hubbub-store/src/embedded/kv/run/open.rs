//! Opening a run, and getting checked blocks and values out of its file.

use std::fmt;
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};

use super::block::{Block, Entry, Value};
use super::footer::{self, FOOTER_BYTES, Fault, Footer, HEADER_BYTES, Part, VERSION};
use super::index::Index;
use crate::embedded::dedup::filter::Tier;
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::file::block::{BLOCK_RAW_BYTES_MAX, Stored};
use crate::embedded::file::cache::BlockCache;
use crate::embedded::file::codec::decompress;
use crate::embedded::file::cursor::Cursor;
use crate::embedded::kv::run_path;
use crate::embedded::segment::SegmentError;

/// Whether a read may wait for the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It may.
    Wait,
    /// It fails with `WouldBlock` where it would have to.
    CachedOnly,
}

/// An open run. Cheap to clone; reads from many threads at once. Removing the file does not disturb it.
#[derive(Clone)]
pub(crate) struct Run {
    inner: Arc<Inner>,
}

struct Inner {
    file: Arc<dyn DiskFile>,
    path: String,
    bytes: u64,
    crc: u32,
    footer: Footer,
    index: Index,
    filter: Tier,
    cache: Arc<BlockCache<Block>>,
    owner: u64,
}

/// A key that was found, in its block.
pub(crate) struct Found {
    block: Arc<Block>,
    index: usize,
    offset: u64,
}

/// A key that runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiring<'a> {
    pub(crate) expires: i64,
    pub(crate) revision: u64,
    pub(crate) key: &'a [u8],
}

impl Run {
    /// Opens run `number` and checks everything but blocks, values and the list of keys that run out, which are checked
    /// as they are read.
    pub(crate) fn open(
        disk: &dyn Disk,
        number: u64,
        cache: Arc<BlockCache<Block>>,
    ) -> Result<Self, SegmentError> {
        let path = run_path(number);
        let io = |source| SegmentError::Io { file: path.clone(), offset: 0, source };
        let file = disk.open(&path).map_err(io)?;
        let bytes = file.len().map_err(io)?;
        let damaged = |offset, what| SegmentError::Damaged { file: path.clone(), offset, what };
        let read = |offset, bytes: u64| read_exact(&*file, &path, offset, bytes, Patience::Wait);
        let end = bytes
            .checked_sub(FOOTER_BYTES as u64)
            .filter(|end| *end >= HEADER_BYTES as u64)
            .ok_or_else(|| damaged(0, "it is cut short"))?;
        footer::check_header(&read(0, HEADER_BYTES as u64)?).map_err(|fault| match fault {
            Fault::Damaged(what) => damaged(0, what),
            Fault::Version(found) => SegmentError::Version { file: path.clone(), found, supported: VERSION },
        })?;
        let tail = read(end, FOOTER_BYTES as u64)?;
        let footer = Footer::read(&tail)
            .filter(|footer| footer.number == number)
            .ok_or_else(|| damaged(end, "its end does not match its checksum or its name"))?;
        let Footer { index, filter, expiring, .. } = footer;
        let follows = |part: Part, next: u64| part.offset.checked_add(part.bytes) == Some(next);
        if !follows(index, filter.offset) || !follows(filter, expiring.offset) || !follows(expiring, end) {
            return Err(damaged(end, "its parts do not fit each other"));
        }
        let part = |part: Part, what| {
            let found = read(part.offset, part.bytes)?;
            if crc32c(&found) == part.crc { Ok(found) } else { Err(damaged(part.offset, what)) }
        };
        let at = index.offset;
        let index = Index::read(&part(index, "the index does not match its checksum")?)
            .ok_or_else(|| damaged(at, "the index is none"))?;
        let at = filter.offset;
        let filter = Tier::from_bytes(&part(filter, "the filter does not match its checksum")?)
            .ok_or_else(|| damaged(at, "the filter is none"))?;
        let crc = crc32c_append(footer.body_crc, &tail);
        let owner = cache.new_owner();
        let inner = Inner { file, path, bytes, crc, footer, index, filter, cache, owner };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Its number, part of its file name.
    pub(crate) fn number(&self) -> u64 {
        self.inner.footer.number
    }

    /// Length of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// Checksum of the whole file, as it was written.
    pub(crate) fn crc32c(&self) -> u32 {
        self.inner.crc
    }

    /// The open file.
    pub(crate) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.inner.file
    }

    /// Its entries, those that say that a key is deleted included.
    pub(crate) fn keys(&self) -> u64 {
        self.inner.footer.keys
    }

    /// Greatest revision in it.
    pub(crate) fn revision(&self) -> u64 {
        self.inner.footer.revision
    }

    /// The key with its hash, if it has a version here.
    pub(crate) fn find(
        &self,
        key: &[u8],
        hash: u64,
        patience: Patience,
    ) -> Result<Option<Found>, SegmentError> {
        if !self.inner.filter.may_contain(hash) || self.inner.index.len() == 0 {
            return Ok(None);
        }
        let place = self.inner.index.find(key);
        let block = self.block(place, patience)?;
        let offset = self.block_offset(place);
        let index = block.search(key).ok_or_else(|| self.damaged(offset, "a block's entries are none"))?;
        let found = block.entry(index).is_some_and(|entry| entry.key == key);
        Ok(found.then_some(Found { block, index, offset }))
    }

    /// The entry that was found.
    pub(crate) fn entry<'a>(&self, found: &'a Found) -> Result<Entry<'a>, SegmentError> {
        let entry = found.block.entry(found.index);
        entry.ok_or_else(|| self.damaged(found.offset, "a block's entries are none"))
    }

    /// A value of this run.
    pub(crate) fn value(&self, value: Value<'_>, patience: Patience) -> Result<Arc<[u8]>, SegmentError> {
        match value {
            Value::Here(value) => Ok(value.into()),
            Value::At { offset, stored_bytes } => {
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
    ) -> Result<Vec<u8>, SegmentError> {
        if offset.saturating_add(stored_bytes.into()) > self.inner.footer.index.offset {
            return Err(self.damaged(offset, "a value stands behind the last block"));
        }
        read_exact(&*self.inner.file, &self.inner.path, offset, stored_bytes.into(), patience)
    }

    /// Every key that runs out.
    pub(crate) fn each_expiring(&self, mut visit: impl FnMut(Expiring<'_>)) -> Result<(), SegmentError> {
        let part = self.inner.footer.expiring;
        let bytes = read_exact(&*self.inner.file, &self.inner.path, part.offset, part.bytes, Patience::Wait)?;
        if crc32c(&bytes) != part.crc {
            return Err(self.damaged(part.offset, "the keys that run out do not match their checksum"));
        }
        let mut from = Cursor::new(&bytes);
        let mut next = || {
            let expires = i64::from_le_bytes(from.array()?);
            let revision = from.varint()?;
            let key = usize::try_from(from.varint()?).ok()?;
            Some(Expiring { expires, revision, key: from.take(key)? })
        };
        for _ in 0..self.inner.footer.expiring_keys {
            visit(next().ok_or_else(|| self.damaged(part.offset, "the keys that run out are too few"))?);
        }
        if from.is_empty() {
            Ok(())
        } else {
            Err(self.damaged(part.offset, "the keys that run out are too many"))
        }
    }

    pub(super) fn index(&self) -> &Index {
        &self.inner.index
    }

    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.inner.filter.may_contain(hash)
    }

    pub(super) fn block_offset(&self, place: usize) -> u64 {
        self.inner.index.get(place).map_or(0, |block| block.offset)
    }

    pub(super) fn damaged(&self, offset: u64, what: &'static str) -> SegmentError {
        SegmentError::Damaged { file: self.inner.path.clone(), offset, what }
    }

    /// The block at `place`, from the cache or put into it.
    fn block(&self, place: usize, patience: Patience) -> Result<Arc<Block>, SegmentError> {
        let key = u32::try_from(place).unwrap_or(u32::MAX);
        if let Some(block) = self.inner.cache.get(self.inner.owner, key) {
            return Ok(block);
        }
        let block = Arc::new(self.load_block(place, patience)?);
        self.inner.cache.insert(self.inner.owner, key, Arc::clone(&block));
        Ok(block)
    }

    /// The block at `place`, past the cache.
    pub(super) fn load_block(&self, place: usize, patience: Patience) -> Result<Block, SegmentError> {
        let entry = self.inner.index.get(place).ok_or_else(|| self.damaged(0, "there is no such block"))?;
        let bytes = entry.stored_bytes.into();
        let stored = read_exact(&*self.inner.file, &self.inner.path, entry.offset, bytes, patience)?;
        let raw = self.unpack(&stored, entry.offset)?;
        Block::decode(raw).ok_or_else(|| self.damaged(entry.offset, "a block is too short for its entries"))
    }

    /// What stands compressed with its checksum.
    pub(super) fn unpack(&self, stored: &[u8], offset: u64) -> Result<Vec<u8>, SegmentError> {
        let raw = Stored::check(stored).and_then(|stored| {
            let raw_bytes = usize::try_from(stored.raw_bytes).ok().filter(|b| *b <= BLOCK_RAW_BYTES_MAX)?;
            decompress(stored.codec, stored.payload, raw_bytes)
        });
        raw.ok_or_else(|| self.damaged(offset, "a block does not match its checksum"))
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

fn read_exact(
    file: &dyn DiskFile,
    path: &str,
    offset: u64,
    bytes: u64,
    patience: Patience,
) -> Result<Vec<u8>, SegmentError> {
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let read = match patience {
        Patience::Wait => file.read_exact_at(&mut buffer, offset),
        Patience::CachedOnly => file.read_cached_at(&mut buffer, offset),
    };
    match read {
        Ok(()) => Ok(buffer),
        Err(source) => Err(SegmentError::Io { file: path.to_owned(), offset, source }),
    }
}
