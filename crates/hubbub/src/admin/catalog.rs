//! The backup catalog: the layout of the directory of backups, and the list of each backup's files.
//!
//! ```text
//! DIR/20261122T011500Z/          one complete backup, named by its start time
//!     backup.json                its epoch, and its files with lengths and checksums
//!     FORMAT MANIFEST segments/ queues/ kv/  as in a data directory
//! DIR/NAME.partial/              one that is being created or removed; unusable
//! ```
//!
//! A backup gets its name when all its files are on disk. Files that did not change since the previous one are hard links,
//! so each backup can be removed without harm to the others.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hubbub_core::Timestamp;
use hubbub_core::backup::BackupFile;
use serde::{Deserialize, Serialize};

use super::DamagedError;
pub(super) use hubbub_store::embedded::BACKUP_LIST as LIST;

const PARTIAL: &str = ".partial";

/// Format version of the list; no other is read.
const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listing {
    pub(super) format: u32,
    pub(super) created_at: String,
    pub(super) epoch: String,
    pub(super) messages: u64,
    pub(super) files: Vec<BackupFile>,
}

impl Listing {
    pub(super) fn new(created_at: Timestamp, epoch: String, messages: u64, files: Vec<BackupFile>) -> Self {
        Self { format: FORMAT, created_at: created_at.to_string(), epoch, messages, files }
    }

    /// Reads the list of the backup `dir`; `None` if it has none, and so is no backup.
    pub(super) fn read(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(LIST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        match serde_json::from_slice::<Self>(&text) {
            Ok(listing) if listing.format == FORMAT => Ok(Some(listing)),
            Ok(listing) => bail!(
                "{} has format {}, this version reads {FORMAT}; use the version that wrote it",
                path.display(),
                listing.format
            ),
            Err(error) => {
                let text = format!("{} is damaged: {error}; use another backup", path.display());
                Err(DamagedError(text).into())
            }
        }
    }
}

/// Complete backups in a directory, oldest first.
///
/// # Errors
/// One that cannot be looked into: without it an older one would seem to be the newest.
pub(super) fn complete(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for name in names(dir)?.iter().filter(|name| is_backup_name(name)) {
        let path = dir.join(name);
        if has_list(&path)? {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn has_list(backup: &Path) -> anyhow::Result<bool> {
    match fs::metadata(backup.join(LIST)) {
        Ok(list) => Ok(list.is_file()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error).with_context(|| format!("looking into the backup {}", backup.display())),
    }
}

/// The newest complete backup in a directory.
pub(super) fn newest(dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    Ok(complete(dir)?.pop())
}

/// Removes the remains of failed backups.
pub(super) fn remove_partial(dir: &Path) -> anyhow::Result<()> {
    for name in names(dir)? {
        if name.strip_suffix(PARTIAL).is_some_and(is_backup_name) {
            remove_all(&dir.join(name))?;
        }
    }
    Ok(())
}

/// Removes a backup. It is renamed first, so that it never looks complete while it is incomplete.
pub(super) fn remove(backup: &Path) -> anyhow::Result<()> {
    let partial = partial_of(backup);
    fs::rename(backup, &partial).with_context(|| format!("renaming {}", backup.display()))?;
    remove_all(&partial)
}

/// Path of a new backup, named by the time, but always later than `newest`: names sort in the order of backups.
pub(super) fn new_name(dir: &Path, now: Timestamp, newest: Option<&Path>) -> PathBuf {
    let newest = newest.and_then(|path| time_of(path.file_name()?.to_str()?));
    let behind = newest.map_or(now, |newest| Timestamp::from_micros(newest.as_micros() + 1_000_000));
    dir.join(name_of(now.max(behind)))
}

pub(super) fn partial_of(backup: &Path) -> PathBuf {
    let mut path = backup.as_os_str().to_owned();
    path.push(PARTIAL);
    path.into()
}

fn remove_all(path: &Path) -> anyhow::Result<()> {
    fs::remove_dir_all(path).with_context(|| format!("removing {}", path.display()))
}

fn names(dir: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().with_context(|| format!("reading {}", dir.display()))
}

/// The name of a backup: RFC 3339 without separators and fraction.
fn name_of(time: Timestamp) -> String {
    let text = time.to_string();
    let seconds = text.split('.').next().unwrap_or_default().trim_end_matches('Z');
    let digits: String = seconds.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    digits + "Z"
}

/// The inverse of [`name_of`].
fn time_of(name: &str) -> Option<Timestamp> {
    let part = |range: std::ops::Range<usize>| name.get(range);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(9..11)?, part(11..13)?, part(13..15)?);
    Timestamp::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

fn is_backup_name(name: &str) -> bool {
    time_of(name).is_some_and(|time| name_of(time) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_time_and_sort_by_it() {
        let time = |text: &str| Timestamp::parse(text).unwrap();
        assert_eq!(name_of(time("2026-11-22T01:15:00.250Z")), "20261122T011500Z");
        assert_eq!(name_of(time("2026-11-22T01:15:00Z")), "20261122T011500Z");
        assert_eq!(time_of("20261122T011500Z"), Some(time("2026-11-22T01:15:00Z")));
        let path = |name: &str| Path::new("dir").join(name);
        let new = |now: &str, newest: &str| new_name(Path::new("dir"), time(now), Some(&path(newest)));
        assert_eq!(new("2026-11-22T01:15:00.9Z", "20261122T011459Z"), path("20261122T011500Z"));
        assert_eq!(new("2026-11-22T01:15:00.9Z", "20261122T011500Z"), path("20261122T011501Z"));
        assert_eq!(new("2026-01-01T00:00:00Z", "20261231T235959Z"), path("20270101T000000Z"));
        assert!(is_backup_name("20261122T011500Z"));
        for other in ["20261122T011500Z.partial", "lost+found", "2026-11-22", "20261122T011500"] {
            assert!(!is_backup_name(other), "{other}");
        }
    }

    #[test]
    fn a_backup_that_cannot_be_looked_into_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("20261122T011500Z")).unwrap();
        fs::write(at("20261122T011500Z").join(LIST), "{}").unwrap();
        // No backups: one without a list, and a file.
        fs::create_dir(at("20261123T011500Z")).unwrap();
        fs::write(at("20261124T011500Z"), "").unwrap();
        assert_eq!(newest(dir.path()).unwrap(), Some(at("20261122T011500Z")));
        // It stands for what only another user may look into: to root nothing is closed.
        std::os::unix::fs::symlink("20261125T011500Z", at("20261125T011500Z")).unwrap();
        let error = newest(dir.path()).unwrap_err().to_string();
        assert!(error.contains("looking into the backup") && error.contains("20261125T011500Z"), "{error}");
    }
}
