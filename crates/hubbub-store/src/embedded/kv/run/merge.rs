//! Several runs into one: of each key the newest version.

use std::io;

use super::block::{KeyEntry, StoredValue};
use super::open::KeyRun;
use super::scan::KeyScan;
use super::writer::RunWriter;
use crate::embedded::file::FileError;
use crate::embedded::file::Patience;
use crate::embedded::file::block::BlockLocation;
use crate::embedded::segment::MergeError;

/// Writes the newest version of each key of `runs`, which are neighbours, oldest first. Deleted keys stay out when
/// `drop_deleted`: nothing older is left that they could hide. Ends early when `go_on` says so.
pub(crate) fn merge(
    runs: &[KeyRun],
    drop_deleted: bool,
    writer: &mut RunWriter,
    go_on: impl Fn() -> bool,
) -> Result<(), MergeError> {
    each_newest(runs, |run, entry| {
        if !go_on() {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        if drop_deleted && entry.version.deleted {
            return Ok(());
        }
        match entry.value {
            StoredValue::Inline(value) => writer.push(entry.key, entry.version, value)?,
            StoredValue::Outside(BlockLocation { offset, stored_bytes }) => {
                let stored = run.stored_value(offset, stored_bytes, Patience::Wait)?;
                // Damage must not get a name of its own.
                run.unpack(&stored, offset)?;
                writer.push_stored(entry.key, entry.version, &stored)?;
            }
        }
        Ok(())
    })
}

/// How many keys all runs of a store hold that are not deleted.
pub(crate) fn count_keys(runs: &[KeyRun]) -> Result<u64, FileError> {
    let mut keys = 0;
    each_newest::<FileError>(runs, |_, entry| {
        keys += u64::from(!entry.version.deleted);
        Ok(())
    })?;
    Ok(keys)
}

/// Shows `visit` the newest version of each key of `runs`, oldest run first, and the run that has it.
fn each_newest<E: From<FileError>>(
    runs: &[KeyRun],
    mut visit: impl FnMut(&KeyRun, &KeyEntry<'_>) -> Result<(), E>,
) -> Result<(), E> {
    // Newest first, so that of equal keys the first one counts.
    let scans: Result<Vec<KeyScan>, FileError> = runs.iter().rev().map(|run| run.scan(&[])).collect();
    let mut scans = scans?;
    while let Some((place, key)) = smallest(&scans) {
        if let Some(scan) = scans.get(place)
            && let Some(entry) = scan.current()
        {
            visit(scan.run(), &entry)?;
        }
        for scan in &mut scans {
            if scan.current().is_some_and(|entry| entry.key == key.as_slice()) {
                scan.advance()?;
            }
        }
    }
    Ok(())
}

fn smallest(scans: &[KeyScan]) -> Option<(usize, Vec<u8>)> {
    let keys = scans.iter().enumerate().filter_map(|(place, scan)| Some((scan.current()?.key, place)));
    keys.min().map(|(key, place)| (place, key.to_vec()))
}
