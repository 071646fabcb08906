//! A block: bytes that are compressed and checked as one.

use std::io;

use crc32c::crc32c;
use hubbub_core::invariant::cast;

use super::codec::{Compressor, decompress};
use super::cursor::index;
use super::{Cursor, Output};

/// No block is larger before compression: a text of 16 MiB with everything that belongs to it fits easily.
pub(crate) const BLOCK_RAW_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockLocation {
    pub(crate) offset: u64,
    pub(crate) stored_bytes: u32,
}

pub(crate) fn append(
    raw: &[u8],
    compressor: &mut Compressor,
    output: &mut Output,
) -> io::Result<BlockLocation> {
    if raw.len() > BLOCK_RAW_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a message or value must fit a block of 64 MiB",
        ));
    }
    let raw_bytes: u32 = cast(raw.len(), "a block has 64 MiB at most").map_err(io::Error::other)?;
    let (codec, payload) = compressor.compress(raw)?;
    let offset = output.position();
    output.append(|out| {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(codec);
        out.extend_from_slice(&raw_bytes.to_le_bytes());
        out.extend_from_slice(payload);
        let crc = out.get(start + 4..).map_or(0, crc32c);
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
    })?;
    let stored_bytes = cast(output.position() - offset, "a stored block is no longer than a raw one");
    Ok(BlockLocation { offset, stored_bytes: stored_bytes.map_err(io::Error::other)? })
}

/// What `append` was given; `None` when the stored bytes are not a block, or are damaged.
pub(crate) fn unpack(stored: &[u8]) -> Option<Vec<u8>> {
    let mut cursor = Cursor::new(stored);
    if cursor.u32()? != crc32c(cursor.rest()) {
        return None;
    }
    let codec = cursor.byte()?;
    let raw_bytes = cursor.u32().map(index).filter(|bytes| *bytes <= BLOCK_RAW_BYTES_MAX)?;
    decompress(codec, cursor.rest(), raw_bytes)
}
