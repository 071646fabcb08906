//! Changes of rooms and members: their records in the block, and applying them once they are durable.

use std::sync::Arc;

use hubbub_core::rules::rooms::decide_change;
use hubbub_core::store::ApplyError;
use hubbub_core::{Change, Op, OpBatch, Outcome, Refusal, RoomChange};

use super::evaluate::RoomView;
use super::{RoomHead, Scratch, Writer, erasure_max};
use crate::embedded::error::MaintainError;
use crate::embedded::journal::block::HEADER_BYTES;
use crate::embedded::record::{self, ChangeRecord, Record};
use crate::embedded::rooms::{Expired, RoomNumber, Rooms};
use crate::embedded::shared::Shared;

/// The outcome of a change that is not applied yet.
const NOT_APPLIED: Outcome = Outcome::Changed { changed: false };

impl Writer {
    /// Decides about a change and encodes it if it may be made.
    pub(super) fn decide_change(
        &self,
        shared: &Shared,
        change: &Change<'_>,
        (index, room): (usize, Option<RoomNumber>),
        scratch: &mut Scratch,
    ) -> Outcome {
        let begin = scratch.block.len();
        if let RoomChange::EraseUser { user } = change.what {
            match write_erasure(shared, user, &mut scratch.block) {
                Ok(true) => {}
                Ok(false) => return Outcome::Erased { messages: 0, more: false },
                Err(error) => {
                    shared.status.damage.note(&error);
                    return Outcome::Refused(Refusal::Unreadable);
                }
            }
        } else {
            let view = RoomView { writer: self, shared, scratch: &*scratch, room };
            match decide_change(&view, change) {
                Ok(()) => write_change(change, room, scratch),
                Err(refusal) => return Outcome::Refused(refusal),
            }
        }
        scratch.records += 1;
        scratch.changes.push((index, begin));
        NOT_APPLIED
    }

    /// Hides messages that are too old. Not before that is durable: then their ids may be used anew. Says whether it hid all: not
    /// where a room has come to keep its messages for another time. May fail behind a part of it. Works also while writes are
    /// refused because the disk is full, unless it was so at the start.
    pub(crate) fn hide(&mut self, shared: &Shared, expired: &[Expired]) -> Result<bool, ApplyError> {
        if let Some(reason) = shared.status.failure() {
            return Err(ApplyError::Unavailable { reason });
        }
        if let Some(reason) = shared.keeps_all() {
            return Err(ApplyError::DiskFull { reason });
        }
        let still: Vec<(Arc<str>, u64)> = {
            let rooms = shared.rooms.read();
            let name = |expired: &Expired| {
                let room = rooms.get(expired.room).filter(|room| expired.is_of(room))?;
                Some((Arc::clone(&room.name), expired.through))
            };
            expired.iter().filter_map(name).collect()
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut parts = still.chunks(erasure_max(shared.options.slot_bytes));
        let hidden = parts.try_for_each(|part| self.hide_some(shared, part, &mut scratch));
        self.scratch = scratch;
        hidden.map(|()| still.len() == expired.len())
    }

    fn hide_some(
        &mut self,
        shared: &Shared,
        expired: &[(Arc<str>, u64)],
        scratch: &mut Scratch,
    ) -> Result<(), ApplyError> {
        let seqs = expired.len() * record::SEQ_BYTES_MAX;
        let bound = HEADER_BYTES + record::TIME_BYTES + record::RECORD_OVERHEAD_MAX + seqs;
        self.fit(shared, bound as u64, 0)?;
        self.begin_block(shared, scratch);
        let record =
            ChangeRecord::Expiry(expired.iter().map(|(room, through)| (&**room, *through)).collect());
        record.write(&mut scratch.block);
        scratch.records = 1;
        self.commit(shared, scratch)?;
        let mut rooms = shared.rooms.write();
        rooms.apply(&record);
        rooms.at = self.committed_at();
        Ok(())
    }

    /// Applies what is durable operation by operation, where the order decides who has read what.
    pub(super) fn apply_in_order(
        &mut self,
        rooms: &mut Rooms,
        batch: &OpBatch,
        scratch: &Scratch,
        outcomes: &mut [Outcome],
    ) {
        let mut changes = scratch.changes.iter().copied().peekable();
        let mut apply_changes = |rooms: &mut Rooms, before: usize| {
            while let Some((index, begin)) = changes.next_if(|(index, _)| *index < before) {
                // What was written is applied, so that a start comes to the same.
                let mut written = scratch.block.get(begin..).unwrap_or_default();
                if let (Some(Record::Change(record)), Some(outcome)) =
                    (record::read(&mut written), outcomes.get_mut(index))
                {
                    *outcome = rooms.apply(&record);
                }
            }
        };
        for ((number, place), index) in scratch.places.iter().zip(&scratch.stored) {
            apply_changes(rooms, *index);
            rooms.store(*number, place.seq, place.received, || match batch.get(*index) {
                Some(Op::Send(send)) => Some(send.user),
                _ => None,
            });
        }
        apply_changes(rooms, usize::MAX);
        // Only exclusive operations change what messages are decided by.
        if batch.is_exclusive()
            && let Some(number) = scratch.rooms.first().copied().flatten()
            && let (Some(head), Some(room)) = (self.head_mut(number), rooms.get(number))
        {
            *head = RoomHead::of(room);
        }
    }
}

/// Appends the record of a change of one room. Later operations of the batch see who came and who went.
fn write_change(change: &Change<'_>, room: Option<RoomNumber>, scratch: &mut Scratch) {
    match (change.what, room) {
        (RoomChange::AddMember { user, .. }, Some(room)) => {
            scratch.joined.insert((room, user.to_owned()), true);
        }
        (RoomChange::RemoveMember { user, .. }, Some(room)) => {
            scratch.joined.insert((room, user.to_owned()), false);
        }
        _ => {}
    }
    ChangeRecord::Room(*change).write(&mut scratch.block);
}

/// Appends the record of an erasure. `false`, and none, where there is nothing of the user.
fn write_erasure(shared: &Shared, user: &str, block: &mut Vec<u8>) -> Result<bool, MaintainError> {
    let most = erasure_max(shared.options.slot_bytes);
    let mut places = shared.user_places(user, most + 1)?;
    if places.is_empty() && shared.rooms.read().count_of(user) == 0 {
        return Ok(false);
    }
    let is_last = places.len() <= most;
    places.truncate(most);
    places.sort_unstable();
    let names: Vec<(Arc<str>, Vec<u64>)> = {
        let rooms = shared.rooms.read();
        let of_one_room = places.chunk_by(|a, b| a.0 == b.0);
        let named = of_one_room.filter_map(|places| {
            let room = rooms.get(places.first()?.0)?;
            Some((Arc::clone(&room.name), places.iter().map(|(_, seq)| *seq).collect()))
        });
        named.collect()
    };
    let seqs = names.iter().map(|(room, seqs)| (&**room, seqs.clone())).collect();
    ChangeRecord::Erasure { user, is_last, seqs }.write(block);
    Ok(true)
}
