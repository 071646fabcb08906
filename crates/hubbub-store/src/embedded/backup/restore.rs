//! A data directory from the files of a backup.
//!
//! Segments and runs are copied first, then comes the manifest, with a new epoch, and `FORMAT` last. Whatever is there of an
//! unfinished restore, no server starts on it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use crc32c::crc32c_append;
use hubbub_core::backup::BackupFile;
use hubbub_core::kv::first_revision;
use hubbub_core::{Clock, RandomSource};

use crate::embedded::disk::data_dir::{self, DirLock};
use crate::embedded::disk::format_file::{self, FORMAT};
use crate::embedded::disk::place;
use crate::embedded::disk::{Disk, FileDisk};
use crate::embedded::error::OpenError;
use crate::embedded::journal::JOURNAL_DIR;
use crate::embedded::journal::end::{EndFile, JournalEnd};
use crate::embedded::kv::KV_DIR;
use crate::embedded::manifest::{MANIFEST, Manifest};
use crate::embedded::queues::QUEUES_DIR;
use crate::embedded::segment::{SEGMENTS_DIR, segment_path};

const STEP_BYTES: usize = 1 << 20;

/// Why a backup was not restored. What was begun has been removed again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The place is taken.
    #[error("{} is not empty; restore into a directory that is empty or does not exist", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// Perhaps the rest of a restore, or of a first start, that did not end.
    #[error(
        "{} is not empty: it has files, but neither FORMAT nor MANIFEST, as an interrupted restore leaves it; if that is what it \
         is, delete it, or name another directory",
        path.display()
    )]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// A file of the backup is not what was backed up.
    #[error("{file} of the backup is damaged: {what}; use another backup")]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// The operating system refused.
    #[error("{attempted} {} failed: {source}", path.display())]
    Io {
        /// What was attempted.
        attempted: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The refusal.
        source: io::Error,
    },
    /// The data directory cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Makes the data directory `to`, which must be missing or as empty as a new file system, from a backup's files below `from`, and gives it a
/// new epoch, which is the answer: cursors of clients that saw what came after the backup must not be honoured.
/// Every file is checked on the way; `progress` is told how many bytes were copied. Durable when it returns.
pub fn restore(
    from: &Path,
    to: &Path,
    files: &[BackupFile],
    (clock, random): (&dyn Clock, &dyn RandomSource),
    progress: &dyn Fn(u64),
) -> Result<String, RestoreError> {
    let was_there = to.exists();
    data_dir::make(to).map_err(failed("making", to))?;
    if data_dir::first_entry(to).map_err(failed("reading", to))?.is_some() {
        let path = to.to_owned();
        let is_unfinished = data_dir::is_unfinished(to);
        return Err(if is_unfinished {
            RestoreError::Unfinished { path }
        } else {
            RestoreError::NotEmpty { path }
        });
    }
    let lock = DirLock::take(to)?;
    let result = fill(from, to, files, (clock, random), progress);
    if result.is_err() {
        drop(lock);
        clear(to, was_there);
    }
    result
}

