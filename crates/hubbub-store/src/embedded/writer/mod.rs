//! The only way in: number, encode, write, sync, publish; on one thread at a time.
//!
//! Path of a batch: each operation's room or key is looked up → the rules decide about it ([`hubbub_core::rules`]), with a
//! message's id looked up in [`Dedup`] → it gets its record in the block → one write and one sync → places go to the
//! tail's index, heads and changes to the rooms → outcomes.
//!
//! Invariants
//! - Nothing is shown to readers before the sync returned, but for states and counts of queues; no lock that a reader needs is held
//!   until then.
//! - Evaluating a batch never fails as a whole: what cannot be read refuses the operations that need it. After a failed write or sync nobody knows what the disk
//!   has, so nothing is written any more until a restart has looked.
//! - Nothing here creates, renames, grows or removes a file.

mod changes;
mod evaluate;
mod keys;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hubbub_core::invariant::{BrokenInvariant, broken, saturate};
use hubbub_core::rules::queues::Space;
use hubbub_core::rules::rooms::RoomState;
use hubbub_core::store::ApplyError;
use hubbub_core::{Op, OpBatch, Outcome, QueueOp};

use self::keys::KeyScratch;
use super::dedup::Dedup;
use super::journal::block::{self, BlockHeader, HEADER_BYTES};
use super::journal::end::JournalEnd;
use super::journal::slot_path;
use super::options::Durability;

use super::record;
use super::rooms::{Position, Room, RoomNumber};
use super::shared::Shared;
use super::status::SyncTimes;
use super::tail::{RecordLocation, Tail};

/// State of a room that decisions need, ahead of what readers see while a batch is under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoomHead {
    state: RoomState,
    /// The batch that touched it last.
    touched_by: u64,
}

impl RoomHead {
    /// Of a room as readers see it.
    pub(crate) fn of(room: &Room) -> Self {
        Self { state: room.state(), touched_by: 0 }
    }
}

/// Where the next block goes.
#[derive(Debug)]
pub(crate) struct WritePlace {
    pub(crate) tail: Arc<Tail>,
    pub(crate) position: u64,
    pub(crate) batch: u32,
    /// The journal before and how many batches of it count.
    pub(crate) prior: (u64, u32),
    pub(crate) messages: usize,
    /// When the slot was begun, on the monotonic clock.
    pub(crate) begun: Duration,
}

/// Where a record of the block under way stands.
struct BlockSpan {
    begin: u32,
    offset: u32,
    bytes: u32,
}

