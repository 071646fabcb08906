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

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use hubbub_core::invariant::saturate;
use roaring::{RoaringBitmap, RoaringTreemap};

use super::entry::{COPY, Entry, NEVER, NOWHERE, Slab, State};
use super::pending::PendingBroadcast;
use super::settled::SettledIds;
use super::source::{Medium, Sources};
use super::table::{Counts, Queue};
use super::time::Now;
use super::{Broadcast, Dead, IdMap, Queues};
use crate::embedded::disk::DiskFile;
use crate::embedded::file::{Output, varint};
use crate::embedded::record::{write_fingerprint, write_rules, write_text};
use crate::embedded::rooms::Position;

pub(super) const MAGIC: [u8; 8] = *b"HubQueu\n";
pub(super) const HEADER_BYTES: usize = 12;
pub(super) const VERSION: u32 = 2;

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
    clients: Vec<Arc<str>>,
    registered: RoaringBitmap,
    dead: IdMap<Dead>,
    earlier_deliveries: IdMap<u64>,
    broadcasts: IdMap<Broadcast>,
    pub(super) ids: SettledIds,
    pub(super) pending: VecDeque<PendingBroadcast>,
    next_id: u64,
    next_queue: u32,
    highest_named: u64,
    pub(super) at: Position,
    pub(super) now: Now,
    /// What of [`Queues::changes`] is in it.
    pub(super) changes: u64,
}

impl Queues {
    /// A copy of everything, which takes no longer than the names of queues and clients are many.
    pub(super) fn copied(&mut self, now: Now) -> Copied {
        let slim = |queue: &Queue| Queue {
            name: Arc::clone(&queue.name),
            settings: queue.settings.clone(),
            all: RoaringTreemap::new(),
            ..*queue
        };
        Copied {
            slab: self.slab.shared(),
            sources: self.sources.clone(),
            queues: self.queues.values().map(slim).collect(),
            clients: self.clients.clone(),
            registered: self.registered.clone(),
            dead: self.dead.clone(),
            earlier_deliveries: self.earlier_deliveries.clone(),
            broadcasts: self.broadcasts.clone(),
            ids: self.settled.copied(),
            pending: self.pending.clone(),
            next_id: self.next_id,
            next_queue: self.next_queue,
            highest_named: self.highest_named,
            at: self.at,
            now,
            changes: self.changes,
        }
    }
}

/// Appends a list of so many items, and what `write` appends for each.
pub(super) fn write_list<T>(
    out: &mut Output,
    count: usize,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(T, &mut Vec<u8>),
) -> io::Result<()> {
    out.append(|out| varint::write(count as u64, out))?;
    items.into_iter().try_for_each(|item| out.append(|out| write(item, out)))
}

fn write_numbers(numbers: &[u64], out: &mut Vec<u8>) {
    numbers.iter().for_each(|number| varint::write(*number, out));
}

impl Copied {
    /// Writes everything, durably. Says how many bytes, and their checksum.
    pub(super) fn write(&self, file: &Arc<dyn DiskFile>) -> io::Result<(u64, u32)> {
        let out = &mut Output::behind(Arc::clone(file), HEADER_BYTES as u64);
        let (Position { journal, batch }, wall) = (self.at, varint::zigzag(self.now.wall));
        out.append(|out| {
            out.extend_from_slice(&VERSION.to_le_bytes());
            let next_queue = self.next_queue.into();
            write_numbers(&[journal, batch.into(), wall, self.next_id, next_queue, self.highest_named], out);
        })?;
        let sources: Vec<_> = self.sources.used().collect();
        write_list(out, sources.len(), &sources, |(_, source), out| {
            let parts = match &source.medium {
                Medium::Slot(tail) => [IN_JOURNAL, tail.journal, 0, 0],
                Medium::Journal(journal) => [IN_JOURNAL, *journal, 0, 0],
                Medium::File(file) => [IN_FILE, file.number, file.bytes, file.crc32c.into()],
            };
            write_numbers(&parts, out);
        })?;
        write_list(out, self.clients.len(), (1..).zip(&self.clients), |(number, name), out| {
            write_text(name, out);
            varint::write(self.registered.contains(number).into(), out);
        })?;
        write_list(out, self.queues.len(), &self.queues, write_queue)?;
        let known: HashSet<u32> = self.queues.iter().map(|queue| queue.number).collect();
        let unmade = self.pending.iter().flat_map(PendingBroadcast::copies);
        let kept = || self.slab.iter().filter_map(|(_, entry)| kept(entry, &known));
        let messages =
            kept().count() + saturate::<u64, usize>(self.pending.iter().map(PendingBroadcast::unmade).sum());
        // The numbers that sources have in the file.
        let numbers: HashMap<u16, u64> = sources.iter().map(|(number, _)| *number).zip(0..).collect();
        write_list(out, messages, unmade.chain(kept()), |entry, out| {
            let source = numbers.get(&entry.source).copied().unwrap_or(u64::from(NOWHERE));
            self.write_entry(&entry, source, out);
        })?;
        write_list(out, self.broadcasts.len(), &self.broadcasts, |(id, broadcast), out| {
            write_numbers(&[*id, broadcast.copies.into(), broadcast.waiting.into()], out);
        })?;
        self.write_ids(&known, out)?;
        out.sync()?;
        let header = [&MAGIC[..], &out.crc().to_le_bytes()].concat();
        file.write_all_at(&header, 0)?;
        file.sync_data()?;
        let body: usize = saturate(out.position() - HEADER_BYTES as u64);
        Ok((out.position(), crc32c::crc32c_combine(crc32c::crc32c(&header), out.crc(), body)))
    }

