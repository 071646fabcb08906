//! Refuses to sync a directory again after a sync of it failed.
//!
//! A failed sync may have lost names that other threads made in the same directory, and a later one would succeed
//! without writing them. So nothing that depends on names in that directory is said to be durable any more: seals and
//! merges fail until a restart, which makes the names anew.
//!
//! As long as it is not known which manifest is the durable one, nothing is removed either, for the other one may name it.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::error::{DoingOn, MaintainError};

/// A disk that remembers which directories could not be synced.
pub(crate) struct CheckedDirs {
    disk: Arc<dyn Disk>,
    failed: Mutex<HashSet<String>>,
    keeps_all: AtomicBool,
}

impl CheckedDirs {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, failed: Mutex::default(), keeps_all: AtomicBool::new(false) }
    }

    /// With `true`, files that are removed are left there from now on; the next start removes them.
    pub(crate) fn keep_all(&self, keeps_all: bool) {
        self.keeps_all.store(keeps_all, Ordering::Release);
    }

    pub(crate) fn keeps_all(&self) -> bool {
        self.keeps_all.load(Ordering::Acquire)
    }

    /// Refuses if one of these could not be synced: for who would write files that no name there will ever stand for.
    pub(crate) fn check(&self, dirs: &[&str]) -> Result<(), MaintainError> {
        let failed = self.failed.lock();
        let Some(dir) = dirs.iter().find(|dir| failed.contains(**dir)) else { return Ok(()) };
        let path = if dir.is_empty() { "the data directory" } else { *dir };
        Err(failed_before()).doing("syncing", path)
    }
}

fn failed_before() -> io::Error {
    io::Error::other("an earlier sync of it failed; see to the disk, then restart")
}

impl Disk for CheckedDirs {
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path)
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        if self.keeps_all() { Ok(()) } else { self.disk.remove(path) }
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.make_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        // Held meanwhile: what fails under one caller must not succeed under another one beside it.
        let mut failed = self.failed.lock();
        if failed.contains(dir) {
            return Err(failed_before());
        }
        let synced = self.disk.sync_dir(dir);
        if synced.is_err() {
            failed.insert(dir.to_owned());
        }
        synced
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::sim::SimDisk;

    #[test]
    fn a_name_lost_by_the_sync_of_another_is_not_said_to_be_durable() {
        let sim = SimDisk::new();
        let disk = CheckedDirs::new(Arc::new(sim.clone()));
        disk.create("a/one").unwrap();
        sim.fail_sync_in(1);
        assert!(disk.sync_dir("a").is_err());
        assert!(sim.sync_dir("a").is_ok(), "the disk itself says that all is well");
        assert!(disk.sync_dir("a").is_err());
        disk.create("b/two").unwrap();
        disk.sync_dir("b").unwrap();
        disk.check(&["", "b"]).unwrap();
        assert!(disk.check(&["b", "a"]).unwrap_err().to_string().starts_with("syncing a failed"));
    }
}
