//! The state of all queues as a file.
//!
//! ```text
//! magic 8 | crc32c 4, over all that follows | version 4 | position: journal, batch | time zz | next id, next queue,
//! highest named | sources: count, {kind, number, bytes, crc32c} | clients: count, {name, registered}
//! | queues: count, {number, name, for dead letters, settings, sent, done, dropped, dead}
//! | messages: count, {message} | broadcasts: count, {id, copies, waiting}
//! | ids of messages that are gone: count, {known_as 16, content 4, id, copies, sent_at zz, forgotten in zz}    (varints)
//! message = state 1, flags 1, id, queue, sender, receiver, sent_at zz, at zz or nothing, expires zz or nothing,
//!           known_as 16 and content 4 or nothing, group 8 and length or nothing, deliveries,
//!           source, offset, bytes, deliveries in other queues or nothing, dead: origin, reason, deliveries or nothing
//! ```
//!
//! Copies of messages to everybody that are not made are written as if they were.
//!
//! Times are as far from the checkpoint's own as they were then. A file is written under a number of its own and counts
//! when the manifest names it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use roaring::RoaringTreemap;

use super::entry::{COPY, Entry, NEVER, NOWHERE, Slab, State};
use super::pending::PendingBroadcast;
use super::settled::CopiedIds;
use super::source::{Medium, Sources};
use super::table::{Client, Counts, Queue};
use super::time::Now;
use super::{Broadcast, Dead, Queues};
use crate::embedded::disk::DiskFile;
use crate::embedded::file::varint;
use crate::embedded::record::{reason_number, write_rules, write_text};
use crate::embedded::rooms::Position;

pub(super) const MAGIC: [u8; 8] = *b"HubQueu\n";
pub(super) const HEADER_BYTES: usize = 12;
pub(super) const VERSION: u32 = 2;

/// Written at once.
const STEP_BYTES: usize = 1 << 20;

pub(super) const IN_JOURNAL: u64 = 0;
const IN_FILE: u64 = 1;

pub(super) const HAS_AT: u8 = 4;
pub(super) const HAS_EXPIRES: u8 = 8;
pub(super) const HAS_ID: u8 = 16;
pub(super) const HAS_GROUP: u8 = 32;
pub(super) const IS_DEAD: u8 = 64;
pub(super) const WAS_MOVED: u8 = 128;

/// What the manifest names of queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// Number of the checkpoint; 0 = there is none.
    pub(crate) snapshot: u64,
    /// Numbers of the files of payloads.
    pub(crate) texts: Vec<u64>,
    /// Numbers of the files of ids, oldest first.
    pub(crate) ids: Vec<u64>,
}

/// Everything at one moment.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(super) slab: Slab,
    pub(super) sources: Sources,
    queues: Vec<Queue>,
    clients: Vec<Client>,
    dead: HashMap<u64, Dead, crate::embedded::tail::hash::MixState>,
    earlier_deliveries: HashMap<u64, u64, crate::embedded::tail::hash::MixState>,
    broadcasts: Vec<(u64, Broadcast)>,
    pub(super) ids: CopiedIds,
    pub(super) pending: Vec<PendingBroadcast>,
    next_id: u64,
    next_queue: u32,
    highest_named: u64,
    at: Position,
    pub(super) now: Now,
    /// What of [`Queues::changes`] is in it.
    pub(super) changes: u64,
}

impl Queues {
    /// A copy of everything, which takes no longer than the names of queues and clients are many.
    pub(super) fn copied(&mut self, now: Now) -> Copied {
        let slim = |queue: &Queue| Queue {
            number: queue.number,
            name: Arc::clone(&queue.name),
            is_dead_letter: queue.is_dead_letter,
            settings: queue.settings.clone(),
            counts: queue.counts,
            all: RoaringTreemap::new(),
        };
        Copied {
            slab: self.slab.shared(),
            sources: self.sources.clone(),
            queues: self.queues.values().map(slim).collect(),
            clients: self.clients.clone(),
            dead: self.dead.clone(),
            earlier_deliveries: self.earlier_deliveries.clone(),
            broadcasts: self.broadcasts.iter().map(|(id, broadcast)| (*id, *broadcast)).collect(),
            ids: self.settled.copied(),
            pending: self.pending.iter().cloned().collect(),
            next_id: self.next_id,
            next_queue: self.next_queue,
            highest_named: self.highest_named,
            at: self.at,
            now,
            changes: self.changes,
        }
    }
}

