//! Online backups: copying a store while it is written to.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A store that can be copied while it is written to.
///
/// A backup is a list of files at one moment. They stay readable and unchanged until the backup is ended, is not read
/// for [`BACKUP_UNUSED_MAX`], is replaced by newer ones, or the process ends.
pub trait BackupStore: Send + Sync {
    /// Begins a backup named `backup`. It contains everything acknowledged before this call, and a prefix of later changes.
    /// Writes continue meanwhile. If there is a backup of that name, returns it, so that a request may be repeated.
    fn begin_backup(&self, backup: &str) -> BackupFuture<'_, BackupInfo>;

    /// Up to `bytes_max` bytes of one file from `offset` on; empty at its end. `None` if there is no such backup or file.
    fn read_backup(
        &self,
        backup: &str,
        file: &str,
        offset: u64,
        bytes_max: usize,
    ) -> BackupFuture<'_, Option<Vec<u8>>>;

    /// Releases a backup. Returns whether there was one.
    fn end_backup(&self, backup: &str) -> bool;
}

/// A backup that is not read for this time is released: its reader is gone.
pub const BACKUP_UNUSED_MAX: std::time::Duration = std::time::Duration::from_secs(3_600);

/// The future result of a step of a backup.
pub type BackupFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackupError>> + Send + 'a>>;

/// A backup that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupInfo {
    /// Its name.
    pub id: String,
    /// Whether this call began it.
    pub is_new: bool,
    /// The epoch of its data.
    pub epoch: Arc<str>,
    /// Messages in it.
    pub messages: u64,
    /// Its files, in the best order for copying.
    pub files: Vec<BackupFile>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// Path below the data directory, with `/` as the separator.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Checksum of the whole file.
    pub crc32c: u32,
}

/// Why a step of a backup failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// Background work is behind; retry later.
    #[error("the store is behind with its background work; try again later")]
    Overloaded,
    /// Reading or writing failed.
    #[error("the backup cannot go on: {reason}")]
    Unavailable {
        /// What was attempted and how it failed.
        reason: String,
    },
}
