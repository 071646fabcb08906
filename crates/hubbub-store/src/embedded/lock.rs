//! One process at a time: the file `LOCK`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use super::error::OpenError;

/// Holds the lock on a data directory until dropped, or until the process ends however it ends.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the lock, or says who has it.
    pub(crate) fn take(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("LOCK");
        let unreadable = |attempted, source| OpenError::Unreadable { attempted, path: path.clone(), source };
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| unreadable("opening", error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The number is only for the message.
                let _ = file.read_to_string(&mut holder);
                let owner = match holder.trim() {
                    "" => "another process".to_owned(),
                    pid => format!("process {pid}"),
                };
                return Err(OpenError::Locked { path: dir.to_owned(), owner });
            }
            Err(TryLockError::Error(error)) => return Err(unreadable("locking", error)),
        }
        let noted = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        noted.map_err(|error| unreadable("writing", error))?;
        Ok(Self { _file: file })
    }
}
