//! The whole store at one moment, readable while writing goes on.
//!
//! A barrier between two batches: the writer goes on to the next slot, and the rooms are copied before it writes
//! anything there → what was written before is sealed → the segments, all of them immutable, and a manifest made for
//! just that moment are the backup, and so with the runs of keys; for queues their state and their payloads are written
//! for it. Holding its files open is what keeps a merge from taking them away, so a
//! backup leaves nothing on the disk, and a crash nothing to clean up. Slots are not part of it: they are
//! overwritten.

mod restore;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::backup::{
    BACKUP_UNUSED_MAX, BackupError, BackupFile, BackupFuture, BackupInfo, BackupStore,
};
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use crate::embedded::disk::DiskFile;
use crate::embedded::disk::format_file::{self, FORMAT};
use crate::embedded::engine::Engine;
use crate::embedded::error::MaintainError;
use crate::embedded::kv::KeyRun;
use crate::embedded::manifest::{MANIFEST, Manifest};
use crate::embedded::queues::Copied;
use crate::embedded::rooms::{EncodedRooms, RoomsCopy};
use crate::embedded::segment::Segment;
use crate::embedded::service::Embedded;
use crc32c::crc32c;
pub use restore::{RestoreError, file_crc32c, restore};

/// Backups kept at once; a new one takes the place of that which was not read for longest.
const BACKUPS_MAX: usize = 4;

/// Attempts to find a free slot for what comes behind the barrier.
const SLOT_ATTEMPTS: usize = 32;

/// Attempts to seal everything up to the barrier before anything more is hidden.
const SEAL_ATTEMPTS: usize = 16;

/// The state at a line between two batches.
#[derive(Debug)]
struct Barrier {
    /// The last journal before it.
    journal: u64,
    rooms: EncodedRooms,
    /// Messages kept in them.
    messages: u64,
    hidings: u64,
    queues: Box<Copied>,
}

#[derive(Debug, Default)]
pub(crate) struct Backups {
    kept: Mutex<Vec<Backup>>,
}

#[derive(Debug)]
struct Backup {
    info: BackupInfo,
    /// Where the content of each file is, in the order of `info.files`.
    contents: Vec<Content>,
    used: Duration,
}

#[derive(Clone)]
enum Content {
    File(Arc<dyn DiskFile>),
    Bytes(Arc<[u8]>),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::Bytes(_) => "Bytes",
        })
    }
}

impl Backups {
    pub(crate) fn forget_unused(&self, now: Duration) {
        self.kept.lock().retain(|backup| now < backup.used + BACKUP_UNUSED_MAX);
    }

    fn keep(&self, backup: Backup) {
        let mut kept = self.kept.lock();
        if kept.len() >= BACKUPS_MAX
            && let Some((place, _)) = kept.iter().enumerate().min_by_key(|(_, old)| old.used)
        {
            kept.remove(place);
        }
        kept.push(backup);
    }

    /// One that is asked for again is not forgotten: whoever has most of its files already may be looking at them for long.
    fn find(&self, id: &str, now: Duration) -> Option<BackupInfo> {
        let mut kept = self.kept.lock();
        let known = kept.iter_mut().find(|backup| backup.info.id == id)?;
        known.used = now;
        Some(BackupInfo { is_new: false, ..known.info.clone() })
    }

    fn content(&self, id: &str, file: &str, now: Duration) -> Option<(Content, u64)> {
        let mut kept = self.kept.lock();
        let backup = kept.iter_mut().find(|backup| backup.info.id == id)?;
        backup.used = now;
        let place = backup.info.files.iter().position(|known| known.name == file)?;
        Some((backup.contents.get(place)?.clone(), backup.info.files.get(place)?.bytes))
    }
}

impl Engine {
    /// The store as it is at a moment during this call; see [`BackupStore::begin_backup`].
    pub fn begin_backup(&self, id: &str) -> Result<BackupInfo, BackupError> {
        // A client that only says it is still there waits for no merge.
        if let Some(info) = self.known_backup(id) {
            return Ok(info);
        }
        // Held, so that the segments are what the rooms of the barrier say, and that one backup is made at a time.
        let _merging = self.shared.merging.lock();
        if let Some(info) = self.known_backup(id) {
            return Ok(info);
        }
        // What it writes would take the space that seals need.
        if let Some(reason) = self.shared.reserve_is_touched() {
            return Err(BackupError::Unavailable { reason });
        }
        let mut sealing = self.shared.sealing.lock();
        let Barrier { journal, rooms, messages, queues, .. } = self.sealed_barrier(&mut sealing)?;
        let queues = self.shared.back_up_queues(queues)?;
        let view = self.shared.view();
        let manifest = {
            let catalog = self.shared.catalog.lock();
            Manifest {
                applied: journal,
                unsynced: false,
                segments: view.segments.iter().map(Segment::number).collect(),
                keys: catalog.keys.clone(),
                queues: queues.named,
                there_by: catalog.there_by.clone(),
                // That of the last manifest: with the present time, two backups of the same would differ.
                proven: catalog.proven,
                rooms: rooms.into_bytes(),
                ..*catalog
            }
        };

        let (mut files, mut contents) = (Vec::new(), Vec::new());
        let sealed = view.segments.iter().map(Segment::file).chain(view.runs.iter().map(KeyRun::file));
        for file in sealed.chain(&view.key_log) {
            files.push(file.backup_file());
            contents.push(Content::File(Arc::clone(&file.file)));
        }
        for (file, content) in queues.files {
            files.push(file);
            contents.push(Content::File(content));
        }
        for (name, bytes) in [(MANIFEST, manifest.encode()), (FORMAT, format_file::content().into_bytes())] {
            files.push(BackupFile { name: name.into(), bytes: bytes.len() as u64, crc32c: crc32c(&bytes) });
            contents.push(Content::Bytes(bytes.into()));
        }
        let info = BackupInfo { id: id.to_owned(), is_new: true, epoch: self.epoch(), messages, files };
        let used = self.shared.clock.monotonic();
        self.backups.keep(Backup { info: info.clone(), contents, used });
        Ok(info)
    }

