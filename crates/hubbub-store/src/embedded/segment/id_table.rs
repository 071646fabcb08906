//! The id table as it is written: sorted (hash, ordinal) pairs in checked pages, and the first hash of each.

use std::io;

use crc32c::crc32c;

use super::format::{SectionEntry, section};
use crate::embedded::file::Output;

/// Pages are as large as those of the operating system's cache.
pub(super) const PAGE_BYTES: usize = 4096;
pub(super) const ENTRY_BYTES: usize = 12;
pub(super) const PAGE_ENTRIES: usize = (PAGE_BYTES - 4) / ENTRY_BYTES;

/// Bytes of the table of so many ids.
pub(super) fn ids_bytes(ids: u64) -> u64 {
    ids * ENTRY_BYTES as u64 + ids.div_ceil(PAGE_ENTRIES as u64) * 4
}

/// Takes the pairs in their order and appends them to the file.
pub(super) struct IdTableWriter {
    offset: u64,
    page: Vec<(u64, u32)>,
    ids: u64,
    fences: Vec<u8>,
}

impl IdTableWriter {
    /// A table that begins where `output` stands.
    pub(super) fn begin(output: &Output) -> Self {
        let page = Vec::with_capacity(PAGE_ENTRIES);
        Self { offset: output.position(), page, ids: 0, fences: Vec::new() }
    }

    pub(super) fn push(&mut self, hash: u64, ordinal: u32, output: &mut Output) -> io::Result<()> {
        self.page.push((hash, ordinal));
        if self.page.len() == PAGE_ENTRIES { self.write_page(output) } else { Ok(()) }
    }

    /// Where the table stands, and the fences.
    pub(super) fn finish(mut self, output: &mut Output) -> io::Result<(SectionEntry, Vec<u8>)> {
        self.write_page(output)?;
        let bytes = output.position() - self.offset;
        let ids = SectionEntry { kind: section::IDS, crc: 0, offset: self.offset, bytes, items: self.ids };
        Ok((ids, self.fences))
    }

    fn write_page(&mut self, output: &mut Output) -> io::Result<()> {
        let Some((first, _)) = self.page.first() else { return Ok(()) };
        self.fences.extend_from_slice(&first.to_le_bytes());
        self.ids += self.page.len() as u64;
        let page = std::mem::take(&mut self.page);
        output.append(|out| {
            let start = out.len();
            for (hash, ordinal) in &page {
                out.extend_from_slice(&hash.to_le_bytes());
                out.extend_from_slice(&ordinal.to_le_bytes());
            }
            let crc = out.get(start..).map_or(0, crc32c);
            out.extend_from_slice(&crc.to_le_bytes());
        })?;
        self.page = page;
        self.page.clear();
        Ok(())
    }
}
