//! Reading slots back: which journals stand in them, and how much of each counts.
//!
//! Every block names the journal before its own and how many batches of that one count, so the newest journal leads
//! back through all that matter. What hangs on to no chain is a remnant of an earlier use.

use std::cmp::Ordering;

use super::block::{self, BlockHeader, HEADER_BYTES};
use super::end::JournalEnd;
use super::slot::Slot;
use super::{JOURNAL_DIR, slot_path};
use crate::embedded::error::OpenError;
use crate::embedded::file::cursor::index;
use crate::embedded::manifest::Manifest;
use crate::embedded::rooms::Position;

/// What stands in one slot.
#[derive(Debug)]
pub(crate) enum SlotScan {
    /// A journal, from its first block on.
    Journal(JournalScan),
    /// No valid block stands at the beginning. One of any newer journal behind it, the first one, proves damage.
    Free { slot: Slot, stray: Option<(u64, BlockHeader)> },
}

/// The blocks of one journal, in order, up to the first one that is not valid or does not count.
#[derive(Debug)]
pub(crate) struct JournalScan {
    pub(crate) slot: Slot,
    first: BlockHeader,
    /// Where each block begins.
    pub(crate) blocks: Vec<u64>,
    /// How many they are.
    pub(crate) batches: u32,
    /// Where the last of them ends.
    pub(crate) end: u64,
    /// Whether a valid block of the same journal stands behind the invalid one: proof of damage, unless blocks were
    /// written without waiting for the disk.
    has_stray: bool,
}

/// Whether a slot that begins with `bytes` has a journal that is applied.
pub(crate) fn begins_applied(bytes: &[u8], applied: u64, seed: u32) -> bool {
    block::read(bytes, seed).is_some_and(|(first, _)| first.batch == 1 && first.journal <= applied)
}

pub(crate) fn scan(slot: Slot, bytes: &[u8], applied: u64, seed: u32) -> SlotScan {
    let Some((first, _)) = block::read(bytes, seed).filter(|(header, _)| header.batch == 1) else {
        let stray = find_block(bytes, 0, seed, |header| header.journal > applied);
        return SlotScan::Free { slot, stray };
    };
    let (mut blocks, mut batches, mut end) = (Vec::new(), 0_u32, 0_usize);
    while let Some((header, records)) = bytes.get(end..).and_then(|rest| block::read(rest, seed)) {
        if header.journal != first.journal || Some(header.batch) != batches.checked_add(1) {
            break;
        }
        blocks.push(end as u64);
        batches = header.batch;
        end += HEADER_BYTES + records.len();
    }
    let is_stray = |header: &BlockHeader| header.journal == first.journal && header.batch > batches;
    let has_stray = first.journal > applied && find_block(bytes, end, seed, is_stray).is_some();
    SlotScan::Journal(JournalScan { slot, first, blocks, batches, end: end as u64, has_stray })
}

/// A search for a block computes checksums over so many times the bytes of the slot at most, then it is given up: anybody can store
/// values that read like headers of long blocks, each of which costs a checksum over the rest of the slot.
const SEARCH_TIMES: usize = 4;

/// The first valid block at or behind `from` that is wanted.
fn find_block(
    bytes: &[u8],
    from: usize,
    seed: u32,
    wanted: impl Fn(&BlockHeader) -> bool,
) -> Option<(u64, BlockHeader)> {
    let mut at = from;
    let mut left = bytes.len().saturating_mul(SEARCH_TIMES);
    loop {
        let rest = bytes.get(at..)?;
        let found = rest.iter().position(|byte| *byte == block::MAGIC[0])?;
        at += found;
        let rest = bytes.get(at..)?;
        if let Some((_, length)) = block::peek(rest).filter(|(header, _)| wanted(header))
            && length <= rest.len()
        {
            left = left.checked_sub(length)?;
            if let Some((header, _)) = block::read(rest, seed) {
                return Some((at as u64, header));
            }
        }
        at += 1;
    }
}

impl JournalScan {
    pub(crate) fn number(&self) -> u64 {
        self.first.journal
    }

    /// Its last batch; `None` when it has none.
    pub(crate) fn last(&self) -> Option<JournalEnd> {
        Some(JournalEnd {
            journal: self.number(),
            batch: self.batches,
            slot: self.slot.number,
            offset: *self.blocks.last()?,
        })
    }

