//! The file `FORMAT`: which version of the layout a data directory has.
//!
//! It is the first thing written into a new directory, and the manifest the second, before any slot or segment. So a
//! directory with data but without one of the two has lost it.

use crate::embedded::disk::{Disk, read_whole, write_whole};
use crate::embedded::error::{DoingOn, MaintainError, OpenError};

pub(crate) const FORMAT: &str = "FORMAT";
const FORMAT_TMP: &str = "FORMAT.tmp";
const PREFIX: &str = "hubbub data format ";

/// The version of the layout written, and the newest one read.
pub(crate) const VERSION: u64 = 1;

/// Longer than any content of the file.
const BYTES_MAX: u64 = 64;

/// Checks that this version can read the directory. Says whether the file is there.
pub(crate) fn check(disk: &dyn Disk) -> Result<bool, OpenError> {
    let Some(bytes) = read_whole(disk, FORMAT, BYTES_MAX)? else { return Ok(false) };
    let found =
        std::str::from_utf8(&bytes).ok().and_then(|text| text.strip_prefix(PREFIX)?.trim_end().parse().ok());
    match found {
        Some(VERSION) => Ok(true),
        Some(found) if found > VERSION => Err(OpenError::NewerFormat { found, known: VERSION }),
        _ => Err(OpenError::damaged(FORMAT, 0, format!("it does not say \"{PREFIX}{VERSION}\""))),
    }
}

pub(crate) fn content() -> String {
    format!("{PREFIX}{VERSION}\n")
}

/// Writes the file into a new directory.
pub(crate) fn create(disk: &dyn Disk) -> Result<(), MaintainError> {
    write_whole(disk, FORMAT_TMP, content().as_bytes())?;
    // The manifest, next in the same directory, makes the name durable together with its own.
    disk.rename(FORMAT_TMP, FORMAT).doing("making", FORMAT)
}
