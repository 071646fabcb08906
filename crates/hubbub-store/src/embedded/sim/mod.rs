//! A disk in memory that a seed makes crash: it keeps, loses or tears whatever was not synced.
//!
//! What a crash may leave is what [`Disk`](super::disk::Disk) says and no more: each unsynced sector of 512 bytes as
//! any of its writes left it, the changes of a directory since its last sync up to any point. Besides crashes, an
//! operation can fail, the disk can be full, and chosen syncs can be ignored, to see that somebody misses them.
//!
//! After a failed sync the disk behaves as Linux does, which marks the pages clean: any part of what was to be synced
//! is on the disk, readers go on seeing all of it, and later syncs succeed without writing it. Only what is written
//! again is synced again.

mod disk;
mod inode;
mod names;
mod state;

use std::sync::Arc;

use hubbub_core::RandomSource;
use hubbub_core::clock::SeededRandom;
use parking_lot::Mutex;

use state::State;

/// A number below `end`, or 0.
fn below(random: &dyn RandomSource, end: u64) -> u64 {
    random.next_u64().checked_rem(end).unwrap_or(0)
}

/// A sync, as a rule about which ones to ignore sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncCall<'a> {
    /// What the simulation said it is doing; see [`SimDisk::set_phase`].
    pub phase: &'static str,
    /// The file or directory synced.
    pub path: &'a str,
    /// How many times it was synced before in this phase.
    pub nth: u64,
}

/// The simulated disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimDisk")
            .field("operations", &state.operations)
            .field("dead", &state.dead)
            .finish_non_exhaustive()
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many operations that change something there were.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// The power fails at the `operations`-th changing operation from now: it and all after it are errors, until
    /// [`Self::crash`].
    pub fn crash_in(&self, operations: u64) {
        let mut state = self.state.lock();
        state.crash_at = Some(state.operations + operations);
    }

    /// Whether the power failed.
    pub fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    /// The power comes back: what was not synced is there, or not, or torn, as `seed` says. Open files are closed.
    pub fn crash(&self, seed: u64) {
        let random = SeededRandom::new(seed);
        let mut state = self.state.lock();
        state.names.crash(&random);
        for inode in state.inodes.values_mut() {
            inode.crash(&random);
        }
        state.start_again();
    }

    /// The process ends, the machine does not: nothing is lost, nothing more is durable. Open files are closed.
    pub fn kill(&self) {
        self.state.lock().start_again();
    }

    /// The `writes`-th write from now fails, once, and may be there in part.
    pub fn fail_write_in(&self, writes: u64) {
        self.state.lock().fail_write_in = Some(writes);
    }

    /// The `reads`-th read of a file from now gives a byte that is not there, once.
    pub fn damage_read_in(&self, path: &str, reads: u64) {
        self.state.lock().damage_read_in = Some((path.to_owned(), reads));
    }

    /// Reads of one byte of a file fail from now on; `None` = of none.
    pub fn set_unreadable(&self, byte: Option<(&str, u64)>) {
        self.state.lock().unreadable = byte.map(|(path, offset)| (path.to_owned(), offset));
    }

    /// How many syncs failed so far.
    pub fn failed_syncs(&self) -> u64 {
        self.state.lock().failed_syncs
    }

    /// The `syncs`-th sync from now fails, once. What it was to write is not written by later syncs either.
    pub fn fail_sync_in(&self, syncs: u64) {
        self.state.lock().fail_sync_in = Some(syncs);
    }

    /// The disk holds at most so many bytes; `None` = any number.
    pub fn set_bytes_max(&self, bytes: Option<u64>) {
        self.state.lock().bytes_max = bytes;
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes()
    }

    /// Says what the simulation does from now on; for [`Self::ignore_syncs`].
    pub fn set_phase(&self, phase: &'static str) {
        let mut state = self.state.lock();
        state.phase = phase;
        state.syncs_in_phase.clear();
    }

    /// Syncs for which `rule` holds succeed without doing anything.
    pub fn ignore_syncs(&self, rule: impl Fn(SyncCall<'_>) -> bool + Send + 'static) {
        self.state.lock().ignore = Some(Box::new(rule));
    }

    /// Runs `act` before the next sync of a directory, once: what others do while somebody makes names there.
    pub fn before_sync_of(&self, dir: &str, act: impl FnOnce() + Send + 'static) {
        self.state.lock().before_sync_of = Some((dir.to_owned(), Box::new(act)));
    }

    /// Changes one byte of a file, as a broken disk would.
    pub fn flip(&self, path: &str, offset: u64) {
        let mut state = self.state.lock();
        let Some(inode) = state.names.get(path) else { return };
        if let Some(inode) = state.inodes.get_mut(&inode) {
            inode.flip(offset);
        }
    }
}
