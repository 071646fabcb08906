//! All rooms with their members and read marks: the small state of the engine, in memory, written whole into the
//! manifest at each seal.
//!
//! A batch is applied here once it is durable ([`Rooms::store`], [`Rooms::apply`]). A start reads the checkpoint in the
//! manifest ([`checkpoint`]) and applies the rest of the journal by the same two functions. The checkpoint says up to
//! which batch it goes ([`Position`]).
//!
//! Invariant: a room's numbers are dense. What is kept of `low_watermark + 1 ..= head` is everything that is not in `erased`,
//! and `low_watermark + 1` never is. So counts need no counting.

mod change;
mod checkpoint;
mod copy;
mod find;
mod history;
mod room;
mod users;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use hubbub_core::invariant::saturate;

use crate::embedded::file::cursor::index;
use copy::Entries;
pub(crate) use copy::{EncodedRooms, RoomsCopy};
pub(crate) use history::HistoryWindow;
pub use room::Hidden;
pub(crate) use room::Room;
use users::{UserNumber, Users};

/// Number of a room, from 0, in the order of appearance. Not kept across starts.
pub(crate) type RoomNumber = u32;

/// How far the journal is applied: the last batch of a journal, by their numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) journal: u64,
    pub(crate) batch: u32,
}

/// Messages of a room that are too old.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expired {
    pub(crate) room: RoomNumber,
    /// All up to this number.
    pub(crate) through: u64,
    /// How long the room was to keep its messages when they were found to be ([`Room::retention_s`]).
    pub(crate) retention_s: u64,
}

impl Expired {
    /// Whether the room still has that retention.
    pub(crate) fn is_of(&self, room: &Room) -> bool {
        room.retention_s == self.retention_s
    }
}

#[derive(Debug, Default)]
pub(crate) struct Rooms {
    numbers: HashMap<Arc<str>, RoomNumber>,
    order: BTreeMap<Arc<str>, RoomNumber>,
    entries: Entries,
    users: Users,
    pub(crate) known: u64,
    pub(crate) messages: u64,
    pub(crate) memberships: u64,
    /// Counts the times something was hidden that was not.
    pub(crate) hidings: u64,
    /// Counts the times a room was told to keep its messages for another time.
    pub(crate) retention_changes: u64,
    /// Everything up to here is applied.
    pub(crate) at: Position,
}

impl Rooms {
    /// The number of a room, which need not exist any more.
    pub(crate) fn number(&self, name: &str) -> Option<RoomNumber> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn get(&self, number: RoomNumber) -> Option<&Room> {
        self.entries.all().get(index(number))
    }

    /// A room that exists, by its name.
    pub(crate) fn find(&self, name: &str) -> Option<(RoomNumber, &Room)> {
        let number = self.number(name)?;
        Some((number, self.get(number).filter(|room| room.exists)?))
    }

    /// A segment was written without what was hidden when [`Self::hidings`] was this. What was hidden since may be in
    /// it, so the count changes, and whoever found nothing hidden before searches again.
    pub(crate) fn mark_rewritten(&mut self, hidings: u64) {
        self.hidings += u64::from(self.hidings != hidings);
    }

    /// Whether a message is neither hidden nor behind the room's head.
    pub(crate) fn is_shown(&self, number: RoomNumber, seq: u64) -> bool {
        self.get(number).is_some_and(|room| seq <= room.head && !room.hidden().hides(seq))
    }

    /// Whether a message is deleted or erased, though it may still stand somewhere.
    pub(crate) fn is_hidden(&self, number: RoomNumber, seq: u64) -> bool {
        self.get(number).is_some_and(|room| room.hidden().hides(seq))
    }

    /// The number for a room of this name. Readers do not see the room before something is applied to it.
    pub(crate) fn intern(&mut self, name: &str) -> RoomNumber {
        if let Some(number) = self.number(name) {
            return number;
        }
        // Memory ends long before 2^32 rooms.
        let number = saturate(self.entries.all().len());
        let name: Arc<str> = Arc::from(name);
        self.numbers.insert(Arc::clone(&name), number);
        self.order.insert(Arc::clone(&name), number);
        self.entries.push(Room::new(name));
        number
    }

