//! Streams of bytes too long to be kept in memory, in checked pages, so that any part can be read alone.
//!
//! ```text
//! page     = 4,092 bytes of the stream (fewer in the last one) crc32c:u32
//! ```

use std::io;
use std::ops::Range;

use crc32c::crc32c;
use hubbub_core::invariant::saturate;

use super::format::SectionEntry;
use super::open::Segment;
use crate::embedded::file::{Cursor, FileError, Output, Section};

/// Pages are as large as those of the operating system's cache.
const PAGE_BYTES: u64 = 4096;
const CRC_BYTES: u64 = 4;
pub(super) const PAYLOAD_BYTES: u64 = PAGE_BYTES - CRC_BYTES;
/// The same two as lengths in memory.
const PAGE_LENGTH: usize = 4096;
pub(super) const PAYLOAD_LENGTH: usize = PAGE_LENGTH - 4;

/// Pages read with one call when a long part is wanted.
const STEP_PAGES: u64 = 64;

/// Takes a stream piece by piece and appends its pages to the file.
pub(super) struct PagedWriter {
    offset: u64,
    page: Vec<u8>,
    /// Of the stream so far.
    pub(super) bytes: u64,
}

impl PagedWriter {
    /// A stream that begins where `output` stands; nothing else may be written there until it is finished.
    pub(super) fn begin(output: &Output) -> Self {
        Self { offset: output.position(), page: Vec::new(), bytes: 0 }
    }

    pub(super) fn write(&mut self, mut bytes: &[u8], output: &mut Output) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let space = PAYLOAD_LENGTH.saturating_sub(self.page.len());
            let (now, later) = bytes.split_at(space.min(bytes.len()));
            self.page.extend_from_slice(now);
            bytes = later;
            if self.page.len() == PAYLOAD_LENGTH {
                self.write_page(output)?;
            }
        }
        Ok(())
    }

    /// Ends the stream. Where it stands, as a section of this kind that holds so many things.
    pub(super) fn finish(mut self, kind: u32, items: u64, output: &mut Output) -> io::Result<SectionEntry> {
        self.write_page(output)?;
        let place = Section { offset: self.offset, bytes: output.position() - self.offset, crc: 0 };
        Ok(SectionEntry { kind, place, items })
    }

    fn write_page(&mut self, output: &mut Output) -> io::Result<()> {
        if self.page.is_empty() {
            return Ok(());
        }
        output.append(|out| {
            out.extend_from_slice(&self.page);
            out.extend_from_slice(&crc32c(&self.page).to_le_bytes());
        })?;
        self.page.clear();
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Paged {
    pub(super) offset: u64,
    stored_bytes: u64,
    wrong_crc: &'static str,
}

impl Paged {
    /// The stream of a section; `None` when no stream is stored in so many bytes. `wrong_crc` is said of a page whose
    /// checksum does not match.
    pub(super) fn of(section: &Section, wrong_crc: &'static str) -> Option<Self> {
        let Section { offset, bytes, .. } = *section;
        let rest = bytes % PAGE_BYTES;
        (rest == 0 || rest > CRC_BYTES).then_some(Self { offset, stored_bytes: bytes, wrong_crc })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.stored_bytes - self.stored_bytes.div_ceil(PAGE_BYTES) * CRC_BYTES
    }
}

/// Reads a part of a stream from its begin to its end.
pub(super) struct PagedReader {
    segment: Segment,
    paged: Paged,
    /// Where in the stream the bytes behind the buffer stand.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    used: usize,
}

impl PagedReader {
    /// A reader of this part; one that ends behind the stream is cut there.
    pub(super) fn new(segment: &Segment, paged: Paged, part: Range<u64>) -> Self {
        let end = part.end.min(paged.bytes());
        let (segment, buffer) = (segment.clone(), Vec::new());
        Self { segment, paged, at: part.start.min(end), end, buffer, used: 0 }
    }

    /// Where in the stream the next byte stands.
    pub(super) fn position(&self) -> u64 {
        self.at - (self.buffer.len() - self.used) as u64
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.end && self.used == self.buffer.len()
    }

    /// What comes next: at least so many bytes unless the part ends before.
    #[inline]
    pub(super) fn peek(&mut self, bytes: usize) -> Result<&[u8], FileError> {
        while self.buffer.len() - self.used < bytes && self.at < self.end {
            self.refill()?;
        }
        Ok(self.buffer.get(self.used..).unwrap_or_default())
    }

    /// What `decode` takes off the front of the next bytes, of which it needs so many at most.
    #[inline]
    pub(super) fn take<T>(
        &mut self,
        bytes_max: usize,
        unreadable: &'static str,
        decode: impl FnOnce(&mut Cursor<'_>) -> Option<T>,
    ) -> Result<T, FileError> {
        let mut cursor = Cursor::new(self.peek(bytes_max)?);
        let before = cursor.rest().len();
        let taken = decode(&mut cursor);
        let used = before - cursor.rest().len();
        let taken = taken.ok_or_else(|| self.damaged(unreadable))?;
        self.consume(used);
        Ok(taken)
    }

    /// Goes on by so many of the bytes that were shown.
    #[inline]
    pub(super) fn consume(&mut self, bytes: usize) {
        self.used = (self.used + bytes).min(self.buffer.len());
    }

    /// Goes on by so many bytes, read or not.
    pub(super) fn skip(&mut self, bytes: u64) {
        let here = self.buffer.len() - self.used;
        match usize::try_from(bytes) {
            Ok(bytes) if bytes <= here => self.used += bytes,
            _ => {
                self.at = self.at.saturating_add(bytes - here as u64).min(self.end);
                self.buffer.clear();
                self.used = 0;
            }
        }
    }

    pub(super) fn damaged(&self, what: &'static str) -> FileError {
        let file = &self.segment.inner.file;
        file.damaged(self.paged.offset + self.position() / PAYLOAD_BYTES * PAGE_BYTES, what)
    }

    fn refill(&mut self) -> Result<(), FileError> {
        self.buffer.drain(..self.used);
        self.used = 0;
        let first = self.at / PAYLOAD_BYTES;
        let behind = self.end.div_ceil(PAYLOAD_BYTES).min(first + STEP_PAGES);
        let start = first * PAGE_BYTES;
        let stored = (behind * PAGE_BYTES).min(self.paged.stored_bytes).saturating_sub(start);
        let pages = self.segment.inner.file.read(self.paged.offset + start, stored)?;
        let mut page_at = first * PAYLOAD_BYTES;
        for page in pages.chunks(PAGE_LENGTH) {
            let payload = check_page(page).ok_or_else(|| {
                let offset = self.paged.offset + page_at / PAYLOAD_BYTES * PAGE_BYTES;
                self.segment.inner.file.damaged(offset, self.paged.wrong_crc)
            })?;
            // Both are within a page, or cut to its end.
            let skipped = saturate(self.at - page_at);
            let wanted = saturate::<_, usize>(self.end - page_at).min(payload.len());
            self.buffer.extend_from_slice(payload.get(skipped..wanted).unwrap_or_default());
            page_at += PAYLOAD_BYTES;
            self.at = page_at.min(self.end);
        }
        Ok(())
    }
}

/// What a page holds before its checksum; `None` when that does not match.
fn check_page(page: &[u8]) -> Option<&[u8]> {
    let (content, crc) = page.split_last_chunk::<4>()?;
    (crc32c(content) == u32::from_le_bytes(*crc)).then_some(content)
}
