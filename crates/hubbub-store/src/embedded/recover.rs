//! From what a crash left to a working engine.
//!
//! Path: `FORMAT` and manifest are read, or made in an empty directory, and written again → files that no manifest names
//! are removed → segments are opened → slots are read and the chain of unsealed journals is found ([`scan`]), which must
//! reach the recorded end ([`end`](super::journal::end)) → what stands behind that is written again and synced → records
//! fill tails, heads and ids again → the new end is recorded → writing goes on in a fresh slot with a new journal number.
//!
//! What the process before wrote last may be visible and yet not on the disk, if a sync failed. Nobody can see that, and a
//! sync of what is there already does not help: so whatever a start relies on and nothing proves durable is written
//! or named again. Segments, runs and files of queues are not: a manifest names them only after their syncs succeeded.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hubbub_core::{Clock, RandomSource, Timestamp};
use parking_lot::{Mutex, RwLock};

use super::bell::Bell;
use super::dedup::Dedup;
use super::dir_syncs::CheckedDirs;
use super::disk::Disk;
use super::error::{DoingOn, OpenError};
use super::format;
use super::journal::block;
use super::journal::end::{EndFile, JournalEnd, end_path};
use super::journal::scan::{self, Chain, Unsealed};
use super::journal::slot::{Slot, SlotPool};
use super::journal::{JOURNAL_DIR, slot_number, slot_path};
use super::kv::tail::Written;
use super::kv::{KV_DIR, Keys, OpenedKeys, REVISION_JUMP};
use super::manifest::{MANIFEST, Manifest};
use super::options::{Durability, EngineOptions, SLOTS_MAX};
use super::queues::{QUEUES_DIR, QueueShared, Queues, read_snapshot};
use super::record::{self, Record, TIME_BYTES, TimeProven};
use super::rooms::{Position, Room, RoomNumber, Rooms};
use super::segment::{BlockCache, IdHasher, SEGMENTS_DIR, Segment, segment_path};
use super::shared::Shared;
use super::stats::Stats;
use super::status::{Status, SyncTimes};
use super::tail::{Place, Tail};
use super::view::View;
use super::writer::{Head, Scratch, WritePlace, Writer};