fn fill(
    from: &Path,
    to: &Path,
    files: &[BackupFile],
    (clock, random): (&dyn Clock, &dyn RandomSource),
    progress: &dyn Fn(u64),
) -> Result<String, RestoreError> {
    let target = FileDisk::new(to);
    // First: on a directory with this and without a manifest no server starts.
    place::mark_restored(&target).map_err(OpenError::from)?;
    for dir in [SEGMENTS_DIR, KV_DIR, QUEUES_DIR, JOURNAL_DIR] {
        target.make_dir(dir).map_err(failed("making", &to.join(dir)))?;
    }
    for file in files {
        if !is_below(&file.name) {
            return Err(damaged(&file.name, "its name leads out of the backup"));
        }
        if file.name == MANIFEST || file.name == FORMAT {
            let path = from.join(&file.name);
            check(file, file_crc32c(&path).map_err(failed("reading", &path))?)?;
        } else {
            copy(from, to, file, progress)?;
        }
    }
    let source = FileDisk::read_only(from);
    if !format_file::check(&source)? {
        return Err(damaged(FORMAT, "it is missing"));
    }
    let mut manifest = Manifest::load(&source)?.ok_or_else(|| damaged(MANIFEST, "it is missing"))?;
    let segments = manifest.segments.iter().map(|number| segment_path(*number));
    for name in segments.chain(manifest.keys.paths()).chain(manifest.queues.paths()) {
        if !files.iter().any(|file| file.name == name) {
            return Err(damaged(&name, "the manifest names it, the list of files does not"));
        }
    }
    let end = JournalEnd::sealed(manifest.applied);
    EndFile::create(&target, manifest.block_seed, &end).map_err(OpenError::from)?;
    for dir in [SEGMENTS_DIR, KV_DIR, QUEUES_DIR, JOURNAL_DIR] {
        target.sync_dir(dir).map_err(failed("syncing", &to.join(dir)))?;
    }
    // Revisions that were given after the backup must not come again for other values.
    manifest.keys.revision = first_revision(manifest.keys.revision, clock.now());
    manifest.epoch = random.next_u64();
    manifest.store(&target).map_err(OpenError::from)?;
    format_file::create(&target).map_err(OpenError::from)?;
    target.sync_dir("").map_err(failed("syncing", to))?;
    Ok(manifest.epoch())
}

fn copy(from: &Path, to: &Path, file: &BackupFile, progress: &dyn Fn(u64)) -> Result<(), RestoreError> {
    let (source, target) = (from.join(&file.name), to.join(&file.name));
    let mut reader = File::open(&source).map_err(failed("opening", &source))?;
    let mut writer = File::create(&target).map_err(failed("making", &target))?;
    let mut found = (0, 0);
    let mut buffer = vec![0; STEP_BYTES];
    loop {
        let count = reader.read(&mut buffer).map_err(failed("reading", &source))?;
        let piece = buffer.get(..count).unwrap_or_default();
        if piece.is_empty() {
            break;
        }
        found = (found.0 + piece.len() as u64, crc32c_append(found.1, piece));
        writer.write_all(piece).map_err(failed("writing", &target))?;
        progress(piece.len() as u64);
    }
    writer.sync_all().map_err(failed("syncing", &target))?;
    check(file, found)
}

fn failed<'a>(attempted: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> RestoreError + 'a {
    move |source| RestoreError::Io { attempted, path: path.to_owned(), source }
}

fn check(file: &BackupFile, (bytes, crc): (u64, u32)) -> Result<(), RestoreError> {
    if bytes != file.bytes {
        return Err(damaged(&file.name, format!("it has {bytes} bytes instead of {}", file.bytes)));
    }
    if crc != file.crc32c {
        return Err(damaged(&file.name, "its checksum is not the one in the list of files"));
    }
    Ok(())
}

/// Length and checksum of a file.
pub fn file_crc32c(path: &Path) -> io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let (mut bytes, mut crc) = (0, 0);
    let mut buffer = vec![0; STEP_BYTES];
    loop {
        let count = file.read(&mut buffer)?;
        let piece = buffer.get(..count).unwrap_or_default();
        if piece.is_empty() {
            return Ok((bytes, crc));
        }
        (bytes, crc) = (bytes + piece.len() as u64, crc32c_append(crc, piece));
    }
}

fn is_below(name: &str) -> bool {
    let mut parts = Path::new(name).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn damaged(file: &str, what: impl Into<String>) -> RestoreError {
    RestoreError::Damaged { file: file.to_owned(), what: what.into() }
}

/// Removes what an attempt left in a directory that was as a new one is. What cannot be removed stays; no server starts on it.
fn clear(dir: &Path, keep_dir: bool) {
    if keep_dir {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| !data_dir::is_of_new(&entry.file_name())) {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    } else {
        let _ = fs::remove_dir_all(dir);
    }
}
