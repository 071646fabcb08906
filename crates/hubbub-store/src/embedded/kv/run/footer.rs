//! The footer of a run.

use crate::embedded::file::{Cursor, FileKind, Section};
use crate::embedded::kv::KV_DIR;

pub(crate) static KEY_RUN: FileKind = FileKind {
    dir: KV_DIR,
    extension: "run",
    digits: 8,
    magic: b"HUBKVRUN",
    end_magic: b"HBKE",
    version: 1,
    wrong_magic: "it does not begin as a run of keys does",
};

pub(super) const FOOTER_BYTES: usize = 3 * 20 + 4 * 8 + 12;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) index: Section,
    pub(super) filter: Section,
    pub(super) expiring: Section,
    /// Entries, those that say that a key is deleted included.
    pub(super) keys: u64,
    pub(super) revision: u64,
    pub(super) expiring_keys: u64,
    pub(super) number: u64,
    /// Checksum of everything before the footer, so that the file's checksum is known without reading all of it.
    pub(super) body_crc: u32,
}

impl Footer {
    /// Its fields, without checksum and end magic.
    pub(super) fn fields(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for section in [self.index, self.filter, self.expiring] {
            section.write(&mut out);
        }
        for number in [self.keys, self.revision, self.expiring_keys, self.number] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.body_crc.to_le_bytes());
        out
    }

    pub(super) fn read(footer: &[u8]) -> Option<Self> {
        let mut from = KEY_RUN.check_footer(footer)?;
        Self::from_fields(&mut from).filter(|_| from.is_empty())
    }

    fn from_fields(from: &mut Cursor<'_>) -> Option<Self> {
        Some(Self {
            index: Section::take(from)?,
            filter: Section::take(from)?,
            expiring: Section::take(from)?,
            keys: from.u64()?,
            revision: from.u64()?,
            expiring_keys: from.u64()?,
            number: from.u64()?,
            body_crc: from.u32()?,
        })
    }
}