    /// Applies a message that is durable: the head moves on, and so does the sender's read mark if it stood there. Who
    /// sent it is asked only where anybody stands there.
    pub(crate) fn store<'a>(
        &mut self,
        number: RoomNumber,
        seq: u64,
        received: i64,
        sender: impl FnOnce() -> Option<&'a str>,
    ) {
        let Some(room) = self.entries.get_mut(number) else { return };
        if !room.at_head.is_empty() {
            let name = sender();
            let is_sender = |user: &UserNumber| self.users.name(*user).map(|user| &**user) == name;
            let sender = room.at_head.iter().copied().find(is_sender);
            room.at_head.clear();
            if let Some(user) = sender {
                room.members.insert(user, seq);
                room.at_head.push(user);
            }
        }
        self.advance(number, seq, received);
    }

    /// The same for many messages of a room at once, when nobody is a member of anything.
    pub(crate) fn advance(&mut self, number: RoomNumber, head: u64, received: i64) {
        let Some(room) = self.entries.get_mut(number) else { return };
        self.messages += head.saturating_sub(room.head);
        self.known += u64::from(!room.exists);
        room.exists = true;
        room.head = room.head.max(head);
        room.last_received = room.last_received.max(received);
    }

    /// Hides everything of a room up to `seq`, because it was dropped or will be.
    pub(crate) fn raise_low_watermark(&mut self, number: RoomNumber, seq: u64) {
        self.hide(number, |room| room.raise_low_watermark(seq));
    }

    /// Hides messages of a room by their numbers. How many were not hidden yet.
    pub(crate) fn erase(&mut self, number: RoomNumber, seqs: &mut dyn Iterator<Item = u64>) -> u64 {
        self.hide(number, |room| room.erase(seqs))
    }

    fn hide(&mut self, number: RoomNumber, change: impl FnOnce(&mut Room)) -> u64 {
        let Some(room) = self.entries.get_mut(number) else { return 0 };
        let before = room.messages();
        change(room);
        let gone = before - room.messages();
        self.messages -= gone;
        self.hidings += u64::from(gone > 0);
        gone
    }

    pub(crate) fn hidden(&self) -> HashMap<Arc<str>, Hidden> {
        self.entries
            .all()
            .iter()
            .filter(|room| room.hides_any())
            .map(|room| (Arc::clone(&room.name), room.hidden()))
            .collect()
    }

    pub(crate) fn is_member(&self, number: RoomNumber, user: &str) -> bool {
        self.mark(number, user).is_some()
    }

    pub(crate) fn mark(&self, number: RoomNumber, user: &str) -> Option<u64> {
        let room = self.get(number).filter(|room| !room.members.is_empty())?;
        room.members.get(&self.users.number(user)?).copied()
    }

    /// Up to `limit` members of a room with their marks in the order of their names, beginning behind `after`.
    pub(crate) fn members(
        &self,
        number: RoomNumber,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<(Arc<str>, u64)> {
        let Some(room) = self.get(number) else { return Vec::new() };
        let named = room.members.iter().filter_map(|(user, mark)| Some((self.users.name(*user)?, *mark)));
        let mut members: Vec<_> =
            named.filter(|(name, _)| after.is_none_or(|after| ***name > *after)).collect();
        if members.len() > limit {
            members.select_nth_unstable(limit);
            members.truncate(limit);
        }
        members.sort_unstable();
        members.into_iter().map(|(name, mark)| (Arc::clone(name), mark)).collect()
    }

    /// Up to `limit` rooms that a user is a member of, with the user's marks, in the order of their names, beginning
    /// behind `after`.
    pub(crate) fn rooms_of(
        &self,
        user: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<(RoomNumber, &Room, u64)> {
        let Some(user) = self.users.number(user) else { return Vec::new() };
        let joined = self.users.rooms(user).iter().filter_map(|number| {
            let room = self.get(*number)?;
            Some((*number, room, *room.members.get(&user)?))
        });
        let mut rooms: Vec<_> =
            joined.filter(|(_, room, _)| after.is_none_or(|after| *room.name > *after)).collect();
        rooms.sort_unstable_by(|a, b| a.1.name.cmp(&b.1.name));
        rooms.truncate(limit);
        rooms
    }

    /// How many rooms a user is a member of.
    pub(crate) fn count_of(&self, user: &str) -> usize {
        let Some(user) = self.users.number(user) else { return 0 };
        let is_member =
            |number: &&RoomNumber| self.get(**number).is_some_and(|room| room.members.contains_key(&user));
        self.users.rooms(user).iter().filter(is_member).count()
    }

    /// Up to `limit` rooms that exist, in the order of their names, beginning behind `after`.
    pub(crate) fn page(&self, after: Option<&str>, limit: usize) -> Vec<&Room> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order
            .range::<str, _>((from, Bound::Unbounded))
            .filter_map(|(_, number)| self.get(*number))
            .filter(|room| room.exists)
            .take(limit)
            .collect()
    }

    /// All rooms that have a number, in the order of their numbers.
    pub(crate) fn all(&self) -> &[Room] {
        self.entries.all()
    }
}