    fn write_entry(&self, entry: &Entry, source: u64, out: &mut Vec<u8>) {
        let dead = self.dead.get(&entry.id).filter(|_| entry.is_alive());
        let earlier = self.earlier_deliveries.get(&entry.id).filter(|_| entry.is_alive());
        let has_id = entry.known_as != [0; 2];
        let parts = [
            (entry.at != NEVER, HAS_AT),
            (entry.expires != NEVER, HAS_EXPIRES),
            (has_id, HAS_ID),
            (entry.group != 0, HAS_GROUP),
            (dead.is_some(), IS_DEAD),
            (earlier.is_some(), WAS_MOVED),
        ];
        let flags =
            parts.into_iter().filter(|(has, _)| *has).fold(entry.flags(), |flags, (_, flag)| flags | flag);
        out.extend_from_slice(&[entry.state as u8, flags]);
        let sent_at = varint::zigzag(entry.sent_at.wrapping_sub(self.now.wall));
        write_numbers(
            &[entry.id, entry.queue.into(), entry.sender.into(), entry.receiver.into(), sent_at],
            out,
        );
        for time in [entry.at, entry.expires].into_iter().filter(|time| *time != NEVER) {
            varint::write(varint::zigzag(time.wrapping_sub(self.now.at)), out);
        }
        if has_id {
            write_fingerprint(&(entry.known_as, entry.content), out);
        }
        if entry.group != 0 {
            out.extend_from_slice(&entry.group.to_le_bytes());
            varint::write(entry.group_bytes().into(), out);
        }
        write_numbers(&[entry.deliveries.into(), source, entry.offset.into(), entry.bytes.into()], out);
        if let Some(earlier) = earlier {
            varint::write(*earlier, out);
        }
        if let Some(dead) = dead {
            write_text(&dead.origin, out);
            out.push(dead.reason as u8);
            varint::write(dead.deliveries.into(), out);
        }
    }

    /// Whether there never was a queue or a client.
    pub(super) fn is_blank(&self) -> bool {
        self.next_queue == 1 && self.clients.is_empty()
    }

    pub(super) fn texts(&self) -> Vec<u64> {
        self.sources.used().filter_map(|(_, source)| Some(source.medium.file()?.number)).collect()
    }
}

/// An entry as it is written, if it is: with the queues that there are, or as what remembers the id of a message to
/// everybody. Other copies of it may wait elsewhere when its own queue is gone, as one for dead letters.
fn kept(entry: &Entry, queues: &HashSet<u32>) -> Option<Entry> {
    let mut entry = *entry;
    if !queues.contains(&entry.queue) {
        if !entry.has(COPY) || !entry.is_known() {
            return None;
        }
        entry.state = State::Gone;
    }
    if entry.state == State::Gone {
        // The rest of a message to everybody has no time of its own.
        entry.at = NEVER;
    }
    Some(entry)
}

fn write_queue(queue: &Queue, out: &mut Vec<u8>) {
    varint::write(queue.number.into(), out);
    write_text(&queue.name, out);
    varint::write(queue.is_dead_letter.into(), out);
    write_rules(&queue.settings, out);
    let Counts { sent, done, dropped, dead, .. } = queue.counts;
    write_numbers(&[sent, done, dropped, dead], out);
}
