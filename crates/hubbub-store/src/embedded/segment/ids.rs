//! The table of ids: sorted (hash, ordinal) pairs in the pages of a stream, and the first hash of each page.

use std::io;

use hubbub_core::Message;

use super::format::{SectionEntry, section};
use super::open::Segment;
use super::paged::{PAYLOAD_BYTES, PAYLOAD_LENGTH, PagedReader, PagedWriter};
use crate::embedded::file::{Cursor, FileError, Output};

pub(super) const ENTRY_BYTES: usize = 12;

/// A page is full of whole entries.
pub(super) const PAGE_ENTRIES: u64 = (PAYLOAD_LENGTH / ENTRY_BYTES) as u64;
const _: () = assert!(PAYLOAD_LENGTH.is_multiple_of(ENTRY_BYTES));

/// Takes the pairs in their order and appends them to the file.
pub(super) struct IdTableWriter {
    pages: PagedWriter,
    ids: u64,
    fences: Vec<u8>,
}

impl IdTableWriter {
    pub(super) fn begin(output: &Output) -> Self {
        Self { pages: PagedWriter::begin(output), ids: 0, fences: Vec::new() }
    }

    pub(super) fn push(&mut self, hash: u64, ordinal: u32, output: &mut Output) -> io::Result<()> {
        if self.ids.is_multiple_of(PAGE_ENTRIES) {
            self.fences.extend_from_slice(&hash.to_le_bytes());
        }
        self.ids += 1;
        self.pages.write(&hash.to_le_bytes(), output)?;
        self.pages.write(&ordinal.to_le_bytes(), output)
    }

    pub(super) fn finish(self, output: &mut Output) -> io::Result<(SectionEntry, Vec<u8>)> {
        Ok((self.pages.finish(section::IDS, self.ids, output)?, self.fences))
    }
}

pub(super) fn entries(stream: &[u8]) -> &[[u8; ENTRY_BYTES]] {
    stream.as_chunks().0
}

pub(super) fn entry(bytes: &[u8; ENTRY_BYTES]) -> (u64, u32) {
    let mut cursor = Cursor::new(bytes);
    (cursor.u64().unwrap_or_default(), cursor.u32().unwrap_or_default())
}

impl Segment {
    /// Shows `visit` each message whose id has this hash, until it says that the right one was found (`true`).
    /// Whether it said so is the answer. The hash alone proves nothing: compare room and id.
    pub(crate) fn find_id(
        &self,
        hash: u64,
        mut visit: impl FnMut(&Message<'_>) -> bool,
    ) -> Result<bool, FileError> {
        let fences = &self.inner.fences;
        let first = fences.partition_point(|fence| *fence < hash).saturating_sub(1);
        for (page, _) in fences.iter().enumerate().skip(first).take_while(|(_, fence)| **fence <= hash) {
            let mut reader = self.id_page(page);
            let entries = entries(reader.peek(PAYLOAD_LENGTH)?);
            let from = entries.partition_point(|bytes| entry(bytes).0 < hash);
            for (_, ordinal) in entries.iter().skip(from).map(entry).take_while(|(found, _)| *found == hash) {
                if self.with_message(ordinal, &mut visit)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Shows `visit` the hashes of all ids, in rising order, many at a time.
    pub(crate) fn id_hashes(&self, mut visit: impl FnMut(&[u64])) -> Result<(), FileError> {
        let mut reader = PagedReader::new(self, self.inner.ids, 0..u64::MAX);
        let mut hashes = Vec::new();
        while !reader.is_at_end() {
            let stream = reader.peek(1)?;
            let length = stream.len();
            hashes.clear();
            hashes.extend(entries(stream).iter().map(|bytes| entry(bytes).0));
            visit(&hashes);
            reader.consume(length);
        }
        Ok(())
    }

    pub(super) fn id_stream(&self) -> IdStream {
        IdStream { reader: PagedReader::new(self, self.inner.ids, 0..u64::MAX) }
    }

    pub(super) fn id_page(&self, page: usize) -> PagedReader {
        let begin = page as u64 * PAYLOAD_BYTES;
        PagedReader::new(self, self.inner.ids, begin..begin + PAYLOAD_BYTES)
    }
}

/// All (hash, ordinal) pairs of a segment in rising order.
pub(super) struct IdStream {
    reader: PagedReader,
}

impl IdStream {
    pub(super) fn next(&mut self) -> Result<Option<(u64, u32)>, FileError> {
        let next = entries(self.reader.peek(ENTRY_BYTES)?).first().map(entry);
        self.reader.consume(ENTRY_BYTES);
        Ok(next)
    }
}
