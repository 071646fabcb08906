//! A file of remembered ids: sorted, immutable, with a filter and an index of its blocks in memory.
//!
//! ```text
//! file   = header, zeros up to byte 4,096, block*, index, filter, footer; see [`crate::embedded::file`]
//! block  = crc32c 4 over the rest | up to 85 records of 48 bytes, sorted by hash | zeros up to 4,096 bytes
//! index  = first half of the hash of each block's first record, 8 each
//! footer = records 8 | blocks 8 | filter bytes 8 | newest 8 | number 8 | crc32c of index and filter 4
//!          | crc32c of all before the footer 4
//! ```
//!
//! Memory: 2 bytes of filter and 0.1 bytes of index for each id. Asking for an id that is not there costs one cache miss
//! and, once in about 500 times, one read of a block; for one that is there, one read.

use std::fmt;
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};
use hubbub_core::backup::BackupFile;
use hubbub_core::invariant::saturate;
use hubbub_core::queue::ID_KEPT_MS;

use super::record::{RECORD_BYTES, SettledId};
use crate::embedded::dedup::filter::BloomFilter;
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::error::{MaintainError, OpenError};
use crate::embedded::file::kind::FOOTER_END_BYTES;
use crate::embedded::file::reader::read_u64s;
use crate::embedded::file::{DataFile, FileError, FileKind, Section};
use crate::embedded::queues::QUEUES_DIR;
use crate::embedded::queues::time::{Now, micros};

pub(super) static ID_RUN: FileKind = FileKind {
    dir: QUEUES_DIR,
    extension: "ids",
    digits: 10,
    magic: b"HubQIds\n",
    end_magic: b"HQIE",
    version: 1,
    wrong_magic: "it does not begin as a file of ids does",
};

pub(super) const BLOCK_BYTES: usize = 4_096;
pub(super) const BLOCK_RECORDS: usize = (BLOCK_BYTES - size_of::<u32>()) / RECORD_BYTES;
/// Behind the header, so that blocks begin where pages of the disk do.
pub(super) const PADDING: [u8; BLOCK_BYTES - FileKind::HEADER_BYTES] = [0; _];

const FOOTER_BYTES: usize = 5 * size_of::<u64>() + 2 * size_of::<u32>() + FOOTER_END_BYTES;

/// Blocks that a scan reads at once.
const SCAN_BLOCKS: usize = 64;

/// A file of remembered ids. Cloning shares it.
#[derive(Clone)]
pub(crate) struct IdRun {
    inner: Arc<Inner>,
}

struct Inner {
    file: DataFile,
    footer: Footer,
    /// First half of the hash of each block's first record.
    index: Vec<u64>,
    filter: BloomFilter,
    /// What the wall clock is ahead of the store's time by, as the times in the file have it.
    ahead: i64,
    /// Nothing in it is remembered longer, by the store's time.
    forget_all_at: i64,
}

impl fmt::Debug for IdRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdRun").field(&self.inner.file).finish()
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

impl Footer {
    /// Its fields, without checksum and end magic.
    pub(super) fn fields(&self) -> Vec<u8> {
        let Self { records, blocks, filter_bytes, newest, number, parts_crc, body_crc } = *self;
        let numbers = [records, blocks, filter_bytes, newest.cast_unsigned(), number].map(u64::to_le_bytes);
        [numbers.as_flattened(), &parts_crc.to_le_bytes(), &body_crc.to_le_bytes()].concat()
    }

    /// From the whole footer; `None` when it is damaged.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = ID_RUN.check_footer(bytes)?;
        Some(Self {
            records: from.u64()?,
            blocks: from.u64()?,
            filter_bytes: from.u64()?,
            newest: from.i64()?,
            number: from.u64()?,
            parts_crc: from.u32()?,
            body_crc: from.u32()?,
        })
    }

    /// Index and filter, which stand between the blocks and the footer.
    fn parts(&self, footer_at: u64) -> Option<Section> {
        let offset = self.blocks.checked_add(1)?.checked_mul(BLOCK_BYTES as u64)?;
        let bytes = self.blocks.checked_mul(8)?.checked_add(self.filter_bytes)?;
        let parts = Section { offset, bytes, crc: self.parts_crc };
        (parts.end() == Some(footer_at)).then_some(parts)
    }
}

