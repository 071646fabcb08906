//! The fixed parts of a run: header and footer.

use crc32c::crc32c;

use crate::embedded::file::cursor::Cursor;

const MAGIC: &[u8; 8] = b"HUBKVRUN";
const END_MAGIC: &[u8; 4] = b"HBKE";

/// Format written, and the only one read.
pub(super) const VERSION: u32 = 1;

pub(super) const HEADER_BYTES: usize = 16;
pub(super) const FOOTER_BYTES: usize = 3 * 20 + 4 * 8 + 12;

/// What is wrong with a fixed part.
pub(super) enum Fault {
    Damaged(&'static str),
    Version(u32),
}

/// A part of the file that is read as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) crc: u32,
}

/// What stands at the end of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) index: Part,
    pub(super) filter: Part,
    pub(super) expiring: Part,
    /// Entries, those that say that a key is deleted included.
    pub(super) keys: u64,
    /// Greatest revision.
    pub(super) revision: u64,
    /// How many keys run out.
    pub(super) expiring_keys: u64,
    pub(super) number: u64,
    /// Checksum of everything before the footer, so that the file's checksum is known without reading all of it.
    pub(super) body_crc: u32,
}

pub(super) fn header() -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

pub(super) fn check_header(bytes: &[u8]) -> Result<(), Fault> {
    let mut from = Cursor::new(bytes);
    let (magic, version, crc) = (from.array::<8>(), from.u32(), from.u32());
    if magic.as_ref() != Some(MAGIC) {
        return Err(Fault::Damaged("it does not begin as a run of keys does"));
    }
    if crc != bytes.get(..HEADER_BYTES - 4).map(crc32c) {
        return Err(Fault::Damaged("the header's checksum does not match"));
    }
    match version {
        Some(VERSION) => Ok(()),
        other => Err(Fault::Version(other.unwrap_or_default())),
    }
}

impl Footer {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for part in [self.index, self.filter, self.expiring] {
            out.extend_from_slice(&part.offset.to_le_bytes());
            out.extend_from_slice(&part.bytes.to_le_bytes());
            out.extend_from_slice(&part.crc.to_le_bytes());
        }
        for number in [self.keys, self.revision, self.expiring_keys, self.number] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.body_crc.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        out.extend_from_slice(END_MAGIC);
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Cursor::new(bytes);
        let mut part = || Some(Part { offset: from.u64()?, bytes: from.u64()?, crc: from.u32()? });
        let (index, filter, expiring) = (part()?, part()?, part()?);
        let footer = Self {
            index,
            filter,
            expiring,
            keys: from.u64()?,
            revision: from.u64()?,
            expiring_keys: from.u64()?,
            number: from.u64()?,
            body_crc: from.u32()?,
        };
        let whole = from.u32()? == crc32c(bytes.get(..FOOTER_BYTES - 8)?) && from.rest() == END_MAGIC;
        whole.then_some(footer)
    }
}
