//! Decides about the operations of a batch in their order, in memory, by [`hubbub_core::rules::rooms`].

use std::collections::HashMap;
use std::convert::Infallible;

use hubbub_core::invariant::{BrokenInvariant, broken, saturate};
use hubbub_core::rules::rooms::{
    IdHolder, RoomMut, RoomState, SendDecision, SendView, View, apply_change, decide_change, decide_send,
    is_caught_up,
};
use hubbub_core::{Change, Message, Outcome, Receipt, Refusal, RoomOp, RoomSettings, Send, Timestamp};
use uuid::Uuid;

use super::differences::NewMessage;
use super::ids::UsedIds;
use super::state::{Membership, Room, State};
use super::{Numbered, Totals};
use crate::log::Fence;
use crate::rooms::recent::VisibilityVersion;

/// What is to be written.
#[derive(Default)]
pub(super) struct Written<'a> {
    /// New messages, those of a room in the order of their numbers.
    pub(super) stored: Vec<NewMessage<'a>>,
    /// Rooms that are not as they were.
    pub(super) rooms: Vec<(i32, Room)>,
    /// Members that are not as they were, with their marks; `None` = no members any more.
    pub(super) members: HashMap<Membership, Option<i64>>,
    /// For outcomes, by their places, that tell what is unread: a room, and the number behind which its erased messages
    /// are to be counted.
    pub(super) counts: Vec<(usize, i32, i64)>,
    pub(super) totals: Totals,
}

impl<'a> Written<'a> {
    /// The new messages, with their rooms and how these stand.
    pub(super) fn messages(&self) -> impl Iterator<Item = (i32, VisibilityVersion, Message<'a>)> {
        let stamp = |room: &Room| (room.oldest.unsigned_abs(), room.erased);
        let stamps: HashMap<i32, VisibilityVersion> =
            self.rooms.iter().map(|(no, room)| (*no, stamp(room))).collect();
        self.stored.iter().filter_map(move |new| {
            let message =
                Message { seq: new.seq.unsigned_abs(), received_at: new.received_at, sent: new.send };
            Some((new.room, *stamps.get(&new.room)?, message))
        })
    }
}

/// A batch under way: what was loaded for it, and what its operations changed so far.
pub(super) struct WorkingSet<'a> {
    now: Timestamp,
    autocreate: bool,
    state: State,
    used_ids: UsedIds,
    /// The batch's own messages, by room and id.
    new_ids: HashMap<(i32, Uuid), usize>,
    written: Written<'a>,
}

impl<'a> WorkingSet<'a> {
    pub(super) fn new(now: Timestamp, autocreate: bool, state: State, used_ids: UsedIds) -> Self {
        Self { now, autocreate, state, used_ids, new_ids: HashMap::new(), written: Written::default() }
    }

    pub(super) fn decide(&mut self, ops: &[Numbered<'a>], hashes: &[Uuid]) -> Vec<Outcome> {
        self.new_ids.reserve(ops.len());
        self.written.stored.reserve(ops.len());
        let mut outcomes = Vec::with_capacity(ops.len());
        for (place, (numbered, hash)) in ops.iter().zip(hashes).enumerate() {
            if !self.state.fence.admit(numbered.position) {
                outcomes.push(Outcome::Accepted);
                continue;
            }
            let decided = match &numbered.op {
                RoomOp::Send(send) => self.send(numbered, send, *hash),
                // What such a change writes is not among the differences that are written here.
                RoomOp::Change(change) if change.is_exclusive() => {
                    Err(broken("an exclusive change is alone in its batch").into())
                }
                RoomOp::Change(change) => self.change(numbered, change, place),
            };
            outcomes.push(decided.unwrap_or_else(Outcome::Refused));
        }
        outcomes
    }

    /// What the operations changed, and the partitions of the log that they come from.
    pub(super) fn into_written(mut self) -> (Written<'a>, Fence) {
        self.written.rooms = self.state.rooms.into_iter().filter(|(_, room)| room.is_touched).collect();
        (self.written, self.state.fence)
    }

    fn send(&mut self, numbered: &Numbered<'a>, send: &Send<'a>, hash: Uuid) -> Result<Outcome, Refusal> {
        let now = numbered.received_at(self.now);
        let Ok(decision) = decide_send(&OpView { set: self, numbered, hash }, send, now, self.autocreate);
        if let SendDecision::Store(receipt) = decision {
            self.store(numbered, send, hash, receipt)?;
        }
        Ok(decision.into())
    }

    /// Applies a message that has its number.
    fn store(
        &mut self,
        numbered: &Numbered<'a>,
        send: &Send<'a>,
        hash: Uuid,
        Receipt { seq, received_at, .. }: Receipt,
    ) -> Result<(), BrokenInvariant> {
        let target = numbered.room.and_then(|no| Some((no, self.state.rooms.get_mut(&no)?)));
        let (Some((no, room)), Some(sender)) = (target, numbered.user) else {
            return Err(broken("the room and the sender of a message that is stored have numbers"));
        };
        let mark = if room.members > 0 { self.state.members.get_mut(&(no, sender)) } else { None };
        let stored = room.head + 1;
        if let Some(mark) = mark
            && is_caught_up(mark.unsigned_abs(), room.head.unsigned_abs())
        {
            *mark = stored;
            self.written.members.insert((no, sender), Some(stored));
        }
        debug_assert_eq!(stored.unsigned_abs(), seq);
        (room.head, room.last_received_at) = (stored, Some(received_at));
        room.messages += 1;
        self.written.totals.messages += 1;
        self.written.totals.rooms += i64::from(!room.exists);
        (room.exists, room.is_touched) = (true, true);
        self.new_ids.insert((no, hash), self.written.stored.len());
        self.written.stored.push(NewMessage {
            room: no,
            sender,
            seq: stored,
            received_at,
            hash,
            send: *send,
        });
        Ok(())
    }

    /// Decides about a change of one room and applies it.
    pub(super) fn change(
        &mut self,
        numbered: &Numbered<'a>,
        change: &Change<'a>,
        place: usize,
    ) -> Result<Outcome, Refusal> {
        decide_change(&OpView { set: self, numbered, hash: Uuid::nil() }, change)?;
        let target = numbered.room.and_then(|no| Some((no, self.state.rooms.get_mut(&no)?)));
        let Some((no, room)) = target else {
            return Err(broken("a room that is changed was locked").into());
        };
        let (marks, changed, counts) =
            (&mut self.state.members, &mut self.written.members, &mut self.written.counts);
        let mut target = RoomEntry { no, room, numbered, place, marks, changed, counts };
        Ok(apply_change(&mut target, change)?)
    }

    pub(super) fn room(&self, no: i32) -> Option<&Room> {
        self.state.rooms.get(&no)
    }
}

/// The working set as one operation sees it.
struct OpView<'s, 'a> {
    set: &'s WorkingSet<'a>,
    numbered: &'s Numbered<'a>,
    hash: Uuid,
}

impl View for OpView<'_, '_> {
    fn room(&self) -> Option<RoomState> {
        Some(self.set.room(self.numbered.room?)?.state())
    }