/// Opens the data directory, or makes one where there is none.
pub(crate) fn open(
    options: EngineOptions,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    random: &dyn RandomSource,
) -> Result<(Shared, Writer), OpenError> {
    let options = options.within_bounds();
    let dirs = Arc::new(CheckedDirs::new(disk));
    let disk: Arc<dyn Disk> = Arc::clone(&dirs) as _;
    let (mut manifest, is_there) = load_or_create(&*disk, random)?;
    // What an earlier process replaced may not be durable. Until it is, nothing that the manifest before it names may be
    // removed or overwritten. On a full disk that comes later, and writes are refused until then.
    if let Err(error) = format::create(&*disk).and_then(|()| manifest.store(&*disk)) {
        if !error.is_disk_full() || !is_there {
            return Err(error.into());
        }
        tracing::warn!("the disk is full, so nothing is written until there is space: {error}");
        dirs.keep_all(true);
    }
    let (end, recorded) = EndFile::open(&*disk, manifest.block_seed)?;
    let cache = BlockCache::new(options.block_cache_bytes);
    let hasher = IdHasher::new(manifest.id_key);
    let segments = open_segments(&*disk, &manifest, &cache)?;
    let OpenedKeys { keys, runs, log } = Keys::open(&*disk, &manifest.keys, hasher, &options)?;
    let mut chain = read_slots(&*disk, &manifest, &recorded)?;
    name_anew(&*disk, &mut chain)?;

    let slots = Arc::new(SlotPool::new(Arc::clone(&disk), options.slot_bytes, SLOTS_MAX));
    let mut dedup = Dedup::new(hasher, options.slot_messages_max());
    for segment in &segments {
        dedup.learn(segment)?;
    }
    let mut rooms = Rooms::decode(&std::mem::take(&mut manifest.rooms)).ok_or_else(|| {
        OpenError::Damaged { file: MANIFEST.into(), offset: 0, what: "its rooms do not fit together".into() }
    })?;
    manifest.queues.remove_others(&*disk)?;
    clock.begin_at(last_proven(&chain, &manifest)?);
    let mut queues = read_snapshot(&*disk, &manifest.queues, manifest.id_key, &*clock)?;
    queues.set_limits(options.queue_limits());
    let Chain { unsealed, free, newest, lost } = chain;
    for slot in free {
        drop(slots.adopt(slot));
    }
    let mut prior = (manifest.applied, 0);
    let mut last = JournalEnd::sealed(manifest.applied);
    let mut view = View { segments, runs, key_log: log, tails: Vec::new() };
    for journal in unsealed {
        prior = (journal.journal, u32::try_from(journal.blocks.len()).unwrap_or(u32::MAX));
        last = journal.last().unwrap_or(last);
        let state = State { rooms: &mut rooms, keys: &keys, dedup: &mut dedup, queues: &mut queues };
        let tail = replay(journal, &recorded, &manifest, &slots, &*clock, state)?;
        view.tails.push(tail);
    }
    let may_be_lost = lost || manifest.unsynced;
    let missing = queues.forget_missing(may_be_lost);
    if missing > 0 && !may_be_lost {
        let what = format!("texts of {missing} messages of queues stand in journals that are in no slot");
        return Err(OpenError::Damaged { file: JOURNAL_DIR.into(), offset: 0, what });
    }
    if may_be_lost {
        forget_lost(&view, &mut rooms);
        queues.set_position(Position { journal: newest, batch: u32::MAX });
        // They may have been further than any journal that is left, whose numbers are used again.
        rooms.set_position(Position { journal: newest, batch: u32::MAX });
        manifest.keys.revision = keys.revision().saturating_add(REVISION_JUMP);
        keys.jump_to(manifest.keys.revision);
    }
    manifest.rooms = rooms.encode();
    renew_epoch(&mut manifest, &options, lost, &*disk, random)?;
    manifest.rooms = Vec::new();

    let heads: Vec<Head> = rooms.all().iter().map(Head::of).collect();
    let epoch: Arc<str> = Arc::from(manifest.epoch());
    let block_seed = manifest.block_seed;
    let queues = QueueShared::new(queues, &epoch, options.queue_ids_in_memory, &*clock);
    let status = Status::default();
    status.sealed_through.store(manifest.applied, Ordering::Release);
    let shared = Shared {
        options,
        disk,
        dirs,
        clock,
        epoch,
        hasher,
        cache,
        slots,
        end,
        catalog: Mutex::new(manifest),
        rooms: RwLock::new(rooms),
        queues,
        view: RwLock::new(Arc::new(view)),
        status,
        keys,
        stats: Stats::new(block_seed),
        fresh_filter: Mutex::default(),
        bell: Bell::default(),
        sealing: Mutex::default(),
        compacting: Mutex::default(),
    };
    if lost {
        // Sealed now, what is left cannot be taken for damaged, nor what is void for acknowledged, by later starts.
        while shared.seal_oldest()? {}
        shared.change_manifest(|manifest| manifest.applied = newest)?;
        shared.status.sealed_through.store(newest, Ordering::Release);
        dedup.forget_sealed(newest);
        prior = (newest, 0);
        last = JournalEnd::sealed(newest);
    }
    let slot = loop {
        if let Some(slot) = shared.slots.take() {
            break slot;
        }
        // Starts that end soon leave a slot each; when all are in use, some must be sealed now.
        if !shared.slots.wants_one() {
            shared.seal_oldest()?;
            dedup.forget_sealed(shared.status.sealed_through.load(Ordering::Acquire));
        }
        shared.slots.prepare()?;
    };
    let tail = Arc::new(Tail::new(newest + 1, slot));
    dedup.begin_slot(Arc::clone(&tail));
    shared.change_view(|view| view.tails.push(Arc::clone(&tail)));
    let begun = shared.clock.monotonic();
    let place = WritePlace { tail, position: 0, batch: 1, prior, messages: 0, begun };
    shared.end.record(last)?;
    let writer = Writer {
        place,
        end: last,
        dedup,
        heads,
        revision: shared.keys.revision(),
        block_seed,
        sync_times: SyncTimes::default(),
        proven: None,
        batches: 0,
        scratch: Scratch::default(),
    };
    Ok((shared, writer))
}

/// The manifest, and whether it was there.
fn load_or_create(disk: &dyn Disk, random: &dyn RandomSource) -> Result<(Manifest, bool), OpenError> {
    for dir in [JOURNAL_DIR, SEGMENTS_DIR, KV_DIR, QUEUES_DIR] {
        disk.make_dir(dir).doing("making the directory", dir)?;
    }
    let has_format = format::check(disk)?;
    if let Some(manifest) = Manifest::load(disk)? {
        return if has_format { Ok((manifest, true)) } else { Err(lost_file(format::FORMAT)) };
    }
    for dir in [JOURNAL_DIR, SEGMENTS_DIR, KV_DIR, QUEUES_DIR] {
        let names = disk.list(dir).doing("listing the directory", dir)?;
        // The record of the journal's end is made before the manifest.
        if names.iter().any(|name| format!("{dir}/{name}") != end_path()) {
            return Err(lost_file(MANIFEST));
        }
    }
    let manifest = Manifest {
        epoch: random.next_u64(),
        id_key: [random.next_u64(), random.next_u64()],
        block_seed: u32::try_from(random.next_u64() >> 32).unwrap_or(0),
        next_segment: 1,
        rooms: Rooms::default().encode(),
        ..Manifest::default()
    };
    EndFile::create(disk, manifest.block_seed, &JournalEnd::default())?;
    disk.sync_dir(JOURNAL_DIR).doing("syncing the directory", JOURNAL_DIR)?;
    Ok((manifest, false))
}

