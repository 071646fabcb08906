//! A disk whose journal syncs take longer, to see what a slow disk does to everything else.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::journal::JOURNAL_DIR;

/// Sleeps before each sync of a journal slot.
#[derive(Debug)]
pub struct SlowDisk<D> {
    disk: D,
    delay: Duration,
}

impl<D: Disk> SlowDisk<D> {
    /// `disk`, its journal syncs delayed by `delay`.
    pub fn new(disk: D, delay: Duration) -> Self {
        Self { disk, delay }
    }

    fn wrap(&self, path: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        if path.starts_with(JOURNAL_DIR) { Arc::new(SlowFile { file, delay: self.delay }) } else { file }
    }
}

impl<D: Disk> Disk for SlowDisk<D> {
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(path, self.disk.open(path)?))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(path, self.disk.create(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.make_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

struct SlowFile {
    file: Arc<dyn DiskFile>,
    delay: Duration,
}

impl DiskFile for SlowFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_cached_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        std::thread::sleep(self.delay);
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
