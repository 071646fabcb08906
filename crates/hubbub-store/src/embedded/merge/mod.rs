//! Background rewriting of sorted files: neighbours that are small together become one, and what is hidden, too old or
//! overwritten is left out.
//!
//! Segments ([`segments`]) and runs of keys ([`keys`]) go the same way: neighbours are chosen → one file is written from
//! them → the manifest names it instead → readers see it instead → the old files are removed. Neighbours only, so that
//! files keep their order.

mod expire;
#[cfg(test)]
mod expire_tests;
pub(crate) mod keys;
mod scrub;
#[cfg(test)]
mod scrub_tests;
pub(crate) mod segments;

use std::io;
use std::ops::RangeInclusive;

use hubbub_core::invariant::saturate;

use crate::embedded::error::{DoingOn, MaintainError};
use crate::embedded::file::{FileError, SortedFileWriter, write_sorted};
use crate::embedded::segment::MergeError;
use crate::embedded::shared::Shared;

impl Shared {
    /// Writes one file with what `merge` adds and opens it; `Some(None)` when nothing was to be kept, so that there is no
    /// file, and `None` when the store closes, so that what was written is of no use and gone again.
    fn write_merged<W: SortedFileWriter, F>(
        &self,
        path: &str,
        writer: io::Result<W>,
        merge: impl FnOnce(&mut W) -> Result<(), MergeError>,
        open: impl FnOnce() -> Result<F, FileError>,
    ) -> Result<Option<Option<F>>, MaintainError> {
        let written = write_sorted(path, writer, |writer| {
            let merged = merge(writer);
            if self.wakeup.is_stopped() {
                return Err(io::Error::from(io::ErrorKind::Interrupted)).doing("merging into", path);
            }
            merged.map_err(|error| match error {
                MergeError::Read(error) => error.into(),
                MergeError::Write(source) => {
                    MaintainError::Io { attempted: "writing", path: path.to_owned(), source }
                }
            })
        });
        match written {
            Err(_) if self.wakeup.is_stopped() => Ok(None),
            Ok(true) => Ok(Some(Some(open()?))),
            Ok(false) => Ok(Some(None)),
            Err(error) => Err(error),
        }
    }

    /// Removes files that neither a manifest names nor a new reader finds.
    pub(crate) fn remove_files(&self, paths: impl IntoIterator<Item = String>) -> Result<(), MaintainError> {
        paths.into_iter().try_for_each(|path| self.disk.remove(&path).doing("removing", &path))
    }
}

/// Of the groups of so many neighbours for which `may_merge` holds, given their bytes, the one with the fewest bytes to
/// write for each file that is gone then, and the place of its first file.
fn smallest_neighbours<T>(
    files: &[T],
    counts: RangeInclusive<usize>,
    bytes: impl Fn(&T) -> u64,
    may_merge: impl Fn(&[T], u64) -> bool,
) -> Option<(usize, &[T])> {
    let groups = counts.filter(|count| *count > 1).flat_map(|count| files.windows(count).enumerate());
    let sized = groups.map(|(place, group)| (group.iter().map(&bytes).sum::<u64>(), place, group));
    let allowed = sized.filter(|(bytes, _, group)| may_merge(group, *bytes));
    let (_, place, group) =
        allowed.min_by_key(|(bytes, _, group)| bytes / saturate::<_, u64>(group.len() - 1))?;
    Some((place, group))
}

/// Puts `by` where the first of the `old` files stands in a list, and takes those away.
fn replace_neighbours<T>(files: &mut Vec<T>, number: impl Fn(&T) -> u64, old: &[u64], by: Option<T>) {
    let place = files.iter().position(|file| Some(&number(file)) == old.first());
    if let (Some(by), Some(place)) = (by, place) {
        files.insert(place, by);
    }
    files.retain(|file| !old.contains(&number(file)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_smallest_neighbours_are_chosen(sizes in proptest::collection::vec(0_u64..50, 0..12), most in 2_usize..6) {
            let sum = |(place, count): &(usize, usize)| sizes[*place..*place + *count].iter().sum::<u64>();
            let all = (2..=most).flat_map(|count| (0..sizes.len()).map(move |place| (place, count)));
            let groups = all.filter(|(place, count)| place + count <= sizes.len());
            let costs = groups.filter(|group| sum(group) <= 100).map(|group| sum(&group) / (group.1 as u64 - 1));
            let found = smallest_neighbours(&sizes, 1..=most, |size| *size, |_, bytes| bytes <= 100);
            let cost = found.map(|(_, group)| group.iter().sum::<u64>() / (group.len() as u64 - 1));
            prop_assert_eq!(cost, costs.min());
            prop_assert!(found.is_none_or(|(place, group)| group == &sizes[place..place + group.len()]));
        }

        #[test]
        fn replacing_neighbours_keeps_the_order(files in 1_usize..12, first in 0_usize..12, count in 1_usize..5, is_kept: bool) {
            let all: Vec<u64> = (0..files as u64).collect();
            let first = first.min(files - 1);
            let end = (first + count).min(files);
            let mut replaced = all.clone();
            replace_neighbours(&mut replaced, |number| *number, &all[first..end], is_kept.then_some(99));
            let by = is_kept.then_some(99);
            let expected: Vec<u64> =
                all[..first].iter().copied().chain(by).chain(all[end..].iter().copied()).collect();
            prop_assert_eq!(replaced, expected);
        }
    }
}
