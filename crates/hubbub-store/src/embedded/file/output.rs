//! Bytes on their way into a file, in large steps, synced now and then.

use std::io;
use std::sync::Arc;

use crc32c::crc32c_append;

use crate::embedded::disk::DiskFile;

/// Bytes collected before they are handed to the operating system.
const WRITE_BYTES: usize = 256 * 1024;

/// Bytes after which they are synced, so that no long sync stands in the journal's way.
const SYNC_BYTES: u64 = 4 * 1024 * 1024;

pub(crate) struct Output {
    file: Arc<dyn DiskFile>,
    pending: Vec<u8>,
    written: u64,
    unsynced: u64,
    /// Over what was handed over.
    crc: u32,
}

impl Output {
    pub(crate) fn new(file: Arc<dyn DiskFile>) -> Self {
        Self::behind(file, 0)
    }

    /// Leaves out so many bytes at the beginning, which the checksum is not for.
    pub(crate) fn behind(file: Arc<dyn DiskFile>, header_bytes: u64) -> Self {
        Self { file, pending: Vec::new(), written: header_bytes, unsynced: 0, crc: 0 }
    }

    /// Where the next byte will stand.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Checksum of all bytes so far.
    pub(crate) fn crc(&self) -> u32 {
        crc32c_append(self.crc, &self.pending)
    }

    pub(crate) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        write(&mut self.pending);
        if self.pending.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    pub(crate) fn into_file(self) -> Arc<dyn DiskFile> {
        self.file
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_data()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.pending, self.written)?;
        self.crc = self.crc();
        let bytes = self.pending.len() as u64;
        self.written += bytes;
        self.unsynced += bytes;
        self.pending.clear();
        if self.unsynced >= SYNC_BYTES {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }
}
