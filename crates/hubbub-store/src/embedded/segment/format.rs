//! The fixed parts of the file: table of sections and footer.

use super::SEGMENTS_DIR;
use crate::embedded::file::{Cursor, FileKind, Section};

pub(crate) static SEGMENT: FileKind = FileKind {
    dir: SEGMENTS_DIR,
    extension: "seg",
    digits: 8,
    magic: b"HUBSEGMT",
    end_magic: b"HBSE",
    version: 1,
    wrong_magic: "it does not begin as a segment does",
};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SectionEntry {
    pub(super) kind: u32,
    pub(super) place: Section,
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

pub(super) fn table(sections: &[SectionEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(sections.len() * TABLE_ENTRY_BYTES);
    for entry in sections {
        out.extend_from_slice(&entry.kind.to_le_bytes());
        out.extend_from_slice(&entry.place.crc.to_le_bytes());
        for number in [entry.place.offset, entry.place.bytes, entry.items] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    out
}

pub(super) fn read_table(bytes: &[u8]) -> Option<Vec<SectionEntry>> {
    let mut cursor = Cursor::new(bytes);
    let mut sections = Vec::new();
    while !cursor.is_empty() {
        let (kind, crc) = (cursor.u32()?, cursor.u32()?);
        let place = Section { offset: cursor.u64()?, bytes: cursor.u64()?, crc };
        sections.push(SectionEntry { kind, place, items: cursor.u64()? });
    }
    Some(sections)
}

impl Footer {
    /// Its fields, without checksum and end magic.
    pub(super) fn fields(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.table_offset.to_le_bytes());
        out.extend_from_slice(&self.sections.to_le_bytes());
        out.extend_from_slice(&self.table_crc.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out
    }

    pub(super) fn read(footer: &[u8]) -> Option<Self> {
        let mut cursor = SEGMENT.check_footer(footer)?;
        let table_offset = cursor.u64()?;
        let (sections, table_crc) = (cursor.u32()?, cursor.u32()?);
        Some(Self { table_offset, sections, table_crc, number: cursor.u64()? })
    }

    pub(super) fn table_bytes(&self) -> u64 {
        u64::from(self.sections) * TABLE_ENTRY_BYTES as u64
    }
}
