//! Where the journal ends for certain: the last batch that is known to be on the disk.
//!
//! Without this record, damage in the last block looks like a batch whose write was cut short by a crash. So a start,
//! an orderly stop and an idle moment write it down. A start refuses when the batch recorded here is not there; only what
//! stands behind it may have been under way when the process died.
//!
//! ```text
//! copy 0 at 0, copy 1 at 4096, each: magic 8 | crc32c 4, over all that follows | generation 8 | journal 8 | offset 8
//! | batch 4 | slot 4
//! ```
//!
//! The record has a file of its own, so that no damaged sector takes both it and the block. The file has its full size from
//! the beginning and both copies are overwritten in place, one after the other, each followed by a sync. While one is
//! written the other one is durable. The copy with the higher generation counts. A copy whose write failed is the next
//! to be written, also after a restart: there that is the one that is unreadable, else the newer one.
//!
//! The record may be older than the journal, never newer: what it says was synced before it is written. It says nothing
//! any more once its journal is sealed. The file is made before the first manifest, so a directory that has a manifest and
//! not this file has lost it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::embedded::disk::{Disk, DiskFile, write_whole};
use crate::embedded::error::{DoingOn, MaintainError, OpenError};
use crate::embedded::file::Cursor;

use super::JOURNAL_DIR;

const MAGIC: [u8; 8] = *b"HubJEnd\n";
const RECORD_BYTES: usize = 44;

/// Each copy stands in a block of the file system, and of most disks, of its own.
const COPY_BYTES: u64 = 4_096;
const COPIES: u64 = 2;
const FILE_BYTES: usize = 2 * 4_096;

/// An end that did not move for so long is written down.
const IDLE: Duration = Duration::from_millis(200);

pub(crate) fn end_path() -> String {
    format!("{JOURNAL_DIR}/end")
}

/// The last batch of the journal that is durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JournalEnd {
    pub(crate) journal: u64,
    /// Its number in the journal; 0 = everything up to this journal is sealed.
    pub(crate) batch: u32,
    pub(crate) slot: u32,
    pub(crate) offset: u64,
}

impl JournalEnd {
    /// The end when everything up to a journal is sealed.
    pub(crate) fn sealed(journal: u64) -> Self {
        Self { journal, ..Self::default() }
    }

    fn encode(&self, generation: u64, seed: u32) -> Vec<u8> {
        let mut body = Vec::with_capacity(RECORD_BYTES);
        for number in [generation, self.journal, self.offset] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.batch, self.slot] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c_append(seed, &body).to_le_bytes();
        [&MAGIC, crc.as_slice(), &body].concat()
    }

    fn decode(bytes: &[u8], seed: u32) -> Option<(u64, Self)> {
        let mut from = Cursor::new(bytes);
        let (magic, crc) = (from.array()?, from.u32()?);
        if magic != MAGIC || crc32c::crc32c_append(seed, from.rest()) != crc {
            return None;
        }
        let (generation, journal, offset) = (from.u64()?, from.u64()?, from.u64()?);
        Some((generation, Self { journal, offset, batch: from.u32()?, slot: from.u32()? }))
    }
}

#[derive(Debug)]
struct State {
    generation: u64,
    next: u64,
    /// What both copies say for certain.
    recorded: Option<JournalEnd>,
    /// What the end was when it was last compared, and since when.
    seen: (JournalEnd, Duration),
}

pub(crate) struct EndFile {
    file: Arc<dyn DiskFile>,
    seed: u32,
    state: Mutex<State>,
}

impl EndFile {
    /// Makes the file, for a journal without batches. The content is durable when this returns; the caller syncs the
    /// directory.
    pub(crate) fn create(disk: &dyn Disk, seed: u32, end: &JournalEnd) -> Result<(), MaintainError> {
        let path = end_path();
        let mut bytes = end.encode(1, seed);
        bytes.resize(FILE_BYTES, 0);
        write_whole(disk, &path, &bytes)
    }