    /// Refuses, unless the journal before this one may be missing because nobody waited for it to be written.
    fn prior_is_missing(&self) -> Result<(), OpenError> {
        let prior = self.first.prior_journal;
        let what = format!("journal {prior}, which came before the one in this slot, is in no slot");
        if self.first.unsynced { Ok(()) } else { Err(OpenError::damaged(self.slot.path(), 0, what)) }
    }

    /// Where the part behind `recorded` begins, of which nobody knows whether it is durable.
    pub(crate) fn unproven_from(&self, recorded: &JournalEnd) -> u64 {
        match self.number().cmp(&recorded.journal) {
            Ordering::Less => self.end,
            Ordering::Equal => self.blocks.get(index(recorded.batch)).copied().unwrap_or(self.end),
            Ordering::Greater => 0,
        }
    }
}

/// What all slots together say.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Journals that are not sealed, oldest first.
    pub(crate) unsealed: Vec<JournalScan>,
    /// Slots whose content does not count.
    pub(crate) free: Vec<Slot>,
    pub(crate) newest: u64,
    /// Whether something written without waiting for the disk is lost.
    pub(crate) lost: bool,
}

/// Finds the chain of journals behind `applied`, or the damage in it: everything up to `recorded` must be there.
pub(crate) fn chain(scans: Vec<SlotScan>, applied: u64, recorded: &JournalEnd) -> Result<Chain, OpenError> {
    let mut chain = Chain { newest: applied, ..Chain::default() };
    let mut found = Vec::new();
    for scan in scans {
        match scan {
            SlotScan::Free { slot, stray: Some((offset, header)) } if !header.unsynced => {
                let what = format!(
                    "the journal's beginning is unreadable, but a valid block stands at byte {offset}"
                );
                return Err(OpenError::damaged(slot.path(), 0, what));
            }
            SlotScan::Free { slot, stray } => {
                chain.lost |= stray.is_some();
                chain.newest = chain.newest.max(stray.map_or(0, |(_, header)| header.journal));
                chain.free.push(slot);
            }
            SlotScan::Journal(journal) if journal.number() > applied => found.push(journal),
            SlotScan::Journal(journal) => chain.free.push(journal.slot),
        }
    }
    found.sort_by_key(JournalScan::number);
    chain.newest = found.last().map_or(chain.newest, |journal| chain.newest.max(journal.number()));
    must_hold(&found, recorded, applied)?;

    // Back from the newest: each says how much of the one before counts.
    let mut links: Vec<Link> = Vec::new();
    for journal in found.into_iter().rev() {
        let number = journal.number();
        if let Some((later, _)) = links.last().filter(|(later, _)| later.first.prior_journal > number) {
            later.prior_is_missing()?;
            chain.give_up(&mut links);
        }
        match links.last().map(|(later, _)| later.first) {
            Some(later) if later.prior_journal < number => chain.free.push(journal.slot),
            later => links.push((journal, later.map(|later| later.prior_batches))),
        }
    }
    if let Some((oldest, _)) = links.last().filter(|(oldest, _)| oldest.first.prior_journal > applied) {
        oldest.prior_is_missing()?;
        chain.give_up(&mut links);
    }
    chain.keep(links)?;
    chain.must_reach(recorded, applied)?;
    Ok(chain)
}

/// A journal in the chain, and how many batches of it count, as the next one says.
type Link = (JournalScan, Option<u32>);

impl Chain {
    /// Lets go of journals behind a loss: with them, what was lost would be a hole.
    fn give_up(&mut self, links: &mut Vec<Link>) {
        self.lost = true;
        self.free.extend(links.drain(..).map(|(journal, _)| journal.slot));
    }

    /// Refuses when what is recorded as durable is not in the chain, because something before it is lost.
    fn must_reach(&self, recorded: &JournalEnd, applied: u64) -> Result<(), OpenError> {
        let is_there = self.unsealed.iter().any(|unsealed| unsealed.number() == recorded.journal);
        if recorded.journal <= applied || is_there {
            return Ok(());
        }
        let what = format!("what came before it in journal {} is missing, but was durable", recorded.journal);
        Err(OpenError::damaged(slot_path(recorded.slot), recorded.offset, what))
    }

