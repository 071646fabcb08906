//! Keeping queues when a slot of the journal is given up: texts that are still waited for move to a file, then the state
//! of everything is written; the manifest that frees the slot names both.
//!
//! Files of which little is waited for any more are written anew with it, so that what is on the disk stays in proportion
//! to what waits. A crash anywhere leaves either the old manifest with the old files and the slot, or the new one; what no
//! manifest names is removed at the next start.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use super::entry::{Entry, Slab};
use super::pending::PendingBroadcast;
use super::settled::{IdRun, id_run_path};
use super::snapshot::{Copied, Files};
use super::source::{Medium, Source, Sources, TextFile};
use super::{QueueShared, Queues};
use crate::embedded::damage::Damage;
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::error::{DoingOn, MaintainError, OpenError};
use crate::embedded::shared::Shared;
use hubbub_core::backup::BackupFile;

/// Directory of snapshots and texts.
pub(crate) const QUEUES_DIR: &str = "queues";

/// A file of which less than one part in so many is waited for is written anew.
const LIVE_PART: u64 = 4;

/// More files than this are merged, those with least in them first.
const FILES_MAX: usize = 32;

/// No file of texts becomes larger than about this.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Written and synced at once.
const STEP_BYTES: usize = 4 << 20;

/// Messages told of their new places by one hold of the lock.
const MOVE_STEP: usize = 1_000;

pub(super) fn snapshot_path(number: u64) -> String {
    format!("{QUEUES_DIR}/{number:010}.snap")
}

pub(super) fn text_path(number: u64) -> String {
    format!("{QUEUES_DIR}/{number:010}.text")
}

impl Files {
    /// The paths of all of them.
    pub(crate) fn paths(&self) -> Vec<String> {
        let texts = self.texts.iter().map(|number| text_path(*number));
        let ids = self.ids.iter().map(|number| id_run_path(*number));
        texts.chain(ids).chain((self.snapshot != 0).then(|| snapshot_path(self.snapshot))).collect()
    }

    /// Removes what unfinished work left in the directory.
    pub(crate) fn remove_others(&self, disk: &dyn Disk) -> Result<(), MaintainError> {
        let named: HashSet<String> = self.paths().into_iter().collect();
        for name in disk.list(QUEUES_DIR).doing("listing the directory", QUEUES_DIR)? {
            let path = format!("{QUEUES_DIR}/{name}");
            let is_ours = [".snap", ".text", ".ids"].iter().any(|kind| name.ends_with(kind));
            if is_ours && !named.contains(&path) {
                disk.remove(&path).doing("removing", &path)?;
            }
        }
        Ok(())
    }
}

/// Opens a file of texts that must have so many bytes.
pub(super) fn open_texts(
    disk: &dyn Disk,
    number: u64,
    bytes: u64,
    crc32c: u32,
) -> Result<TextFile, OpenError> {
    let path = text_path(number);
    let unreadable =
        |source| OpenError::Unreadable { attempted: "opening", path: path.clone().into(), source };
    let file = disk.open(&path).map_err(unreadable)?;
    let length = file.len().map_err(unreadable)?;
    if length != bytes {
        let what = format!("it has {length} bytes instead of {bytes}");
        return Err(OpenError::Damaged { file: path, offset: length.min(bytes), what });
    }
    Ok(TextFile { number, file, bytes, crc32c })
}

/// A message whose text moves.
#[derive(Debug, Clone, Copy)]
struct Moving {
    id: u64,
    /// Of its entry; `None` for all copies of a message to everybody that have none, whose first has the id.
    number: Option<u32>,
    source: u16,
    offset: u32,
    bytes: u32,
    /// Where it stands in the new file.
    to: u32,
}

impl Moving {
    /// Those of the messages in `slab`, and of those whose copies are not made, whose texts stand in `sources`, in the
    /// order in which they stand there.
    fn choose<'a>(
        slab: &Slab,
        pending: impl IntoIterator<Item = &'a PendingBroadcast>,
        sources: &HashSet<u16>,
    ) -> Vec<Self> {
        let entries = slab.iter().map(|(number, entry)| (Some(number), entry));
        let templates = pending.into_iter().map(|pending| (None, &pending.template));
        let chosen = entries.chain(templates);
        let chosen = chosen.filter(|(_, one)| one.is_alive() && sources.contains(&one.source));
        let moving = chosen.map(|(number, &Entry { id, source, offset, bytes, .. })| Self {
            id,
            number,
            source,
            offset,
            bytes,
            to: 0,
        });
        let mut moving: Vec<Self> = moving.collect();
        moving.sort_unstable_by_key(|one| (one.source, one.offset));
        moving
    }
}