    fn known_backup(&self, id: &str) -> Option<BackupInfo> {
        let now = self.shared.clock.monotonic();
        self.backups.forget_unused(now);
        self.backups.find(id, now)
    }

    /// A barrier up to which everything is sealed, with no more left out than is hidden at the barrier.
    fn sealed_barrier(&self, sealing: &mut Option<u64>) -> Result<Barrier, BackupError> {
        for _ in 0..SEAL_ATTEMPTS {
            let barrier = self.barrier(sealing)?;
            while self.shared.view().tails.first().is_some_and(|tail| tail.journal <= barrier.journal) {
                self.shared.seal(sealing)?;
            }
            // A seal leaves out what is hidden by then. What was hidden behind the barrier would be missing in front of
            // it; the next attempt has little to seal.
            if self.shared.rooms.read().hidings == barrier.hidings {
                return Ok(barrier);
            }
        }
        Err(BackupError::Overloaded)
    }

    /// Draws a line between two batches.
    fn barrier(&self, sealing: &mut Option<u64>) -> Result<Barrier, BackupError> {
        for _ in 0..SLOT_ATTEMPTS {
            // Mostly encoded before the writer is stopped.
            let copy = RoomsCopy::begin(&self.shared.rooms);
            let mut writer = self.writer.lock();
            if writer.place.batch == 1 || writer.next_slot(&self.shared).is_ok() {
                let queues = self.shared.queues.copied(&*self.shared.clock)?;
                let rooms = self.shared.rooms.read();
                return Ok(Barrier {
                    journal: writer.place.tail.journal.saturating_sub(1),
                    rooms: copy.finish(&rooms),
                    messages: rooms.messages,
                    hidings: rooms.hidings,
                    queues,
                });
            }
            drop(writer);
            // Whoever seals waits for this call, so it has to find a slot itself.
            if !self.prepare_step()? && self.shared.waiting_slots() > 0 {
                self.shared.seal(sealing)?;
            }
        }
        Err(BackupError::Overloaded)
    }

    /// A piece of a backup's file; see [`BackupStore::read_backup`].
    pub fn read_backup(
        &self,
        id: &str,
        file: &str,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, BackupError> {
        let now = self.shared.clock.monotonic();
        let Some((content, bytes)) = self.backups.content(id, file, now) else { return Ok(None) };
        let length = saturate::<_, usize>(bytes.saturating_sub(offset)).min(bytes_max);
        match content {
            Content::File(open) => {
                let mut piece = vec![0; length];
                open.read_exact_at(&mut piece, offset).map_err(|error| BackupError::Unavailable {
                    reason: format!("reading {file} failed: {error}"),
                })?;
                Ok(Some(piece))
            }
            Content::Bytes(bytes) => {
                let found = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)?.get(..length));
                Ok(Some(found.unwrap_or_default().to_vec()))
            }
        }
    }

    /// Lets go of a backup. Says whether there was one.
    pub fn end_backup(&self, id: &str) -> bool {
        let mut kept = self.backups.kept.lock();
        let before = kept.len();
        kept.retain(|backup| backup.info.id != id);
        kept.len() < before
    }
}

impl From<MaintainError> for BackupError {
    fn from(error: MaintainError) -> Self {
        Self::Unavailable { reason: error.to_string() }
    }
}

impl Embedded {
    fn backing<T, F>(&self, step: F) -> BackupFuture<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> Result<T, BackupError> + Send + 'static,
    {
        let engine = Arc::clone(self.engine());
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || step(&engine)).await;
            answer.unwrap_or_else(|_| Err(BackupError::Unavailable { reason: "the task ended early".into() }))
        })
    }
}

impl BackupStore for Embedded {
    fn begin_backup(&self, backup: &str) -> BackupFuture<'_, BackupInfo> {
        let backup = backup.to_owned();
        self.backing(move |engine| engine.begin_backup(&backup))
    }

    fn read_backup(
        &self,
        backup: &str,
        file: &str,
        offset: u64,
        bytes_max: usize,
    ) -> BackupFuture<'_, Option<Vec<u8>>> {
        let (backup, file) = (backup.to_owned(), file.to_owned());
        self.backing(move |engine| engine.read_backup(&backup, &file, offset, bytes_max))
    }

    fn end_backup(&self, backup: &str) -> bool {
        self.engine().end_backup(backup)
    }
}
