//! A file of remembered ids: sorted, immutable, with a filter and an index of its blocks in memory.
//!
//! ```text
//! header, one block: magic 8 | version 4 | crc32c 4 | zeros
//! blocks of 4,096 bytes: crc32c 4 over the rest | up to 85 records of 48 bytes, sorted by hash | zeros
//! index: first half of the hash of each block's first record, 8 each | filter: bits
//! footer: records 8 | blocks 8 | filter bytes 8 | newest 8 | number 8 | crc32c of index and filter 4
//!         | crc32c of all before the footer 4 | crc32c of the footer so far 4 | end magic 4
//! ```
//!
//! Memory: 2 bytes of filter and 0.1 bytes of index for each id. Asking for an id that is not there costs one cache miss
//! and, once in about 500 times, one read of a block; for one that is there, one read.

use std::fmt;
use std::io;
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};
use hubbub_core::invariant::saturate;
use hubbub_core::queue::ID_KEPT_MS;

use super::record::{RECORD_BYTES, SettledId};
use crate::embedded::dedup::filter::BloomFilter;
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::error::{DoingOn, MaintainError, OpenError, READING};
use crate::embedded::file::cursor::Cursor;
use crate::embedded::queues::time::{Now, micros};

pub(super) const MAGIC: &[u8; 8] = b"HubQIds\n";
pub(super) const END_MAGIC: &[u8; 4] = b"HQIE";
pub(super) const VERSION: u32 = 1;
pub(super) const BLOCK_BYTES: usize = 4_096;
const CRC_BYTES: usize = 4;
pub(super) const BLOCK_RECORDS: usize = (BLOCK_BYTES - CRC_BYTES) / RECORD_BYTES;
const FOOTER_BYTES: usize = 56;

/// Blocks that a scan reads at once.
const SCAN_BLOCKS: usize = 64;

/// A file of remembered ids. Cloning shares it.
#[derive(Clone)]
pub(crate) struct IdRun {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) number: u64,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) bytes: u64,
    pub(super) crc32c: u32,
    pub(super) footer: Footer,
    /// First half of the hash of each block's first record.
    pub(super) index: Vec<u64>,
    pub(super) filter: BloomFilter,
    /// What the wall clock is ahead of the store's time by, as the times in the file have it.
    pub(super) ahead: i64,
    /// Nothing in it is remembered longer, by the store's time.
    pub(super) forget_all_at: i64,
}

impl fmt::Debug for IdRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdRun")
            .field("number", &self.inner.number)
            .field("footer", &self.inner.footer)
            .finish_non_exhaustive()
    }
}

/// What stands at the end of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) records: u64,
    pub(super) blocks: u64,
    pub(super) filter_bytes: u64,
    /// When the last of its ids is forgotten, by the wall clock.
    pub(super) newest: i64,
    pub(super) number: u64,
    /// Of index and filter.
    pub(super) parts_crc: u32,
    /// Of everything before the footer, so that the checksum of the file is known without reading it.
    pub(super) body_crc: u32,
}

pub(super) fn header() -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out.resize(BLOCK_BYTES, 0);
    out
}

impl Footer {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for number in [self.records, self.blocks, self.filter_bytes, self.newest.cast_unsigned(), self.number]
        {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.parts_crc.to_le_bytes());
        out.extend_from_slice(&self.body_crc.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        out.extend_from_slice(END_MAGIC);
        out
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Cursor::new(bytes);
        let footer = Self {
            records: from.u64()?,
            blocks: from.u64()?,
            filter_bytes: from.u64()?,
            newest: from.u64()?.cast_signed(),
            number: from.u64()?,
            parts_crc: from.u32()?,
            body_crc: from.u32()?,
        };
        let is_whole = from.u32()? == crc32c(bytes.get(..FOOTER_BYTES - 8)?) && from.rest() == END_MAGIC;
        is_whole.then_some(footer)
    }

    /// Where index, filter and footer begin, and the bytes of the file.
    fn layout(&self) -> Option<[u64; 4]> {
        let index = self.blocks.checked_add(1)?.checked_mul(BLOCK_BYTES as u64)?;
        let filter = index.checked_add(self.blocks.checked_mul(8)?)?;
        let footer = filter.checked_add(self.filter_bytes)?;
        Some([index, filter, footer, footer.checked_add(FOOTER_BYTES as u64)?])
    }
}