    /// Whether something written without waiting for the disk may be lost.
    pub(crate) fn may_lack(&self, manifest: &Manifest) -> bool {
        self.lost || manifest.unsynced
    }

    /// Refuses when a checkpoint goes up to a batch that is not in the chain. Whatever it has was durable, unless
    /// [something may be lost](Self::may_lack).
    pub(crate) fn must_hold(&self, checkpoints: [Position; 2], manifest: &Manifest) -> Result<(), OpenError> {
        if self.may_lack(manifest) {
            return Ok(());
        }
        checkpoints.into_iter().try_for_each(|at| self.must_go_to(at, manifest.applied))
    }

    fn must_go_to(&self, at: Position, applied: u64) -> Result<(), OpenError> {
        let Position { journal: number, batch } = at;
        // The highest number stands for all of a journal that a start gave up.
        if number <= applied || batch == u32::MAX {
            return Ok(());
        }
        let what =
            format!("batch {batch} of journal {number} is missing, but its changes are in the manifest");
        match self.unsealed.iter().find(|journal| journal.number() == number) {
            Some(journal) if journal.batches >= batch => Ok(()),
            Some(journal) => Err(OpenError::damaged(journal.slot.path(), journal.end, what)),
            None => Err(OpenError::damaged(JOURNAL_DIR, 0, what)),
        }
    }

    /// Keeps what counts of the links, newest first, or refuses.
    fn keep(&mut self, mut links: Vec<Link>) -> Result<(), OpenError> {
        while let Some((mut journal, counts)) = links.pop() {
            let complete = counts.map_or(!journal.has_stray, |counts| counts <= journal.batches);
            if !complete && !journal.first.unsynced {
                let what = "an acknowledged batch is unreadable";
                return Err(OpenError::damaged(journal.slot.path(), journal.end, what));
            }
            if let Some(counts) = counts
                && let Some(behind) = journal.blocks.get(index(counts))
            {
                journal.end = *behind;
                journal.blocks.truncate(index(counts));
                journal.batches = counts;
            }
            self.unsealed.push(journal);
            if !complete {
                self.give_up(&mut links);
            }
        }
        Ok(())
    }
}

/// Refuses when the batch recorded as durable is in no slot. However it was written, it was synced before it was recorded.
fn must_hold(found: &[JournalScan], recorded: &JournalEnd, applied: u64) -> Result<(), OpenError> {
    let JournalEnd { journal: number, batch, slot, .. } = *recorded;
    if number <= applied {
        return Ok(());
    }
    let Some(journal) = found.iter().find(|journal| journal.number() == number) else {
        let what = format!("journal {number}, which was durable up to batch {batch}, does not begin there");
        return Err(OpenError::damaged(slot_path(slot), 0, what));
    };
    if journal.batches < batch {
        let what =
            format!("batch {} of journal {number} is unreadable, but was durable", journal.batches + 1);
        return Err(OpenError::damaged(journal.slot.path(), journal.end, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u32 = 3;

    fn block(journal: u64) -> Vec<u8> {
        let header = BlockHeader {
            journal,
            batch: 1,
            prior_journal: 0,
            prior_batches: 0,
            records: 0,
            unsynced: false,
        };
        let mut block = Vec::new();
        block::begin(&mut block);
        block.extend_from_slice(b"records");
        block::finish(&mut block, &header, SEED).unwrap();
        block
    }

    /// The header of a block that would end where the others do, `bytes` further on.
    fn forged(bytes: usize) -> Vec<u8> {
        let mut header = block(9)[..HEADER_BYTES].to_vec();
        let length = u32::try_from(bytes - HEADER_BYTES).unwrap();
        header[12..16].copy_from_slice(&length.to_le_bytes());
        header
    }

    #[test]
    fn forged_headers_do_not_make_a_search_long() {
        const BYTES: usize = 64 * 1024;
        for (count, is_found) in [(3, true), (1_000, false)] {
            let mut bytes = Vec::new();
            (0..count).for_each(|_| bytes.extend(forged(BYTES - bytes.len())));
            let at = bytes.len();
            bytes.extend(block(9));
            bytes.resize(BYTES, 0);
            let found = find_block(&bytes, 0, SEED, |header| header.journal > 5);
            assert_eq!(found.map(|(at, _)| at), is_found.then_some(at as u64), "{count}");
        }
    }
}
