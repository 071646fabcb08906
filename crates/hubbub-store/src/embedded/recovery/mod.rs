//! Opens a data directory: reads what is there, replays the journal, and continues in a fresh slot.
//!
//! Order: `FORMAT` and manifest are read, or made in an empty directory → unfinished files are removed → both are written again →
//! files that no manifest names are removed → segments are opened → slots are read and the chain of unsealed journals is found
//! ([`scan`](crate::embedded::journal::scan)), which must reach the recorded end ([`end`](crate::embedded::journal::end)) and the
//! batches that the checkpoints have → what stands behind that is written
//! again and synced → records fill tails, heads and ids again ([`replay`]) → the new end is recorded → writing goes on in a fresh
//! slot with a new journal number.
//!
//! What the process before wrote last may be visible and yet not on the disk, if a sync failed. Nobody can see that, and a
//! sync of what is there already does not help: so whatever a start relies on and nothing proves durable is written
//! or named again. Segments, runs and files of queues are not: a manifest names them only after their syncs succeeded.

mod replay;
pub(crate) mod slots;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::invariant::saturate;
use hubbub_core::kv::first_revision;
use hubbub_core::{Clock, RandomSource};
use parking_lot::{Mutex, RwLock};

use crate::embedded::dedup::Dedup;
use crate::embedded::disk::Disk;
use crate::embedded::disk::checked_dirs::CheckedDirs;
use crate::embedded::disk::format_file;
use crate::embedded::disk::place::{self, Place};
use crate::embedded::engine::wakeup::WakeupSignal;
use crate::embedded::error::{DoingOn, OpenError};
use crate::embedded::file::kind::remove_unnamed;
use crate::embedded::journal::end::{EndFile, JournalEnd, end_path};
use crate::embedded::journal::scan::Chain;
use crate::embedded::journal::slot::{Slot, SlotLease, SlotPool};
use crate::embedded::journal::{JOURNAL_DIR, slot_path};
use crate::embedded::kv::{KV_DIR, Keys, OpenedKeys};
use crate::embedded::manifest::{MANIFEST, Manifest};
use crate::embedded::options::{Durability, EngineOptions, SLOTS_MAX};
use crate::embedded::queues::{QUEUES_DIR, QueueShared, read_checkpoint};
use crate::embedded::rooms::{Position, Room, RoomNumber, Rooms};
use crate::embedded::segment::{BlockCache, IdHasher, SEGMENTS_DIR, Segment, segment_path};
use crate::embedded::shared::Shared;
use crate::embedded::stats::Stats;
use crate::embedded::status::{Status, SyncTimes};
use crate::embedded::tail::Tail;
use crate::embedded::view::View;
use crate::embedded::writer::{RoomHead, Scratch, WritePlace, Writer};
use replay::{ReplayState, replay};
use slots::{last_proven, read_slots};

/// Opens the data directory, or makes one where there is none.
pub(crate) fn open(
    options: EngineOptions,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    random: &dyn RandomSource,
) -> Result<(Shared, Writer), OpenError> {
    let mut recovered = recover(options.within_bounds(), disk, clock, random)?;
    if recovered.lost {
        recovered.seal_rest()?;
    }
    recovered.begin_writing()
}

/// What was there before, in memory again.
struct Recovered {
    shared: Shared,
    dedup: Dedup,
    heads: Vec<RoomHead>,
    block_seed: u32,
    newest: u64,
    /// Whether something written without waiting for the disk is lost.
    lost: bool,
    /// The journal before the one that is begun, and how many of its batches count.
    prior: (u64, u32),
    last: JournalEnd,
}