/// Texts on their way into files.
struct TextWriter<'a> {
    shared: &'a Shared,
    number: u64,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    written: u64,
    crc32c: u32,
}

impl<'a> TextWriter<'a> {
    fn create(shared: &'a Shared) -> Result<Self, MaintainError> {
        let number = shared.reserve_segment();
        let path = text_path(number);
        let file = shared.disk.create(&path).doing("making", &path)?;
        Ok(Self { shared, number, file, buffer: Vec::new(), written: 0, crc32c: 0 })
    }

    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), MaintainError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= STEP_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), MaintainError> {
        let path = text_path(self.number);
        self.file.write_all_at(&self.buffer, self.written).doing("writing", &path)?;
        self.file.sync_data().doing("syncing", &path)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<TextFile, MaintainError> {
        self.flush()?;
        self.shared.disk.sync_dir(QUEUES_DIR).doing("syncing the directory", QUEUES_DIR)?;
        Ok(TextFile { number: self.number, file: self.file, bytes: self.written, crc32c: self.crc32c })
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
    pub(crate) fn keep_queues(&self, applied: u64) -> Result<Option<Kept>, MaintainError> {
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
            // Copies that are made while texts move may still stand where their message stood; once that has moved,
            // no more can come.
            if moving.is_empty() {
                break;
            }
            let mut rest = moving.as_mut_slice();
            while !rest.is_empty() {
                let (file, count) = self.move_texts(rest, &sources)?;
                let (moved, behind) = rest.split_at_mut_checked(count).unwrap_or_default();
                self.queues.enter_moved(self, file, moved);
                rest = behind;
            }
        }
        let mut copied = self.queues.copied(&*self.clock)?;
        self.keep_ids(&mut copied)?;
        let number = self.reserve_segment();
        self.write_copied(&copied, number)?;
        let files = Files { snapshot: number, texts: copied.texts(), ids: copied.id_runs() };
        Ok(Some(Kept { files, changes: copied.changes }))
    }

    /// Lets go of slots up to `applied`, and of the files that `kept` replaces, now that the manifest says so.
    pub(crate) fn forget_queue_files(&self, applied: u64, kept: Option<&Kept>, before: &Files) {
        let named = kept.map_or(before, |kept| &kept.files);
        let gone = self.queues.with(&*self.clock, |queues, _| {
            queues.kept_changes = kept.map_or(queues.kept_changes, |kept| kept.changes);
            queues.sources.remove(|source| {
                source.messages == 0
                    && match &source.medium {
                        Medium::Slot(tail) => tail.journal <= applied,
                        Medium::Journal(journal) => *journal <= applied,
                        Medium::File(file) => !named.texts.contains(&file.number),
                    }
            })
        });
        let emptied = gone.iter().filter_map(|source| match &source.medium {
            Medium::File(file) => Some(text_path(file.number)),
            Medium::Slot(_) | Medium::Journal(_) => None,
        });
        let mut paths: HashSet<String> = before.paths().into_iter().chain(emptied).collect();
        for path in named.paths() {
            paths.remove(&path);
        }
        paths.iter().for_each(|path| self.discard(path));
    }

    /// Writes a copy of everything to the snapshot of a number.
    fn write_copied(
        &self,
        copied: &Copied,
        number: u64,
    ) -> Result<(Arc<dyn DiskFile>, u64, u32), MaintainError> {
        let path = snapshot_path(number);
        let file = self.disk.create(&path).doing("making", &path)?;
        let written = copied.write(&*file).doing("writing", &path).and_then(|written| {
            self.disk.sync_dir(QUEUES_DIR).doing("syncing the directory", QUEUES_DIR)?;
            Ok(written)
        });
        if written.is_err() {
            self.discard(&path);
        }
        let (bytes, crc32c) = written?;
        Ok((file, bytes, crc32c))
    }

    /// Gives back the space of a snapshot that no manifest names, for the next attempt writes another.
    pub(crate) fn discard_snapshot(&self, kept: &Kept) {
        self.discard(&snapshot_path(kept.files.snapshot));
    }

    /// Removes a file that is not needed. What cannot be removed now is removed by the next start.
    fn discard(&self, path: &str) {
        if let Err(error) = self.disk.remove(path) {
            tracing::warn!("removing {path} failed: {error}");
        }
    }

    /// Writes the texts of the first messages to a new file, and says how many; at least one. Copies that share one go on
    /// sharing it.
    fn move_texts(
        &self,
        moving: &mut [Moving],
        sources: &Sources,
    ) -> Result<(TextFile, usize), MaintainError> {
        let writer = TextWriter::create(self)?;
        let path = text_path(writer.number);
        let moved = Self::write_texts(writer, moving, sources);
        if moved.is_err() {
            self.discard(&path);
        }
        moved
    }

    fn write_texts(
        mut writer: TextWriter<'_>,
        moving: &mut [Moving],
        sources: &Sources,
    ) -> Result<(TextFile, usize), MaintainError> {
        let (mut count, mut last): (usize, Option<Moving>) = (0, None);
        for one in moving {
            if writer.end() >= FILE_BYTES_MAX {
                break;
            }
            count += 1;
            if let Some(same) = last
                && (same.source, same.offset) == (one.source, one.offset)
            {
                one.to = same.to;
                continue;
            }
            one.to = u32::try_from(writer.end()).unwrap_or(u32::MAX);
            let medium = sources.get(one.source).map(|source| &source.medium);
            let unknown = || MaintainError::Damaged { path: String::new(), offset: one.offset.into() };
            let bytes = medium.ok_or_else(unknown)?.bytes(one.offset, one.bytes)?;
            writer.push(&bytes)?;
            last = Some(*one);
        }
        Ok((writer.finish()?, count))
    }

    /// Puts texts of a copy that stand in slots into files which the copy alone knows. Says which files of texts it has.
    fn settle_texts(&self, copied: &mut Copied) -> Result<Vec<Arc<TextFile>>, MaintainError> {
        let in_slots: HashSet<u16> = leaving(&copied.sources, u64::MAX, &self.status.damage)
            .into_iter()
            .filter(|number| copied.sources.get(*number).is_some_and(|source| !is_file(source)))
            .collect();
        let mut moving = Moving::choose(&copied.slab, &copied.pending, &in_slots);
        let mut rest = moving.as_mut_slice();
        while !rest.is_empty() {
            let (file, count) = self.move_texts(rest, &copied.sources)?;
            let source = copied.sources.add(Medium::File(Arc::new(file)));
            let (moved, behind) = rest.split_at_mut_checked(count).unwrap_or_default();
            for one in moved {
                copied.move_text(one.id, one.number, (source, one.to));
            }
            rest = behind;
        }
        let files = copied.sources.iter().filter(|(_, source)| source.messages > 0);
        let files = files.filter_map(|(_, source)| match &source.medium {
            Medium::File(file) => Some(Arc::clone(file)),
            Medium::Slot(_) | Medium::Journal(_) => None,
        });
        Ok(files.collect())
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
        let known: HashSet<u64> = copied.texts().into_iter().collect();
        let texts = self.settle_texts(&mut copied)?;
        let number = self.reserve_segment();
        let (file, bytes, crc32c) = self.write_copied(&copied, number)?;
        let texts_named = texts.iter().map(|text| text.number).collect();
        let named = Files { snapshot: number, texts: texts_named, ids: copied.id_runs() };
        let mut files = vec![(BackupFile { name: snapshot_path(number), bytes, crc32c }, file)];
        let mut written = vec![snapshot_path(number)];
        for run in &copied.ids.runs {
            let name = id_run_path(run.number());
            let file = BackupFile { name, bytes: run.bytes(), crc32c: run.crc32c() };
            files.push((file, Arc::clone(run.file())));
        }
        for text in texts {
            let path = text_path(text.number);
            if !known.contains(&text.number) {
                written.push(path.clone());
            }
            let file = BackupFile { name: path, bytes: text.bytes, crc32c: text.crc32c };
            files.push((file, Arc::clone(&text.file)));
        }
        for path in written {
            self.disk.remove(&path).doing("removing", &path)?;
        }
        Ok(BackedUp { named, files })
    }
}

