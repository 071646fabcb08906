//! Deciding about every operation of a batch, and encoding what is to be stored.

use hubbub_core::invariant::{broken, saturate};
use hubbub_core::rules::rooms::{self, IdHolder, RoomState, SendDecision, SendView};
use hubbub_core::{Message, Op, Outcome, Receipt, Refusal, RoomChange, Send, Timestamp};

use super::keys::{DueKeys, KeyWorkingSet};
use super::{BlockSpan, RoomHead, Scratch, WritePlace, Writer};
use crate::embedded::error::MaintainError;
use crate::embedded::queues::{PAYLOADS_MAX, QueueBatch, ROUNDS_MAX};
use crate::embedded::record;
use crate::embedded::rooms::RoomNumber;
use crate::embedded::segment::Segment;
use crate::embedded::shared::Shared;
use crate::embedded::tail::RecordLocation;
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
        self.begin_block(shared, scratch);
        self.find_rooms(shared, ops, &mut scratch.rooms);
        self.dedup.begin_batch(ops, &mut scratch.hashes, &mut scratch.maybe_known);
        let now = shared.clock.now();
        let due = DueKeys::find(shared, ops, shared.clock.proven());
        Self::begin_keys(&mut scratch.keys, &due);
        let mut keys = KeyWorkingSet::load(shared, view, ops, &due, self.revision);
        let mut outcomes = Vec::with_capacity(ops.len());
        for (index, op) in ops.iter().enumerate() {
            let room = scratch.rooms.get(index).copied().flatten();
            outcomes.push(match (op, room) {
                (Op::Send(send), Some(room)) => self.send(shared, send, (index, room), now, view, scratch),
                (Op::Send(_), None) => Outcome::Refused(Refusal::UnknownRoom),
                (Op::Change(change), room) => self.decide_change(shared, change, (index, room), scratch),
                (Op::Kv(op), _) => self.decide_key(op, &mut keys, now, scratch),
                // Decided below, all of them at once.
                (Op::Queue(_), _) => Outcome::Refused(Refusal::Internal),
            });
        }
        if ops.iter().any(|op| matches!(op, Op::Queue(_))) {
            self.decide_queues(shared, ops, &mut outcomes, scratch);
        }
        outcomes
    }

    /// Decides about the operations on queues, and applies what they come to.
    fn decide_queues(
        &self,
        shared: &Shared,
        ops: &[Op<'_>],
        outcomes: &mut [Outcome],
        scratch: &mut Scratch,
    ) {
        let WritePlace { tail, position, .. } = &self.place;
        let room = tail.slot.bytes.saturating_sub(*position);
        let spare = saturate::<u64, usize>(room).saturating_sub(scratch.bytes_max);
        let before = scratch.records;
        let mut batch = QueueBatch {
            block: &mut scratch.block,
            records: &mut scratch.records,
            tail,
            position: *position,
            spare,
            missing: 0,
            payloads: PAYLOADS_MAX,
            rounds: ROUNDS_MAX,
            autoregister: shared.options.queues_autoregister,
            damage: &shared.status.damage,
        };
        shared.queues.decide(&*shared.clock, ops, outcomes, &mut batch);
        scratch.missing_list = scratch.missing_list.max(batch.missing);
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
        self.heads.extend(made.iter().map(RoomHead::of));
    }

    #[inline]
    fn send(
        &mut self,
        shared: &Shared,
        send: &Send<'_>,
        (index, room): (usize, RoomNumber),
        now: Timestamp,
        view: &View,
        scratch: &mut Scratch,
    ) -> Outcome {
        let hash = scratch.hashes.get(index).copied().unwrap_or_default();
        let decided = {
            let maybe_known = scratch.maybe_known.get(index).copied().unwrap_or(true);
            let room = RoomView { writer: self, shared, scratch: &*scratch, room: Some(room) };
            let view = MessageView { room, segments: &view.segments, hash, maybe_known };
            rooms::decide_send(&view, send, now, shared.options.autocreate)
        };
        match decided {
            Ok(SendDecision::Store(receipt)) => {
                self.write_message(send, (index, room, hash), receipt, scratch)
            }
            Ok(decision) => decision.into(),
            // Neither stored nor known to be new. The rest of the batch has nothing to do with it.
            Err(error) => {
                shared.status.damage.note(&error);
                Outcome::Refused(Refusal::Unreadable)
            }
        }
    }

    /// Encodes a message that has its number, and moves the room's head on.
    #[inline]
    fn write_message(
        &mut self,
        send: &Send<'_>,
        (index, room, hash): (usize, RoomNumber, u64),
        receipt: Receipt,
        scratch: &mut Scratch,
    ) -> Outcome {
        let begin = scratch.block.len();
        let message = Message { seq: receipt.seq, received_at: receipt.received_at, sent: *send };
        let written = record::write_message(&message, &mut scratch.block);
        let located = written.and_then(|()| self.place.locate(&mut scratch.block, begin));
        let BlockSpan { begin, offset, bytes } = match located {
            Ok(location) => location,
            Err(broken) => return Outcome::Refused(broken.into()),
        };
        let batches = self.batches;
        let Some(head) = self.head_mut(room) else {
            return Outcome::Refused(broken("a room that is decided about has a head").into());
        };
        if head.touched_by != batches {
            scratch.touched.push(room);
            head.touched_by = batches;
        }
        head.state.exists = true;
        (head.state.head, head.state.last_received) = (receipt.seq, receipt.received_at);
        self.dedup.insert_in_batch(hash, begin);
        let received = receipt.received_at.as_micros();
        scratch.places.push((room, RecordLocation { seq: receipt.seq, received, offset, bytes }));
        scratch.ids.push((hash, offset));
        scratch.stored.push(index);
        scratch.records += 1;
        Outcome::Stored(receipt)
    }
}

