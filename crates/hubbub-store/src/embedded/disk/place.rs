//! The file `PLACE`, which says when it was born: a copy of it was born later, so that a copied directory is noticed.
//!
//! A directory that is put back from a copy is an earlier state. Clients that were further would go on behind numbers that
//! are given anew, and miss what gets them. So a copy begins a new epoch. What cannot be noticed: a snapshot of the whole file
//! system that is put back, a copy over the files that were there, and any copy where files have no time of birth.

use hubbub_core::invariant::saturate;

use crate::embedded::disk::{Disk, read_whole, write_whole};
use crate::embedded::error::{DoingOn, MaintainError};

const PLACE: &str = "PLACE";
const PLACE_TMP: &str = "PLACE.tmp";
/// What stands there before the first start.
const RESTORED: &[u8] = b"restored\n";

/// Longer than any content of the file.
const BYTES_MAX: u64 = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where it was, or that cannot be told.
    Same,
    /// The directory was copied.
    Copied,
    /// It was made of a backup, and nobody has started on it yet.
    Restored,
    /// Nothing says where it was.
    Unmarked,
}

/// Compares what the file says with what it is.
pub(crate) fn check(disk: &dyn Disk) -> Result<Place, MaintainError> {
    let Some(written) = read_whole(disk, PLACE, BYTES_MAX)? else { return Ok(Place::Unmarked) };
    if written == RESTORED {
        return Ok(Place::Restored);
    }
    let file = disk.open(PLACE).doing("opening", PLACE)?;
    let identity = file.identity().doing("looking at", PLACE)?;
    Ok(match identity {
        Some(identity) if identity.as_bytes() != written => Place::Copied,
        _ => Place::Same,
    })
}

pub(crate) fn is_there(disk: &dyn Disk) -> bool {
    disk.open(PLACE).is_ok()
}

/// Writes the file into a directory that is made of a backup.
pub(crate) fn mark_restored(disk: &dyn Disk) -> Result<(), MaintainError> {
    write_whole(disk, PLACE, RESTORED)
}

/// Writes the file, where it can be told apart from a copy.
pub(crate) fn mark(disk: &dyn Disk) -> Result<(), MaintainError> {
    let file = disk.create(PLACE_TMP).doing("making", PLACE_TMP)?;
    match file.identity().doing("looking at", PLACE_TMP)? {
        Some(identity) => {
            file.write_all_at(identity.as_bytes(), 0)
                .and_then(|()| file.sync_data())
                .doing("writing", PLACE)?;
            disk.rename(PLACE_TMP, PLACE).doing("making", PLACE)?;
            disk.sync_dir("").doing("syncing the directory of", PLACE)
        }
        None => {
            disk.remove(PLACE_TMP).doing("removing", PLACE_TMP)?;
            // One that says that nobody has started yet.
            if is_there(disk) { disk.remove(PLACE).doing("removing", PLACE) } else { Ok(()) }
        }
    }
}

/// What a file's time of birth says of it. It stays when the file is renamed, moved or given to another owner. Numbers of files say
/// less: some file systems give others at each mount.
pub(crate) fn identity(born: std::time::SystemTime) -> Option<String> {
    let born = born.duration_since(std::time::UNIX_EPOCH).ok()?;
    let nanos: u64 = saturate(born.as_nanos());
    Some(format!("born {nanos}\n"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::embedded::disk::FileDisk;

    #[test]
    fn a_copy_is_noticed_and_nothing_else_is_taken_for_one() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("here"), dir.path().join("there"));
        fs::create_dir(&here).unwrap();
        let disk = FileDisk::new(&here);
        assert_eq!(check(&disk).unwrap(), Place::Unmarked);
        mark(&disk).unwrap();
        assert_eq!(check(&disk).unwrap(), Place::Same);
        if !here.join(PLACE).exists() {
            // Files have no time of birth here.
            return;
        }
        fs::rename(&here, &there).unwrap();
        let disk = FileDisk::new(&there);
        assert_eq!(check(&disk).unwrap(), Place::Same, "it was moved");
        // Clocks of file systems have ticks.
        std::thread::sleep(std::time::Duration::from_millis(50));
        fs::copy(there.join(PLACE), there.join("copy")).unwrap();
        fs::rename(there.join("copy"), there.join(PLACE)).unwrap();
        assert_eq!(check(&disk).unwrap(), Place::Copied);
        mark(&disk).unwrap();
        assert_eq!(check(&disk).unwrap(), Place::Same);
    }
}