fn is_file(source: &Source) -> bool {
    matches!(source.medium, Medium::File(_))
}

/// Sources whose texts must move: slots given up, files of which little is left, the smallest of too many files. Files
/// that could not be read stay: trying again would fail each seal, and with that all writes in the end.
fn leaving(sources: &Sources, applied: u64, damage: &Damage) -> HashSet<u16> {
    let is_damaged = |source: &Source| is_file(source) && damage.has(&source.medium.path());
    let used = || sources.iter().filter(|(_, source)| source.messages > 0 && !is_damaged(source));
    let mut files: Vec<(u64, u16)> =
        used().filter(|(_, source)| is_file(source)).map(|(number, source)| (source.bytes, number)).collect();
    files.sort_unstable();
    let too_many = files.len().saturating_sub(FILES_MAX / 2) * usize::from(files.len() > FILES_MAX);
    let small = files.into_iter().take(too_many).map(|(_, number)| number);
    let chosen = used().filter(|(_, source)| match &source.medium {
        Medium::Slot(tail) => tail.journal <= applied,
        Medium::Journal(journal) => *journal <= applied,
        Medium::File(file) => source.bytes.saturating_mul(LIVE_PART) < file.bytes,
    });
    small.chain(chosen.map(|(number, _)| number)).collect()
}

