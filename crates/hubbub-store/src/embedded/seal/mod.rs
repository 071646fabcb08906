//! Seals a full slot into a segment and a run of keys: sort, write, name both in the manifest, swap the view. Then the
//! slot is free. The checkpoint of queues is written and named with them.
//!
//! A crash anywhere leaves either the old manifest, and the slot is sealed again, or the new one, and the slot is
//! free. A segment that no manifest names is removed at the next start.

mod keys;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hubbub_core::Message;
use hubbub_core::invariant::saturate;

use crate::embedded::error::{DoingOn, MaintainError};
use crate::embedded::file::cursor::index;
use crate::embedded::file::{Patience, write_sorted};
use crate::embedded::journal::check::check_blocks;
use crate::embedded::kv::KV_DIR;
use crate::embedded::manifest::{MANIFEST, Manifest, may_be_named};
use crate::embedded::queues::{Files, QUEUES_DIR};
use crate::embedded::record;
use crate::embedded::rooms::RoomsCopy;
use crate::embedded::segment::{Codec, SEGMENTS_DIR, Segment, SegmentWriter, segment_path};
use crate::embedded::shared::Shared;
use crate::embedded::tail::{RecordLocation, Tail};

/// Where a seal makes names: without one of them it cannot be done.
pub(crate) const NAMED_IN: [&str; 4] = ["", SEGMENTS_DIR, KV_DIR, QUEUES_DIR];

impl Shared {
    /// Seals the oldest slot that waits for it. Says whether there was one.
    pub(crate) fn seal_one(&self) -> Result<bool, MaintainError> {
        let mut reserved = self.sealing.lock();
        if self.waiting_slots() == 0 { Ok(false) } else { self.seal(&mut reserved) }
    }

    /// Seals the oldest slot, even if it is the only one. Nothing may be written to it any more.
    pub(crate) fn seal_oldest(&self) -> Result<bool, MaintainError> {
        self.seal(&mut self.sealing.lock())
    }

    /// Seals all slots there are, and declares all journals up to `newest` done with the last of them: those without a slot
    /// are void. Another start in between would find what came before them applied, and go on with them.
    pub(crate) fn seal_all(&self, newest: u64) -> Result<(), MaintainError> {
        let mut reserved = self.sealing.lock();
        loop {
            match *self.view().tails {
                [] => return self.change_manifest(|manifest| manifest.applied = newest),
                [_] => return self.seal_through(newest, &mut reserved).map(drop),
                [..] => drop(self.seal(&mut reserved)?),
            }
        }
    }

    /// Seals the oldest slot for whoever holds `sealing`.
    pub(crate) fn seal(&self, reserved: &mut Option<u64>) -> Result<bool, MaintainError> {
        self.seal_through(0, reserved)
    }

    /// Seals the oldest slot, with which all journals up to `newest` are done. The number stays reserved when a seal fails
    /// before a manifest may name it, so that the next attempt replaces what this one left.
    fn seal_through(&self, newest: u64, reserved: &mut Option<u64>) -> Result<bool, MaintainError> {
        let Some(tail) = self.view().tails.first().map(Arc::clone) else { return Ok(false) };
        self.dirs.check(&NAMED_IN)?;
        let begin = self.clock.monotonic();
        let seed = self.catalog.lock().block_seed;
        check_blocks(&tail.slot, tail.journal, tail.batches(), seed)?;
        let number = *reserved.get_or_insert_with(|| self.reserve_segment());
        let hidings = self.rooms.read().hidings;
        let segment = if tail.messages() > 0 { self.write_segment(&tail, number)? } else { None };
        let keys = self.seal_keys(&tail)?;
        let queues = self.write_queue_checkpoint(tail.journal)?;
        let mut queues_before = Files::default();
        let changed = self.change_manifest(|manifest| {
            manifest.applied = tail.journal.max(newest);
            queues_before.clone_from(&manifest.queues);
            if let Some(kept) = &queues {
                manifest.queues.clone_from(&kept.files);
            }
            if let Some(keys) = &keys {
                keys.add_to(&mut manifest.keys);
            }
            manifest.segments.extend(segment.as_ref().map(Segment::number));
        });
        if may_be_named(&changed) {
            self.keys.reserved.lock().seal = None;
            if segment.is_some() {
                *reserved = None;
            }
        } else if let Some(kept) = &queues {
            self.discard_snapshot(kept);
        }
        changed?;
        self.forget_queue_files(tail.journal, queues.as_ref(), &queues_before);
        self.finish_tail(&tail);
        let mut old_log = None;
        {
            let mut counted = self.stats.exchange();
            counted.sealed(&tail, segment.as_ref().map(Segment::number));
            self.change_view(|view| {
                view.segments.extend(segment);
                old_log = keys.and_then(|keys| keys.publish(view));
                view.tails.retain(|other| other.journal != tail.journal);
            });
        }
        self.status.sealed_through.store(tail.journal, Ordering::Release);
        self.rooms.write().mark_rewritten(hidings);
        self.remove_files(old_log.map(|old| old.path()))?;
        let took = saturate::<_, u64>(self.clock.monotonic().saturating_sub(begin).as_micros());
        if let Some(rate) = tail.slot.bytes.saturating_mul(1_000_000).checked_div(took) {
            self.status.seal_bytes_per_s.store(rate, Ordering::Relaxed);
        }
        Ok(true)
    }

