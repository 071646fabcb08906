//! Replays the records of a journal that is not sealed, so that memory is as it was before.

use std::sync::Arc;

use hubbub_core::invariant::saturate;
use hubbub_core::{Clock, Message};

use super::slots::read_slot;
use crate::embedded::dedup::Dedup;
use crate::embedded::error::{DoingOn, OpenError};
use crate::embedded::journal::block::{self, BlockHeader};
use crate::embedded::journal::end::JournalEnd;
use crate::embedded::journal::scan::JournalScan;
use crate::embedded::journal::slot::SlotPool;
use crate::embedded::journal::slot_path;
use crate::embedded::kv::Keys;
use crate::embedded::kv::tail::Written;
use crate::embedded::manifest::Manifest;
use crate::embedded::queues::Queues;
use crate::embedded::record::{Record, Records};
use crate::embedded::rooms::{Position, RoomNumber, Rooms};
use crate::embedded::tail::{RecordLocation, Tail};

pub(super) struct ReplayState<'a> {
    pub(super) rooms: &'a mut Rooms,
    pub(super) keys: &'a Keys,
    pub(super) dedup: &'a mut Dedup,
    pub(super) queues: &'a mut Queues,
}

#[derive(Default)]
struct BlockChanges {
    messages: Vec<(RoomNumber, RecordLocation)>,
    ids: Vec<(u64, u32)>,
    keys: Vec<Written>,
}

/// Brings the records of a journal back into memory. What stands behind `recorded` is made durable first.
pub(super) fn replay(
    journal: JournalScan,
    recorded: &JournalEnd,
    manifest: &Manifest,
    slots: &Arc<SlotPool>,
    clock: &dyn Clock,
    state: &mut ReplayState<'_>,
) -> Result<Arc<Tail>, OpenError> {
    let path = slot_path(journal.slot.number);
    let mut bytes = Vec::new();
    read_slot(&journal.slot, journal.end, &mut bytes)?;
    // The slot was read before, and may say something else now. That must not be written over what it said.
    let block = |start: &u64| {
        let rest = bytes.get(saturate(*start)..);
        let block = rest.and_then(|rest| block::read(rest, manifest.block_seed));
        block.ok_or_else(|| damaged(&path, *start))
    };
    let blocks = journal.blocks.iter().map(block).collect::<Result<Vec<_>, _>>()?;
    rewrite(&journal, recorded, &bytes)?;
    let tail = Arc::new(Tail::new(journal.number(), slots.adopt(journal.slot)));
    tail.set_batches(journal.batches);
    state.dedup.begin_slot(Arc::clone(&tail));
    state.queues.adopt(&tail);
    let mut changes = BlockChanges::default();
    for (start, (header, records)) in journal.blocks.into_iter().zip(blocks) {
        state
            .apply_block(&tail, header, records, start, clock, &mut changes)
            .map_err(|at| damaged(&path, at))?;
    }
    Ok(tail)
}

impl ReplayState<'_> {
    /// Applies the records of the block that begins at `start`. An error is the offset of one that is damaged.
    fn apply_block(
        &mut self,
        tail: &Arc<Tail>,
        header: BlockHeader,
        records: &[u8],
        start: u64,
        clock: &dyn Clock,
        changes: &mut BlockChanges,
    ) -> Result<(), u64> {
        let at = Position { journal: tail.journal, batch: header.batch };
        // What rooms and queues in the manifest have already is not applied again.
        let is_new = at > self.rooms.at;
        let is_new_to_queues = at > self.queues.at;
        changes.messages.clear();
        changes.ids.clear();
        changes.keys.clear();
        for record in Records::new(start, &header, records) {
            let (begin, bytes, record) = record?;
            match record {
                Record::Message(message) => self.apply_message(&message, (begin, bytes), is_new, changes),
                Record::Change(change) if is_new => {
                    self.rooms.apply(&change);
                }
                Record::Key(change) => {
                    let written = Written::of(&change, change.key.into(), (begin, bytes));
                    changes.keys.push(written.map_err(|_| u64::from(begin))?);
                }
                Record::Queue(queued) if is_new_to_queues => {
                    self.queues.replay(&queued, tail, u64::from(begin) + u64::from(bytes), clock);
                }
                Record::Change(_) | Record::Queue(_) | Record::Time(_) => {}
            }
        }
        tail.publish(&changes.messages);
        tail.keys.publish(&changes.keys, self.keys);
        self.dedup.insert(&changes.ids);
        self.rooms.at = at.max(self.rooms.at);
        self.queues.at = at.max(self.queues.at);
        Ok(())
    }

    fn apply_message(
        &mut self,
        message: &Message<'_>,
        (offset, bytes): (u32, u32),
        is_new: bool,
        changes: &mut BlockChanges,
    ) {
        let received = message.received_at.as_micros();
        let number = self.rooms.intern(message.sent.room);
        if is_new {
            self.rooms.store(number, message.seq, received, || Some(message.sent.user));
        }
        changes.ids.push((self.dedup.hash(&message.sent), offset));
        changes.messages.push((number, RecordLocation { seq: message.seq, received, offset, bytes }));
    }
}

fn damaged(path: &str, offset: u64) -> OpenError {
    OpenError::damaged(path, offset, "a record of a valid block is unreadable")
}

/// Makes durable what stands behind the recorded end. After a failed sync the system shows bytes that are not on the
/// disk, and a later sync does not write them; so they are written again.
fn rewrite(journal: &JournalScan, recorded: &JournalEnd, bytes: &[u8]) -> Result<(), OpenError> {
    let from = journal.unproven_from(recorded);
    let unproven = usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or_default();
    if unproven.is_empty() {
        return Ok(());
    }
    let (path, file) = (slot_path(journal.slot.number), &journal.slot.file);
    file.write_all_at(unproven, from).doing("writing", &path)?;
    Ok(file.sync_data().doing("syncing", &path)?)
}