impl QueueShared {
    /// Texts stand in a file from now on.
    fn enter_moved(&self, shared: &Shared, file: TextFile, moved: &[Moving]) {
        let mut file = Some(Arc::new(file));
        let mut source = None;
        for step in moved.chunks(MOVE_STEP) {
            self.with(&*shared.clock, |queues, _| {
                let added = file.take().map(|file| queues.sources.add(Medium::File(file)));
                let Some(source) = *source.get_or_insert(added) else { return };
                queues.changes += 1;
                step.iter().for_each(|one| queues.move_text(one, source));
            });
        }
    }
}

impl Queues {
    /// A text stands in a file from now on, unless what it was for went meanwhile.
    fn move_text(&mut self, one: &Moving, source: u16) {
        let Some(number) = one.number else { return self.move_text_of_pending(one, source) };
        let now = self.slab.get(number);
        if now.is_alive() && (now.id, now.source, now.offset) == (one.id, one.source, one.offset) {
            self.sources.leave(&now);
            let entry = Entry { source, offset: one.to, ..now };
            self.sources.enter(&entry);
            self.slab.edit(number, |place| *place = entry);
        }
    }

    fn move_text_of_pending(&mut self, one: &Moving, source: u16) {
        let found = self.pending.iter_mut().find(|pending| pending.template.id == one.id);
        if let Some(pending) = found {
            pending.move_text(&mut self.sources, (source, one.to));
        }
    }

    /// What is wrong with the files of texts that messages stand in, and with those of ids.
    pub(crate) fn check_texts(&self, disk: &dyn Disk) -> Vec<OpenError> {
        let files = self.sources.iter().filter_map(|(_, source)| match &source.medium {
            Medium::File(file) => check_file(disk, file).err(),
            Medium::Slot(_) | Medium::Journal(_) => None,
        });
        files.chain(self.settled.runs().iter().filter_map(IdRun::check)).collect()
    }
}

/// Says whether a file of texts is what it was when it was written.
fn check_file(disk: &dyn Disk, file: &TextFile) -> Result<(), OpenError> {
    let path = text_path(file.number);
    let unreadable =
        |source: io::Error| OpenError::Unreadable { attempted: "reading", path: path.clone().into(), source };
    let opened = disk.open(&path).map_err(unreadable)?;
    let (mut at, mut crc) = (0, 0);
    let mut buffer = vec![0; STEP_BYTES];
    while at < file.bytes {
        let length = usize::try_from(file.bytes - at).unwrap_or(usize::MAX).min(buffer.len());
        let part = buffer.get_mut(..length).unwrap_or_default();
        opened.read_exact_at(part, at).map_err(unreadable)?;
        crc = crc32c::crc32c_append(crc, part);
        at += length as u64;
    }
    if crc == file.crc32c {
        return Ok(());
    }
    Err(OpenError::Damaged { file: path, offset: 0, what: "its checksum is wrong".into() })
}