/// The path of the file of a number.
pub(in crate::embedded::queues) fn id_run_path(number: u64) -> String {
    format!("{}/{number:010}.ids", crate::embedded::queues::QUEUES_DIR)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl IdRun {
    pub(super) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Opens the file of a number and checks everything but its blocks, which are checked as they are read.
    pub(in crate::embedded::queues) fn open(
        disk: &dyn Disk,
        number: u64,
        now: Now,
    ) -> Result<Self, OpenError> {
        let path = id_run_path(number);
        let unreadable =
            |source| OpenError::Unreadable { attempted: "opening", path: path.clone().into(), source };
        let damaged =
            |offset, what: &str| OpenError::Damaged { file: path.clone(), offset, what: what.into() };
        let file = disk.open(&path).map_err(unreadable)?;
        let bytes = file.len().map_err(unreadable)?;
        let read = |offset: u64, end: u64| {
            let length = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
            let mut part = vec![0; length];
            file.read_exact_at(&mut part, offset).map_err(unreadable).map(|()| part)
        };
        let end = bytes.checked_sub(FOOTER_BYTES as u64).filter(|end| *end >= BLOCK_BYTES as u64);
        let end = end.ok_or_else(|| damaged(0, "it is cut short"))?;
        let tail = read(end, bytes)?;
        let footer = Footer::read(&tail).filter(|footer| footer.number == number);
        let footer = footer.ok_or_else(|| damaged(end, "its end does not match its checksum or its name"))?;
        let layout = footer.layout().filter(|[.., length]| *length == bytes);
        let [index_at, filter_at, footer_at, _] =
            layout.ok_or_else(|| damaged(end, "its parts do not fit each other"))?;
        let found = read(0, BLOCK_BYTES as u64)?;
        if found != header() {
            let version = found.get(8..12).and_then(|bytes| bytes.first_chunk().copied());
            let version = version.map_or(0, u32::from_le_bytes);
            if found.starts_with(MAGIC) && version > VERSION {
                return Err(OpenError::NewerFormat { found: version.into(), known: VERSION.into() });
            }
            return Err(damaged(0, "it does not begin as a file of ids does"));
        }
        let (index, filter) = (read(index_at, filter_at)?, read(filter_at, footer_at)?);
        if crc32c_append(crc32c(&index), &filter) != footer.parts_crc {
            return Err(damaged(index_at, "its index or filter does not match the checksum"));
        }
        let filter =
            BloomFilter::from_bytes(&filter).ok_or_else(|| damaged(filter_at, "the filter is none"))?;
        let index = index.as_chunks::<8>().0.iter().map(|first| u64::from_le_bytes(*first)).collect();
        let ahead = now.wall.saturating_sub(now.at);
        let kept = saturate::<_, i64>(micros(ID_KEPT_MS));
        // No longer than was promised, however much the wall clock was set back meanwhile.
        let forget_all_at = footer.newest.saturating_sub(ahead).min(now.at.saturating_add(kept));
        let crc32c = crc32c_append(footer.body_crc, &tail);
        Ok(Self::new(Inner { number, file, bytes, crc32c, footer, index, filter, ahead, forget_all_at }))
    }

    pub(in crate::embedded::queues) fn number(&self) -> u64 {
        self.inner.number
    }

    /// Length of the file.
    pub(in crate::embedded::queues) fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// Checksum of the whole file, as it was written.
    pub(in crate::embedded::queues) fn crc32c(&self) -> u32 {
        self.inner.crc32c
    }

    pub(in crate::embedded::queues) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.inner.file
    }

    /// Ids in it.
    pub(super) fn records(&self) -> u64 {
        self.inner.footer.records
    }

    /// Whether all its ids are forgotten.
    pub(super) fn is_over(&self, now: i64) -> bool {
        self.inner.forget_all_at <= now
    }

    /// What is remembered of an id, be it over or not. `forget_at` is by the store's time.
    pub(super) fn find(&self, known_as: [u64; 2]) -> Result<Option<SettledId>, MaintainError> {
        let Inner { filter, index, .. } = &*self.inner;
        if !filter.may_contain(known_as[0]) {
            return Ok(None);
        }
        let mut place = index.partition_point(|first| *first < known_as[0]).saturating_sub(1);
        while index.get(place).is_some_and(|first| *first <= known_as[0]) {
            let records = self.read_blocks(place, 1)?;
            if let Ok(found) = records.binary_search_by_key(&known_as, |record| record.known_as) {
                return Ok(records.get(found).copied());
            }
            place += 1;
        }
        Ok(None)
    }

    /// All ids in their order.
    pub(super) fn scan(&self) -> impl Iterator<Item = Result<SettledId, MaintainError>> + use<> {
        let run = self.clone();
        let steps = (0..self.inner.index.len()).step_by(SCAN_BLOCKS);
        steps.flat_map(move |place| {
            let (records, error) = match run.read_blocks(place, SCAN_BLOCKS) {
                Ok(records) => (records, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            records.into_iter().map(Ok).chain(error)
        })
    }

    /// The records of some blocks.
    fn read_blocks(&self, place: usize, count: usize) -> Result<Vec<SettledId>, MaintainError> {
        self.try_blocks(place, count).doing(READING, &id_run_path(self.number()))
    }

    fn try_blocks(&self, place: usize, count: usize) -> io::Result<Vec<SettledId>> {
        let Inner { file, index, footer, ahead, forget_all_at, .. } = &*self.inner;
        let count = count.min(index.len().saturating_sub(place));
        let mut bytes = vec![0; count * BLOCK_BYTES];
        file.read_exact_at(&mut bytes, (place as u64 + 1) * BLOCK_BYTES as u64)?;
        let before = place as u64 * BLOCK_RECORDS as u64;
        let mut left = usize::try_from(footer.records.saturating_sub(before)).unwrap_or(usize::MAX);
        let mut records = Vec::with_capacity(count * BLOCK_RECORDS);
        for block in bytes.chunks_exact(BLOCK_BYTES) {
            let (crc, body) =
                block.split_first_chunk::<CRC_BYTES>().ok_or_else(|| invalid("a block is short"))?;
            if crc32c(body) != u32::from_le_bytes(*crc) {
                return Err(invalid("the checksum of a block is wrong"));
            }
            let here = body.as_chunks::<RECORD_BYTES>().0.iter().take(BLOCK_RECORDS.min(left));
            left -= here.len();
            records.extend(here.map(SettledId::read).map(|record| SettledId {
                forget_at: record.forget_at.saturating_sub(*ahead).min(*forget_all_at),
                ..record
            }));
        }
        Ok(records)
    }

    /// Reads all of it, and says what is wrong.
    pub(in crate::embedded::queues) fn check(&self) -> Option<OpenError> {
        let file = id_run_path(self.inner.number);
        let mut last = None;
        for record in self.scan() {
            match record {
                Ok(record) if last < Some(record.known_as) => last = Some(record.known_as),
                Ok(_) => {
                    return Some(OpenError::Damaged {
                        file,
                        offset: 0,
                        what: "its ids are not in order".into(),
                    });
                }
                Err(error) => return Some(error.into()),
            }
        }
        None
    }
}
