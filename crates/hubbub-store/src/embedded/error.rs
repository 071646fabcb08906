//! What can go wrong with a data directory, in words that say what to do.

use std::io;
use std::path::PathBuf;

use crate::embedded::file::FileError;

/// Why a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("data directory {} is in use by {owner}; stop that one first, or name another", path.display())]
    Locked {
        /// The data directory.
        path: PathBuf,
        /// Who holds it, as far as known.
        owner: String,
    },
    /// It holds files of something else, and nothing of ours.
    #[error(
        "{} holds files that are not Hubbub's, such as {file}; name a directory that is empty or missing",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// One of the files.
        file: String,
    },
    /// It is a backup, which stays as it is.
    #[error(
        "{path} is a backup; restore it into another directory: hubbub restore {path} --to DIR",
        path = path.display()
    )]
    Backup {
        /// The directory.
        path: PathBuf,
    },
    /// Written by a newer version.
    #[error(
        "data directory has format {found}, this version reads up to {known}; start the version that wrote it"
    )]
    NewerFormat {
        /// Format found.
        found: u64,
        /// Newest format this version reads.
        known: u64,
    },
    /// Bytes that were acknowledged are not there any more.
    #[error("{file} is damaged at byte {offset}: {what}; restore the data directory from a backup")]
    Damaged {
        /// The file, relative to the data directory.
        file: String,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// The operating system refused.
    #[error("{attempted} {} failed: {source}; {}", path.display(), advice(source))]
    Unreadable {
        /// What was attempted.
        attempted: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The refusal.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn damaged(file: impl Into<String>, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.into(), offset, what: what.into() }
    }
}

/// What to do about a refusal of the operating system.
fn advice(source: &io::Error) -> &'static str {
    use io::ErrorKind::{AlreadyExists, NotADirectory, QuotaExceeded, StorageFull};
    match source.kind() {
        StorageFull | QuotaExceeded => {
            "the disk is full, and this start has to write something: free some space there"
        }
        AlreadyExists | NotADirectory => "a directory is wanted, and something else has that name",
        _ => "check that it exists, is mounted and may be read and written",
    }
}

/// What was attempted when stored bytes were to be read back.
pub(crate) const READING: &str = "reading";

/// Why a step of background work failed. Nothing is lost by it; the step is tried again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MaintainError {
    /// The operating system refused.
    #[error("{attempted} {path} failed: {source}")]
    Io {
        /// What was attempted.
        attempted: &'static str,
        /// On which file or directory, relative to the data directory.
        path: String,
        /// The refusal.
        source: io::Error,
    },
    /// A file of messages or keys cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A record that was readable when it was written is not any more.
    #[error(
        "{path} is damaged at byte {offset}: no record stands there; restore the data directory from a backup"
    )]
    Damaged {
        /// The file, relative to the data directory.
        path: String,
        /// Where the record should stand.
        offset: u64,
    },
}

impl MaintainError {
    /// Whether it was not to wait for the medium and would have had to.
    pub(crate) fn would_block(&self) -> bool {
        let (Self::Io { source, .. } | Self::File(FileError::Io { source, .. })) = self else {
            return false;
        };
        source.kind() == io::ErrorKind::WouldBlock
    }

    /// The file that could not be read, where that is what went wrong.
    pub(crate) fn unreadable_file(&self) -> Option<&str> {
        let file = match self {
            Self::Damaged { path, .. } | Self::Io { attempted: READING, path, .. } => path,
            Self::File(FileError::Damaged { file, .. } | FileError::Io { file, .. }) => file,
            Self::Io { .. } | Self::File(FileError::Version { .. }) => return None,
        };
        (!self.would_block()).then_some(file)
    }

    /// Whether another attempt would find the same: what a medium could not read once, it may the next time.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::File(FileError::Damaged { .. }))
    }

    /// Whether space on the disk is what is missing.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

/// Whether the error says that the disk, or the quota on it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Says of an I/O error what was attempted on which file.
pub(crate) trait DoingOn<T> {
    /// `attempted` in the form "renaming".
    fn doing(self, attempted: &'static str, path: &str) -> Result<T, MaintainError>;
}

impl<T> DoingOn<T> for io::Result<T> {
    fn doing(self, attempted: &'static str, path: &str) -> Result<T, MaintainError> {
        self.map_err(|source| MaintainError::Io { attempted, path: path.to_owned(), source })
    }
}

impl From<MaintainError> for OpenError {
    fn from(error: MaintainError) -> Self {
        match error {
            MaintainError::Io { attempted, path, source } => {
                Self::Unreadable { attempted, path: path.into(), source }
            }
            MaintainError::File(error) => error.into(),
            MaintainError::Damaged { path, offset } => Self::damaged(path, offset, "no record stands there"),
        }
    }
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { file, source, .. } => {
                Self::Unreadable { attempted: "reading", path: file.into(), source }
            }
            FileError::Damaged { file, offset, what } => Self::damaged(file, offset, what),
            FileError::Version { found, supported, .. } => {
                Self::NewerFormat { found: found.into(), known: supported.into() }
            }
        }
    }
}
