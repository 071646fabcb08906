//! `hubbub verify`: reads all data and reports damage.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hubbub_core::text::counted;
use hubbub_store::embedded::{self, DataFault, Verified, file_crc32c};
use serde_json::json;

use super::catalog::{LIST, Listing, newest};
use super::{DamagedError, refuse_database, require_directory};
use crate::cli::VerifyArgs;
use crate::client::show;
use crate::output::size;
use crate::progress::Progress;
use crate::stores::DataError;

pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<()> {
    refuse_database(&args.data)?;
    require_directory(&args.data)?;
    let dir = find(&args.data)?;
    let mut faults = Vec::new();
    let found = read_all(&dir, &mut faults)?;
    report(&dir, &found, &faults, args.json)
}

/// The data directory or backup itself, or the newest backup in a directory of them.
fn find(dir: &Path) -> anyhow::Result<PathBuf> {
    // Why a directory cannot be read is told by whoever reads it.
    if std::fs::read_dir(dir).is_err() || embedded::is_ours(dir) {
        return Ok(dir.to_owned());
    }
    newest(dir)?.with_context(|| {
        format!("{} is neither a data directory of Hubbub nor a backup, and holds no backup", dir.display())
    })
}

/// Prints the result. Returns an error if anything is damaged.
pub(super) fn report(
    dir: &Path,
    found: &Verified,
    faults: &[DataFault],
    is_json: bool,
) -> anyhow::Result<()> {
    for fault in faults {
        let DataFault { file, offset, what } = fault;
        let shown = json!({"fault": {"file": file, "offset": offset, "what": what}});
        show(is_json, &shown, |_| format!("{fault}\n"))?;
    }
    let Verified { epoch, messages, unsealed, rooms, keys, segments, bytes } = found;
    let shown = json!({
        "dir": dir.display().to_string(), "epoch": epoch, "messages": messages, "unsealedMessages": unsealed,
        "rooms": rooms, "keys": keys, "segments": segments, "segmentBytes": bytes, "faults": faults.len(),
    });
    if is_json || faults.is_empty() {
        show(is_json, &shown, |_| {
            let (dir, bytes) = (dir.display(), size(*bytes));
            format!(
                "{dir}: nothing is damaged; {} ({unsealed} in the journal, deleted ones too) of {}, {}, {} of {bytes}, \
                 epoch {epoch}\n",
                counted(messages, "message"),
                counted(rooms, "room"),
                counted(keys, "key"),
                counted(segments, "segment"),
            )
        })?;
    }
    if faults.is_empty() {
        return Ok(());
    }
    let text = format!("{} is damaged ({}); restore a backup", dir.display(), counted(faults.len(), "fault"));
    Err(DamagedError(text).into())
}

pub(super) fn read_all(dir: &Path, faults: &mut Vec<DataFault>) -> anyhow::Result<Verified> {
    let listing = Listing::read(dir)?;
    // A backup is read twice: what its files hold, and whether they are those of its list.
    let listed: u64 = listing.iter().flat_map(|listing| &listing.files).map(|file| file.bytes).sum();
    let progress = Progress::of_bytes("verifying", bytes_below(dir).saturating_add(listed));
    let add = |bytes| progress.add(bytes);
    let found = embedded::verify(dir, &mut |fault| faults.push(fault), &add).map_err(DataError::from)?;
    if let Some(listing) = listing {
        compare(dir, &listing, &found, faults, &progress)?;
    }
    progress.finish();
    Ok(found)
}

/// About as many bytes as there are to read; only for the progress, so that what cannot be read counts nothing.
fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some(if metadata.is_dir() { bytes_below(&entry.path()) } else { metadata.len() })
        })
        .sum()
}

/// Compares the files of a backup with its list. Files already reported are skipped.
fn compare(
    dir: &Path,
    listing: &Listing,
    found: &Verified,
    faults: &mut Vec<DataFault>,
    progress: &Progress,
) -> anyhow::Result<()> {
    let known: BTreeSet<String> = faults.iter().map(|fault| fault.file.clone()).collect();
    for file in listing.files.iter().filter(|file| !known.contains(&file.name)) {
        let path = dir.join(&file.name);
        let (bytes, crc) = file_crc32c(&path).with_context(|| format!("reading {}", path.display()))?;
        progress.add(bytes);
        if (bytes, crc) != (file.bytes, file.crc32c) {
            let what = format!("length or checksum of the file differ from {LIST}");
            faults.push(DataFault { file: file.name.clone(), offset: 0, what });
        }
    }
    if faults.is_empty() && found.messages != listing.messages {
        let what = format!("it lists {} messages, but {} were found", listing.messages, found.messages);
        faults.push(DataFault { file: LIST.into(), offset: 0, what });
    }
    Ok(())
}
