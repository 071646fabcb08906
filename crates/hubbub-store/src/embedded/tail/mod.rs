//! An index in memory over each slot that is durable but not sealed yet. Payloads stay in the slot's file.
//!
//! The writer appends to the index only after the sync, so whatever a reader finds there is durable. The lock is held
//! for copying places and never across a read or write of the disk.

pub(crate) mod hash;
mod read;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;

use crate::embedded::journal::slot::SlotLease;
use crate::embedded::kv::tail::KeyIndex;
use crate::embedded::rooms::RoomNumber;
use hash::MixState;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordLocation {
    pub(crate) seq: u64,
    /// When it was received, in microseconds.
    pub(crate) received: i64,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) journal: u64,
    /// The slot, not to be overwritten while anybody may read it.
    pub(crate) slot: SlotLease,
    pub(crate) keys: KeyIndex,
    /// How many blocks of the slot count.
    batches: AtomicU32,
    index: RwLock<Index>,
}

#[derive(Debug, Default)]
struct Index {
    rooms: HashMap<RoomNumber, Vec<RecordLocation>, MixState>,
    messages: u64,
    end: u64,
}

impl Tail {
    pub(crate) fn new(journal: u64, slot: SlotLease) -> Self {
        Self {
            journal,
            slot,
            keys: KeyIndex::default(),
            batches: AtomicU32::new(0),
            index: RwLock::default(),
        }
    }

    /// Shows messages to readers. They are durable and follow, room by room, those shown before.
    pub(crate) fn publish(&self, places: &[(RoomNumber, RecordLocation)]) {
        let mut index = self.index.write();
        for (room, place) in places {
            index.rooms.entry(*room).or_default().push(*place);
        }
        index.messages += places.len() as u64;
        if let Some((_, last)) = places.last() {
            index.end = u64::from(last.offset) + u64::from(last.bytes);
        }
    }

    /// Says how many blocks of the slot count by now.
    pub(crate) fn set_batches(&self, batches: u32) {
        self.batches.store(batches, Ordering::Release);
    }

    pub(crate) fn batches(&self) -> u32 {
        self.batches.load(Ordering::Acquire)
    }

    pub(crate) fn messages(&self) -> u64 {
        self.index.read().messages
    }

    /// Where the last record ends; blocks that begin before it are durable.
    pub(crate) fn end(&self) -> u64 {
        self.index.read().end
    }

    pub(crate) fn last_seq(&self, room: RoomNumber) -> Option<u64> {
        Some(self.index.read().rooms.get(&room)?.last()?.seq)
    }

    pub(crate) fn rooms(&self) -> Vec<RoomNumber> {
        self.index.read().rooms.keys().copied().collect()
    }

    pub(crate) fn places(&self, room: RoomNumber) -> Vec<RecordLocation> {
        self.index.read().rooms.get(&room).cloned().unwrap_or_default()
    }
}
