//! A file that is read: bounds, checksums and errors that name the place.

use std::fmt;
use std::sync::Arc;

use crc32c::crc32c;
use hubbub_core::backup::BackupFile;

use super::kind::HeaderFault;
use super::{Cursor, FileError, FileKind, block};
use crate::embedded::disk::{Disk, DiskFile};

/// Whether a read may wait for the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Wait,
    /// It fails with `WouldBlock` where it would have to.
    CachedOnly,
}

/// A part of a file that is read as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) crc: u32,
}

impl Section {
    /// Where it ends; `None` when no file is that long.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    pub(crate) fn take(from: &mut Cursor<'_>) -> Option<Self> {
        Some(Self { offset: from.u64()?, bytes: from.u64()?, crc: from.u32()? })
    }
}

/// An open file. Removing the file does not disturb it.
#[derive(Clone)]
pub(crate) struct DataFile {
    pub(crate) kind: &'static FileKind,
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) bytes: u64,
    /// Checksum of the whole file as it was written; whoever opens a file finds it at the end.
    pub(crate) crc32c: u32,
}

impl DataFile {
    pub(crate) fn open(disk: &dyn Disk, kind: &'static FileKind, number: u64) -> Result<Self, FileError> {
        let path = kind.path(number);
        let opened = disk.open(&path).and_then(|file| Ok((file.len()?, file)));
        let (bytes, file) = match opened {
            Ok(opened) => opened,
            Err(source) => return Err(FileError::Io { file: path, offset: 0, source }),
        };
        let file = Self { kind, number, file, bytes, crc32c: 0 };
        let header = file.read(0, FileKind::HEADER_BYTES as u64)?;
        kind.check_header(&header).map_err(|fault| match fault {
            HeaderFault::Damaged(what) => file.damaged(0, what),
            HeaderFault::Version(found) => {
                FileError::Version { file: file.path(), found, supported: kind.version }
            }
        })?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> String {
        self.kind.path(self.number)
    }

    pub(crate) fn damaged(&self, offset: u64, what: &'static str) -> FileError {
        FileError::Damaged { file: self.path(), offset, what }
    }

    /// Reads so many bytes, waiting for the medium where needed.
    pub(crate) fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, FileError> {
        self.read_patiently(offset, bytes, Patience::Wait)
    }

    /// Reads so many bytes. Damaged lengths lead to an error, not to an allocation of that size.
    pub(crate) fn read_patiently(
        &self,
        offset: u64,
        bytes: u64,
        patience: Patience,
    ) -> Result<Vec<u8>, FileError> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let length = usize::try_from(bytes).ok().filter(|_| is_inside);
        let length = length.ok_or_else(|| self.damaged(self.bytes, "the file is too short"))?;
        let mut buffer = vec![0; length];
        let read = match patience {
            Patience::Wait => self.file.read_exact_at(&mut buffer, offset),
            Patience::CachedOnly => self.file.read_cached_at(&mut buffer, offset),
        };
        match read {
            Ok(()) => Ok(buffer),
            Err(source) => Err(FileError::Io { file: self.path(), offset, source }),
        }
    }

    /// The file as a backup names it.
    pub(crate) fn backup_file(&self) -> BackupFile {
        BackupFile { name: self.path(), bytes: self.bytes, crc32c: self.crc32c }
    }

    /// Reads a section; `what` is to be said when its checksum does not match.
    pub(crate) fn read_section(&self, section: &Section, what: &'static str) -> Result<Vec<u8>, FileError> {
        let found = self.read(section.offset, section.bytes)?;
        if crc32c(&found) == section.crc { Ok(found) } else { Err(self.damaged(section.offset, what)) }
    }

    /// Reads the end of the file: where it begins, and its bytes, for [`FileKind::check_footer`].
    pub(crate) fn read_footer(&self, bytes: usize) -> Result<(u64, Vec<u8>), FileError> {
        let at = self.bytes.checked_sub(bytes as u64).filter(|at| *at >= FileKind::HEADER_BYTES as u64);
        let at = at.ok_or_else(|| self.damaged(0, "it is cut short"))?;
        Ok((at, self.read(at, bytes as u64)?))
    }

    /// What a block holds whose stored bytes were read from `offset`.
    pub(crate) fn unpack(&self, stored: &[u8], offset: u64) -> Result<Vec<u8>, FileError> {
        block::unpack(stored).ok_or_else(|| self.damaged(offset, "a block does not match its checksum"))
    }
}

impl fmt::Debug for DataFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataFile").field("path", &self.path()).finish_non_exhaustive()
    }
}

pub(crate) fn read_u64s(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect()
}