impl WritePlace {
    /// Where the record stands that was appended at `begin` of the block. One that has no place is taken off again.
    #[inline]
    fn locate(&self, block: &mut Vec<u8>, begin: usize) -> Result<BlockSpan, BrokenInvariant> {
        let offset = u32::try_from(self.position + begin as u64);
        match (u32::try_from(begin), offset, u32::try_from(block.len() - begin)) {
            (Ok(begin), Ok(offset), Ok(bytes)) => Ok(BlockSpan { begin, offset, bytes }),
            _ => {
                block.truncate(begin);
                Err(broken("a batch fits its journal slot, which is smaller than 4 GiB"))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) place: WritePlace,
    /// The last batch written, which is durable unless blocks are written without waiting.
    pub(crate) end: JournalEnd,
    pub(crate) dedup: Dedup,
    pub(crate) heads: Vec<RoomHead>,
    pub(crate) revision: u64,
    pub(crate) block_seed: u32,
    pub(crate) sync_times: SyncTimes,
    /// The last proven time that the journal has; `None` = none in this slot.
    pub(crate) proven: Option<i64>,
    /// Batches so far, to tell whether a room was touched by this one.
    pub(crate) batches: u64,
    pub(crate) scratch: Scratch,
}

/// Buffers kept from batch to batch. The first three have an entry for each operation.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    rooms: Vec<Option<RoomNumber>>,
    hashes: Vec<u64>,
    maybe_known: Vec<bool>,
    block: Vec<u8>,
    records: u32,
    places: Vec<(RoomNumber, RecordLocation)>,
    ids: Vec<(u64, u32)>,
    /// Rooms that the batch under way gave numbers in.
    touched: Vec<RoomNumber>,
    /// Which operation of the batch each place is of.
    stored: Vec<usize>,
    /// Which operation of the batch each change is, and where in the block it begins.
    changes: Vec<(usize, usize)>,
    /// Bytes the block takes at most, but for lists of messages in queues.
    bytes_max: usize,
    /// Bytes of the list of leases for which a client was refused to unregister; the retry is given as much.
    missing_list: usize,
    /// The proven time at the beginning of the block, if one is due.
    proven: Option<i64>,
    /// Whether anything in the block is about queues.
    has_queues: bool,
    /// Members who came (`true`) or went by this batch so far.
    joined: HashMap<(RoomNumber, String), bool>,
    keys: KeyScratch,
}

impl Writer {
    /// Makes a batch durable; see [`hubbub_core::Store::apply`].
    pub(crate) fn apply(&mut self, shared: &Shared, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        if let Some(refusal) = shared.status.refusal() {
            return Err(refusal);
        }
        self.take_fresh_filter(shared);
        self.dedup.forget_sealed(shared.status.sealed_through.load(Ordering::Acquire));
        let ops: Vec<Op<'_>> = batch.iter().collect();
        self.make_room(shared, batch, &ops)?;
        let view = shared.view();
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut outcomes = self.evaluate(shared, &view, &ops, &mut scratch);
        let result = if scratch.records == 0 {
            self.publish_keys(shared, &scratch.keys);
            Ok(outcomes)
        } else {
            let committed = self.commit(shared, &mut scratch);
            if committed.is_err() && scratch.has_queues {
                shared.queues.fail();
            }
            committed.map(|()| {
                self.publish(shared, batch, &scratch, &mut outcomes);
                outcomes
            })
        };
        self.scratch = scratch;
        result
    }

    /// Goes on with a new filter if one is offered and complete.
    fn take_fresh_filter(&mut self, shared: &Shared) {
        // Whoever has the lock is just putting one there; the next batch will find it.
        if let Some(mut offered) = shared.fresh_filter.try_lock()
            && let Some(fresh) = offered.take()
        {
            *offered = self.dedup.replace_filter(fresh);
        }
        shared.status.filter_ids.store(self.dedup.filter_ids(), Ordering::Relaxed);
    }

