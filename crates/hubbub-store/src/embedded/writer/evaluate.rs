//! Deciding about every operation of a batch, and encoding what is to be stored.

use hubbub_core::{Message, Op, Outcome, Receipt, Refusal, Send, Timestamp, What};

use super::keys::{DueKeys, KnownKeys};
use super::{Head, Scratch, WritePlace, Writer};
use crate::embedded::dedup::Known;
use crate::embedded::journal::block;
use crate::embedded::queues::QueueBatch;
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
        ops: &[Op<'_>],
        scratch: &mut Scratch,
    ) -> Vec<Outcome> {
        block::begin(&mut scratch.block);
        self.begin_time(shared, scratch);
        scratch.places.clear();
        scratch.ids.clear();
        scratch.touched.clear();
        scratch.stored.clear();
        scratch.changes.clear();
        scratch.joined.clear();
        scratch.records = 0;
        scratch.has_queues = false;
        self.batches += 1;
        Self::begin_keys(&mut scratch.keys);
        self.find_rooms(shared, ops, &mut scratch.rooms);
        self.dedup.begin_batch(ops, &mut scratch.hashes, &mut scratch.maybe_known);
        let now = shared.clock.now().as_micros();
        let due = DueKeys::find(shared, ops, shared.clock.proven().as_micros());
        let mut keys = KnownKeys::look_up(shared, view, ops, &due);
        let mut outcomes = Vec::with_capacity(ops.len());
        for (index, op) in ops.iter().enumerate() {
            let room = scratch.rooms.get(index).copied().flatten();
            outcomes.push(match (op, room) {
                (Op::Send(send), Some(room)) => self.send(shared, send, (index, room), now, view, scratch),
                (Op::Send(_), None) => Outcome::Refused(Refusal::UnknownRoom),
                (Op::Change(change), room) => self.judge(shared, change, (index, room), scratch),
                (Op::Kv(op), _) => self.judge_key(op, &mut keys, now, scratch),
                (Op::Queue(_), _) => Outcome::Refused(Refusal::Unreadable),
            });
        }
        if ops.iter().any(|op| matches!(op, Op::Queue(_))) {
            self.judge_queues(shared, ops, &mut outcomes, scratch);
        }
        outcomes
    }

    /// Decides about the operations on queues, and enters what they come to.
    fn judge_queues(&self, shared: &Shared, ops: &[Op<'_>], outcomes: &mut [Outcome], scratch: &mut Scratch) {
        let WritePlace { tail, position, .. } = &self.place;
        let room = tail.slot.bytes.saturating_sub(*position);
        let spare = usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(scratch.bytes_max);
        let before = scratch.records;
        let mut batch = QueueBatch::new(
            &mut scratch.block,
            &mut scratch.records,
            (tail, *position),
            spare,
            shared.options.queues_autoregister,
            &shared.status.damage,
        );
        shared.queues.decide(&*shared.clock, ops, outcomes, &mut batch);
        scratch.has_queues = scratch.records > before;
    }

    /// Looks up the rooms of a batch, and makes those that may spring into being.
    fn find_rooms(&mut self, shared: &Shared, ops: &[Op<'_>], numbers: &mut Vec<Option<RoomNumber>>) {
        numbers.clear();
        let mut missing = false;
        {
            let rooms = shared.rooms.read();
            for op in ops {
                let number = op.room().and_then(|room| rooms.number(room));
                missing |= number.is_none();
                numbers.push(number);
            }
        }
        if !missing || !ops.iter().any(|op| may_make_room(op, shared)) {
            return;
        }
        let mut rooms = shared.rooms.write();
        for (number, op) in numbers.iter_mut().zip(ops) {
            if let (None, Some(room), true) = (&number, op.room(), may_make_room(op, shared)) {
                *number = Some(rooms.intern(room));
            }
        }
        // A change may belong to a room that a message before it makes.
        for (number, op) in numbers.iter_mut().zip(ops) {
            *number = number.or_else(|| rooms.number(op.room()?));
        }
        let made = rooms.all().get(self.heads.len()..).unwrap_or_default();
        self.heads.extend(made.iter().map(Head::of));
    }

    #[inline]
    fn send(
        &mut self,
        shared: &Shared,
        send: &Send<'_>,
        (index, room): (usize, RoomNumber),
        now: i64,
        view: &View,
        scratch: &mut Scratch,
    ) -> Outcome {
        let Some(head) = self.head(room).filter(|head| head.exists || shared.options.autocreate) else {
            return Outcome::Refused(Refusal::UnknownRoom);
        };
        if head.members_only && !is_member(shared, scratch, room, send.user) {
            return Outcome::Refused(Refusal::NotMember);
        }
        let hash = scratch.hashes.get(index).copied().unwrap_or_default();
        let maybe_known = scratch.maybe_known.get(index).copied().unwrap_or(true);
        let hidden = |seq| shared.rooms.read().is_hidden(room, seq);
        match self.dedup.find(hash, maybe_known, send, &scratch.block, &view.segments, hidden) {
            Ok(Known::New) => {}
            Ok(Known::Same(receipt)) => return Outcome::Duplicate(receipt),
            Ok(Known::Other { seq }) => return Outcome::Refused(Refusal::IdReused { seq }),
            // Neither stored nor known to be new. The rest of the batch has nothing to do with it.
            Err(error) => {
                shared.status.damage.note(&error);
                return Outcome::Refused(Refusal::Unreadable);
            }
        }
        let batches = self.batches;
        let Some(head) = self.head_mut(room) else {
            return Outcome::Refused(Refusal::UnknownRoom);
        };
        if head.touched_by != batches {
            scratch.touched.push(room);
            head.touched_by = batches;
        }
        head.exists = true;
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
        let received = receipt.received_at.as_micros();
        scratch.places.push((room, Place { seq: receipt.seq, received, offset, bytes }));
        scratch.ids.push((hash, offset));
        scratch.stored.push(index);
        scratch.records += 1;
        Outcome::Stored(receipt)
    }
}

/// Whether an operation makes its room if there is none.
fn may_make_room(op: &Op<'_>, shared: &Shared) -> bool {
    match op {
        Op::Send(_) => shared.options.autocreate,
        Op::Change(change) => matches!(change.what, What::PutRoom { .. }),
        Op::Queue(_) | Op::Kv(_) => false,
    }
}

/// Whether a user is a member, after what the batch did so far.
pub(super) fn is_member(shared: &Shared, scratch: &Scratch, room: RoomNumber, user: &str) -> bool {
    let by_batch =
        if scratch.joined.is_empty() { None } else { scratch.joined.get(&(room, user.to_owned())).copied() };
    by_batch.unwrap_or_else(|| shared.rooms.read().is_member(room, user))
}
