//! Copying a store while it is written to.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A store that can be copied while it is written to.
///
/// A backup is a list of files as they were at one moment. They stay readable, unchanged, until the backup is ended,
/// is not read for [`BACKUP_UNUSED_MAX`], gives way to newer ones, or the process ends.
pub trait BackupStore: Send + Sync {
    /// Begins a backup that is called `backup` from now on: everything acknowledged before this was called is in it,
    /// and of what came later a beginning. Writes go on meanwhile. When there is one of that name already, it is the
    /// answer, so that a request may be repeated.
    fn begin_backup(&self, backup: &str) -> Backing<'_, BackupInfo>;

    /// Up to `bytes_max` bytes of one file from `offset` on, none at its end. `None` when there is no such backup, or
    /// no file of that name in it.
    fn read_backup(
        &self,
        backup: &str,
        file: &str,
        offset: u64,
        bytes_max: usize,
    ) -> Backing<'_, Option<Vec<u8>>>;

    /// Lets go of a backup. Says whether there was one.
    fn end_backup(&self, backup: &str) -> bool;
}

/// A backup that nobody read for so long is given up: its reader went away.
pub const BACKUP_UNUSED_MAX: std::time::Duration = std::time::Duration::from_secs(3_600);

/// What a step of a backup answers, when it comes.
pub type Backing<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackupError>> + Send + 'a>>;

/// A backup that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupInfo {
    /// What it was called when it was begun.
    pub id: String,
    /// Whether this call began it.
    pub is_new: bool,
    /// The id of the history it is of.
    pub epoch: Arc<str>,
    /// Messages in it.
    pub messages: u64,
    /// Its files, in the order in which a copy is best made.
    pub files: Vec<BackupFile>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupFile {
    /// Its place below the data directory, with `/` between parts.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Checksum of all of it.
    pub crc32c: u32,
}

/// Why a step of a backup failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// Background work is behind; retry later.
    #[error("the store is behind with its background work; try again later")]
    Overloaded,
    /// The medium failed.
    #[error("the backup cannot go on: {reason}")]
    Unavailable {
        /// What was attempted and how it failed.
        reason: String,
    },
}
