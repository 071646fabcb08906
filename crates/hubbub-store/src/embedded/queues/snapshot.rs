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
//! Times are as far from the snapshot's own as they were then. A file is written under a number of its own and counts
//! when the manifest names it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hubbub_core::Clock;
use hubbub_core::queue::ID_KEPT_MS;
use roaring::RoaringTreemap;

use super::entry::{COPY, Entry, LINKED, NEVER, NOWHERE, Slab, State};
use super::keep::{open_texts, snapshot_path};
use super::pending::PendingBroadcast;
use super::settled::{CopiedIds, IdRun};
use super::source::{Medium, Sources};
use super::table::{Client, Counts, Queue};
use super::time::{Now, micros};
use super::{Broadcast, Dead, Queues};
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::error::OpenError;
use crate::embedded::file::varint;
use crate::embedded::record::{
    read_byte, read_rules, read_text, read_time, read_u32, reason_number, reason_of, take_u32, write_rules,
    write_text,
};
use crate::embedded::rooms::Position;

const MAGIC: [u8; 8] = *b"HubQueu\n";
const HEADER_BYTES: usize = 12;
const VERSION: u32 = 2;

/// Written at once.
const STEP_BYTES: usize = 1 << 20;

const IN_JOURNAL: u64 = 0;
const IN_FILE: u64 = 1;

const HAS_AT: u8 = 4;
const HAS_EXPIRES: u8 = 8;
const HAS_ID: u8 = 16;
const HAS_GROUP: u8 = 32;
const IS_DEAD: u8 = 64;
const WAS_MOVED: u8 = 128;

/// What the manifest names of queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// Number of the snapshot; 0 = there is none.
    pub(crate) snapshot: u64,
    /// Numbers of the files of texts.
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

    /// A text stands in another source: that of an entry, or of the copies of a message that have none.
    pub(super) fn move_text(&mut self, id: u64, number: Option<u32>, (source, offset): (u16, u32)) {
        let Some(number) = number else {
            let found = self.pending.iter_mut().find(|pending| pending.template.id == id);
            return found.into_iter().for_each(|one| one.move_text(&mut self.sources, (source, offset)));
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

    /// Numbers of the files that texts stand in.
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

/// Reads the snapshot that the manifest names, if it names one.
pub(crate) fn read_snapshot(
    disk: &dyn Disk,
    files: &Files,
    key: [u64; 2],
    clock: &dyn Clock,
) -> Result<Queues, OpenError> {
    let mut queues = Queues::new(key, clock);
    if files.snapshot == 0 {
        return Ok(queues);
    }
    let now = queues.times.for_loading(clock);
    let runs = files.ids.iter().map(|number| IdRun::open(disk, *number, now));
    queues.settled.set_runs(runs.collect::<Result<_, _>>()?);
    let path = snapshot_path(files.snapshot);
    let damaged = |what: &str| OpenError::Damaged { file: path.clone(), offset: 0, what: what.into() };
    let unreadable =
        |source| OpenError::Unreadable { attempted: "reading", path: path.clone().into(), source };
    let file = disk.open(&path).map_err(unreadable)?;
    let mut bytes = vec![0; usize::try_from(file.len().map_err(unreadable)?).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0).map_err(unreadable)?;
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| damaged("it is cut short"))?;
    let (crc, body) = rest.split_first_chunk::<4>().ok_or_else(|| damaged("it is cut short"))?;
    if *magic != MAGIC || crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(damaged("its checksum is wrong"));
    }
    let (version, mut body) = body.split_first_chunk::<4>().ok_or_else(|| damaged("it is cut short"))?;
    let version = u32::from_le_bytes(*version);
    if version > VERSION {
        return Err(OpenError::NewerFormat { found: version.into(), known: VERSION.into() });
    }
    let input = &mut body;
    let misfit = || damaged("its parts do not fit together");
    let written = queues.read_head(input).ok_or_else(misfit)?;
    let sources = queues.read_sources(disk, input)?.ok_or_else(misfit)?;
    queues.read_rest(input, &sources, written, now).ok_or_else(misfit)?;
    if !input.is_empty() {
        return Err(misfit());
    }
    Ok(queues)
}

impl Queues {
    /// Says what the wall clock said when the snapshot was made.
    fn read_head(&mut self, input: &mut &[u8]) -> Option<i64> {
        self.at = Position { journal: varint::read(input)?, batch: read_u32(input)? };
        let written = read_time(input)?;
        self.next_id = varint::read(input)?;
        self.next_queue = read_u32(input)?;
        self.highest_named = varint::read(input)?;
        Some(written)
    }

    /// Numbers of the sources, in the order of the file.
    fn read_sources(&mut self, disk: &dyn Disk, input: &mut &[u8]) -> Result<Option<Vec<u16>>, OpenError> {
        let (mut numbers, Some(count)) = (Vec::new(), varint::read(input)) else { return Ok(None) };
        for _ in 0..count {
            let mut next = || varint::read(input);
            let (Some(kind), Some(number), Some(bytes), Some(crc)) = (next(), next(), next(), next()) else {
                return Ok(None);
            };
            let medium = if kind == IN_JOURNAL {
                Medium::Journal(number)
            } else {
                Medium::File(Arc::new(open_texts(disk, number, bytes, u32::try_from(crc).unwrap_or(0))?))
            };
            numbers.push(self.sources.add(medium));
        }
        Ok(Some(numbers))
    }