/// A file being written: buffered, with its checksum.
pub(super) struct Output<'a> {
    file: &'a dyn DiskFile,
    pub(super) buffer: Vec<u8>,
    written: u64,
    crc32c: u32,
}

impl Output<'_> {
    fn flush(&mut self) -> std::io::Result<()> {
        self.crc32c = crc32c::crc32c_append(self.crc32c, &self.buffer);
        self.file.write_all_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        // Small steps, so that the journal's own syncs get through between them.
        self.file.sync_data()
    }

    pub(super) fn step(&mut self) -> std::io::Result<()> {
        if self.buffer.len() >= STEP_BYTES { self.flush() } else { Ok(()) }
    }
}

impl Copied {
    /// Writes everything, durably. Says how many bytes, and their checksum.
    pub(super) fn write(&self, file: &dyn DiskFile) -> std::io::Result<(u64, u32)> {
        let buffer = Vec::with_capacity(STEP_BYTES + 4_096);
        let mut out = Output { file, buffer, written: HEADER_BYTES as u64, crc32c: 0 };
        out.buffer.extend_from_slice(&VERSION.to_le_bytes());
        for number in [
            self.at.journal,
            self.at.batch.into(),
            varint::zigzag(self.now.wall),
            self.next_id,
            self.next_queue.into(),
            self.highest_named,
        ] {
            varint::write(number, &mut out.buffer);
        }
        let numbers = self.write_sources(&mut out.buffer);
        varint::write(self.clients.len() as u64, &mut out.buffer);
        for client in &self.clients {
            write_text(&client.name, &mut out.buffer);
            varint::write(client.is_registered.into(), &mut out.buffer);
            out.step()?;
        }
        varint::write(self.queues.len() as u64, &mut out.buffer);
        for queue in &self.queues {
            write_queue(queue, &mut out.buffer);
            out.step()?;
        }
        let known: HashSet<u32> = self.queues.iter().map(|queue| queue.number).collect();
        let kept = || self.slab.iter().filter_map(|(_, entry)| kept(entry, &known));
        let unmade: u64 = self.pending.iter().map(PendingBroadcast::unmade).sum();
        varint::write(kept().count() as u64 + unmade, &mut out.buffer);
        for copy in self.pending.iter().flat_map(PendingBroadcast::copies) {
            let source = numbers.get(&copy.source).copied().unwrap_or(u64::from(NOWHERE));
            self.write_entry(&copy, copy.at, source, &mut out.buffer);
            out.step()?;
        }
        for entry in kept() {
            // The rest of a message to everybody has no time of its own.
            let at = if entry.state == State::Gone { NEVER } else { entry.at };
            let source = numbers.get(&entry.source).copied().unwrap_or(u64::from(NOWHERE));
            self.write_entry(&entry, at, source, &mut out.buffer);
            out.step()?;
        }
        varint::write(self.broadcasts.len() as u64, &mut out.buffer);
        for (id, broadcast) in &self.broadcasts {
            varint::write(*id, &mut out.buffer);
            varint::write(broadcast.copies.into(), &mut out.buffer);
            varint::write(broadcast.waiting.into(), &mut out.buffer);
            out.step()?;
        }
        self.write_ids(&known, &mut out)?;
        out.flush()?;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&out.crc32c.to_le_bytes());
        file.write_all_at(&header, 0)?;
        file.sync_data()?;
        let body = usize::try_from(out.written).unwrap_or(usize::MAX).saturating_sub(HEADER_BYTES);
        Ok((out.written, crc32c::crc32c_combine(crc32c::crc32c(&header), out.crc32c, body)))
    }

    /// A payload stands in another source: that of an entry, or of the copies of a message that have none.
    pub(super) fn move_payload(&mut self, id: u64, number: Option<u32>, (source, offset): (u16, u32)) {
        let Some(number) = number else {
            let found = self.pending.iter_mut().find(|pending| pending.template.id == id);
            return found.into_iter().for_each(|one| one.move_payload(&mut self.sources, (source, offset)));
        };
        self.sources.leave(&self.slab.get(number));
        self.slab.edit(number, |entry| (entry.source, entry.offset) = (source, offset));
        self.sources.enter(&self.slab.get(number));
    }

    /// Those that anything stands in, with the numbers they have in the file.
    fn write_sources(&self, out: &mut Vec<u8>) -> HashMap<u16, u64> {
        let used: Vec<_> = self.sources.iter().filter(|(_, source)| source.messages > 0).collect();
        varint::write(used.len() as u64, out);
        let mut numbers = HashMap::new();
        for ((number, source), place) in used.into_iter().zip(0..) {
            let parts = match &source.medium {
                Medium::Slot(tail) => [IN_JOURNAL, tail.journal, 0, 0],
                Medium::Journal(journal) => [IN_JOURNAL, *journal, 0, 0],
                Medium::File(file) => [IN_FILE, file.number, file.bytes, file.crc32c.into()],
            };
            parts.iter().for_each(|part| varint::write(*part, out));
            numbers.insert(number, place);
        }
        numbers
    }

    fn write_entry(&self, entry: &Entry, at: i64, source: u64, out: &mut Vec<u8>) {
        let dead = self.dead.get(&entry.id).filter(|_| entry.is_alive());
        let earlier = self.earlier_deliveries.get(&entry.id).filter(|_| entry.is_alive());
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let (has_at, has_id) = (at != NEVER, entry.known_as != [0; 2]);
        let flags = entry.flags()
            | flag(has_at, HAS_AT)
            | flag(entry.expires != NEVER, HAS_EXPIRES)
            | flag(has_id, HAS_ID)
            | flag(entry.group != 0, HAS_GROUP)
            | flag(dead.is_some(), IS_DEAD)
            | flag(earlier.is_some(), WAS_MOVED);
        out.extend_from_slice(&[state_number(entry.state), flags]);
        varint::write(entry.id, out);
        for number in [entry.queue, entry.sender, entry.receiver] {
            varint::write(number.into(), out);
        }
        varint::write(varint::zigzag(entry.sent_at.wrapping_sub(self.now.wall)), out);
        for time in [at, entry.expires].into_iter().filter(|time| *time != NEVER) {
            varint::write(varint::zigzag(time.wrapping_sub(self.now.at)), out);
        }
        if has_id {
            entry.known_as.iter().for_each(|half| out.extend_from_slice(&half.to_le_bytes()));
            out.extend_from_slice(&entry.content.to_le_bytes());
        }
        if entry.group != 0 {
            out.extend_from_slice(&entry.group.to_le_bytes());
            varint::write(entry.group_bytes().into(), out);
        }
        varint::write(entry.deliveries.into(), out);
        varint::write(source, out);
        varint::write(entry.offset.into(), out);
        varint::write(entry.bytes.into(), out);
        if let Some(earlier) = earlier {
            varint::write(*earlier, out);
        }
        if let Some(dead) = dead {
            write_text(&dead.origin, out);
            out.push(reason_number(dead.reason));
            varint::write(dead.deliveries.into(), out);
        }
    }

    /// Up to where the journal is in it.
    #[cfg(test)]
    pub(super) fn position(&self) -> Position {
        self.at
    }

    /// Whether there never was a queue or a client.
    pub(super) fn is_blank(&self) -> bool {
        self.next_queue == 1 && self.clients.is_empty()
    }

    /// Numbers of the files that payloads stand in.
    pub(super) fn texts(&self) -> Vec<u64> {
        let files = self.sources.iter().filter(|(_, source)| source.messages > 0);
        let numbers = files.filter_map(|(_, source)| match &source.medium {
            Medium::File(file) => Some(file.number),
            Medium::Slot(_) | Medium::Journal(_) => None,
        });
        numbers.collect()
    }
}

/// An entry as it is written, if it is: with the queues that there are, or as what remembers the id of a message to
/// everybody. Other copies of it may wait elsewhere when its own queue is gone, as one for dead letters.
fn kept(entry: &Entry, queues: &HashSet<u32>) -> Option<Entry> {
    if queues.contains(&entry.queue) {
        return Some(*entry);
    }
    let remembers = entry.has(COPY) && entry.is_known();
    remembers.then_some(Entry { state: State::Gone, ..*entry })
}

fn write_queue(queue: &Queue, out: &mut Vec<u8>) {
    varint::write(queue.number.into(), out);
    write_text(&queue.name, out);
    varint::write(queue.is_dead_letter.into(), out);
    write_rules(&queue.settings, out);
    let Counts { sent, done, dropped, dead, .. } = queue.counts;
    [sent, done, dropped, dead].iter().for_each(|count| varint::write(*count, out));
}

const fn state_number(state: State) -> u8 {
    match state {
        State::Free => 0,
        State::Ready => 1,
        State::Delayed => 2,
        State::Leased => 3,
        State::Exhausted => 4,
        State::Expired => 5,
        State::Gone => 6,
    }
}
