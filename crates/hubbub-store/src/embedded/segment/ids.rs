//! The id table: sorted (hash, ordinal) pairs in checked pages, and the lookup of an id in it.

use crc32c::crc32c;

use hubbub_core::Message;

use super::bytes::Cursor;
use super::error::SegmentError;
use super::open::Segment;

/// Pages are as large as those of the operating system's cache.
pub(super) const PAGE_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 12;
pub(super) const PAGE_ENTRIES: usize = (PAGE_BYTES - 4) / ENTRY_BYTES;

/// Read at a time when all hashes are wanted.
const STREAM_BYTES: usize = 256 * PAGE_BYTES;

/// Appends one page.
pub(super) fn write_page(entries: &[(u64, u32)], out: &mut Vec<u8>) {
    let start = out.len();
    for (hash, ordinal) in entries {
        out.extend_from_slice(&hash.to_le_bytes());
        out.extend_from_slice(&ordinal.to_le_bytes());
    }
    let crc = crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Bytes of the table of so many ids.
pub(super) fn ids_bytes(ids: u64) -> u64 {
    ids * ENTRY_BYTES as u64 + ids.div_ceil(PAGE_ENTRIES as u64) * 4
}

/// The entries of a page; `None` when its checksum does not match.
fn check_page(page: &[u8]) -> Option<&[u8]> {
    let (entries, crc) = page.split_last_chunk::<4>()?;
    (crc32c(entries) == u32::from_le_bytes(*crc)).then_some(entries)
}

fn entry(bytes: &[u8]) -> Option<(u64, u32)> {
    let mut cursor = Cursor::new(bytes);
    Some((cursor.u64()?, cursor.u32()?))
}

impl Segment {
    /// Shows `visit` each message whose id has this hash, until it says that the right one was found (`true`).
    /// Whether it said so is the answer. The hash alone proves nothing: compare room and id.
    pub fn find_id(
        &self,
        hash: u64,
        mut visit: impl FnMut(&Message<'_>) -> bool,
    ) -> Result<bool, SegmentError> {
        let fences = self.fences();
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

    /// Shows `visit` the hashes of all ids, in some order, many at a time.
    pub fn id_hashes(&self, mut visit: impl FnMut(&[u64])) -> Result<(), SegmentError> {
        let (start, bytes) = self.ids_place();
        let mut hashes = Vec::with_capacity(STREAM_BYTES / ENTRY_BYTES);
        let mut done = 0;
        while done < bytes {
            let step = usize::try_from(bytes - done).unwrap_or(STREAM_BYTES).min(STREAM_BYTES);
            let pages = self.read(start + done, step)?;
            hashes.clear();
            for (index, page) in pages.chunks(PAGE_BYTES).enumerate() {
                let at = start + done + (index * PAGE_BYTES) as u64;
                let entries = check_page(page)
                    .ok_or_else(|| self.damaged(at, "the checksum of a page of ids does not match"))?;
                let (exact, _) = entries.as_chunks::<ENTRY_BYTES>();
                hashes.extend(exact.iter().filter_map(|bytes| entry(bytes).map(|(hash, _)| hash)));
            }
            visit(&hashes);
            done += step as u64;
        }
        Ok(())
    }

    /// Offset and length of the table.
    fn ids_place(&self) -> (u64, u64) {
        let range = self.ids_range();
        (range.start, range.end - range.start)
    }

    fn ordinals_in_page(&self, page: usize, hash: u64) -> Result<Vec<u32>, SegmentError> {
        let (start, bytes) = self.ids_place();
        let within = (page * PAGE_BYTES) as u64;
        let length = usize::try_from(bytes.saturating_sub(within)).unwrap_or(PAGE_BYTES).min(PAGE_BYTES);
        let page = self.read(start + within, length)?;
        let entries = check_page(&page)
            .ok_or_else(|| self.damaged(start + within, "the checksum of a page of ids does not match"))?;
        let (exact, _) = entries.as_chunks::<ENTRY_BYTES>();
        let hash_of = |bytes: &[u8; ENTRY_BYTES]| entry(bytes).map_or(0, |(hash, _)| hash);
        let from = exact.partition_point(|bytes| hash_of(bytes) < hash);
        let same = exact.iter().skip(from).take_while(|bytes| hash_of(bytes) == hash);
        Ok(same.filter_map(|bytes| entry(bytes).map(|(_, ordinal)| ordinal)).collect())
    }
}