    fn is_member(&self, user: &str) -> bool {
        let member = self.numbered.member(user);
        member.is_some_and(|member| self.set.state.members.contains_key(&member))
    }
}

impl SendView for OpView<'_, '_> {
    /// Where ids were not looked up, the insertion of a repeated one shows it, and the batch is done again.
    type LoadRequest = Infallible;

    fn id_holder(&self, send: &Send<'_>) -> Result<Option<IdHolder>, Infallible> {
        let Some((room, sender)) = self.numbered.room.zip(self.numbered.user) else { return Ok(None) };
        let id = (room, self.hash);
        if let Some(first) = self.set.new_ids.get(&id).and_then(|first| self.set.written.stored.get(*first)) {
            let receipt = Receipt { seq: first.seq.unsigned_abs(), received_at: first.received_at, gap: 0 };
            return Ok(Some(IdHolder { receipt, is_same: first.send.same_content(send) }));
        }
        let first = self.set.used_ids.get(&id);
        Ok(first.map(|first| IdHolder { receipt: first.receipt, is_same: first.is_same(sender, send) }))
    }
}

/// A room that a record is applied to.
struct RoomEntry<'s, 'a> {
    no: i32,
    room: &'s mut Room,
    numbered: &'s Numbered<'a>,
    place: usize,
    marks: &'s mut HashMap<Membership, i64>,
    changed: &'s mut HashMap<Membership, Option<i64>>,
    counts: &'s mut Vec<(usize, i32, i64)>,
}

impl RoomMut for RoomEntry<'_, '_> {
    fn state(&self) -> RoomState {
        self.room.state()
    }

    fn mark(&self, user: &str) -> Option<u64> {
        Some(self.marks.get(&self.numbered.member(user)?)?.unsigned_abs())
    }

    fn set_mark(&mut self, user: &str, mark: Option<u64>) -> Result<(), BrokenInvariant> {
        let Some(member) = self.numbered.member(user) else {
            return Err(broken("a member whose mark is set has a number"));
        };
        let mark: Option<i64> = mark.map(saturate);
        let before = match mark {
            Some(mark) => self.marks.insert(member, mark),
            None => self.marks.remove(&member),
        };
        self.changed.insert(member, mark);
        self.room.members += i64::from(mark.is_some()) - i64::from(before.is_some());
        let is_moved = mark.is_some() && before.is_some();
        self.room.is_marked |= is_moved;
        self.room.is_changed |= !is_moved;
        self.room.is_touched = true;
        Ok(())
    }

    /// Those counted that are erased are taken off once the database has counted them.
    fn unread(&mut self, mark: u64) -> u64 {
        let behind = saturate::<u64, i64>(mark).max(self.room.oldest - 1);
        if self.room.erased > 0 {
            self.counts.push((self.place, self.no, behind));
        }
        (self.room.head - behind).unsigned_abs()
    }

    /// The statement that changes the room writes the settings.
    fn put(&mut self, _: &RoomSettings<'_>) {
        self.room.exists = true;
    }

    /// The statements that delete the room do the rest.
    fn clear(&mut self) {
        self.room.exists = false;
        self.room.messages = 0;
    }
}
