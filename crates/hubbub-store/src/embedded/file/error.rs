//! What can be wrong with a file of the store.

use std::io;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The medium failed; the bytes may still be right.
    #[error("reading {file} at byte {offset} failed: {source}")]
    Io {
        /// The file, relative to the data directory.
        file: String,
        /// Where the read began.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The bytes are not what was written. Restore the file from a backup.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The file, relative to the data directory.
        file: String,
        /// Where the damaged part begins.
        offset: u64,
        /// What was found.
        what: &'static str,
    },
    /// Written in a format this program does not read; use the version that wrote it, or a newer one.
    #[error("{file} has format {found}; this program reads format {supported}")]
    Version {
        /// The file, relative to the data directory.
        file: String,
        /// Format of the file.
        found: u32,
        /// Format this program reads and writes.
        supported: u32,
    },
}
