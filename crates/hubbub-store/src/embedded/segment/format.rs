//! The fixed parts of the file: header, table of sections, footer.

use crc32c::crc32c;

use crate::embedded::file::cursor::Cursor;

/// Format written, and the only one read.
pub(super) const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"HUBSEGMT";
const END_MAGIC: &[u8; 4] = b"HBSE";

pub(super) const HEADER_BYTES: usize = 16;
pub(super) const FOOTER_BYTES: usize = 32;
const TABLE_ENTRY_BYTES: usize = 32;

/// Sections a file may have. Numbers are never used again for something else.
pub(super) mod section {
    pub(in super::super) const ROOMS: u32 = 1;
    pub(in super::super) const BLOCKS: u32 = 2;
    /// Checked page by page; its checksum in the table is 0.
    pub(in super::super) const IDS: u32 = 3;
    pub(in super::super) const FENCES: u32 = 4;
    /// Checked page by page, like postings; the checksums of both in the table are 0.
    pub(in super::super) const USERS: u32 = 5;
    pub(in super::super) const POSTINGS: u32 = 6;
    pub(in super::super) const USER_FENCES: u32 = 7;
    /// Everything before the table, so that the file's checksum is known without reading all of it.
    pub(in super::super) const BODY: u32 = 16;
}

/// What is wrong with a fixed part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Damaged(&'static str),
    Version(u32),
}

/// Where a section stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) kind: u32,
    pub(super) crc: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// How many things it holds: rooms, blocks, ids, pages.
    pub(super) items: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) table_offset: u64,
    pub(super) sections: u32,
    pub(super) table_crc: u32,
    pub(super) number: u64,
}

pub(super) fn header(version: u32) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

pub(super) fn check_header(bytes: &[u8]) -> Result<(), Fault> {
    let mut cursor = Cursor::new(bytes);
    let magic = cursor.array::<8>();
    let (version, crc) = (cursor.u32(), cursor.u32());
    if magic.as_ref() != Some(MAGIC) {
        return Err(Fault::Damaged("it does not begin as a segment does"));
    }
    if crc != bytes.get(..HEADER_BYTES - 4).map(crc32c) {
        return Err(Fault::Damaged("the header's checksum does not match"));
    }
    match version {
        Some(VERSION) => Ok(()),
        other => Err(Fault::Version(other.unwrap_or_default())),
    }
}

pub(super) fn table(sections: &[Section]) -> Vec<u8> {
    let mut out = Vec::with_capacity(sections.len() * TABLE_ENTRY_BYTES);
    for entry in sections {
        out.extend_from_slice(&entry.kind.to_le_bytes());
        out.extend_from_slice(&entry.crc.to_le_bytes());
        out.extend_from_slice(&entry.offset.to_le_bytes());
        out.extend_from_slice(&entry.bytes.to_le_bytes());
        out.extend_from_slice(&entry.items.to_le_bytes());
    }
    out
}

pub(super) fn read_table(bytes: &[u8]) -> Option<Vec<Section>> {
    let mut cursor = Cursor::new(bytes);
    let mut sections = Vec::new();
    while !cursor.is_empty() {
        let (kind, crc) = (cursor.u32()?, cursor.u32()?);
        let (offset, bytes, items) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        sections.push(Section { kind, crc, offset, bytes, items });
    }
    Some(sections)
}

impl Footer {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.table_offset.to_le_bytes());
        out.extend_from_slice(&self.sections.to_le_bytes());
        out.extend_from_slice(&self.table_crc.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        out.extend_from_slice(END_MAGIC);
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let table_offset = cursor.u64()?;
        let (sections, table_crc) = (cursor.u32()?, cursor.u32()?);
        let (number, crc) = (cursor.u64()?, cursor.u32()?);
        let whole = crc == crc32c(bytes.get(..FOOTER_BYTES - 8)?) && cursor.rest() == END_MAGIC;
        whole.then_some(Self { table_offset, sections, table_crc, number })
    }

    /// Length of the table in bytes.
    pub(super) fn table_bytes(&self) -> u64 {
        u64::from(self.sections) * TABLE_ENTRY_BYTES as u64
    }
}
