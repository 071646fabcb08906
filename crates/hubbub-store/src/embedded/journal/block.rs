//! A block: all records of one batch behind a header that vouches for them.
//!
//! ```text
//! magic 8 | crc32c 4, over all that follows | length of the records 4 | journal 8 | prior journal 8
//! | batch 4 | prior batches 4 | records 4 | flags 4 | records…
//! ```
//!
//! The checksum starts from a seed that belongs to the data directory, so that no sender can write a text that reads
//! as a block. Stale blocks of a reused slot have valid checksums: they are told apart by their journal number.

use hubbub_core::invariant::{BrokenInvariant, cast};

use crate::embedded::file::Cursor;
use crate::embedded::file::cursor::index;

pub(crate) const MAGIC: [u8; 8] = *b"\xD7HubBlk1";

pub(crate) const HEADER_BYTES: usize = 48;

/// Flag: written without waiting for the disk.
const FLAG_UNSYNCED: u32 = 1;

/// What stands before the records of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// Number of the journal it belongs to; every use of a slot is a journal of its own.
    pub(crate) journal: u64,
    /// Place in the journal, from 1.
    pub(crate) batch: u32,
    pub(crate) prior_journal: u64,
    /// How many batches that one holds: whatever stands behind them in its slot does not count.
    pub(crate) prior_batches: u32,
    pub(crate) records: u32,
    /// Whether it was written without waiting for the disk, so that later blocks may be there without earlier ones.
    pub(crate) unsynced: bool,
}

/// Makes room for a header at the beginning of an empty buffer; the records are appended next.
pub(crate) fn begin(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.resize(HEADER_BYTES, 0);
}

/// Fills in the header of a buffer that [`begin`] started.
pub(crate) fn finish(buffer: &mut [u8], header: &BlockHeader, seed: u32) -> Result<(), BrokenInvariant> {
    let length: u32 =
        cast(buffer.len().saturating_sub(HEADER_BYTES), "a batch fits a slot, which has less than 4 GiB")?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&length.to_le_bytes());
    for number in [header.journal, header.prior_journal] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for number in [header.batch, header.prior_batches, header.records, header.unsynced.into()] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    if let Some(place) = buffer.get_mut(..HEADER_BYTES) {
        place.copy_from_slice(&bytes);
    }
    let crc = crc32c::crc32c_append(seed, buffer.get(12..).unwrap_or_default());
    if let Some(place) = buffer.get_mut(8..12) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
    Ok(())
}

/// The block at the beginning of `bytes`, with its records, if one stands there whole and unharmed.
pub(crate) fn read(bytes: &[u8], seed: u32) -> Option<(BlockHeader, &[u8])> {
    let (header, length) = peek(bytes)?;
    let end = HEADER_BYTES.checked_add(length)?;
    let block = bytes.get(..end)?;
    let crc = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
    (crc32c::crc32c_append(seed, block.get(12..)?) == crc).then_some((header, block.get(HEADER_BYTES..)?))
}

/// What the header at the beginning of `bytes` says, unchecked, and the length of its records.
pub(crate) fn peek(bytes: &[u8]) -> Option<(BlockHeader, usize)> {
    let mut from = Cursor::new(bytes);
    if from.array()? != MAGIC {
        return None;
    }
    let (_crc, length) = (from.u32()?, index(from.u32()?));
    let header = BlockHeader {
        journal: from.u64()?,
        prior_journal: from.u64()?,
        batch: from.u32()?,
        prior_batches: from.u32()?,
        records: from.u32()?,
        unsynced: from.u32()? & FLAG_UNSYNCED != 0,
    };
    Some((header, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_vouches_for_its_bytes() {
        let header = BlockHeader {
            journal: 7,
            batch: 3,
            prior_journal: 6,
            prior_batches: 99,
            records: 2,
            unsynced: true,
        };
        let mut buffer = vec![1, 2, 3];
        begin(&mut buffer);
        buffer.extend_from_slice(b"records");
        finish(&mut buffer, &header, 5).unwrap();
        assert_eq!(read(&buffer, 5), Some((header, b"records".as_slice())));
        assert_eq!(read(&buffer, 6), None);
        for at in 0..buffer.len() {
            let mut torn = buffer.clone();
            torn[at] ^= 1;
            assert_eq!(read(&torn, 5), None, "byte {at}");
        }
        assert_eq!(read(&buffer[..buffer.len() - 1], 5), None);
    }
}