fn lost_file(file: &str) -> OpenError {
    OpenError::Damaged { file: file.into(), offset: 0, what: "it is missing, but there is data".into() }
}

/// Removes what unfinished seals, merges and removals left, then opens what counts.
fn open_segments(
    disk: &dyn Disk,
    manifest: &Manifest,
    cache: &Arc<BlockCache>,
) -> Result<Vec<Segment>, OpenError> {
    let named: HashSet<String> = manifest.segments.iter().map(|number| segment_path(*number)).collect();
    for name in disk.list(SEGMENTS_DIR).doing("listing the directory", SEGMENTS_DIR)? {
        let path = format!("{SEGMENTS_DIR}/{name}");
        let is_segment = name.ends_with(".seg") || name.ends_with(".tmp");
        if is_segment && !named.contains(&path) {
            disk.remove(&path).doing("removing", &path)?;
        }
    }
    manifest.segments.iter().map(|number| Ok(Segment::open(disk, *number, Arc::clone(cache))?)).collect()
}

/// Gives slots whose content does not count other names: those they have may not be durable, and a later sync of the
/// directory makes only new names so. The other slots were written to, which is done under a durable name only.
fn name_anew(disk: &dyn Disk, chain: &mut Chain) -> Result<(), OpenError> {
    let numbers = |slots: &[Slot]| slots.iter().map(|slot| slot.number).collect::<Vec<_>>();
    let mut taken: HashSet<u32> = chain.unsealed.iter().map(|journal| journal.slot.number).collect();
    taken.extend(numbers(&chain.free));
    for slot in &mut chain.free {
        let Some(number) = (1..).find(|number| !taken.contains(number)) else { continue };
        let (from, to) = (slot_path(slot.number), slot_path(number));
        disk.rename(&from, &to).doing("renaming", &from)?;
        taken.insert(number);
        slot.number = number;
    }
    if !chain.free.is_empty() {
        disk.sync_dir(JOURNAL_DIR).doing("syncing the directory", JOURNAL_DIR)?;
    }
    Ok(())
}

/// Reads all slots and finds the journals in them; everything up to `recorded` must be there.
pub(crate) fn read_slots(
    disk: &dyn Disk,
    manifest: &Manifest,
    recorded: &JournalEnd,
) -> Result<Chain, OpenError> {
    let mut names = disk.list(JOURNAL_DIR).doing("listing the directory", JOURNAL_DIR)?;
    names.sort_unstable();
    let mut scans = Vec::new();
    let mut bytes = Vec::new();
    for number in names.iter().filter_map(|name| slot_number(name)) {
        let path = slot_path(number);
        let file = disk.open(&path).doing("opening", &path)?;
        let length = file.len().doing("measuring", &path)?;
        let slot = Slot { number, file, bytes: length };
        read_slot(&slot, length, &mut bytes)?;
        scans.push(scan::scan(slot, &bytes, manifest.applied, manifest.block_seed));
    }
    scan::chain(scans, manifest.applied, recorded)
}

pub(crate) fn read_slot(slot: &Slot, end: u64, bytes: &mut Vec<u8>) -> Result<(), OpenError> {
    bytes.resize(usize::try_from(end).unwrap_or(usize::MAX), 0);
    slot.file.read_exact_at(bytes, 0).doing("reading", &slot_path(slot.number))?;
    Ok(())
}

/// Makes durable what stands behind the recorded end. After a failed sync the system shows bytes that are not on the
/// disk, and a later sync does not write them; so they are written again.
fn rewrite(journal: &Unsealed, recorded: &JournalEnd, bytes: &[u8]) -> Result<(), OpenError> {
    let from = journal.unproven_from(recorded);
    let unproven = usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or_default();
    if unproven.is_empty() {
        return Ok(());
    }
    let (path, file) = (slot_path(journal.slot.number), &journal.slot.file);
    file.write_all_at(unproven, from).doing("writing", &path)?;
    Ok(file.sync_data().doing("syncing", &path)?)
}

/// The last proven time on the disk: the newest journal's, or the manifest's. `None` in a new data directory.
fn last_proven(chain: &Chain, manifest: &Manifest) -> Result<Option<Timestamp>, OpenError> {
    let mut begin = vec![0; block::HEADER_BYTES + TIME_BYTES];
    for journal in chain.unsealed.iter().rev() {
        for start in journal.blocks.iter().rev() {
            let end = start.saturating_add(begin.len() as u64);
            if end > journal.end {
                continue;
            }
            let path = slot_path(journal.slot.number);
            journal.slot.file.read_exact_at(&mut begin, *start).doing("reading", &path)?;
            let mut records = begin.get(block::HEADER_BYTES..).unwrap_or_default();
            if let Some(TimeProven(time)) = TimeProven::read(&mut records) {
                return Ok(Some(time));
            }
        }
    }
    Ok(manifest.proven)
}

