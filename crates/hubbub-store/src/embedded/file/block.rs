//! A block as it stands in the file.

use crc32c::crc32c;

use crate::embedded::file::cursor::Cursor;

/// No block is larger before compression: a text of 16 MiB with everything that belongs to it fits easily.
pub(crate) const BLOCK_RAW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A block as it stands in the file, its checksum verified.
pub(crate) struct Stored<'a> {
    pub(crate) codec: u8,
    pub(crate) raw_bytes: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Stored<'a> {
    /// Bytes of checksum, codec and length before the payload.
    pub(crate) const HEADER_BYTES: usize = 9;

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(self.codec);
        out.extend_from_slice(&self.raw_bytes.to_le_bytes());
        out.extend_from_slice(self.payload);
        let crc = out.get(start + 4..).map_or(0, crc32c);
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
    }

    pub(crate) fn check(bytes: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u32()? != crc32c(cursor.rest()) {
            return None;
        }
        Some(Self { codec: cursor.byte()?, raw_bytes: cursor.u32()?, payload: cursor.rest() })
    }
}