/// A room of an operation, as the operations before left it.
pub(super) struct RoomView<'w> {
    pub(super) writer: &'w Writer,
    pub(super) shared: &'w Shared,
    pub(super) scratch: &'w Scratch,
    pub(super) room: Option<RoomNumber>,
}

impl rooms::View for RoomView<'_> {
    #[inline]
    fn room(&self) -> Option<RoomState> {
        Some(self.writer.head(self.room?)?.state)
    }

    fn is_member(&self, user: &str) -> bool {
        let Some(room) = self.room else { return false };
        let joined = &self.scratch.joined;
        let by_batch = if joined.is_empty() { None } else { joined.get(&(room, user.to_owned())).copied() };
        by_batch.unwrap_or_else(|| self.shared.rooms.read().is_member(room, user))
    }
}

/// A message's room, and where its id may stand.
struct MessageView<'w> {
    room: RoomView<'w>,
    segments: &'w [Segment],
    hash: u64,
    maybe_known: bool,
}

impl rooms::View for MessageView<'_> {
    #[inline]
    fn room(&self) -> Option<RoomState> {
        rooms::View::room(&self.room)
    }

    fn is_member(&self, user: &str) -> bool {
        rooms::View::is_member(&self.room, user)
    }
}

impl SendView for MessageView<'_> {
    type LoadRequest = MaintainError;

    #[inline]
    fn id_holder(&self, send: &Send<'_>) -> Result<Option<IdHolder>, MaintainError> {
        let RoomView { writer, shared, scratch, room } = self.room;
        let hidden = |seq| room.is_some_and(|room| shared.rooms.read().is_hidden(room, seq));
        writer.dedup.find(self.hash, self.maybe_known, send, &scratch.block, self.segments, hidden)
    }
}

/// Whether an operation makes its room if there is none.
fn may_make_room(op: &Op<'_>, shared: &Shared) -> bool {
    match op {
        Op::Send(_) => shared.options.autocreate,
        Op::Change(change) => matches!(change.what, RoomChange::PutRoom { .. }),
        Op::Queue(_) | Op::Kv(_) => false,
    }
}