    fn read_rest(&mut self, input: &mut &[u8], sources: &[u16], written: i64, now: Now) -> Option<()> {
        for number in (1..).take(usize::try_from(varint::read(input)?).ok()?) {
            let name = read_text(input)?;
            self.set_client(number, name, varint::read(input)? != 0);
        }
        for _ in 0..varint::read(input)? {
            let queue = read_queue(input)?;
            self.add_queue(queue);
        }
        let (mut first_copies, mut offered) = (HashMap::new(), Vec::new());
        let mut waiting: HashMap<u64, u32> = HashMap::new();
        for _ in 0..varint::read(input)? {
            let ReadEntry { entry, earlier, dead } = read_entry(input, sources, written, now)?;
            if let Some(earlier) = earlier {
                self.earlier_deliveries.insert(entry.id, earlier);
            }
            if let Some(dead) = dead {
                self.dead.insert(entry.id, dead);
            }
            let number = if entry.state == State::Gone {
                let number = self.slab.add(entry);
                self.know(number, &entry);
                number
            } else {
                self.add_many(entry, &mut offered)
            };
            if entry.has(COPY) && entry.state != State::Gone {
                let first = if entry.has(LINKED) { entry.known_as[1] } else { entry.id };
                *waiting.entry(first).or_default() += 1;
            }
            if entry.has(COPY) && !entry.has(LINKED) {
                first_copies.insert(entry.id, number);
            }
        }
        self.offer_many(&offered);
        for _ in 0..varint::read(input)? {
            let id = varint::read(input)?;
            let (copies, _) = (read_u32(input)?, read_u32(input)?);
            let Some(entry) = first_copies.get(&id).copied() else { continue };
            // Copies in deleted queues are left out.
            let waiting = waiting.get(&id).copied().unwrap_or(0);
            self.broadcasts.insert(id, Broadcast { copies, waiting, entry });
            if waiting == 0 {
                let until = now.end_of(now.wall, micros(ID_KEPT_MS));
                self.remember(entry, &self.slab.get(entry), Some(until));
            }
        }
        self.read_ids(input, written, now)
    }
}

fn read_queue(input: &mut &[u8]) -> Option<Queue> {
    let number = read_u32(input)?;
    let name = Arc::from(read_text(input)?);
    let is_dead_letter = varint::read(input)? != 0;
    let settings = read_rules(input)?;
    let mut count = || varint::read(input);
    let (sent, done, dropped, dead) = (count()?, count()?, count()?, count()?);
    let counts = Counts { sent, done, dropped, dead, ..Counts::default() };
    Some(Queue { number, name, is_dead_letter, settings, counts, all: RoaringTreemap::new() })
}

/// A message as a snapshot has it.
struct ReadEntry {
    entry: Entry,
    /// Deliveries in other queues.
    earlier: Option<u64>,
    dead: Option<Dead>,
}

fn read_entry(input: &mut &[u8], sources: &[u16], written: i64, now: Now) -> Option<ReadEntry> {
    let state = state_of(read_byte(input)?)?;
    let flags = read_byte(input)?;
    let mut entry = Entry {
        state,
        id: varint::read(input)?,
        queue: read_u32(input)?,
        sender: read_u32(input)?,
        receiver: read_u32(input)?,
        sent_at: written.wrapping_add(read_time(input)?),
        ..Entry::FREE
    };
    // What was over then is over now.
    let mut time = |has: u8| {
        if flags & has == 0 {
            return Some(NEVER);
        }
        Some(now.end_of(written, u64::try_from(read_time(input)?).unwrap_or(0)))
    };
    (entry.at, entry.expires) = (time(HAS_AT)?, time(HAS_EXPIRES)?);
    if flags & HAS_ID != 0 {
        for half in &mut entry.known_as {
            *half = read_u64(input)?;
        }
        entry.content = take_u32(input)?;
    }
    let mut group_bytes = 0;
    if flags & HAS_GROUP != 0 {
        entry.group = read_u64(input)?;
        group_bytes = read_u32(input)?;
    }
    entry.set_packed(usize::try_from(group_bytes).ok()?, flags & (COPY | LINKED));
    entry.deliveries = read_u32(input)?;
    let source = usize::try_from(varint::read(input)?).ok()?;
    entry.source = sources.get(source).copied().unwrap_or(NOWHERE);
    entry.offset = read_u32(input)?;
    entry.bytes = read_u32(input)?;
    let earlier = if flags & WAS_MOVED == 0 { None } else { Some(varint::read(input)?) };
    if flags & IS_DEAD == 0 {
        return Some(ReadEntry { entry, earlier, dead: None });
    }
    let origin = Arc::from(read_text(input)?);
    let reason = reason_of(read_byte(input)?)?;
    let dead = Some(Dead { origin, reason, deliveries: read_u32(input)? });
    Some(ReadEntry { entry, earlier, dead })
}

pub(super) fn read_u64(input: &mut &[u8]) -> Option<u64> {
    let (bytes, rest) = input.split_first_chunk::<8>()?;
    *input = rest;
    Some(u64::from_le_bytes(*bytes))
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

const fn state_of(number: u8) -> Option<State> {
    match number {
        1 => Some(State::Ready),
        2 => Some(State::Delayed),
        3 => Some(State::Leased),
        4 => Some(State::Exhausted),
        5 => Some(State::Expired),
        6 => Some(State::Gone),
        _ => None,
    }
}
