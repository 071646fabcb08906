//! Which ids are stored: a filter over all of them, a map for each slot that is not sealed, and the segments.
//!
//! Ids enter filter and map when their message gets its number, so that none is ever in neither place. Only the
//! writer looks here, so nothing is locked.

use std::collections::VecDeque;
use std::sync::Arc;

use hubbub_core::{Message, Receipt, Send};

use super::error::MaintainError;
use super::filter::IdFilter;
use super::record;
use super::segment::{IdHasher, Segment};
use super::tail::Tail;
use super::tail::ids::SlotIds;

/// Maps kept for the next slot instead of being made anew.
const SPARE_MAPS: usize = 2;

/// What is known about an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// No message of the room has it.
    New,
    /// The same message is stored.
    Same(Receipt),
    /// Another message has it.
    Other {
        /// Its number.
        seq: u64,
    },
}

/// Where the writer is: what stands behind `position` in the newest slot is still in `block`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unwritten<'a> {
    pub(crate) block: &'a [u8],
    pub(crate) position: u32,
}

#[derive(Debug)]
struct Recent {
    tail: Arc<Tail>,
    ids: SlotIds,
}

/// Everything that tells whether an id is new.
#[derive(Debug)]
pub(crate) struct Dedup {
    hasher: IdHasher,
    filter: IdFilter,
    /// Oldest slot first.
    recent: VecDeque<Recent>,
    spare: Vec<SlotIds>,
    slot_messages_max: usize,
}

impl Dedup {
    /// Knows nothing yet.
    pub(crate) fn new(hasher: IdHasher, slot_messages_max: usize) -> Self {
        let filter = IdFilter::new();
        Self { hasher, filter, recent: VecDeque::new(), spare: Vec::new(), slot_messages_max }
    }

    /// The hash by which an id is known here.
    #[inline]
    pub(crate) fn hash(&self, send: &Send<'_>) -> u64 {
        self.hasher.hash(send.room, send.id)
    }

    /// Learns the ids of a segment.
    pub(crate) fn learn(&mut self, segment: &Segment) -> Result<(), MaintainError> {
        segment.id_hashes(|hashes| hashes.iter().for_each(|hash| self.filter.insert(*hash)))?;
        Ok(())
    }

    /// From now on ids are inserted into the map of this slot.
    pub(crate) fn begin_slot(&mut self, tail: Arc<Tail>) {
        let ids = self.spare.pop().unwrap_or_else(|| SlotIds::with_capacity(self.slot_messages_max));
        self.recent.push_back(Recent { tail, ids });
    }

    /// Lets go of slots whose messages are in segments.
    pub(crate) fn forget_sealed(&mut self, sealed_through: u64) {
        while self.recent.front().is_some_and(|recent| recent.tail.journal <= sealed_through) {
            if let Some(Recent { mut ids, .. }) = self.recent.pop_front()
                && self.spare.len() < SPARE_MAPS
            {
                ids.clear();
                self.spare.push(ids);
            }
        }
    }

    /// Adds the id of a message whose record begins at `offset` of the newest slot.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, offset: u32) {
        self.filter.insert(hash);
        if let Some(newest) = self.recent.back_mut() {
            newest.ids.insert(hash, offset);
        }
    }

    /// Takes back what was inserted for records at or behind `position` of the newest slot.
    pub(crate) fn take_back(&mut self, hashes: impl Iterator<Item = u64>, position: u32) {
        if let Some(newest) = self.recent.back_mut() {
            hashes.for_each(|hash| newest.ids.remove(hash, position));
        }
    }

    /// Whether the room has a message with this id. `segments` hold everything that is in no slot known here.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u64,
        send: &Send<'_>,
        unwritten: Unwritten<'_>,
        segments: &[Segment],
    ) -> Result<Known, MaintainError> {
        if !self.filter.may_contain(hash) {
            return Ok(Known::New);
        }
        self.look_up(hash, send, unwritten, segments)
    }

    #[cold]
    fn look_up(
        &self,
        hash: u64,
        send: &Send<'_>,
        unwritten: Unwritten<'_>,
        segments: &[Segment],
    ) -> Result<Known, MaintainError> {
        let mut known = Known::New;
        let mut is_it = |message: &Message<'_>| {
            let found = message.sent.id == send.id && message.sent.room == send.room;
            if found {
                known = judge(message, send);
            }
            found
        };
        for (age, recent) in self.recent.iter().rev().enumerate() {
            for offset in recent.ids.find(hash) {
                let begin = offset.checked_sub(unwritten.position).filter(|_| age == 0);
                let found = match begin.and_then(|begin| usize::try_from(begin).ok()) {
                    Some(begin) => {
                        let mut record = unwritten.block.get(begin..).unwrap_or_default();
                        record::read_message(&mut record).is_some_and(|message| is_it(&message))
                    }
                    None => recent.tail.visit(offset, &mut is_it)?,
                };
                if found {
                    return Ok(known);
                }
            }
        }
        for segment in segments.iter().rev() {
            if segment.find_id(hash, &mut is_it)? {
                break;
            }
        }
        Ok(known)
    }
}

fn judge(stored: &Message<'_>, send: &Send<'_>) -> Known {
    if stored.sent.same_content(send) {
        Known::Same(Receipt { seq: stored.seq, received_at: stored.received_at })
    } else {
        Known::Other { seq: stored.seq }
    }
}
