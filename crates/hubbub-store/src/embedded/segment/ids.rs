//! The id table as it is read: one id by its hash, or all from end to end.

use crc32c::crc32c;

use hubbub_core::Message;

use super::id_table::{ENTRY_BYTES, PAGE_BYTES};
use super::open::Segment;
use crate::embedded::file::{Cursor, FileError};

/// Read at a time when all hashes are wanted.
const STREAM_BYTES: u64 = 256 * PAGE_BYTES as u64;

pub(super) const DAMAGED_PAGE: &str = "the checksum of a page of ids does not match";

/// What a page holds before its checksum; `None` when that does not match.
pub(super) fn check_page(page: &[u8]) -> Option<&[u8]> {
    let (content, crc) = page.split_last_chunk::<4>()?;
    (crc32c(content) == u32::from_le_bytes(*crc)).then_some(content)
}

pub(super) fn entry(bytes: &[u8]) -> Option<(u64, u32)> {
    let mut cursor = Cursor::new(bytes);
    Some((cursor.u64()?, cursor.u32()?))
}

impl Segment {
    /// Shows `visit` each message whose id has this hash, until it says that the right one was found (`true`).
    /// Whether it said so is the answer. The hash alone proves nothing: compare room and id.
    pub(crate) fn find_id(&self, hash: u64, mut visit: impl FnMut(&Message<'_>) -> bool) -> Result<bool, FileError> {
        let fences = &self.inner.fences;
        let first = fences.partition_point(|fence| *fence < hash).saturating_sub(1);
        for (page, fence) in fences.iter().enumerate().skip(first) {
            if *fence > hash {
                break;
            }
            for ordinal in self.ordinals_in_page(page, hash)? {
                if self.with_message(ordinal, &mut visit)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Shows `visit` the hashes of all ids, in rising order, many at a time.
    pub(crate) fn id_hashes(&self, mut visit: impl FnMut(&[u64])) -> Result<(), FileError> {
        let mut stream = self.id_stream(STREAM_BYTES);
        let mut hashes = Vec::new();
        while stream.refill()? {
            hashes.clear();
            hashes.extend(stream.entries.iter().map(|(hash, _)| *hash));
            visit(&hashes);
        }
        Ok(())
    }

    /// Goes through all (hash, ordinal) pairs, reading so many bytes at a time, a multiple of a page.
    pub(super) fn id_stream(&self, step_bytes: u64) -> IdStream {
        IdStream { segment: self.clone(), step_bytes, done: 0, entries: Vec::new(), next: 0 }
    }

    /// Offset and length of the table.
    fn ids_location(&self) -> (u64, u64) {
        let range = &self.inner.ids;
        (range.start, range.end - range.start)
    }

    fn ordinals_in_page(&self, page: usize, hash: u64) -> Result<Vec<u32>, FileError> {
        let (start, bytes) = self.ids_location();
        let within = (page * PAGE_BYTES) as u64;
        let length = bytes.saturating_sub(within).min(PAGE_BYTES as u64);
        let page = self.read(start + within, length)?;
        let entries = check_page(&page).ok_or_else(|| self.damaged(start + within, DAMAGED_PAGE))?;
        let (exact, _) = entries.as_chunks::<ENTRY_BYTES>();
        let hash_of = |bytes: &[u8; ENTRY_BYTES]| entry(bytes).map_or(0, |(hash, _)| hash);
        let from = exact.partition_point(|bytes| hash_of(bytes) < hash);
        let same = exact.iter().skip(from).take_while(|bytes| hash_of(bytes) == hash);
        Ok(same.filter_map(|bytes| entry(bytes).map(|(_, ordinal)| ordinal)).collect())
    }
}

/// All (hash, ordinal) pairs of a segment in rising order.
pub(super) struct IdStream {
    segment: Segment,
    step_bytes: u64,
    /// Bytes of the table read so far.
    done: u64,
    entries: Vec<(u64, u32)>,
    next: usize,
}

impl IdStream {
    /// The next pair.
    pub(super) fn next(&mut self) -> Result<Option<(u64, u32)>, FileError> {
        if self.next >= self.entries.len() && !self.refill()? {
            return Ok(None);
        }
        self.next += 1;
        Ok(self.entries.get(self.next - 1).copied())
    }

    /// Replaces `entries` by those that follow; `false` when there are none.
    fn refill(&mut self) -> Result<bool, FileError> {
        let (start, bytes) = self.segment.ids_location();
        let at = start + self.done;
        let step = (bytes - self.done).min(self.step_bytes);
        self.entries.clear();
        self.next = 0;
        let pages = self.segment.read(at, step)?;
        for (page, at) in pages.chunks(PAGE_BYTES).zip((at..).step_by(PAGE_BYTES)) {
            let entries = check_page(page).ok_or_else(|| self.segment.damaged(at, DAMAGED_PAGE))?;
            let (exact, _) = entries.as_chunks::<ENTRY_BYTES>();
            self.entries.extend(exact.iter().filter_map(|bytes| entry(bytes)));
        }
        self.done += step;
        Ok(!self.entries.is_empty())
    }
}
