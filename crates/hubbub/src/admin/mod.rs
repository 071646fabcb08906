//! Administration of data: [`backup`] with its [`catalog`] of backups, [`restore`], [`verify`], and migrations.
//!
//! A backup is fetched from a running server over its public protocol. Restoring and verifying work on directories; only
//! the store knows their format.

pub(crate) mod backup;
mod catalog;
#[cfg(any(feature = "postgres", feature = "scylla"))]
pub(crate) mod migrate;
pub(crate) mod restore;
pub(crate) mod token;
pub(crate) mod verify;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use hubbub_store::embedded::make_dir;

use crate::config::is_postgres;
use crate::output::UsageError;

/// A data directory or a backup is damaged.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DamagedError(String);

/// Locks the file `name` in `dir`, so that only one `what` runs there. Dropping the file releases the lock.
fn lock_directory(dir: &Path, name: &str, what: &str) -> anyhow::Result<File> {
    let path = dir.join(name);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.with_context(|| format!("creating {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("another {what} is running in {}", dir.display()),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {}", path.display())),
    }
}

/// Makes a directory, and whatever leads to it, durably, that only the owner may look into: messages are in it. One that is there
/// stays as it is.
fn make_private(dir: &Path) -> anyhow::Result<()> {
    make_dir(dir).with_context(|| format!("creating {}", dir.display()))
}

/// Makes a directory `within` another, and what leads to it from there, which those may look into who may look into that.
fn make_within(within: &Path, dir: &Path) -> anyhow::Result<()> {
    let mode = fs::metadata(within).map(|within| within.permissions().mode() & 0o777);
    let made = mode.and_then(|mode| DirBuilder::new().recursive(true).mode(mode).create(dir));
    made.with_context(|| format!("creating {}", dir.display()))
}

/// Refuses a database URL where a directory is expected.
fn refuse_database(path: &Path) -> anyhow::Result<()> {
    if path.to_str().is_some_and(is_postgres) {
        let text = "PostgreSQL is backed up, restored and checked with its own tools, such as pg_basebackup and \
                    pg_amcheck: see docs/postgresql.md";
        bail!(UsageError(text.to_owned()));
    }
    Ok(())
}

/// Refuses what is no directory at all: that is rather a typo than damage.
fn require_directory(path: &Path) -> anyhow::Result<()> {
    let what = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => "there is no such directory",
        Ok(found) if !found.is_dir() => "this is no directory",
        _ => return Ok(()),
    };
    bail!(UsageError(format!("{}: {what}", path.display())))
}

/// Makes the names in a directory durable.
fn sync_dir(dir: &Path) -> anyhow::Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).with_context(|| format!("syncing {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_looks_into_a_directory_that_is_made() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        fs::create_dir(at("plain")).unwrap();
        make_private(&at("above/backups")).unwrap();
        make_within(&at("above/backups"), &at("above/backups/one/segments")).unwrap();
        let made = ["above", "above/backups", "above/backups/one", "above/backups/one/segments"].map(mode);
        assert_eq!(made, [mode("plain"), 0o700, 0o700, 0o700]);
        // Whoever may look into a directory may look into what is made in it, and it stays as it is.
        fs::set_permissions(at("above/backups"), fs::Permissions::from_mode(0o750)).unwrap();
        make_private(&at("above/backups")).unwrap();
        make_within(&at("above/backups"), &at("above/backups/two/segments")).unwrap();
        assert_eq!(
            ["above/backups", "above/backups/two", "above/backups/two/segments"].map(mode),
            [0o750; 3]
        );
    }
}
