//! Several runs into one: of each key the newest version.

use std::io;

use super::block::{KeyEntry, StoredValue};
use super::open::KeyRun;
use super::scan::KeyScan;
use super::writer::RunWriter;
use crate::embedded::file::FileError;
use crate::embedded::file::Patience;
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
            StoredValue::Outside(location) => {
                // Unpacked only to be checked: damage must not get a name of its own.
                let (stored, _) = run.stored_value(location, Patience::Wait)?;
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
    while let Some((scan, key)) = first_key(&scans) {
        if let Some(entry) = scan.current() {
            visit(&scan.run, &entry)?;
        }
        pass(&mut scans, &key)?;
    }
    Ok(())
}

/// Something that goes through keys in their order.
pub(crate) trait KeySource {
    /// The key under the cursor; `None` behind the last one.
    fn key(&self) -> Option<&[u8]>;
    fn advance(&mut self) -> Result<(), FileError>;
}

/// The smallest key, and the first source that stands at it.
pub(crate) fn first_key<S: KeySource>(sources: &[S]) -> Option<(&S, Vec<u8>)> {
    let keys = sources.iter().filter_map(|source| Some((source.key()?, source)));
    keys.min_by_key(|(key, _)| *key).map(|(key, source)| (source, key.to_vec()))
}

/// Moves all sources that stand at a key behind it.
pub(crate) fn pass<S: KeySource>(sources: &mut [S], key: &[u8]) -> Result<(), FileError> {
    sources.iter_mut().filter(|source| source.key() == Some(key)).try_for_each(S::advance)
}
