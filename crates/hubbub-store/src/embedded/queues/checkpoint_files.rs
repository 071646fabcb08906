//! Writes a checkpoint of queues when a slot of the journal is given up: first payloads of waiting messages move to a file
//! ([`super::payload_files`]), then the whole state is written; the manifest that frees the slot names both.
//!
//! Files of which little is waited for any more are written anew with it, so that what is on the disk stays in proportion to what
//! waits. A start behind which something may be lost writes one, too. A crash anywhere leaves either the old manifest with the old
//! files and the slot, or the new one; what no manifest names is removed at the next start.

use std::collections::HashSet;
use std::sync::Arc;

use hubbub_core::Clock;
use hubbub_core::backup::BackupFile;

use super::Queues;
use super::checkpoint::{Copied, Files};
use super::payload_files::{Moving, leaving};
use super::settled::{IdRun, id_run_path};
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::error::{DoingOn, MaintainError};
use crate::embedded::file::kind::remove_unnamed;
use crate::embedded::shared::Shared;

/// Directory of checkpoints and payloads.
pub(crate) const QUEUES_DIR: &str = "queues";

pub(super) fn snapshot_path(number: u64) -> String {
    format!("{QUEUES_DIR}/{number:010}.snap")
}

pub(super) fn payload_path(number: u64) -> String {
    format!("{QUEUES_DIR}/{number:010}.text")
}

impl Files {
    /// The paths of all of them.
    pub(crate) fn paths(&self) -> Vec<String> {
        let texts = self.texts.iter().map(|number| payload_path(*number));
        let ids = self.ids.iter().map(|number| id_run_path(*number));
        texts.chain(ids).chain((self.snapshot != 0).then(|| snapshot_path(self.snapshot))).collect()
    }

    /// Removes what unfinished work left in the directory.
    pub(crate) fn remove_others(&self, disk: &dyn Disk) -> Result<(), MaintainError> {
        let named = self.paths().into_iter().collect();
        remove_unnamed(disk, QUEUES_DIR, &["snap", "text", "ids"], &named)
    }
}

/// What a seal keeps of queues: named by the manifest, then the rest is let go.
pub(crate) struct Kept {
    pub(crate) files: Files,
    changes: u64,
}

impl Shared {
    /// Writes what must be kept of queues when journals up to `applied` are given up. `None` when what the manifest names
    /// says it all.
    pub(crate) fn write_queue_checkpoint(&self, applied: u64) -> Result<Option<Kept>, MaintainError> {
        // Noted at once, so that the next attempt leaves the file alone.
        self.keep(applied).inspect_err(|error| self.status.damage.note(error))
    }

    fn keep(&self, applied: u64) -> Result<Option<Kept>, MaintainError> {
        let (sources, is_changed) = self
            .queues
            .with(&*self.clock, |queues, _| (queues.sources.clone(), queues.changes != queues.kept_changes));
        let leaving: HashSet<u16> = leaving(&sources, applied, &self.status.damage);
        if leaving.is_empty() && !is_changed {
            return Ok(None);
        }
        while !leaving.is_empty() {
            let (slab, pending) =
                self.queues.with(&*self.clock, |queues, _| (queues.slab.shared(), queues.pending.clone()));
            let mut moving = Moving::choose(&slab, &pending, &leaving);
            drop(slab);
            // Copies that are made while payloads move may still stand where their message stood; once that has moved,
            // no more can come.
            if moving.is_empty() {
                break;
            }
            self.move_payloads(&mut moving, &sources, |file, moved| {
                self.queues.enter_moved(self, file, moved);
            })?;
        }
        let mut copied = self.queues.copied(&*self.clock)?;
        self.keep_ids(&mut copied)?;
        let (files, ..) = copied.write_to(self.reserve_segment(), &*self.disk)?;
        Ok(Some(Kept { files, changes: copied.changes }))
    }

    /// Lets go of slots up to `applied`, and of the files that `kept` replaces, now that the manifest says so.
    pub(crate) fn forget_queue_files(&self, applied: u64, kept: Option<&Kept>, before: &Files) {
        let named = kept.map_or(before, |kept| &kept.files);
        let gone = self.queues.with(&*self.clock, |queues, _| {
            queues.kept_changes = kept.map_or(queues.kept_changes, |kept| kept.changes);
            queues.sources.remove(|source| {
                let is_unnamed = source.medium.file().is_some_and(|file| !named.texts.contains(&file.number));
                source.messages == 0 && (is_unnamed || source.medium.is_slot_up_to(applied))
            })
        });
        let emptied = gone.iter().filter_map(|source| Some(payload_path(source.medium.file()?.number)));
        let mut paths: HashSet<String> = before.paths().into_iter().chain(emptied).collect();
        for path in named.paths() {
            paths.remove(&path);
        }
        paths.iter().for_each(|path| self.discard(path));
    }