    pub(crate) fn reserve_segment(&self) -> u64 {
        let mut catalog = self.catalog.lock();
        let number = catalog.next_segment;
        catalog.next_segment += 1;
        number
    }

    /// Stores a changed manifest, with the rooms as they are now. What is not stored is not changed.
    pub(crate) fn change_manifest(&self, change: impl FnOnce(&mut Manifest)) -> Result<(), MaintainError> {
        let mut catalog = self.catalog.lock();
        let mut next = Manifest {
            rooms: Vec::new(),
            segments: catalog.segments.clone(),
            keys: catalog.keys.clone(),
            queues: catalog.queues.clone(),
            there_by: catalog.there_by.clone(),
            proven: Some(self.clock.proven()),
            ..*catalog
        };
        change(&mut next);
        // Mostly encoded before, so that readers of rooms wait for a moment only.
        let copy = RoomsCopy::begin(&self.rooms);
        let encoded = copy.finish(&self.rooms.read());
        next.rooms = encoded.into_bytes();
        next.store(&*self.disk)?;
        tracing::debug!(
            file = MANIFEST,
            segments = next.segments.len(),
            applied = next.applied,
            "manifest replaced"
        );
        next.rooms = Vec::new();
        *catalog = next;
        Ok(())
    }

    /// `None` when everything in the slot is hidden by now.
    fn write_segment(&self, tail: &Tail, number: u64) -> Result<Option<Segment>, MaintainError> {
        let path = segment_path(number);
        let disk = Arc::clone(&self.disk);
        let writer = SegmentWriter::create(disk, number, Codec::Lz4, self.hasher);
        if !write_sorted(&path, writer, |writer| self.copy_sorted(tail, writer, &path))? {
            return Ok(None);
        }
        Ok(Some(Segment::open(&*self.disk, number, Arc::clone(&self.cache))?))
    }

    fn copy_sorted(&self, tail: &Tail, writer: &mut SegmentWriter, path: &str) -> Result<(), MaintainError> {
        let mut rooms: Vec<_> = {
            let all = self.rooms.read();
            tail.rooms()
                .into_iter()
                .filter_map(|number| {
                    let room = all.get(number)?;
                    Some((Arc::clone(&room.name), number, room.hidden()))
                })
                .collect()
        };
        rooms.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut bytes = Vec::new();
        for (name, room, hidden) in rooms {
            let mut places = tail.places(room);
            places.retain(|place| !hidden.hides(place.seq));
            let mut rest = places.as_slice();
            while let Some((near, others)) = rest.split_at_checked(count_near(rest)) {
                let (Some(first), Some(last)) = (near.first(), near.last()) else { break };
                let length = u64::from(last.offset) + u64::from(last.bytes) - u64::from(first.offset);
                bytes.resize(saturate(length), 0);
                tail.slot.read(&mut bytes, first.offset.into(), Patience::Wait)?;
                for place in near {
                    let mut record = bytes.get(index(place.offset - first.offset)..).unwrap_or_default();
                    let is_expected = |message: &Message<'_>| {
                        (message.seq, message.received_at.as_micros()) == (place.seq, place.received)
                            && message.sent.room == &*name
                    };
                    let message = record::read_message(&mut record).filter(is_expected);
                    let message = message.ok_or_else(|| tail.slot.damaged(place.offset))?;
                    writer.push(&message).doing("writing", path)?;
                }
                rest = others;
            }
        }
        Ok(())
    }
}

/// Records so near to each other are read at once, up to so many bytes. Reading the whole slot into memory instead
/// costs its size, and more time for clearing that memory than for the reads it saves.
const NEAR_BYTES: u64 = 1_024;
const READ_BYTES: u64 = 64 * 1024;

/// How many of the first places are read at once; at least one of any.
fn count_near(places: &[RecordLocation]) -> usize {
    let Some(first) = places.first() else { return 0 };
    let end = |place: &RecordLocation| u64::from(place.offset) + u64::from(place.bytes);
    let pairs = places.iter().zip(places.iter().skip(1));
    let near = pairs.take_while(|(place, next)| {
        u64::from(next.offset) <= end(place) + NEAR_BYTES && end(next) <= u64::from(first.offset) + READ_BYTES
    });
    1 + near.count()
}
