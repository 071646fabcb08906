//! Whether the blocks of a slot are still what was written.
//!
//! Records are found by their places in memory and read without their block, so nothing but this notices a byte that a
//! disk changed. A seal asks before it reads them: what it writes gets new checksums, which would vouch for that byte.

use hubbub_core::invariant::saturate;

use super::block::{self, HEADER_BYTES};
use super::slot::Slot;
use crate::embedded::error::MaintainError;
use crate::embedded::file::Patience;

/// So much is read at once, or a block if it is longer.
const READ_BYTES: u64 = 256 * 1024;

/// Reads the first `batches` blocks of a journal and compares their checksums. An error names the first block that is not as
/// it was written.
pub(crate) fn check_blocks(slot: &Slot, journal: u64, batches: u32, seed: u32) -> Result<(), MaintainError> {
    let mut window = Window { slot, bytes: Vec::new(), start: 0 };
    let mut at = 0_u64;
    for batch in 1..=batches {
        let damaged = || slot.damaged(at);
        let (_, length) = block::peek(window.read(at, HEADER_BYTES as u64)?).ok_or_else(damaged)?;
        let whole = HEADER_BYTES as u64 + length as u64;
        let found = block::read(window.read(at, whole)?, seed);
        found.filter(|(header, _)| (header.journal, header.batch) == (journal, batch)).ok_or_else(damaged)?;
        at += whole;
    }
    Ok(())
}

struct Window<'a> {
    slot: &'a Slot,
    bytes: Vec<u8>,
    start: u64,
}

impl Window<'_> {
    /// The bytes from `at`, which never goes back: so many, fewer where the slot ends before, or more.
    fn read(&mut self, at: u64, bytes: u64) -> Result<&[u8], MaintainError> {
        let end = self.start + self.bytes.len() as u64;
        if at.saturating_add(bytes) > end {
            let length = bytes.max(READ_BYTES).min(self.slot.bytes.saturating_sub(at));
            self.bytes.resize(saturate(length), 0);
            self.slot.read(&mut self.bytes, at, Patience::Wait)?;
            self.start = at;
        }
        Ok(self.bytes.get(saturate(at - self.start)..).unwrap_or_default())
    }
}
