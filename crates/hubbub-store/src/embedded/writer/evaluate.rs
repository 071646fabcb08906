//! Deciding about every operation of a batch, and encoding what is to be stored.

use hubbub_core::{Message, Op, OpBatch, Outcome, Receipt, Refusal, Send, Timestamp};

use super::{Head, Scratch, Touched, Writer};
use crate::embedded::dedup::Known;
use crate::embedded::error::MaintainError;
use crate::embedded::journal::block;
use crate::embedded::record;
use crate::embedded::rooms::RoomNumber;
use crate::embedded::shared::Shared;
use crate::embedded::tail::Place;
use crate::embedded::view::View;

impl Writer {
    /// Decides about every operation and encodes what is to be stored.
    ///
    /// In passes over the batch rather than operation by operation: what is looked up all over memory is so looked
    /// up for many at once, and the processor waits for all of them together.
    pub(super) fn evaluate(
        &mut self,
        shared: &Shared,
        view: &View,
        batch: &OpBatch,
        scratch: &mut Scratch,
    ) -> Result<Vec<Outcome>, MaintainError> {
        block::begin(&mut scratch.block);
        scratch.places.clear();
        scratch.ids.clear();
        scratch.touched.clear();
        self.batches += 1;
        let ops: Vec<Op<'_>> = batch.iter().collect();
        self.find_rooms(shared, &ops, &mut scratch.rooms);
        self.dedup.begin_batch(&ops, &mut scratch.hashes, &mut scratch.maybe_known);
        let now = shared.clock.now().as_micros();
        let mut outcomes = Vec::with_capacity(ops.len());
        for (index, op) in ops.iter().enumerate() {
            let Op::Send(send) = op;
            outcomes.push(match scratch.rooms.get(index).copied().flatten() {
                Some(room) => self.send(send, (index, room), now, view, scratch)?,
                None => Outcome::Refused(Refusal::UnknownRoom),
            });
        }
        Ok(outcomes)
    }

    /// Looks up the rooms of a batch, and makes those that may spring into being.
    fn find_rooms(&mut self, shared: &Shared, ops: &[Op<'_>], numbers: &mut Vec<Option<RoomNumber>>) {
        numbers.clear();
        let mut missing = false;
        {
            let rooms = shared.rooms.read();
            for op in ops {
                let number = rooms.number(op.room());
                missing |= number.is_none();
                numbers.push(number);
            }
        }
        if !missing || !shared.options.autocreate {
            return;
        }
        let mut rooms = shared.rooms.write();
        for (number, op) in numbers.iter_mut().zip(ops) {
            number.get_or_insert_with(|| rooms.intern(op.room()));
        }
        self.heads.resize(rooms.len(), Head { seq: 0, received: i64::MIN, touched_by: 0 });
    }

    #[inline]
    fn send(
        &mut self,
        send: &Send<'_>,
        (index, room): (usize, RoomNumber),
        now: i64,
        view: &View,
        scratch: &mut Scratch,
    ) -> Result<Outcome, MaintainError> {
        let hash = scratch.hashes.get(index).copied().unwrap_or_default();
        let maybe_known = scratch.maybe_known.get(index).copied().unwrap_or(true);
        match self.dedup.find(hash, maybe_known, send, &scratch.block, &view.segments)? {
            Known::New => {}
            Known::Same(receipt) => return Ok(Outcome::Duplicate(receipt)),
            Known::Other { seq } => return Ok(Outcome::Refused(Refusal::IdReused { seq })),
        }
        let Some(head) = usize::try_from(room).ok().and_then(|room| self.heads.get_mut(room)) else {
            return Ok(Outcome::Refused(Refusal::UnknownRoom));
        };
        if head.touched_by != self.batches {
            scratch.touched.push(Touched { room, before: *head });
            head.touched_by = self.batches;
        }
        head.seq += 1;
        head.received = head.received.max(now);
        let receipt = Receipt { seq: head.seq, received_at: Timestamp::from_micros(head.received) };
        let begin = scratch.block.len();
        let message = Message { seq: receipt.seq, received_at: receipt.received_at, sent: *send };
        record::write_message(&message, &mut scratch.block);
        let bytes = u32::try_from(scratch.block.len() - begin).unwrap_or(u32::MAX);
        // Slots are smaller than 4 GiB.
        let begin = u32::try_from(begin).unwrap_or(u32::MAX);
        let offset = u32::try_from(self.place.position).unwrap_or(u32::MAX).saturating_add(begin);
        self.dedup.note_in_batch(hash, begin);
        scratch.places.push((room, Place { seq: receipt.seq, received: head.received, offset, bytes }));
        scratch.ids.push((hash, offset));
        Ok(Outcome::Stored(receipt))
    }

    /// Undoes an evaluation; nothing of it was written.
    pub(super) fn take_back(&mut self, scratch: &Scratch) {
        for touched in &scratch.touched {
            if let Some(head) = usize::try_from(touched.room).ok().and_then(|room| self.heads.get_mut(room)) {
                *head = touched.before;
            }
        }
    }
}
