//! Files of payloads: messages that outlast their slot of the journal have their payloads there.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use hubbub_core::invariant::{cast, saturate};

use super::checkpoint::Copied;
use super::checkpoint_files::{payload_path, write_file};
use super::entry::{Entry, Slab};
use super::pending::PendingBroadcast;
use super::settled::IdRun;
use super::source::{Medium, PayloadFile, Source, Sources};
use super::{QueueShared, Queues};
use crate::embedded::damage::Damage;
use crate::embedded::disk::Disk;
use crate::embedded::error::{DoingOn, MaintainError, OpenError, READING};
use crate::embedded::file::Output;
use crate::embedded::shared::Shared;

/// A file of which less than one part in so many is waited for is written anew.
const LIVE_PART: u64 = 4;

/// More files than this are merged, those with least in them first.
const FILES_MAX: usize = 32;

/// No file of payloads becomes larger than about this.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Read at once.
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
    let file = disk.open(&path).doing("opening", &path)?;
    let length = file.len().doing("opening", &path)?;
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
        let moving = |number, one: &Entry| Self {
            id: one.id,
            number,
            source: one.source,
            offset: one.offset,
            bytes: one.bytes,
            to: 0,
        };
        let mut moving: Vec<Self> = chosen.map(|(number, one)| moving(number, one)).collect();
        moving.sort_unstable_by_key(|one| (one.source, one.offset));
        moving
    }
}

impl Shared {
    /// Writes payloads to new files, and says which of `moving` stand in each when it is durable. Copies that share one
    /// go on sharing it.
    pub(super) fn move_payloads(
        &self,
        mut moving: &mut [Moving],
        sources: &Sources,
        mut moved: impl FnMut(PayloadFile, &[Moving]),
    ) -> Result<(), MaintainError> {
        while !moving.is_empty() {
            let number = self.reserve_segment();
            let path = payload_path(number);
            let ((count, bytes, crc32c), file) = write_file(&*self.disk, &path, |file| {
                let mut output = Output::new(Arc::clone(file));
                let count = write_payloads(&mut output, &path, moving, sources)?;
                output.sync().doing("syncing", &path)?;
                Ok((count, output.position(), output.crc()))
            })?;
            let (written, rest) = moving.split_at_mut_checked(count).unwrap_or_default();
            moved(PayloadFile { number, file, bytes, crc32c }, written);
            moving = rest;
        }
        Ok(())
    }

    /// Puts payloads of a copy that stand in slots into files which the copy alone knows.
    pub(super) fn move_out_of_slots(&self, copied: &mut Copied) -> Result<(), MaintainError> {
        let sources = copied.sources.clone();
        let in_slots = sources.used().filter(|(_, source)| source.medium.is_slot_up_to(u64::MAX));
        let in_slots = in_slots.map(|(number, _)| number).collect();
        let mut moving = Moving::choose(&copied.slab, &copied.pending, &in_slots);
        self.move_payloads(&mut moving, &sources, |file, moved| {
            let source = copied.sources.add(Medium::File(Arc::new(file)));
            for one in moved {
                one.apply(source, &mut copied.slab, &mut copied.pending, &mut copied.sources);
            }
        })
    }
}

/// Writes the payloads of the first messages, and says how many; at least one.
fn write_payloads(
    output: &mut Output,
    path: &str,
    moving: &mut [Moving],
    sources: &Sources,
) -> Result<usize, MaintainError> {
    let (mut count, mut last): (usize, Option<Moving>) = (0, None);
    for one in moving {
        if output.position() >= FILE_BYTES_MAX {
            break;
        }
        count += 1;
        if let Some(same) = last
            && (same.source, same.offset) == (one.source, one.offset)
        {
            one.to = same.to;
            continue;
        }
        let to = cast(output.position(), "a file of payloads is smaller than 4 GiB");
        one.to = to.map_err(io::Error::other).doing("writing", path)?;
        let medium = sources.get(one.source).map(|source| &source.medium);
        let unknown = || MaintainError::Damaged { path: String::new(), offset: one.offset.into() };
        let bytes = medium.ok_or_else(unknown)?.bytes(one.offset, one.bytes)?;
        output.append(|out| out.extend_from_slice(&bytes)).doing("writing", path)?;
        last = Some(*one);
    }
    Ok(count)
}