    /// Gives back the space of a checkpoint that no manifest names, for the next attempt writes another.
    pub(crate) fn discard_snapshot(&self, kept: &Kept) {
        self.discard(&snapshot_path(kept.files.snapshot));
    }

    fn discard(&self, path: &str) {
        discard(&*self.disk, path);
    }
}

impl Queues {
    /// Writes a checkpoint of what a start has found, under this number. Says what a manifest that names it must name.
    pub(crate) fn write_checkpoint(
        &mut self,
        number: u64,
        disk: &dyn Disk,
        clock: &dyn Clock,
    ) -> Result<Files, MaintainError> {
        self.sources.remove(|source| source.messages == 0);
        let now = self.times.for_loading(clock);
        let (files, ..) = self.copied(now).write_to(number, disk)?;
        self.kept_changes = self.changes;
        Ok(files)
    }
}

impl Copied {
    /// Writes everything to the checkpoint of a number. Says what a manifest that names it must name.
    fn write_to(
        &self,
        snapshot: u64,
        disk: &dyn Disk,
    ) -> Result<(Files, BackupFile, Arc<dyn DiskFile>), MaintainError> {
        let name = snapshot_path(snapshot);
        let ((bytes, crc32c), file) =
            write_file(disk, &name, |file| self.write(file).doing("writing", &name))?;
        let files = Files { snapshot, texts: self.texts(), ids: self.id_runs() };
        Ok((files, BackupFile { name, bytes, crc32c }, file))
    }
}

/// Makes a file with what `write` writes and syncs, under its name or not at all.
pub(super) fn write_file<T>(
    disk: &dyn Disk,
    path: &str,
    write: impl FnOnce(&Arc<dyn DiskFile>) -> Result<T, MaintainError>,
) -> Result<(T, Arc<dyn DiskFile>), MaintainError> {
    let file = disk.create(path).doing("making", path)?;
    let written = write(&file).and_then(|written| {
        disk.sync_dir(QUEUES_DIR).doing("syncing the directory", QUEUES_DIR)?;
        Ok((written, file))
    });
    written.inspect_err(|_| discard(disk, path))
}

/// Removes a file that is not needed. What cannot be removed now is removed by the next start.
fn discard(disk: &dyn Disk, path: &str) {
    if let Err(error) = disk.remove(path) {
        tracing::warn!("removing {path} failed: {error}");
    }
}

/// Queues as a backup has them.
pub(crate) struct BackedUp {
    /// What the backup's manifest names.
    pub(crate) named: Files,
    pub(crate) files: Vec<(BackupFile, Arc<dyn DiskFile>)>,
}

impl Shared {
    /// Writes a copy for a backup. Its files are named on the disk no longer than they are written, so that they leave
    /// nothing there; whoever holds them can read them.
    pub(crate) fn back_up_queues(&self, mut copied: Box<Copied>) -> Result<BackedUp, MaintainError> {
        if copied.is_blank() {
            return Ok(BackedUp { named: Files::default(), files: Vec::new() });
        }
        let known: HashSet<u64> = copied.sources.files().map(|file| file.number).collect();
        let written = self
            .move_out_of_slots(&mut copied)
            .and_then(|()| copied.write_to(self.reserve_segment(), &*self.disk));
        // Those that were made before something failed, too.
        let texts = copied.sources.files().map(|file| file.number);
        texts.filter(|number| !known.contains(number)).for_each(|number| self.discard(&payload_path(number)));
        let (named, snapshot, file) = written?;
        self.discard(&snapshot.name);
        let mut files = vec![(snapshot, file)];
        files.extend(copied.ids.runs.iter().map(IdRun::backup_file));
        for text in copied.sources.used().filter_map(|(_, source)| source.medium.file()) {
            let name = payload_path(text.number);
            let file = BackupFile { name, bytes: text.bytes, crc32c: text.crc32c };
            files.push((file, Arc::clone(&text.file)));
        }
        Ok(BackedUp { named, files })
    }
}