    pub(crate) fn open(disk: &dyn Disk, seed: u32) -> Result<(Self, JournalEnd), OpenError> {
        let path = end_path();
        let damaged = |what: &str| OpenError::damaged(path.clone(), 0, what);
        let file = match disk.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged("it is missing, but there is data"));
            }
            opened => opened.doing("opening", &path)?,
        };
        let mut copies = [None; COPIES as usize];
        for (copy, at) in copies.iter_mut().zip((0_u64..).map(|number| number * COPY_BYTES)) {
            let mut bytes = [0; RECORD_BYTES];
            match file.read_exact_at(&mut bytes, at) {
                Ok(()) => *copy = JournalEnd::decode(&bytes, seed),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                read => read.doing("reading", &path)?,
            }
        }
        let generation_of = |copy: &Option<(u64, JournalEnd)>| copy.map(|(generation, _)| generation);
        let newest = (0_u64..).zip(copies).max_by_key(|(_, copy)| generation_of(copy));
        let Some((newest, Some((generation, end)))) = newest else {
            return Err(damaged("neither copy of the record of the journal's end is readable"));
        };
        let next =
            (0_u64..).zip(copies).find(|(_, copy)| copy.is_none()).map_or(newest, |(number, _)| number);
        let state = State { generation, next, recorded: None, seen: (end, Duration::ZERO) };
        Ok((Self { file, seed, state: Mutex::new(state) }, end))
    }

    /// Whether `end` is to be written down: it is not yet, and did not move for a moment.
    pub(crate) fn is_due(&self, end: JournalEnd, now: Duration) -> bool {
        let mut state = self.state.lock();
        if state.recorded == Some(end) {
            return false;
        }
        if state.seen.0 != end {
            state.seen = (end, now);
            return false;
        }
        now.saturating_sub(state.seen.1) >= IDLE
    }

    /// Writes down an end that is durable. Both copies say so when this returns. After an error an earlier end may
    /// still be the one recorded; that is no harm to what is durable, and the write can be tried again.
    pub(crate) fn record(&self, end: JournalEnd) -> Result<(), MaintainError> {
        let mut state = self.state.lock();
        state.recorded = None;
        for _ in 0..COPIES {
            state.generation += 1;
            let bytes = end.encode(state.generation, self.seed);
            let written = self.file.write_all_at(&bytes, state.next * COPY_BYTES);
            written.and_then(|()| self.file.sync_data()).doing("writing", &end_path())?;
            state.next = (state.next + 1) % COPIES;
        }
        state.recorded = Some(end);
        Ok(())
    }

    pub(crate) fn recorded(&self) -> Option<JournalEnd> {
        self.state.lock().recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::sim::SimDisk;

    const SEED: u32 = 9;

    fn end(batch: u32) -> JournalEnd {
        JournalEnd { journal: 7, batch, slot: 2, offset: 4_000 }
    }

    fn read(disk: &SimDisk) -> Result<JournalEnd, OpenError> {
        EndFile::open(disk, SEED).map(|(_, end)| end)
    }

    #[test]
    fn either_copy_is_enough_and_damage_of_both_is_seen() {
        let disk = SimDisk::new();
        assert!(matches!(read(&disk), Err(OpenError::Damaged { file, .. }) if file == end_path()));
        EndFile::create(&disk, SEED, &JournalEnd::sealed(3)).unwrap();
        assert_eq!(read(&disk).unwrap(), JournalEnd::sealed(3));
        let (file, _) = EndFile::open(&disk, SEED).unwrap();
        file.record(end(1)).unwrap();
        for at in 0..RECORD_BYTES as u64 {
            for copy in [at, COPY_BYTES + at] {
                disk.flip(&end_path(), copy);
                assert_eq!(read(&disk).unwrap(), end(1), "byte {copy}");
                disk.flip(&end_path(), copy);
            }
            disk.flip(&end_path(), at);
            disk.flip(&end_path(), COPY_BYTES + at);
            assert!(read(&disk).is_err());
            disk.flip(&end_path(), at);
            disk.flip(&end_path(), COPY_BYTES + at);
        }
        assert!(EndFile::open(&disk, SEED + 1).is_err(), "it belongs to another directory");
    }

    /// Whatever fails, one copy is readable and says the last end recorded, or one that came later.
    #[test]
    fn failures_never_take_both_copies() {
        for seed in 0..2_000 {
            let disk = SimDisk::new();
            EndFile::create(&disk, SEED, &end(0)).unwrap();
            crate::embedded::disk::Disk::sync_dir(&disk, JOURNAL_DIR).unwrap();
            let (mut tried, mut certain) = (0, 0);
            for life in 0..6_u64 {
                let (file, found) = EndFile::open(&disk, SEED).unwrap();
                assert!((certain..=tried).contains(&found.batch), "{found:?} behind {certain}, seed {seed}");
                // A start records what it found before it does anything else.
                certain = file.record(found).map_or(certain, |()| found.batch);
                disk.fail_sync_in(1 + (seed >> life) % 5);
                if seed % 3 == 0 {
                    disk.fail_write_in(1 + (seed >> life) % 4);
                }
                for _ in 0..5 {
                    tried += 1;
                    certain = file.record(end(tried)).map_or(certain, |()| tried);
                }
                if (seed >> life).is_multiple_of(3) {
                    disk.kill();
                } else {
                    disk.crash_in(1 + (seed >> life) % 7);
                    tried += 1;
                    certain = file.record(end(tried)).map_or(certain, |()| tried);
                    disk.crash(seed + life);
                }
            }
        }
    }

    #[test]
    fn only_an_end_that_rests_is_due() {
        let disk = SimDisk::new();
        EndFile::create(&disk, SEED, &end(0)).unwrap();
        let (file, _) = EndFile::open(&disk, SEED).unwrap();
        let at = Duration::from_millis;
        assert!(!file.is_due(end(1), at(1_000)));
        assert!(!file.is_due(end(1), at(1_100)));
        assert!(!file.is_due(end(2), at(1_300)), "it moved");
        assert!(file.is_due(end(2), at(1_500)));
        file.record(end(2)).unwrap();
        assert!(!file.is_due(end(2), at(9_000)));
    }
}