/// Sources whose payloads must move: slots given up, files of which little is left, the smallest of too many files. Files
/// that could not be read stay: trying again would fail each seal, and with that all writes in the end.
pub(super) fn leaving(sources: &Sources, applied: u64, damage: &Damage) -> HashSet<u16> {
    let is_damaged = |source: &Source| source.medium.file().is_some() && damage.has(&source.medium.path());
    let used = || sources.used().filter(|(_, source)| !is_damaged(source));
    let files = used().filter(|(_, source)| source.medium.file().is_some());
    let mut files: Vec<(u64, u16)> = files.map(|(number, source)| (source.bytes, number)).collect();
    files.sort_unstable();
    let too_many = files.len().saturating_sub(FILES_MAX / 2) * usize::from(files.len() > FILES_MAX);
    let small = files.into_iter().take(too_many).map(|(_, number)| number);
    let chosen = used().filter(|(_, source)| match source.medium.file() {
        Some(file) => source.bytes.saturating_mul(LIVE_PART) < file.bytes,
        None => source.medium.is_slot_up_to(applied),
    });
    small.chain(chosen.map(|(number, _)| number)).collect()
}

impl Moving {
    /// The payload stands in a file from now on, unless what it was for went meanwhile.
    fn apply(
        &self,
        source: u16,
        slab: &mut Slab,
        pending: &mut VecDeque<PendingBroadcast>,
        sources: &mut Sources,
    ) {
        let Some(number) = self.number else {
            if let Some(pending) = pending.iter_mut().find(|pending| pending.template.id == self.id) {
                pending.move_payload(sources, (source, self.to));
            }
            return;
        };
        let now = slab.get(number);
        if now.is_alive() && (now.id, now.source, now.offset) == (self.id, self.source, self.offset) {
            let entry = Entry { source, offset: self.to, ..now };
            sources.count(&now, 1, false);
            sources.count(&entry, 1, true);
            slab.edit(number, |place| *place = entry);
        }
    }
}

impl QueueShared {
    pub(super) fn enter_moved(&self, shared: &Shared, file: PayloadFile, moved: &[Moving]) {
        let mut file = Some(Arc::new(file));
        let mut source = None;
        for step in moved.chunks(MOVE_STEP) {
            self.with(&*shared.clock, |queues, _| {
                let added = file.take().map(|file| queues.sources.add(Medium::File(file)));
                let Some(source) = *source.get_or_insert(added) else { return };
                queues.changes += 1;
                let Queues { slab, pending, sources, .. } = queues;
                step.iter().for_each(|one| one.apply(source, slab, pending, sources));
            });
        }
    }
}

impl Queues {
    /// What is wrong with the files of payloads that messages stand in, and with those of ids.
    pub(crate) fn check_texts(&self, disk: &dyn Disk) -> Vec<OpenError> {
        let files = self.sources.files().filter_map(|file| check_file(disk, file).err());
        files.chain(self.settled.runs.iter().filter_map(IdRun::check)).collect()
    }
}

/// Says whether a file of payloads is what it was when it was written.
fn check_file(disk: &dyn Disk, file: &PayloadFile) -> Result<(), OpenError> {
    let path = payload_path(file.number);
    let opened = disk.open(&path).doing(READING, &path)?;
    let (mut at, mut crc) = (0, 0);
    let mut buffer = vec![0; STEP_BYTES];
    while at < file.bytes {
        let length = saturate::<_, usize>(file.bytes - at).min(buffer.len());
        let part = buffer.get_mut(..length).unwrap_or_default();
        opened.read_exact_at(part, at).doing(READING, &path)?;
        crc = crc32c::crc32c_append(crc, part);
        at += length as u64;
    }
    if crc == file.crc32c {
        return Ok(());
    }
    Err(OpenError::Damaged { file: path, offset: 0, what: "its checksum is wrong".into() })
}
