//! What the simulated disk is made of, and what is to go wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use hubbub_core::clock::SeededRandom;

use super::SyncCall;
use super::inode::Inode;
use super::names::Names;

pub(super) type IgnoreRule = Box<dyn Fn(SyncCall<'_>) -> bool + Send>;

/// What becomes of a sync.
pub(super) enum Sync {
    Done,
    /// It succeeds without doing anything.
    Ignored,
    /// It fails; by this it is decided what reached the disk nevertheless.
    Fails(SeededRandom),
}

pub(super) fn sync_failed() -> io::Error {
    io::Error::other("the sync failed")
}

#[derive(Default)]
pub(super) struct State {
    pub(super) names: Names,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) next_inode: u64,
    /// Handles of an earlier life do not work any more.
    pub(super) life: u64,
    pub(super) dead: bool,
    pub(super) operations: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) fail_write_in: Option<u64>,
    pub(super) fail_sync_in: Option<u64>,
    pub(super) damage_read_in: Option<(String, u64)>,
    pub(super) unreadable: Option<(String, u64)>,
    /// How many syncs failed so far.
    pub(super) failed_syncs: u64,
    pub(super) bytes_max: Option<u64>,
    pub(super) phase: &'static str,
    pub(super) syncs_in_phase: BTreeMap<String, u64>,
    pub(super) ignore: Option<IgnoreRule>,
    /// What is done once, before a sync of this directory.
    pub(super) before_sync_of: Option<(String, Box<dyn FnOnce() + Send>)>,
}

impl State {
    pub(super) fn start_again(&mut self) {
        self.life += 1;
        self.dead = false;
        self.crash_at = None;
        (self.fail_write_in, self.fail_sync_in, self.damage_read_in) = (None, None, None);
        let named: BTreeSet<u64> = self.names.inodes().collect();
        self.inodes.retain(|inode, _| named.contains(inode));
    }

    pub(super) fn bytes(&self) -> u64 {
        self.names.current().filter_map(|inode| self.inodes.get(&inode)).map(Inode::len).sum()
    }

    pub(super) fn alive(&self) -> io::Result<()> {
        if self.dead { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    /// Before an operation that changes something.
    pub(super) fn change(&mut self) -> io::Result<()> {
        self.alive()?;
        self.operations += 1;
        if self.crash_at.is_some_and(|at| self.operations >= at) {
            self.dead = true;
        }
        self.alive()
    }

    /// What becomes of the sync that is due.
    pub(super) fn sync(&mut self, path: &str) -> io::Result<Sync> {
        self.change()?;
        if count_down(&mut self.fail_sync_in) {
            self.failed_syncs += 1;
            return Ok(Sync::Fails(SeededRandom::new(self.operations)));
        }
        let count = self.syncs_in_phase.entry(path.to_owned()).or_default();
        let call = SyncCall { phase: self.phase, path, nth: *count };
        *count += 1;
        let is_ignored = self.ignore.as_ref().is_some_and(|rule| rule(call));
        Ok(if is_ignored { Sync::Ignored } else { Sync::Done })
    }

    /// Whether the read that is due is damaged.
    pub(super) fn damages_read(&mut self, path: &str) -> bool {
        let Some((_, reads)) = self.damage_read_in.as_mut().filter(|(damaged, _)| damaged == path) else {
            return false;
        };
        *reads = reads.saturating_sub(1);
        *reads == 0 && self.damage_read_in.take().is_some()
    }

    /// Whether a read of so many bytes fails.
    pub(super) fn refuses_read(&self, path: &str, offset: u64, bytes: u64) -> bool {
        let refused = self.unreadable.as_ref().filter(|(unreadable, _)| unreadable == path);
        refused.is_some_and(|(_, at)| (offset..offset.saturating_add(bytes)).contains(at))
    }

    pub(super) fn find(&self, path: &str) -> io::Result<u64> {
        self.names.get(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

pub(super) fn count_down(counter: &mut Option<u64>) -> bool {
    match counter {
        Some(0 | 1) => {
            *counter = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}