/// What records are entered into.
struct State<'a> {
    rooms: &'a mut Rooms,
    keys: &'a Keys,
    dedup: &'a mut Dedup,
    queues: &'a mut Queues,
}

/// Brings the records of a journal back into memory.
fn replay(
    journal: Unsealed,
    recorded: &JournalEnd,
    manifest: &Manifest,
    slots: &Arc<SlotPool>,
    clock: &dyn Clock,
    State { rooms, keys, dedup, queues }: State<'_>,
) -> Result<Arc<Tail>, OpenError> {
    let path = slot_path(journal.slot.number);
    let damaged = |offset| OpenError::Damaged {
        file: path.clone(),
        offset,
        what: "a record of a valid block is unreadable".into(),
    };
    let mut bytes = Vec::new();
    read_slot(&journal.slot, journal.end, &mut bytes)?;
    rewrite(&journal, recorded, &bytes)?;
    let tail = Arc::new(Tail::new(journal.journal, slots.adopt(journal.slot)));
    dedup.begin_slot(Arc::clone(&tail));
    queues.adopt(&tail);
    let (mut places, mut ids, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for start in journal.blocks {
        let at = usize::try_from(start).unwrap_or(usize::MAX);
        let (header, mut records) = bytes
            .get(at..)
            .and_then(|rest| block::read(rest, manifest.block_seed))
            .ok_or_else(|| damaged(start))?;
        let mut offset = start + block::HEADER_BYTES as u64;
        let at = Position { journal: tail.journal, batch: header.batch };
        // What the manifest's rooms have already is not entered again.
        let is_new = at > rooms.position();
        let is_new_to_queues = at > queues.position();
        places.clear();
        ids.clear();
        written.clear();
        for _ in 0..header.records {
            let before = records.len();
            let record = record::read(&mut records).ok_or_else(|| damaged(offset))?;
            let bytes = u32::try_from(before - records.len()).unwrap_or(u32::MAX);
            match record {
                Record::Message(message) => {
                    let place = Place {
                        seq: message.seq,
                        received: message.received_at.as_micros(),
                        offset: u32::try_from(offset).map_err(|_| damaged(offset))?,
                        bytes,
                    };
                    let number = rooms.intern(message.sent.room);
                    if is_new {
                        rooms.store(number, place.seq, place.received, || Some(message.sent.user));
                    }
                    ids.push((dedup.hash(&message.sent), place.offset));
                    places.push((number, place));
                }
                Record::Change(change) if is_new => {
                    rooms.change(&change);
                }
                Record::Change(_) => {}
                Record::Key(change) => {
                    let offset = u32::try_from(offset).map_err(|_| damaged(offset))?;
                    written.push(Written::of(&change, change.key.into(), (offset, bytes)));
                }
                Record::Queue(queued) if is_new_to_queues => {
                    queues.replay(&queued, &tail, offset + u64::from(bytes), clock);
                }
                Record::Queue(_) | Record::Time(_) => {}
            }
            offset += u64::from(bytes);
        }
        tail.publish(&places);
        tail.keys.publish(&written, keys);
        dedup.insert(&ids);
        rooms.set_position(at.max(rooms.position()));
        queues.set_position(at.max(queues.position()));
    }
    Ok(tail)
}

/// Takes what the rooms know of, but neither segments nor journals hold any more, for erased.
fn forget_lost(view: &View, rooms: &mut Rooms) {
    let lost = |(number, room): (RoomNumber, &Room)| {
        let last = view.span(&room.name, number).map_or(0, |span| span.last_seq);
        (number, last.max(room.floor) + 1..=room.head)
    };
    let lost: Vec<_> = (0..).zip(rooms.all()).map(lost).collect();
    for (number, mut seqs) in lost {
        rooms.erase(number, &mut seqs);
    }
}

/// A new epoch if something acknowledged may be lost, and the mark that says so to the next start.
fn renew_epoch(
    manifest: &mut Manifest,
    options: &EngineOptions,
    lost: bool,
    disk: &dyn Disk,
    random: &dyn RandomSource,
) -> Result<(), OpenError> {
    let unsynced = options.durability == Durability::Os;
    let may_be_lost = lost || manifest.unsynced;
    if may_be_lost {
        manifest.epoch = random.next_u64();
    }
    if may_be_lost || unsynced != manifest.unsynced {
        manifest.unsynced = unsynced;
        manifest.store(disk)?;
    }
    Ok(())
}
