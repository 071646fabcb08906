//! Slots and who has them: prepared → leased for one journal → free again when nobody reads that journal any more.

use std::fmt;
use std::io;
use std::sync::Arc;

use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use super::{JOURNAL_DIR, slot_path};
use crate::embedded::disk::checked_dirs::CheckedDirs;
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::error::{DoingOn, MaintainError, READING};
use crate::embedded::file::Patience;

/// Zeros are written and synced in steps of this size, so that the journal's own syncs get through between them.
const PREPARE_STEP_BYTES: usize = 4 * 1024 * 1024;

#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) bytes: u64,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("number", &self.number)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Slot {
    pub(crate) fn path(&self) -> String {
        slot_path(self.number)
    }

    /// Fills `buffer` with records.
    pub(crate) fn read(
        &self,
        buffer: &mut [u8],
        offset: u64,
        patience: Patience,
    ) -> Result<(), MaintainError> {
        let read = match patience {
            Patience::Wait => self.file.read_exact_at(buffer, offset),
            Patience::CachedOnly => self.file.read_cached_at(buffer, offset),
        };
        read.map_err(|source| MaintainError::Io { attempted: READING, path: self.path(), source })
    }

    /// That no record stands at `offset`, where one should.
    pub(crate) fn damaged(&self, offset: impl Into<u64>) -> MaintainError {
        MaintainError::Damaged { path: self.path(), offset: offset.into() }
    }
}

#[derive(Debug, Default)]
struct State {
    free: Vec<Slot>,
    /// Slots that exist, free or not.
    total: usize,
    next_number: u32,
    /// Files of another size than wanted now; removed by the next preparation.
    retired: Vec<u32>,
}

pub(crate) struct SlotPool {
    disk: Arc<CheckedDirs>,
    slot_bytes: u64,
    slots_max: usize,
    preparing: Mutex<()>,
    state: Mutex<State>,
}

impl fmt::Debug for SlotPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotPool").field("state", &*self.state.lock()).finish_non_exhaustive()
    }
}

impl SlotPool {
    pub(crate) fn new(disk: Arc<CheckedDirs>, slot_bytes: u64, slots_max: usize) -> Self {
        let state = Mutex::new(State { next_number: 1, ..State::default() });
        Self { disk, slot_bytes, slots_max, preparing: Mutex::default(), state }
    }

    /// Takes over a slot that stands on the disk, and leases it to whoever found it there.
    pub(crate) fn adopt(self: &Arc<Self>, slot: Slot) -> SlotLease {
        let mut state = self.state.lock();
        state.total += 1;
        state.next_number = state.next_number.max(slot.number.saturating_add(1));
        SlotLease { slot, pool: Arc::clone(self) }
    }

    /// A free slot, if one is ready. Never touches the disk.
    pub(crate) fn take(self: &Arc<Self>) -> Option<SlotLease> {
        let slot = self.state.lock().free.pop()?;
        Some(SlotLease { slot, pool: Arc::clone(self) })
    }

    /// Whether a slot is ready.
    pub(crate) fn has_free(&self) -> bool {
        !self.state.lock().free.is_empty()
    }

    /// Whether the next journal would find no slot, though there may be one more.
    pub(crate) fn wants_one(&self) -> bool {
        let state = self.state.lock();
        !state.retired.is_empty() || (state.free.is_empty() && state.total < self.slots_max)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.slot_bytes.saturating_mul(self.state.lock().total as u64)
    }

    /// Makes one more slot ready: zeros, synced, its name synced. Removes what is of another size first.
    pub(crate) fn prepare(&self) -> Result<(), MaintainError> {
        let _one = self.preparing.lock();
        let (retired, number) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.retired), state.next_number)
        };
        for old in retired {
            let path = slot_path(old);
            self.disk.remove(&path).doing("removing", &path)?;
        }
        let full = {
            let state = self.state.lock();
            !state.free.is_empty() || state.total >= self.slots_max
        };
        if full {
            return Ok(());
        }
        self.disk.check(&[JOURNAL_DIR])?;
        let path = slot_path(number);
        let file = match self.write_zeros(&path) {
            Ok(file) => file,
            Err(error) => {
                // Half a slot only takes space that is wanted elsewhere; the next attempt makes it anew.
                let _ = self.disk.remove(&path);
                return Err(error).doing("filling with zeros", &path);
            }
        };
        self.disk.sync_dir(JOURNAL_DIR).doing("syncing the directory", JOURNAL_DIR)?;
        let mut state = self.state.lock();
        state.next_number = number.saturating_add(1);
        state.total += 1;
        state.free.push(Slot { number, file, bytes: self.slot_bytes });
        Ok(())
    }

    fn write_zeros(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.create(path)?;
        let step = saturate::<_, usize>(self.slot_bytes).min(PREPARE_STEP_BYTES);
        let zeros = vec![0; step];
        let mut offset = 0;
        while offset < self.slot_bytes {
            let part = zeros.get(..saturate(self.slot_bytes - offset)).unwrap_or(&zeros);
            file.write_all_at(part, offset)?;
            file.sync_data()?;
            offset += part.len() as u64;
        }
        Ok(file)
    }

    fn give_back(&self, slot: &Slot) {
        let mut state = self.state.lock();
        if slot.bytes == self.slot_bytes {
            state.free.push(slot.clone());
        } else {
            state.total = state.total.saturating_sub(1);
            state.retired.push(slot.number);
        }
    }
}

/// The right to a slot until dropped. Readers hold it too, so that a slot is not overwritten under them.
#[derive(Debug)]
pub(crate) struct SlotLease {
    slot: Slot,
    pool: Arc<SlotPool>,
}

impl std::ops::Deref for SlotLease {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        self.pool.give_back(&self.slot);
    }
}