pub(crate) fn id_run_path(number: u64) -> String {
    ID_RUN.path(number)
}

impl IdRun {
    /// Opens the file of a number and checks everything but its blocks, which are checked as they are read.
    pub(crate) fn open(disk: &dyn Disk, number: u64, now: Now) -> Result<Self, FileError> {
        let mut file = DataFile::open(disk, &ID_RUN, number)?;
        let (end, tail) = file.read_footer(FOOTER_BYTES)?;
        let footer = Footer::read(&tail).filter(|footer| footer.number == number);
        let footer =
            footer.ok_or_else(|| file.damaged(end, "its end does not match its checksum or its name"))?;
        let parts = footer.parts(end).ok_or_else(|| file.damaged(end, "its parts do not fit each other"))?;
        let padding = file.read(FileKind::HEADER_BYTES as u64, PADDING.len() as u64)?;
        if padding != PADDING {
            return Err(file.damaged(FileKind::HEADER_BYTES as u64, ID_RUN.wrong_magic));
        }
        let found = file.read_section(&parts, "its index or filter does not match the checksum")?;
        let split = found.split_at_checked(saturate(footer.blocks * 8));
        let split = split.and_then(|(index, filter)| Some((index, BloomFilter::from_bytes(filter)?)));
        let (index, filter) = split.ok_or_else(|| file.damaged(parts.offset, "the filter is none"))?;
        let ahead = now.wall.saturating_sub(now.at);
        let kept = saturate::<_, i64>(micros(ID_KEPT_MS));
        // No longer than was promised, however much the wall clock was set back meanwhile.
        let forget_all_at = footer.newest.saturating_sub(ahead).min(now.at.saturating_add(kept));
        let index = read_u64s(index);
        file.crc32c = crc32c_append(footer.body_crc, &tail);
        Ok(Self { inner: Arc::new(Inner { file, footer, index, filter, ahead, forget_all_at }) })
    }

    pub(crate) fn number(&self) -> u64 {
        self.inner.footer.number
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.inner.file.bytes
    }

    /// The file as a backup names it.
    pub(crate) fn backup_file(&self) -> (BackupFile, Arc<dyn DiskFile>) {
        let file = &self.inner.file;
        (file.backup_file(), Arc::clone(&file.file))
    }

    pub(super) fn records(&self) -> u64 {
        self.inner.footer.records
    }

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
                Err(error) => (Vec::new(), Some(Err(error.into()))),
            };
            records.into_iter().map(Ok).chain(error)
        })
    }

    fn read_blocks(&self, place: usize, count: usize) -> Result<Vec<SettledId>, FileError> {
        let Inner { file, index, footer, ahead, forget_all_at, .. } = &*self.inner;
        let count = count.min(index.len().saturating_sub(place));
        let begin = (place as u64 + 1) * BLOCK_BYTES as u64;
        let bytes = file.read(begin, (count * BLOCK_BYTES) as u64)?;
        let before = place as u64 * BLOCK_RECORDS as u64;
        let mut left: usize = saturate(footer.records.saturating_sub(before));
        let mut records = Vec::with_capacity(count * BLOCK_RECORDS);
        for block in bytes.chunks_exact(BLOCK_BYTES) {
            let body =
                block.split_first_chunk().filter(|(crc, body)| crc32c(body) == u32::from_le_bytes(**crc));
            let (_, body) = body.ok_or_else(|| file.damaged(begin, "the checksum of a block is wrong"))?;
            let here = body.as_chunks::<RECORD_BYTES>().0.iter().take(BLOCK_RECORDS.min(left));
            left -= here.len();
            records.extend(here.filter_map(SettledId::read).map(|record| SettledId {
                forget_at: record.forget_at.saturating_sub(*ahead).min(*forget_all_at),
                ..record
            }));
        }
        Ok(records)
    }

    /// Reads all of it, and says what is wrong.
    pub(crate) fn check(&self) -> Option<OpenError> {
        let mut last = None;
        for record in self.scan() {
            match record {
                Ok(record) if last < Some(record.known_as) => last = Some(record.known_as),
                Ok(_) => return Some(self.inner.file.damaged(0, "its ids are not in order").into()),
                Err(error) => return Some(error.into()),
            }
        }
        None
    }
}
