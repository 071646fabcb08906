//! Deciding about every operation of a batch in its order, in memory.

use std::collections::HashMap;

use hubbub_core::{Change, Message, Outcome, ReadMark, Receipt, Refusal, Send, Timestamp, What};
use uuid::Uuid;

use super::ids::Known;
use super::messages::New;
use super::state::{Membership, Room, State};
use super::{Numbered, Totals};
use crate::apply::RoomOp;
use crate::rooms::recent::VisibilityVersion;

/// What is to be written.
pub(super) struct Written<'a> {
    /// New messages, those of a room in the order of their numbers.
    pub(super) stored: Vec<New<'a>>,
    /// Rooms that are not as they were.
    pub(super) rooms: Vec<(i32, Room)>,
    /// Members that are not as they were, with their marks; `None` = no members any more.
    pub(super) members: Vec<(Membership, Option<i64>)>,
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

/// Answers, and what makes them true.
pub(super) struct Judged<'a> {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) written: Written<'a>,
}

/// One who judges, and what is known so far.
pub(super) struct Judge<'a> {
    now: Timestamp,
    autocreate: bool,
    state: State,
    known: Known,
    /// The batch's own messages, by room and id.
    new_ids: HashMap<(i32, Uuid), usize>,
    stored: Vec<New<'a>>,
    /// Members who are not as they were.
    members: HashMap<Membership, Option<i64>>,
    counts: Vec<(usize, i32, i64)>,
    totals: Totals,
}

impl<'a> Judge<'a> {
    pub(super) fn new(now: Timestamp, autocreate: bool, state: State, known: Known) -> Self {
        Self {
            now,
            autocreate,
            state,
            known,
            new_ids: HashMap::new(),
            stored: Vec::new(),
            members: HashMap::new(),
            counts: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Decides about all operations.
    pub(super) fn judge(mut self, ops: &[Numbered<'a>], hashes: &[Uuid]) -> Judged<'a> {
        self.new_ids.reserve(ops.len());
        self.stored.reserve(ops.len());
        let mut outcomes = Vec::with_capacity(ops.len());
        for (place, (numbered, hash)) in ops.iter().zip(hashes).enumerate() {
            let judged = match &numbered.op {
                RoomOp::Send(send) => self.send(numbered, send, *hash),
                RoomOp::Change(change) => self.change(numbered, change, place),
            };
            outcomes.push(judged.unwrap_or_else(Outcome::Refused));
        }
        let rooms = self.state.rooms.into_iter().filter(|(_, room)| room.is_touched).collect();
        let (stored, counts, totals) = (self.stored, self.counts, self.totals);
        let members = self.members.into_iter().collect();
        Judged { outcomes, written: Written { stored, rooms, members, counts, totals } }
    }

    fn send(&mut self, numbered: &Numbered<'a>, send: &Send<'a>, hash: Uuid) -> Result<Outcome, Refusal> {
        let (Some(no), Some(sender)) = (numbered.room, numbered.user) else {
            return Err(Refusal::UnknownRoom);
        };
        let Some(room) = self.state.rooms.get_mut(&no).filter(|room| room.exists || self.autocreate) else {
            return Err(Refusal::UnknownRoom);
        };
        let mark = if room.members > 0 { self.state.members.get_mut(&(no, sender)) } else { None };
        if room.members_only && mark.is_none() {
            return Err(Refusal::NotMember);
        }
        if let Some(first) = self.new_ids.get(&(no, hash)).and_then(|first| self.stored.get(*first)) {
            let receipt = Receipt { seq: first.seq.unsigned_abs(), received_at: first.received_at };
            return repeat(first.send.same_content(send), receipt);
        }
        if let Some(first) = self.known.get(&(no, hash)) {
            return repeat(first.is_same(sender, send), first.receipt);
        }
        let seq = room.head + 1;
        if let Some(mark) = mark
            && *mark == room.head
        {
            *mark = seq;
            self.members.insert((no, sender), Some(seq));
        }
        let received_at = room.last_received_at.map_or(self.now, |last| last.max(self.now));
        (room.head, room.last_received_at) = (seq, Some(received_at));
        room.messages += 1;
        self.totals.messages += 1;
        self.totals.rooms += i64::from(!room.exists);
        (room.exists, room.is_touched) = (true, true);
        self.new_ids.insert((no, hash), self.stored.len());
        self.stored.push(New { room: no, sender, seq, received_at, hash, send: *send });
        Ok(Outcome::Stored(Receipt { seq: seq.unsigned_abs(), received_at }))
    }

    fn change(
        &mut self,
        numbered: &Numbered<'a>,
        change: &Change<'_>,
        place: usize,
    ) -> Result<Outcome, Refusal> {
        let no = numbered.room.ok_or(Refusal::UnknownRoom)?;
        let room = self.state.rooms.get_mut(&no).filter(|room| room.exists).ok_or(Refusal::UnknownRoom)?;
        let member = |user: Option<i32>| Some((no, user?));
        let is_member =
            |user: Option<i32>| member(user).is_some_and(|member| self.state.members.contains_key(&member));
        let may = change.by.is_none() || is_member(numbered.by);
        let subject = member(numbered.user);
        match change.what {
            What::AddMember { user, .. } => {
                if !may && (room.members_only || change.by != Some(user)) {
                    return Err(Refusal::NotMember);
                }
                let subject = subject.ok_or(Refusal::Unreadable)?;
                if self.state.members.contains_key(&subject) {
                    return Ok(Outcome::Changed { changed: false });
                }
                self.state.members.insert(subject, room.head);
                self.members.insert(subject, Some(room.head));
                room.members += 1;
            }
            What::RemoveMember { user, .. } => {
                if !may && change.by != Some(user) {
                    return Err(Refusal::NotMember);
                }
                let Some(subject) = subject.filter(|subject| self.state.members.remove(subject).is_some())
                else {
                    return Ok(Outcome::Changed { changed: false });
                };
                self.members.insert(subject, None);
                room.members -= 1;
            }
            What::MarkRead { seq, .. } => {
                let (subject, mark) = subject
                    .and_then(|subject| Some((subject, self.state.members.get_mut(&subject)?)))
                    .ok_or(Refusal::NotMember)?;
                let wanted = i64::try_from(seq).unwrap_or(i64::MAX).min(room.head);
                let moved = wanted > *mark;
                if moved {
                    *mark = wanted;
                    self.members.insert(subject, Some(wanted));
                    (room.is_marked, room.is_touched) = (true, true);
                }
                let behind = (*mark).max(room.oldest - 1);
                if room.erased > 0 {
                    self.counts.push((place, no, behind));
                }
                let unread = (room.head - behind).unsigned_abs();
                return Ok(Outcome::Read(ReadMark { seq: mark.unsigned_abs(), unread, moved }));
            }
            What::PutRoom { .. } | What::DeleteRoom { .. } | What::EraseUser { .. } => {
                return Err(Refusal::Unreadable);
            }
        }
        (room.is_changed, room.is_touched) = (true, true);
        Ok(Outcome::Changed { changed: true })
    }
}

fn repeat(is_same: bool, first: Receipt) -> Result<Outcome, Refusal> {
    if is_same { Ok(Outcome::Duplicate(first)) } else { Err(Refusal::IdReused { seq: first.seq }) }
}
