//! Reads the state of all queues from a file; [`super::checkpoint`] has the format.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::Clock;
use hubbub_core::invariant::saturate;
use hubbub_core::queue::ID_KEPT_MS;
use roaring::RoaringTreemap;

use super::checkpoint::{
    Files, HAS_AT, HAS_EXPIRES, HAS_GROUP, HAS_ID, IN_JOURNAL, IS_DEAD, MAGIC, VERSION, WAS_MOVED,
};
use super::checkpoint_files::snapshot_path;
use super::entry::{COPY, Entry, LINKED, NEVER, NOWHERE, State};
use super::payload_files::open_payloads;
use super::settled::IdRun;
use super::source::Medium;
use super::table::{Counts, Queue};
use super::time::{Now, micros};
use super::{Broadcast, Dead, Queues};
use crate::embedded::disk::Disk;
use crate::embedded::error::{DoingOn, OpenError, READING};
use crate::embedded::file::{Cursor, varint};
use crate::embedded::record::{
    read_byte, read_choice, read_fingerprint, read_reason, read_rules, read_text, read_time, read_u32,
    read_u64,
};
use crate::embedded::rooms::Position;

/// Reads the checkpoint that the manifest names, if it names one.
pub(crate) fn read_checkpoint(
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
    queues.settled.runs = runs.collect::<Result<_, _>>()?;
    let path = snapshot_path(files.snapshot);
    let damaged = |what: &str| OpenError::Damaged { file: path.clone(), offset: 0, what: what.into() };
    let file = disk.open(&path).doing(READING, &path)?;
    let mut bytes = vec![0; saturate(file.len().doing(READING, &path)?)];
    file.read_exact_at(&mut bytes, 0).doing(READING, &path)?;
    let mut header = Cursor::new(&bytes);
    let is_whole = header.array() == Some(MAGIC) && header.u32() == Some(crc32c::crc32c(header.rest()));
    let version = header.u32().filter(|_| is_whole).ok_or_else(|| damaged("its checksum is wrong"))?;
    if version > VERSION {
        return Err(OpenError::NewerFormat { found: version.into(), known: VERSION.into() });
    }
    let input = &mut header.rest();
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
    /// Says what the wall clock said when the checkpoint was made.
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
            let parts = (next(), next(), next(), read_u32(input));
            numbers.push(self.sources.add(match parts {
                (Some(IN_JOURNAL), Some(number), Some(_), Some(_)) => Medium::Journal(number),
                (Some(_), Some(number), Some(bytes), Some(crc)) => {
                    Medium::File(Arc::new(open_payloads(disk, number, bytes, crc)?))
                }
                _ => return Ok(None),
            }));
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
            let (entry, earlier, dead) = read_entry(input, sources, written, now)?;
            self.earlier_deliveries.extend(earlier.map(|earlier| (entry.id, earlier)));
            self.dead.extend(dead.map(|dead| (entry.id, dead)));
            let number = if entry.state == State::Gone {
                let number = self.slab.add(entry);
                self.remember_sender_id(number, &entry);
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

/// A message, its deliveries in other queues, and why it is in a dead-letter queue.
type ReadEntry = (Entry, Option<u64>, Option<Dead>);

fn read_entry(input: &mut &[u8], sources: &[u16], written: i64, now: Now) -> Option<ReadEntry> {
    let state = read_choice(&State::ALL, input).filter(|state| *state != State::Free)?;
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
        Some(now.end_of(written, saturate::<_, u64>(read_time(input)?)))
    };
    (entry.at, entry.expires) = (time(HAS_AT)?, time(HAS_EXPIRES)?);
    if flags & HAS_ID != 0 {
        (entry.known_as, entry.content) = read_fingerprint(input)?;
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
    let dead = if flags & IS_DEAD == 0 { None } else { Some(read_dead(input)?) };
    Some((entry, earlier, dead))
}

fn read_dead(input: &mut &[u8]) -> Option<Dead> {
    let origin = Arc::from(read_text(input)?);
    Some(Dead { origin, reason: read_reason(input)?, deliveries: read_u32(input)? })
}
