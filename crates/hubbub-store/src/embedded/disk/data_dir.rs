//! The directory itself: made durably, and for one process at a time by the file `LOCK`.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::embedded::disk::format_file::FORMAT;
use crate::embedded::error::OpenError;
use crate::embedded::journal::JOURNAL_DIR;
use crate::embedded::kv::KV_DIR;
use crate::embedded::manifest::MANIFEST;
use crate::embedded::queues::QUEUES_DIR;
use crate::embedded::segment::SEGMENTS_DIR;

/// The file that is locked while a server runs.
const LOCK: &str = "LOCK";

/// The list of the files of a backup. Only backups have it.
pub const BACKUP_LIST: &str = "backup.json";

/// Whether a directory is a backup, which is restored and not opened.
pub(crate) fn is_backup(dir: &Path) -> bool {
    dir.join(BACKUP_LIST).exists()
}

/// Whether a restore, or the very first start, may have been interrupted there: these two come last.
pub(crate) fn is_unfinished(dir: &Path) -> bool {
    dir.join(LOCK).exists() && ![MANIFEST, FORMAT].iter().any(|name| dir.join(name).exists())
}

/// Whether a directory holds something of a data directory or backup; one that lost the rest of it is damaged.
pub fn is_ours(dir: &Path) -> bool {
    [BACKUP_LIST, LOCK, FORMAT, MANIFEST, JOURNAL_DIR, SEGMENTS_DIR, QUEUES_DIR, KV_DIR]
        .iter()
        .any(|name| dir.join(name).exists())
}

/// Holds the lock on a data directory until dropped, or until the process ends however it ends.
///
/// The file `LOCK` says who holds it. Somebody may remove that, so the directory itself is locked, too, where the system can.
#[derive(Debug)]
pub(crate) struct DirLock {
    file: File,
    _dir: Option<File>,
}

impl DirLock {
    pub(crate) fn take(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(LOCK);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut lock = Self::hold(dir, opened)?;
        // Only for the message about who holds it, so a full disk is no reason not to start.
        let _ = lock.file.set_len(0).and_then(|()| writeln!(lock.file, "{}", std::process::id()));
        Ok(lock)
    }

    /// The same without changing anything; `None` where there is no file `LOCK`, and so no server.
    pub(crate) fn take_if_there(dir: &Path) -> Result<Option<Self>, OpenError> {
        match File::open(dir.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => lock_itself(dir).map(|_| None),
            opened => Self::hold(dir, opened).map(Some),
        }
    }

    /// Locks the file, or says who has it locked.
    fn hold(dir: &Path, opened: io::Result<File>) -> Result<Self, OpenError> {
        let failed =
            |attempted| move |source| OpenError::Unreadable { attempted, path: dir.join(LOCK), source };
        let mut file = opened.map_err(failed("opening"))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file, _dir: lock_itself(dir)? }),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The number is only for the message.
                let _ = file.read_to_string(&mut holder);
                let owner = match holder.trim() {
                    "" => SOMEBODY.to_owned(),
                    pid => format!("process {pid}"),
                };
                Err(OpenError::Locked { path: dir.to_owned(), owner })
            }
            Err(TryLockError::Error(error)) => Err(failed("locking")(error)),
        }
    }
}

const SOMEBODY: &str = "another process";

/// Locks the directory itself. Not every file system can, so only a lock of somebody else is an error.
fn lock_itself(dir: &Path) -> Result<Option<File>, OpenError> {
    let Ok(opened) = File::open(dir) else { return Ok(None) };
    match opened.try_lock() {
        Ok(()) => Ok(Some(opened)),
        Err(TryLockError::WouldBlock) => {
            Err(OpenError::Locked { path: dir.to_owned(), owner: SOMEBODY.to_owned() })
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Refuses a directory in which only others have written. Ours has its lock, or its manifest and format where it was
/// copied.
pub(crate) fn refuse_foreign(dir: &Path) -> Result<(), OpenError> {
    if [LOCK, FORMAT, MANIFEST].iter().any(|name| dir.join(name).exists()) {
        return Ok(());
    }
    let unreadable = |source| OpenError::Unreadable { attempted: "reading", path: dir.to_owned(), source };
    match first_entry(dir).map_err(unreadable)? {
        Some(file) => Err(OpenError::Foreign { path: dir.to_owned(), file }),
        None => Ok(()),
    }
}

/// The first entry of a directory that a new one would not have; `None` in a new one.
pub(crate) fn first_entry(dir: &Path) -> io::Result<Option<String>> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if !is_of_new(&name) {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// Whether a new directory may have an entry of this name: a hidden one, or the one that a file system makes itself.
pub(crate) fn is_of_new(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".") || name == "lost+found"
}

/// Makes a directory and whatever leads to it, so that a power cut does not take them back. Only the owner may look into the
/// directory: messages and keys are in it.
pub fn make(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|path| !path.exists()).collect();
    dir.parent().map_or(Ok(()), fs::create_dir_all)?;
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    for path in missing.into_iter().rev() {
        // A directory's name stands in the one above; above a plain name that is the current one.
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(above)?.sync_all()?;
    }
    Ok(())
}
