//! The disk behind a small trait, so that tests can lose what was not synced, tear a write, fail the Nth one.
//!
//! Paths are relative to the data directory, with `/` between parts.
//!
//! What a crash leaves, and so what callers may rely on: bytes written are there after `sync_data` of their file; a
//! file's name, a rename, a removal are there after `sync_dir` of the directory. Without the sync each may be there
//! or not, and a write may be there in part, by sectors of 512 bytes, in any order.

pub(crate) mod checked_dirs;
pub(crate) mod data_dir;
pub(crate) mod format_file;
pub(crate) mod place;

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use rustix::io::ReadWriteFlags;

use crate::embedded::error::{DoingOn, MaintainError, READING};
use crate::embedded::journal::JOURNAL_DIR;

/// A directory tree of files.
pub trait Disk: Send + Sync + 'static {
    /// Opens an existing file for reading and writing at offsets.
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates an empty file, in place of one that may be there.
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Makes `to` name what `from` named, at once, replacing what it named before.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Open handles keep reading it.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Names of the files in a directory, in no order.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Makes a directory and its parents durable; fine if it is there.
    fn make_dir(&self, dir: &str) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Bytes that can still be written.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// An open file; reads and writes say where.
#[expect(
    clippy::len_without_is_empty,
    reason = "a file is measured to find its end, never asked whether it is empty"
)]
pub trait DiskFile: Send + Sync + 'static {
    /// Fills `buffer` from `offset`; `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// The same, if that needs no wait for the medium; `WouldBlock` otherwise.
    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
    /// Writes all of `bytes` at `offset`, growing the file where needed.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything written to the file durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// What tells the file from a copy of it; `None` where nothing does.
    fn identity(&self) -> io::Result<Option<String>> {
        Ok(None)
    }
}

/// Reads a small file, up to `bytes_max` of it; `None` when there is none.
pub(crate) fn read_whole(
    disk: &dyn Disk,
    path: &str,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, MaintainError> {
    let file = match disk.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.doing(READING, path)?,
    };
    let mut bytes = vec![0; saturate(file.len().doing(READING, path)?.min(bytes_max))];
    file.read_exact_at(&mut bytes, 0).doing(READING, path)?;
    Ok(Some(bytes))
}

/// Writes a small file whole and syncs it.
pub(crate) fn write_whole(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Result<(), MaintainError> {
    let file = disk.create(path).doing("making", path)?;
    file.write_all_at(bytes, 0).and_then(|()| file.sync_data()).doing("writing", path)
}

/// The real file system below one directory.
#[derive(Debug)]
pub struct FileDisk {
    root: PathBuf,
    writes: bool,
    sync_delay: Duration,
}

impl FileDisk {
    /// Everything below `root`, which exists.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), writes: true, sync_delay: Duration::ZERO }
    }

    /// The same, opening files for reading alone.
    pub fn read_only(root: impl Into<PathBuf>) -> Self {
        Self { writes: false, ..Self::new(root) }
    }

    /// Sleeps so long before each sync of a journal slot, to see what a slow disk does to everything else.
    pub fn with_sync_delay(self, sync_delay: Duration) -> Self {
        Self { sync_delay, ..self }
    }

    fn open_with(&self, options: &fs::OpenOptions, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = options.open(self.root.join(path))?;
        let sync_delay = if path.starts_with(JOURNAL_DIR) { self.sync_delay } else { Duration::ZERO };
        Ok(Arc::new(OpenFile { file, sync_delay }))
    }
}

impl Disk for FileDisk {
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(fs::OpenOptions::new().read(true).write(self.writes), path)
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(fs::OpenOptions::new().read(true).write(true).create(true).truncate(true), path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.root.join(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        fs::read_dir(self.root.join(dir))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        fs::create_dir_all(self.root.join(dir))?;
        fs::File::open(&self.root)?.sync_all()
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        fs::File::open(self.root.join(dir))?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

struct OpenFile {
    file: fs::File,
    sync_delay: Duration,
}

impl DiskFile for OpenFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let wanted = buffer.len();
        let mut buffers = [io::IoSliceMut::new(buffer)];
        let read = rustix::io::preadv2(&self.file, &mut buffers, offset, ReadWriteFlags::NOWAIT);
        // Whatever went wrong, a read that may wait tells it better.
        if read == Ok(wanted) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        std::thread::sleep(self.sync_delay);
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn identity(&self) -> io::Result<Option<String>> {
        Ok(self.file.metadata()?.created().ok().and_then(place::identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that the system cannot sync shows that it is asked to: what is written is lost otherwise, though no test that kills
    /// the process sees that.
    #[test]
    fn the_system_is_asked_to_sync() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::new(dir.path());
        std::os::unix::fs::symlink("/dev/null", dir.path().join("null")).unwrap();
        disk.make_dir("dir").unwrap();
        disk.sync_dir("dir").unwrap();
        assert_eq!(disk.sync_dir("null").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        disk.create("file").unwrap().sync_data().unwrap();
        assert_eq!(disk.open("null").unwrap().sync_data().unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
