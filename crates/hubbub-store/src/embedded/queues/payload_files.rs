//! Files of payloads: messages that outlast their slot of the journal have their payloads there.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use super::checkpoint::Copied;
use super::checkpoint_files::{QUEUES_DIR, payload_path};
use super::entry::{Entry, Slab};
use super::pending::PendingBroadcast;
use super::settled::IdRun;
use super::source::{Medium, PayloadFile, Source, Sources};
use super::{QueueShared, Queues};
use crate::embedded::damage::Damage;
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::error::{DoingOn, MaintainError, OpenError};
use crate::embedded::shared::Shared;

/// A file of which less than one part in so many is waited for is written anew.
const LIVE_PART: u64 = 4;

/// More files than this are merged, those with least in them first.
const FILES_MAX: usize = 32;

/// No file of payloads becomes larger than about this.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Written and synced at once.
const STEP_BYTES: usize = 4 << 20;

/// Messages told of their new places by one hold of the lock.
const MOVE_STEP: usize = 1_000;

/// Opens a file of payloads that must have so many bytes.
pub(super) fn open_payloads(
    disk: &dyn Disk,
    number: u64,
    bytes: u64,
    crc32c: u32,
) -> Result<PayloadFile, OpenError> {
    let path = payload_path(number);
    let unreadable =
        |source| OpenError::Unreadable { attempted: "opening", path: path.clone().into(), source };
    let file = disk.open(&path).map_err(unreadable)?;
    let length = file.len().map_err(unreadable)?;
    if length != bytes {
        let what = format!("it has {length} bytes instead of {bytes}");
        return Err(OpenError::Damaged { file: path, offset: length.min(bytes), what });
    }
    Ok(PayloadFile { number, file, bytes, crc32c })
}

/// A message whose payload moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moving {
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
    /// Those of the messages in `slab`, and of those whose copies are not made, whose payloads stand in `sources`, in the
    /// order in which they stand there.
    pub(super) fn choose<'a>(
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

/// Payloads on their way into files.
struct PayloadWriter<'a> {
    shared: &'a Shared,
    number: u64,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    written: u64,
    crc32c: u32,
}

impl<'a> PayloadWriter<'a> {
    fn create(shared: &'a Shared) -> Result<Self, MaintainError> {
        let number = shared.reserve_segment();
        let path = payload_path(number);
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
        let path = payload_path(self.number);
        self.file.write_all_at(&self.buffer, self.written).doing("writing", &path)?;
        self.file.sync_data().doing("syncing", &path)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<PayloadFile, MaintainError> {
        self.flush()?;
        self.shared.disk.sync_dir(QUEUES_DIR).doing("syncing the directory", QUEUES_DIR)?;
        Ok(PayloadFile { number: self.number, file: self.file, bytes: self.written, crc32c: self.crc32c })
    }
}

impl Shared {
    /// Writes the payloads of the first messages to a new file, and says how many; at least one. Copies that share one go on
    /// sharing it.
    pub(super) fn move_payloads(
        &self,
        moving: &mut [Moving],
        sources: &Sources,
    ) -> Result<(PayloadFile, usize), MaintainError> {
        let writer = PayloadWriter::create(self)?;
        let path = payload_path(writer.number);
        let moved = Self::write_payloads(writer, moving, sources);
        if moved.is_err() {
            self.discard(&path);
        }
        moved
    }

    fn write_payloads(
        mut writer: PayloadWriter<'_>,
        moving: &mut [Moving],
        sources: &Sources,
    ) -> Result<(PayloadFile, usize), MaintainError> {
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

    /// Puts payloads of a copy that stand in slots into files which the copy alone knows. Says which files of payloads it has.
    pub(super) fn move_out_of_slots(
        &self,
        copied: &mut Copied,
    ) -> Result<Vec<Arc<PayloadFile>>, MaintainError> {
        let in_slots: HashSet<u16> = leaving(&copied.sources, u64::MAX, &self.status.damage)
            .into_iter()
            .filter(|number| copied.sources.get(*number).is_some_and(|source| !is_file(source)))
            .collect();
        let mut moving = Moving::choose(&copied.slab, &copied.pending, &in_slots);
        let mut rest = moving.as_mut_slice();
        while !rest.is_empty() {
            let (file, count) = self.move_payloads(rest, &copied.sources)?;
            let source = copied.sources.add(Medium::File(Arc::new(file)));
            let (moved, behind) = rest.split_at_mut_checked(count).unwrap_or_default();
            for one in moved {
                copied.move_payload(one.id, one.number, (source, one.to));
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

fn is_file(source: &Source) -> bool {
    matches!(source.medium, Medium::File(_))
}

/// Sources whose payloads must move: slots given up, files of which little is left, the smallest of too many files. Files
/// that could not be read stay: trying again would fail each seal, and with that all writes in the end.
pub(super) fn leaving(sources: &Sources, applied: u64, damage: &Damage) -> HashSet<u16> {
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
    /// Payloads stand in a file from now on.
    pub(super) fn enter_moved(&self, shared: &Shared, file: PayloadFile, moved: &[Moving]) {
        let mut file = Some(Arc::new(file));
        let mut source = None;
        for step in moved.chunks(MOVE_STEP) {
            self.with(&*shared.clock, |queues, _| {
                let added = file.take().map(|file| queues.sources.add(Medium::File(file)));
                let Some(source) = *source.get_or_insert(added) else { return };
                queues.changes += 1;
                step.iter().for_each(|one| queues.move_payload(one, source));
            });
        }
    }
}

impl Queues {
    /// A payload stands in a file from now on, unless what it was for went meanwhile.
    fn move_payload(&mut self, one: &Moving, source: u16) {
        let Some(number) = one.number else { return self.move_payload_of_pending(one, source) };
        let now = self.slab.get(number);
        if now.is_alive() && (now.id, now.source, now.offset) == (one.id, one.source, one.offset) {
            self.sources.leave(&now);
            let entry = Entry { source, offset: one.to, ..now };
            self.sources.enter(&entry);
            self.slab.edit(number, |place| *place = entry);
        }
    }

    fn move_payload_of_pending(&mut self, one: &Moving, source: u16) {
        let found = self.pending.iter_mut().find(|pending| pending.template.id == one.id);
        if let Some(pending) = found {
            pending.move_payload(&mut self.sources, (source, one.to));
        }
    }

    /// What is wrong with the files of payloads that messages stand in, and with those of ids.
    pub(crate) fn check_texts(&self, disk: &dyn Disk) -> Vec<OpenError> {
        let files = self.sources.iter().filter_map(|(_, source)| match &source.medium {
            Medium::File(file) => check_file(disk, file).err(),
            Medium::Slot(_) | Medium::Journal(_) => None,
        });
        files.chain(self.settled.runs().iter().filter_map(IdRun::check)).collect()
    }
}

/// Says whether a file of payloads is what it was when it was written.
fn check_file(disk: &dyn Disk, file: &PayloadFile) -> Result<(), OpenError> {
    let path = payload_path(file.number);
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
