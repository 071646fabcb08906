//! Checks what a file says of its sizes, before the library believes it.
//!
//! The library allocates what the footer and the headers of pages claim, which may be more than there is memory. So the
//! footer's length and the header of every page that will be read are looked at first. A header is a structure of Thrift's
//! compact protocol (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>); what it holds is
//! in <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>.
//!
//! Two encodings are refused: they hold a number of values inside the page, which cannot be checked without decoding.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, bail, ensure};

/// Longest footer. It takes some 50 times as much memory.
const FOOTER_BYTES_MAX: u64 = 8 << 20;
/// Largest page, before and after it is compressed. Pages usually have 1 MiB; a text may have 16 MiB.
const PAGE_BYTES_MAX: i64 = 64 << 20;
/// Largest dictionary: each entry takes up to ten times its bytes of memory.
const DICTIONARY_BYTES_MAX: i64 = 16 << 20;
/// Fewest bytes of an entry of a dictionary: a length, or a number.
const ENTRY_BYTES_MIN: i64 = 4;
/// Longest header of a page, with its statistics.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of most headers.
const HEADER_BYTES_USUAL: usize = 512;
const NESTING_MAX: usize = 8;

/// Checks the length of the footer. What is no Parquet file at all is left to the library.
pub(super) fn check_footer(file: &File) -> anyhow::Result<()> {
    let mut end = [0; 8];
    let Some(at) = file.metadata()?.len().checked_sub(end.len() as u64) else { return Ok(()) };
    file.read_exact_at(&mut end, at)?;
    let [a, b, c, d, magic @ ..] = end;
    let footer_bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
    ensure!(
        magic != *b"PAR1" || footer_bytes <= FOOTER_BYTES_MAX,
        "its footer has {footer_bytes} bytes; at most {FOOTER_BYTES_MAX} are read"
    );
    Ok(())
}

/// Checks the pages of a column's part in a row group, which is `length` bytes from `start`.
pub(super) fn check_pages(file: &File, start: u64, length: u64) -> anyhow::Result<()> {
    let (mut at, mut left) = (start, length);
    while left > 0 {
        let (page, header_bytes) = read_header(file, at)?;
        page.check()?;
        let bytes = u64::try_from(page.compressed).context("a page has a size below 0")? + header_bytes;
        left = left.checked_sub(bytes).context("a page is longer than its column")?;
        at = at.checked_add(bytes).context("a page is beyond the end")?;
    }
    Ok(())
}

/// What the header of a page claims.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PageHeader {
    uncompressed: i64,
    compressed: i64,
    is_dictionary: bool,
    values: i64,
    encoding: i64,
}

impl PageHeader {
    fn check(&self) -> anyhow::Result<()> {
        let most = if self.is_dictionary { DICTIONARY_BYTES_MAX } else { PAGE_BYTES_MAX };
        ensure!(
            (0..=most).contains(&self.uncompressed) && (0..=most).contains(&self.compressed),
            "a page has {} bytes, {} compressed; at most {most} are read",
            self.uncompressed,
            self.compressed
        );
        ensure!(
            !self.is_dictionary || (0..=self.uncompressed / ENTRY_BYTES_MIN).contains(&self.values),
            "a dictionary claims {} entries in {} bytes",
            self.values,
            self.uncompressed
        );
        match self.encoding {
            6 => bail!(
                "the encoding DELTA_LENGTH_BYTE_ARRAY is not read: have it written as PLAIN or with a dictionary"
            ),
            7 => bail!(
                "the encoding DELTA_BYTE_ARRAY is not read: have it written as PLAIN or with a dictionary"
            ),
            _ => Ok(()),
        }
    }
}

fn read_header(file: &File, at: u64) -> anyhow::Result<(PageHeader, u64)> {
    let mut buffer = vec![0; HEADER_BYTES_USUAL];
    loop {
        let count = read_up_to(file, &mut buffer, at)?;
        let read = buffer.get(..count).unwrap_or_default();
        match parse_header(read) {
            Ok((page, header_bytes)) => return Ok((page, header_bytes as u64)),
            // Perhaps there is more of it.
            Err(_) if count == buffer.len() && count < HEADER_BYTES_MAX => buffer.resize(HEADER_BYTES_MAX, 0),
            Err(error) => return Err(error.context("the header of a page")),
        }
    }
}

fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> anyhow::Result<usize> {
    let mut count = 0;
    while let Some(rest) = buffer.get_mut(count..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at.saturating_add(count as u64))? {
            0 => break,
            read => count += read,
        }
    }
    Ok(count)
}

/// The header that `bytes` begin with, and its length.
pub(super) fn parse_header(bytes: &[u8]) -> anyhow::Result<(PageHeader, usize)> {
    let mut thrift = Thrift { bytes, at: 0 };
    let mut page = PageHeader::default();
    thrift.structure(0, &mut |thrift, id, kind| {
        match (id, kind) {
            (2, I32) => page.uncompressed = thrift.integer()?,
            (3, I32) => page.compressed = thrift.integer()?,
            // A data page, a dictionary, and a data page of the second version.
            (5 | 7 | 8, STRUCTURE) => {
                page.is_dictionary |= id == 7;
                let encoding = if id == 8 { 4 } else { 2 };
                thrift.structure(1, &mut |thrift, id, kind| {
                    match (id, kind) {
                        (1, I32) => page.values = thrift.integer()?,
                        (id, I32) if id == encoding => page.encoding = thrift.integer()?,
                        _ => thrift.skip(kind, 2)?,
                    }
                    Ok(())
                })?;
            }
            _ => thrift.skip(kind, 1)?,
        }
        Ok(())
    })?;
    Ok((page, thrift.at))
}

const BOOLEANS: [u8; 2] = [1, 2];
const I8: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCTURE: u8 = 12;

/// Reads a value of Thrift's compact protocol from memory.
struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Visit<'v, 'a> = dyn FnMut(&mut Thrift<'a>, i64, u8) -> anyhow::Result<()> + 'v;

impl<'a> Thrift<'a> {
    /// Passes each field's id and type to `visit`, which must read or skip it.
    fn structure(&mut self, depth: usize, visit: &mut Visit<'_, 'a>) -> anyhow::Result<()> {
        ensure!(depth <= NESTING_MAX, "is nested too deeply");
        let mut id = 0_i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            let step = i64::from(head >> 4);
            id = if step > 0 { id.saturating_add(step) } else { self.integer()? };
            visit(self, id, head & 0x0F)?;
        }
    }

    fn skip(&mut self, kind: u8, depth: usize) -> anyhow::Result<()> {
        match kind {
            kind if BOOLEANS.contains(&kind) => Ok(()),
            I8 => self.byte().map(drop),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.advance(8),
            BINARY => {
                let length = self.varint()?;
                self.advance(length)
            }
            LIST | SET => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                self.skip_many(head & 0x0F, count, depth)
            }
            STRUCTURE => self.structure(depth + 1, &mut |thrift, _, kind| thrift.skip(kind, depth + 1)),
            MAP => bail!("holds a map"),
            other => bail!("holds a value of the unknown type {other}"),
        }
    }

    fn skip_many(&mut self, kind: u8, count: u64, depth: usize) -> anyhow::Result<()> {
        ensure!(depth <= NESTING_MAX, "is nested too deeply");
        // In a list, a boolean takes a byte. So every item does, and there are no more than bytes.
        let kind = if BOOLEANS.contains(&kind) { I8 } else { kind };
        (0..count).try_for_each(|_| self.skip(kind, depth + 1))
    }

    fn integer(&mut self) -> anyhow::Result<i64> {
        let zigzag = self.varint()?;
        Ok((zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed()))
    }

    fn varint(&mut self) -> anyhow::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        bail!("holds a number that does not end");
    }

    fn byte(&mut self) -> anyhow::Result<u8> {
        let byte = *self.bytes.get(self.at).context("ends early, or is too long")?;
        self.at += 1;
        Ok(byte)
    }

    fn advance(&mut self, count: u64) -> anyhow::Result<()> {
        let left = (self.bytes.len() - self.at) as u64;
        ensure!(count <= left, "ends early, or is too long");
        self.at += usize::try_from(count)?;
        Ok(())
    }
}