    /// Sees to it that the batch fits behind what is written: goes on to the next slot where it does not.
    fn make_room(&mut self, shared: &Shared, batch: &OpBatch, ops: &[Op<'_>]) -> Result<(), ApplyError> {
        if batch.is_exclusive() && batch.len() > 1 {
            let reason = "an exclusive operation came in a batch with others".to_owned();
            return Err(ApplyError::Unavailable { reason });
        }
        let erasure = if batch.is_exclusive() { erasure_bytes_max(shared.options.slot_bytes) } else { 0 };
        let swept = keys::sweep_bytes(ops, shared.options.slot_bytes);
        let (queues, lists) = queue_bytes_max(ops);
        let records = batch.len() * record::RECORD_OVERHEAD_MAX;
        let bytes_max =
            HEADER_BYTES + record::TIME_BYTES + batch.bytes() + records + erasure + swept + queues;
        self.scratch.bytes_max = bytes_max;
        let bound = bytes_max as u64;
        // Lists are cut to the space there is, but not to the rest of a slot.
        let slot = shared.options.slot_bytes;
        let missing = if ops.iter().any(is_unregistration) {
            std::mem::take(&mut self.scratch.missing_list)
        } else {
            0
        };
        // A list that no slot has space for shall not use them up.
        let missing =
            Some(missing as u64).filter(|missing| bound.saturating_add(*missing) <= slot).unwrap_or(0);
        let lists = (lists as u64).min(slot / LISTS_PART).saturating_add(missing);
        let bound = bound.saturating_add(lists).min(bound.max(slot));
        self.fit(shared, bound, batch.len())
    }

    /// Goes on to the next slot if a block of up to `bound` bytes, with so many messages, does not fit this one.
    fn fit(&mut self, shared: &Shared, bound: u64, messages: usize) -> Result<(), ApplyError> {
        let room = self.place.tail.slot.bytes.saturating_sub(self.place.position);
        let messages_max = shared.options.slot_messages_max();
        let is_within = self.place.messages == 0 || self.place.messages + messages <= messages_max;
        if bound <= room && is_within {
            return Ok(());
        }
        if bound > shared.options.slot_bytes {
            let slot = shared.options.slot_bytes;
            return Err(ApplyError::TooLarge {
                reason: format!(
                    "a batch of up to {bound} bytes does not fit a journal slot of {slot} bytes; send less at once"
                ),
            });
        }
        let next = self.next_slot(shared);
        if next.is_err() {
            shared.status.found_slot(false, shared.clock.monotonic());
        }
        next
    }

    /// Goes on to the next slot; the present one waits for its seal from now on.
    pub(crate) fn next_slot(&mut self, shared: &Shared) -> Result<(), ApplyError> {
        if shared.waits_for_seals() {
            return Err(ApplyError::Overloaded);
        }
        let slot = shared.slots.take().ok_or(ApplyError::Overloaded)?;
        let journal = self.place.tail.journal + 1;
        let tail = Arc::new(Tail::new(journal, slot));
        let prior = if self.place.batch > 1 {
            (self.place.tail.journal, self.place.batch - 1)
        } else {
            self.place.prior
        };
        shared.change_view(|view| view.tails.push(Arc::clone(&tail)));
        self.dedup.begin_slot(Arc::clone(&tail));
        let begun = shared.clock.monotonic();
        shared.status.found_slot(true, begun);
        self.place = WritePlace { tail, position: 0, batch: 1, prior, messages: 0, begun };
        self.proven = None;
        shared.wakeup.notify();
        Ok(())
    }

    /// Begins an empty block.
    fn begin_block(&mut self, shared: &Shared, scratch: &mut Scratch) {
        block::begin(&mut scratch.block);
        self.begin_time(shared, scratch);
        scratch.places.clear();
        scratch.ids.clear();
        scratch.touched.clear();
        scratch.stored.clear();
        scratch.changes.clear();
        scratch.joined.clear();
        scratch.keys.clear();
        scratch.records = 0;
        scratch.has_queues = false;
        self.batches += 1;
    }

    /// Begins a block with the proven time, unless the journal has one from just before. On its own it is not written.
    fn begin_time(&self, shared: &Shared, scratch: &mut Scratch) {
        let proven = shared.clock.proven();
        let is_due = self.proven.is_none_or(|last| last.abs_diff(proven.as_micros()) >= TIME_EVERY);
        scratch.proven = is_due.then_some(proven.as_micros());
        if is_due {
            record::TimeProven(proven).write(&mut scratch.block);
        }
    }

    fn commit(&mut self, shared: &Shared, scratch: &mut Scratch) -> Result<(), ApplyError> {
        let place = &mut self.place;
        let header = BlockHeader {
            journal: place.tail.journal,
            batch: place.batch,
            prior_journal: place.prior.0,
            prior_batches: place.prior.1,
            records: scratch.records + u32::from(scratch.proven.is_some()),
            unsynced: shared.options.durability == Durability::Os,
        };
        // Numbers were given already, and may not be given again.
        block::finish(&mut scratch.block, &header, self.block_seed).map_err(|broken| {
            shared.status.fail(broken.to_string());
            ApplyError::Unavailable { reason: broken.to_string() }
        })?;
        let file = &place.tail.slot.file;
        shared.status.begin_write(shared.clock.monotonic());
        let written = file.write_all_at(&scratch.block, place.position).map_err(|error| ("writing", error));
        let synced = written.and_then(|()| {
            if shared.options.durability == Durability::Os {
                return Ok(());
            }
            let before = shared.clock.monotonic();
            file.sync_data().map_err(|error| ("syncing", error))?;
            let took = shared.clock.monotonic().saturating_sub(before);
            shared.status.synced(took);
            shared.status.slow_syncs.store(self.sync_times.add(took), Ordering::Relaxed);
            Ok(())
        });
        shared.status.end_write();
        synced.map_err(|(attempted, error)| {
            let path = slot_path(place.tail.slot.number);
            let reason = format!("{attempted} {path} failed: {error}; see to the disk, then restart");
            shared.status.fail(reason.clone());
            ApplyError::Unconfirmed { reason }
        })?;
        self.end = JournalEnd {
            journal: place.tail.journal,
            batch: place.batch,
            slot: place.tail.slot.number,
            offset: place.position,
        };
        place.position += scratch.block.len() as u64;
        place.tail.set_batches(place.batch);
        place.batch += 1;
        self.proven = scratch.proven.or(self.proven);
        place.messages += scratch.places.len() + scratch.keys.written.len();
        Ok(())
    }

    /// Shows readers what is durable now, and fills in the outcomes of changes.
    fn publish(&mut self, shared: &Shared, batch: &OpBatch, scratch: &Scratch, outcomes: &mut [Outcome]) {
        let at = self.committed_at();
        self.place.tail.publish(&scratch.places);
        self.publish_keys(shared, &scratch.keys);
        self.dedup.insert(&scratch.ids);
        let mut rooms = shared.rooms.write();
        if !scratch.changes.is_empty() || rooms.memberships > 0 {
            self.apply_in_order(&mut rooms, batch, scratch, outcomes);
        } else {
            for room in &scratch.touched {
                if let Some(head) = self.head(*room) {
                    rooms.advance(*room, head.state.head, head.state.last_received.as_micros());
                }
            }
        }
        rooms.at = at;
        drop(rooms);
        if scratch.has_queues {
            shared.queues.settle(&*shared.clock, at);
        }
    }

    /// The batch that was committed last.
    fn committed_at(&self) -> Position {
        Position { journal: self.place.tail.journal, batch: self.place.batch - 1 }
    }

    fn head(&self, room: RoomNumber) -> Option<&RoomHead> {
        self.heads.get(usize::try_from(room).ok()?)
    }

    fn head_mut(&mut self, room: RoomNumber) -> Option<&mut RoomHead> {
        self.heads.get_mut(usize::try_from(room).ok()?)
    }
}

/// The journal has the proven time as often as this, in microseconds.
const TIME_EVERY: u64 = 1_000_000;

/// Lists of messages in queues get one part of a slot in so many at least, if they can use it.
const LISTS_PART: u64 = 4;

/// Bytes that the records of operations on queues take at most besides what all operations take, and those of lists.
fn queue_bytes_max(ops: &[Op<'_>]) -> (usize, usize) {
    let ops = ops.iter().filter_map(|op| match op {
        Op::Queue(op) => Some(Space::of(op)),
        _ => None,
    });
    ops.fold((0, 0), |all, one| (all.0 + one.needed, all.1 + one.useful))
}

fn is_unregistration(op: &Op<'_>) -> bool {
    matches!(op, Op::Queue(QueueOp::Unregister { .. }))
}

/// Messages erased by one operation at most, so that no commit takes long and every record fits a slot.
fn erasure_max(slot_bytes: u64) -> usize {
    saturate::<u64, usize>(slot_bytes / 512).clamp(1, 10_000)
}

fn erasure_bytes_max(slot_bytes: u64) -> usize {
    erasure_max(slot_bytes) * record::SEQ_BYTES_MAX
}
