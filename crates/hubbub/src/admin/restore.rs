//! `hubbub restore`: restores a backup into a data directory, or checks with `--check` that it can be restored.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hubbub_core::text::counted;
use hubbub_store::embedded::{self, RestoreError};
use serde_json::json;

use super::catalog::{Listing, newest};
use super::verify::{read_all, report};
use super::{DamagedError, lock_directory, refuse_database, require_directory};
use crate::cli::RestoreArgs;
use crate::client::show;
use crate::progress::Progress;
use crate::stores::DataError;
use crate::system::{KeyedRandom, SystemClock};

/// Names in the scratch directory.
const SCRATCH: &str = ".restore-check";
const SCRATCH_LOCK: &str = ".restore-check.lock";

pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<()> {
    refuse_database(&args.backup)?;
    args.to.as_deref().map_or(Ok(()), refuse_database)?;
    require_directory(&args.backup)?;
    let (backup, listing) = find(&args.backup)?;
    match &args.to {
        Some(data) => {
            let epoch = copy(&backup, &listing, data)?;
            let Listing { messages, created_at, .. } = &listing;
            let shown = json!({
                "backup": backup, "createdAt": created_at, "data": data, "epoch": epoch, "messages": messages,
                "files": listing.files.len(),
            });
            show(args.json, &shown, |_| {
                let (backup, data) = (backup.display(), data.display());
                format!(
                    "restored {} as of {created_at} from {backup} to {data}, \
                     with the new epoch {epoch}\n",
                    counted(messages, "message")
                )
            })
        }
        None => check(args, &backup, &listing),
    }
}

/// The backup itself, or the newest one in its directory.
fn find(dir: &Path) -> anyhow::Result<(PathBuf, Listing)> {
    if let Some(listing) = Listing::read(dir)? {
        return Ok((dir.to_owned(), listing));
    }
    if let Err(error) = fs::read_dir(dir) {
        return Err(DamagedError(format!("reading {}: {error}", dir.display())).into());
    }
    let newest = newest(dir)?.with_context(|| format!("{} is not a backup and holds none", dir.display()))?;
    let listing = Listing::read(&newest)?;
    Ok((newest.clone(), listing.with_context(|| format!("{} is gone", newest.display()))?))
}

fn copy(backup: &Path, listing: &Listing, data: &Path) -> anyhow::Result<String> {
    let progress = Progress::of_bytes("restoring", listing.files.iter().map(|file| file.bytes).sum());
    let add = |bytes| progress.add(bytes);
    let restored =
        embedded::restore(backup, data, &listing.files, (&SystemClock::new(), &KeyedRandom::new()), &add);
    progress.finish();
    let error = match restored {
        Ok(epoch) => return Ok(epoch),
        Err(error) => error,
    };
    match error {
        RestoreError::Damaged { file, what } => Err(locate_damage(backup, &file, what).into()),
        RestoreError::Open(error) => Err(DataError::from(error).into()),
        error => Err(error.into()),
    }
}

/// The checksum shows that a file is damaged; reading the backup locates the damage.
fn locate_damage(backup: &Path, file: &str, what: String) -> DamagedError {
    let mut faults = Vec::new();
    // If reading fails, too, the first error is reported.
    let _ = read_all(backup, &mut faults);
    let located = faults.into_iter().find(|fault| fault.file == file);
    let what = located.map_or(format!("{file} is damaged: {what}"), |fault| fault.to_string());
    DamagedError(format!("{}: {what}; use another backup", backup.display()))
}

fn check(args: &RestoreArgs, backup: &Path, listing: &Listing) -> anyhow::Result<()> {
    let beside = backup.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = args.scratch.as_deref().unwrap_or(beside);
    if !parent.is_dir() {
        bail!("--scratch {} is not a directory", parent.display());
    }
    let _lock = lock_directory(parent, SCRATCH_LOCK, "restore --check")?;
    let scratch = Scratch(parent.join(SCRATCH));
    scratch.remove()?;
    copy(backup, listing, &scratch.0)?;
    let mut faults = Vec::new();
    let found = read_all(&scratch.0, &mut faults)?;
    if faults.is_empty() && found.messages != listing.messages {
        bail!(DamagedError(format!(
            "{}: {} messages were backed up, but {} were restored; use another backup",
            backup.display(),
            listing.messages,
            found.messages
        )));
    }
    scratch.remove()?;
    report(backup, &found, &faults, args.json)
}

struct Scratch(PathBuf);

impl Scratch {
    fn remove(&self) -> anyhow::Result<()> {
        let removed = if self.0.exists() { fs::remove_dir_all(&self.0) } else { Ok(()) };
        removed.with_context(|| format!("removing {}", self.0.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the next check removes it.
        let _ = self.remove();
    }
}
