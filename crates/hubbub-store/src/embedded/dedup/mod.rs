//! Finds messages that are sent again: a Bloom filter over all ids, a map for each unsealed slot, and the segments.
//!
//! Ids are added to filter and map when their batch is durable. Until then they are in a map of the batch, so that each is
//! in one of them at any time. Only the writer uses this, so nothing is locked.

pub(crate) mod filter;
mod rebuild_filter;
mod slot_ids;

use std::collections::VecDeque;
use std::sync::Arc;

use hubbub_core::rules::rooms::IdHolder;
use hubbub_core::{Message, Op, Receipt, Send};

use crate::embedded::dedup::filter::IdFilter;
use crate::embedded::dedup::slot_ids::SlotIds;
use crate::embedded::error::MaintainError;
use crate::embedded::file::cursor::index;
use crate::embedded::record;
use crate::embedded::segment::{IdHasher, Segment};
use crate::embedded::tail::Tail;
pub(crate) use rebuild_filter::FreshFilter;

/// Maps kept for the next slot instead of being made anew.
const SPARE_MAPS: usize = 2;

#[derive(Debug)]
struct UnsealedIds {
    tail: Arc<Tail>,
    ids: SlotIds,
}

/// Everything that tells whether an id is new.
#[derive(Debug)]
pub(crate) struct Dedup {
    hasher: IdHasher,
    filter: IdFilter,
    unsealed: VecDeque<UnsealedIds>,
    spare: Vec<SlotIds>,
    /// Ids of the batch under way, with the place of their records in its block.
    batch: SlotIds,
    /// Journals up to this one are in no map any more.
    forgotten_through: u64,
    slot_messages_max: usize,
}

impl Dedup {
    pub(crate) fn new(hasher: IdHasher, slot_messages_max: usize) -> Self {
        Self {
            hasher,
            filter: IdFilter::new(),
            unsealed: VecDeque::new(),
            spare: Vec::new(),
            batch: SlotIds::with_capacity(0),
            forgotten_through: 0,
            slot_messages_max,
        }
    }

    #[inline]
    pub(crate) fn hash(&self, send: &Send<'_>) -> u64 {
        self.hasher.hash(send.room, send.id)
    }

    pub(crate) fn insert_segment(&mut self, segment: &Segment) -> Result<(), MaintainError> {
        segment.id_hashes(|hashes| hashes.iter().for_each(|hash| self.filter.insert(*hash)))?;
        Ok(())
    }

    /// From now on ids are inserted into the map of this slot.
    pub(crate) fn begin_slot(&mut self, tail: Arc<Tail>) {
        let ids = self.spare.pop().unwrap_or_else(|| SlotIds::with_capacity(self.slot_messages_max));
        self.unsealed.push_back(UnsealedIds { tail, ids });
    }

    /// Lets go of slots whose messages are in segments.
    pub(crate) fn forget_sealed(&mut self, sealed_through: u64) {
        while self.unsealed.front().is_some_and(|recent| recent.tail.journal <= sealed_through) {
            if let Some(UnsealedIds { mut ids, tail }) = self.unsealed.pop_front() {
                self.forgotten_through = tail.journal;
                if self.spare.len() < SPARE_MAPS {
                    ids.clear();
                    self.spare.push(ids);
                }
            }
        }
    }

    /// Goes on with a filter built from segments, or gives it back when it lacks messages whose slot is forgotten.
    pub(crate) fn replace_filter(&mut self, mut fresh: FreshFilter) -> Option<FreshFilter> {
        if self.forgotten_through > fresh.through {
            return Some(fresh);
        }
        for recent in self.unsealed.iter().filter(|recent| recent.tail.journal > fresh.through) {
            recent.ids.hashes().for_each(|hash| fresh.filter.insert(hash));
        }
        self.filter = fresh.filter;
        None
    }

    pub(crate) fn filter_ids(&self) -> u64 {
        self.filter.len()
    }

    /// Adds ids that are durable now, with where their records begin in the newest slot.
    pub(crate) fn insert(&mut self, ids: &[(u64, u32)]) {
        for (hash, _) in ids {
            self.filter.insert(*hash);
        }
        if let Some(newest) = self.unsealed.back_mut() {
            for (hash, offset) in ids {
                newest.ids.insert(*hash, *offset);
            }
        }
    }

    /// Begins a batch: the hash of each operation's id, and whether the filter has it.
    pub(crate) fn begin_batch(&mut self, ops: &[Op<'_>], hashes: &mut Vec<u64>, maybe_known: &mut Vec<bool>) {
        self.batch.clear();
        hashes.clear();
        hashes.extend(ops.iter().map(|op| match op {
            Op::Send(send) => self.hash(send),
            Op::Change(_) | Op::Queue(_) | Op::Kv(_) => 0,
        }));
        maybe_known.clear();
        maybe_known.extend(hashes.iter().map(|hash| self.filter.may_contain(*hash)));
    }

    /// Records an id of the batch under way, whose record begins at `begin` of its block.
    #[inline]
    pub(crate) fn insert_in_batch(&mut self, hash: u64, begin: u32) {
        self.batch.insert(hash, begin);
    }

    /// The message of the room that has this id, the batch under way and its block included, and those left out
    /// whose seq is `hidden`. `segments` hold everything that is in no slot known here.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u64,
        maybe_known: bool,
        send: &Send<'_>,
        block: &[u8],
        segments: &[Segment],
        hidden: impl Fn(u64) -> bool,
    ) -> Result<Option<IdHolder>, MaintainError> {
        if !maybe_known && !self.batch.contains(hash) {
            return Ok(None);
        }
        self.look_up(hash, send, block, segments, hidden)
    }

    #[cold]
    fn look_up(
        &self,
        hash: u64,
        send: &Send<'_>,
        block: &[u8],
        segments: &[Segment],
        hidden: impl Fn(u64) -> bool,
    ) -> Result<Option<IdHolder>, MaintainError> {
        let mut holder = None;
        let mut is_it = |message: &Message<'_>| {
            let found = message.sent.id == send.id && message.sent.room == send.room && !hidden(message.seq);
            if found {
                let receipt = Receipt { seq: message.seq, received_at: message.received_at, gap: 0 };
                holder = Some(IdHolder { receipt, is_same: message.sent.same_content(send) });
            }
            found
        };
        for begin in self.batch.find(hash) {
            let mut record = block.get(index(begin)..).unwrap_or_default();
            if record::read_message(&mut record).is_some_and(|message| is_it(&message)) {
                return Ok(holder);
            }
        }
        // Where one place cannot be read, another may still have it.
        let mut unreadable = None;
        for recent in self.unsealed.iter().rev() {
            for offset in recent.ids.find(hash) {
                match recent.tail.visit(offset, &mut is_it) {
                    Ok(true) => return Ok(holder),
                    Ok(false) => {}
                    Err(error) => unreadable = Some(error),
                }
            }
        }
        for segment in segments.iter().rev() {
            match segment.find_id(hash, &mut is_it) {
                Ok(true) => return Ok(holder),
                Ok(false) => {}
                Err(error) => unreadable = Some(error.into()),
            }
        }
        unreadable.map_or(Ok(None), Err)
    }
}
