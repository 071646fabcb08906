//! Reads the slots of the journal at a start.

use std::io;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;

use crate::embedded::disk::Disk;
use crate::embedded::error::{DoingOn, MaintainError, OpenError};
use crate::embedded::file::Patience;
use crate::embedded::journal::block;
use crate::embedded::journal::end::JournalEnd;
use crate::embedded::journal::scan::{self, Chain, SlotScan};
use crate::embedded::journal::slot::Slot;
use crate::embedded::journal::{JOURNAL_DIR, slot_number, slot_path};
use crate::embedded::manifest::Manifest;
use crate::embedded::record::{TIME_BYTES, TimeProven};
use crate::embedded::rooms::Position;

/// Slots are read in pieces of this size at most, so that an error can say where.
const PIECE_BYTES: u64 = 256 * 1024;

/// Reads all slots and finds the journals in them; everything up to `recorded` must be there.
pub(crate) fn read_slots(
    disk: &dyn Disk,
    manifest: &Manifest,
    recorded: &JournalEnd,
) -> Result<Chain, OpenError> {
    let mut names = disk.list(JOURNAL_DIR).doing("listing the directory", JOURNAL_DIR)?;
    names.sort_unstable();
    let mut scans = Vec::new();
    let mut bytes = Vec::new();
    for number in names.iter().filter_map(|name| slot_number(name)) {
        let path = slot_path(number);
        let file = disk.open(&path).doing("opening", &path)?;
        let length = file.len().doing("measuring", &path)?;
        scans.push(scan_slot(Slot { number, file, bytes: length }, &mut bytes, manifest)?);
    }
    scan::chain(scans, manifest.applied, recorded)
}

/// Finds the journal in a slot. What stands behind the first block of one that is applied is not read: it does not count, so it need
/// not be readable.
fn scan_slot(slot: Slot, bytes: &mut Vec<u8>, manifest: &Manifest) -> Result<SlotScan, OpenError> {
    let (applied, seed) = (manifest.applied, manifest.block_seed);
    bytes.clear();
    read_on(&slot, block::HEADER_BYTES as u64, bytes)?;
    let first = block::peek(bytes).map_or(0, |(_, length)| (block::HEADER_BYTES + length) as u64);
    read_on(&slot, first, bytes)?;
    if scan::begins_applied(bytes, applied, seed) {
        return Ok(SlotScan::Free { slot, stray: None });
    }
    read_on(&slot, slot.bytes, bytes)?;
    Ok(scan::scan(slot, bytes, applied, seed))
}

/// Reads a slot up to `end`.
pub(crate) fn read_slot(slot: &Slot, end: u64, bytes: &mut Vec<u8>) -> Result<(), OpenError> {
    bytes.clear();
    read_on(slot, end, bytes)
}

/// Reads on, behind `bytes` of a slot, up to `end` or the end of the slot.
fn read_on(slot: &Slot, end: u64, bytes: &mut Vec<u8>) -> Result<(), OpenError> {
    let end = end.min(slot.bytes);
    bytes.reserve(saturate::<_, usize>(end).saturating_sub(bytes.len()));
    while (bytes.len() as u64) < end {
        let at = bytes.len();
        let piece = (end - at as u64).min(PIECE_BYTES);
        bytes.resize(at + saturate::<_, usize>(piece), 0);
        let place = bytes.get_mut(at..).unwrap_or_default();
        slot.read(place, at as u64, Patience::Wait).map_err(|error| at_byte(error, at))?;
    }
    Ok(())
}

/// Says of a failed read where it was.
fn at_byte(error: MaintainError, at: usize) -> MaintainError {
    match error {
        MaintainError::Io { attempted, path, source } => {
            let source = io::Error::new(source.kind(), format!("at byte {at} or behind it: {source}"));
            MaintainError::Io { attempted, path, source }
        }
        error => error,
    }
}

/// The last proven time on the disk: the newest journal's, or that of the manifest if it was written behind that block, when the
/// journal went up to `at`. The later one may be of a clock that was set back since. `None` in a new data directory.
pub(super) fn last_proven(
    chain: &Chain,
    (of_manifest, at): (Option<Timestamp>, Position),
) -> Result<Option<Timestamp>, OpenError> {
    let mut begin = vec![0; block::HEADER_BYTES + TIME_BYTES];
    for journal in chain.unsealed.iter().rev() {
        for (before, start) in journal.blocks.iter().enumerate().rev() {
            if (Position { journal: journal.number(), batch: saturate(before + 1) }) <= at {
                return Ok(of_manifest);
            }
            let end = start.saturating_add(begin.len() as u64);
            if end > journal.end {
                continue;
            }
            journal.slot.read(&mut begin, *start, Patience::Wait)?;
            let mut records = begin.get(block::HEADER_BYTES..).unwrap_or_default();
            if let Some(TimeProven(time)) = TimeProven::read(&mut records) {
                return Ok(Some(time));
            }
        }
    }
    Ok(of_manifest)
}