fn recover(
    options: EngineOptions,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    random: &dyn RandomSource,
) -> Result<Recovered, OpenError> {
    let dirs = Arc::new(CheckedDirs::new(disk));
    let disk: Arc<dyn Disk> = Arc::clone(&dirs) as _;
    let mut manifest = load_and_renew(&dirs, &*disk, random)?;
    let place = place::check(&*disk)?;
    let (end, recorded) = EndFile::open(&*disk, manifest.block_seed)?;
    let cache = BlockCache::new(options.block_cache_bytes);
    let hasher = IdHasher::new(manifest.id_key);
    let segments = open_segments(&*disk, &manifest, &cache)?;
    let OpenedKeys { keys, runs, log } = Keys::open(&*disk, &manifest.keys, hasher, &options)?;
    let mut chain = read_slots(&*disk, &manifest, &recorded)?;
    name_anew(&*disk, &mut chain)?;

    let slots = Arc::new(SlotPool::new(Arc::clone(&dirs), options.slot_bytes, SLOTS_MAX));
    let mut dedup = Dedup::new(hasher, options.slot_messages_max());
    segments.iter().try_for_each(|segment| dedup.insert_segment(segment))?;
    let rooms = Rooms::decode(&std::mem::take(&mut manifest.rooms));
    let mut rooms = rooms.ok_or_else(|| OpenError::damaged(MANIFEST, 0, "its rooms do not fit together"))?;
    clock.begin_at(last_proven(&chain, (manifest.proven, rooms.at))?);
    let mut queues = read_checkpoint(&*disk, &manifest.queues, manifest.id_key, &*clock)?;
    queues.set_options(&options);
    let may_be_lost = chain.may_lack(&manifest);
    chain.must_hold([rooms.at, queues.at], &manifest)?;
    let Chain { unsealed, free, newest, lost } = chain;
    // Checkpoints may be further than any journal that is left. Its number is not used again: they would take what gets it for
    // applied.
    let newest = newest.max(rooms.at.journal).max(queues.at.journal);
    free.into_iter().for_each(|slot| drop(slots.adopt(slot)));
    let mut prior = (manifest.applied, 0);
    let mut last = JournalEnd::sealed(manifest.applied);
    let mut view = View { segments, runs, key_log: log, tails: Vec::new() };
    let mut state = ReplayState { rooms: &mut rooms, keys: &keys, dedup: &mut dedup, queues: &mut queues };
    for journal in unsealed {
        prior = (journal.number(), journal.batches);
        last = journal.last().unwrap_or(last);
        view.tails.push(replay(journal, &recorded, &manifest, &slots, &*clock, &mut state)?);
    }
    accept_loss(may_be_lost, newest, &view, &mut state)?;
    if place == Place::Copied {
        tracing::warn!(
            "the data directory was copied: a new epoch begins, so that clients that were further read anew"
        );
    }
    let begins_epoch = may_be_lost || place == Place::Copied;
    if begins_epoch {
        manifest.epoch = random.next_u64();
        manifest.keys.revision = first_revision(keys.revision(), clock.now());
        keys.jump_to(manifest.keys.revision);
    }
    // A restore has begun the epoch already.
    let begins_history = begins_epoch || place == Place::Restored;
    if begins_history {
        queues.jump_ids(clock.now());
        // What an earlier start or seal did not end is in the way on a disk that is nearly full.
        manifest.queues.remove_others(&*disk)?;
        // The one that is named may know of what is lost, and gives ids again. The new epoch and this come with one manifest.
        manifest.queues = queues.write_checkpoint(manifest.next_segment, &*disk, &*clock)?;
        manifest.next_segment += 1;
    }
    manifest.rooms = rooms.encode();
    mark_unsynced(&mut manifest, &options, begins_history, &*disk, &*clock)?;
    mark_place(place, &*disk);
    manifest.rooms = Vec::new();
    manifest.queues.remove_others(&*disk)?;

    let heads: Vec<RoomHead> = rooms.all().iter().map(RoomHead::of).collect();
    let epoch: Arc<str> = Arc::from(manifest.epoch());
    let block_seed = manifest.block_seed;
    let queues = QueueShared::new(queues, &epoch, &*clock);
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
        status: Status::sealed(manifest.applied),
        catalog: Mutex::new(manifest),
        rooms: RwLock::new(rooms),
        queues,
        view: RwLock::new(Arc::new(view)),
        keys,
        stats: Stats::new(block_seed),
        fresh_filter: Mutex::default(),
        unreadable_ids: AtomicU64::new(0),
        wakeup: WakeupSignal::default(),
        sealing: Mutex::default(),
        merging: Mutex::default(),
    };
    Ok(Recovered { shared, dedup, heads, block_seed, newest, lost, prior, last })
}

impl Recovered {
    /// Seals what is left after a loss, so that later starts take neither that for damaged nor what is void for
    /// acknowledged.
    fn seal_rest(&mut self) -> Result<(), OpenError> {
        let Self { shared, newest, .. } = self;
        shared.seal_all(*newest)?;
        shared.status.sealed_through.store(*newest, Ordering::Release);
        self.dedup.forget_sealed(*newest);
        self.prior = (*newest, 0);
        self.last = JournalEnd::sealed(*newest);
        Ok(())
    }

    /// Goes on in a free slot with a new journal.
    fn begin_writing(mut self) -> Result<(Shared, Writer), OpenError> {
        let slot = first_slot(&self.shared, &mut self.dedup)?;
        let Self { shared, mut dedup, heads, block_seed, newest, prior, last, .. } = self;
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
}

/// Reads the manifest, or makes one, and writes it again: what an earlier process replaced may not be durable. Until it
/// is, nothing that the manifest before it names may be removed or overwritten. On a full disk that comes later, and
/// writes are refused until then.
fn load_and_renew(
    dirs: &CheckedDirs,
    disk: &dyn Disk,
    random: &dyn RandomSource,
) -> Result<Manifest, OpenError> {
    let (manifest, is_there) = load_or_create(disk, random)?;
    // No manifest ever names these, so that on a full disk, too, their space comes back.
    for dir in [SEGMENTS_DIR, KV_DIR, QUEUES_DIR] {
        remove_unnamed(disk, dir, &[], &HashSet::new())?;
    }
    if let Err(error) = format_file::create(disk).and_then(|()| manifest.store(disk)) {
        if !error.is_disk_full() || !is_there {
            return Err(error.into());
        }
        tracing::warn!("the disk is full, so nothing is written until there is space: {error}");
        dirs.keep_all(true);
    }
    Ok(manifest)
}

fn load_or_create(disk: &dyn Disk, random: &dyn RandomSource) -> Result<(Manifest, bool), OpenError> {
    for dir in [JOURNAL_DIR, SEGMENTS_DIR, KV_DIR, QUEUES_DIR] {
        disk.make_dir(dir).doing("making the directory", dir)?;
    }
    let has_format = format_file::check(disk)?;
    if let Some(manifest) = Manifest::load(disk)? {
        return if has_format { Ok((manifest, true)) } else { Err(lost_file(format_file::FORMAT)) };
    }
    // It is written behind the first manifest, and by a restore before everything else.
    if place::is_there(disk) {
        return Err(lost_file(MANIFEST));
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
        block_seed: saturate(random.next_u64() >> 32),
        next_segment: 1,
        rooms: Rooms::default().encode(),
        ..Manifest::default()
    };
    EndFile::create(disk, manifest.block_seed, &JournalEnd::default())?;
    disk.sync_dir(JOURNAL_DIR).doing("syncing the directory", JOURNAL_DIR)?;
    Ok((manifest, false))
}

fn lost_file(file: &str) -> OpenError {
    OpenError::damaged(file, 0, "it is missing, but there is data")
}

/// Removes what unfinished seals, merges and removals left, then opens what counts.
fn open_segments(
    disk: &dyn Disk,
    manifest: &Manifest,
    cache: &Arc<BlockCache>,
) -> Result<Vec<Segment>, OpenError> {
    let named: HashSet<String> = manifest.segments.iter().map(|number| segment_path(*number)).collect();
    remove_unnamed(disk, SEGMENTS_DIR, &["seg"], &named)?;
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

/// Where messages of queues are missing, and what the rooms know of but neither segments nor journals hold, that is
/// damage, unless something written without waiting for the disk may be lost. Then it is taken for erased.
fn accept_loss(
    may_be_lost: bool,
    newest: u64,
    view: &View,
    ReplayState { rooms, queues, .. }: &mut ReplayState<'_>,
) -> Result<(), OpenError> {
    let missing = queues.forget_missing(may_be_lost);
    if !may_be_lost {
        if missing == 0 {
            return Ok(());
        }
        let what = format!("payloads of {missing} messages of queues stand in journals that are in no slot");
        return Err(OpenError::damaged(JOURNAL_DIR, 0, what));
    }
    forget_lost(view, rooms);
    // What is left of these journals is in them, and nothing more comes.
    let position = Position { journal: newest, batch: u32::MAX };
    queues.at = position;
    rooms.at = position;
    Ok(())
}

fn first_slot(shared: &Shared, dedup: &mut Dedup) -> Result<SlotLease, OpenError> {
    loop {
        if let Some(slot) = shared.slots.take() {
            return Ok(slot);
        }
        // Starts that end soon leave a slot each; when all are in use, some must be sealed now.
        if !shared.slots.wants_one() {
            shared.seal_oldest()?;
            dedup.forget_sealed(shared.status.sealed_through.load(Ordering::Acquire));
        }
        shared.slots.prepare()?;
    }
}

/// Takes what the rooms know of, but neither segments nor journals hold any more, for erased.
fn forget_lost(view: &View, rooms: &mut Rooms) {
    let lost = |(number, room): (RoomNumber, &Room)| {
        let last = view.last_seq(&room.name, number);
        (number, last.max(room.low_watermark) + 1..=room.head)
    };
    let lost: Vec<_> = (0..).zip(rooms.all()).map(lost).collect();
    for (number, mut seqs) in lost {
        rooms.erase(number, &mut seqs);
    }
}

/// Stores the manifest with the mark that says to the next start whether something may be lost, if that or something else in it
/// has changed.
fn mark_unsynced(
    manifest: &mut Manifest,
    options: &EngineOptions,
    is_changed: bool,
    disk: &dyn Disk,
    clock: &dyn Clock,
) -> Result<(), OpenError> {
    let unsynced = options.durability == Durability::Os;
    if is_changed || unsynced != manifest.unsynced {
        (manifest.unsynced, manifest.proven) = (unsynced, Some(clock.proven()));
        manifest.store(disk)?;
    }
    Ok(())
}

/// Behind the manifest with the new epoch: what is marked before would be taken for that epoch.
fn mark_place(place: Place, disk: &dyn Disk) {
    if place != Place::Same
        && let Err(error) = place::mark(disk)
    {
        tracing::warn!(
            "PLACE could not be written, so the next start may take the directory for a copy, or not notice one: {error}"
        );
    }
}
