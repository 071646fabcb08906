//! Applies changes of rooms that are durable. What they come to is said by [`hubbub_core::rules::rooms`].

use hubbub_core::invariant::BrokenInvariant;
use hubbub_core::rules::rooms::{RoomMut, RoomState, apply_change};
use hubbub_core::{Change, Outcome, RoomSettings, Timestamp};

use super::{Room, RoomNumber, Rooms};
use crate::embedded::record::ChangeRecord;

/// A room that a change is applied to.
struct RoomEntry<'r> {
    rooms: &'r mut Rooms,
    number: RoomNumber,
}

impl RoomMut for RoomEntry<'_> {
    fn state(&self) -> RoomState {
        let unknown =
            RoomState { exists: false, members_only: false, head: 0, last_received: Timestamp::MIN };
        self.rooms.get(self.number).map_or(unknown, Room::state)
    }

    fn mark(&self, user: &str) -> Option<u64> {
        self.rooms.mark(self.number, user)
    }

    fn set_mark(&mut self, user: &str, mark: Option<u64>) -> Result<(), BrokenInvariant> {
        self.rooms.set_mark(self.number, user, mark);
        Ok(())
    }

    fn unread(&mut self, mark: u64) -> u64 {
        self.rooms.get(self.number).map_or(0, |room| room.unread(mark))
    }

    fn put(&mut self, settings: &RoomSettings<'_>) {
        let Some(room) = self.rooms.entries.get_mut(self.number) else { return };
        if let Some(title) = settings.title {
            room.title = (!title.is_empty()).then(|| title.into());
        }
        room.members_only = settings.members_only.unwrap_or(room.members_only);
        let retention_s = settings.retention_s.unwrap_or(room.retention_s);
        self.rooms.retention_changes += u64::from(retention_s != room.retention_s);
        room.retention_s = retention_s;
        self.rooms.known += u64::from(!room.exists);
        room.exists = true;
    }

    fn clear(&mut self) {
        let Some(room) = self.rooms.get(self.number) else { return };
        let head = room.head;
        let members: Vec<_> = room.members.keys().copied().collect();
        for user in &members {
            self.rooms.users.leave(*user, self.number);
        }
        self.rooms.memberships -= members.len() as u64;
        self.rooms.raise_low_watermark(self.number, head);
        if let Some(room) = self.rooms.entries.get_mut(self.number) {
            let empty = Room::new(room.name.clone());
            let gone = Room { low_watermark: head, deleted_through: head, ..empty };
            *room = Room { head, last_received: room.last_received, ..gone };
        }
        self.rooms.known -= 1;
    }
}

impl Rooms {
    /// Applies a change that is durable, and says what became of it.
    pub(crate) fn apply(&mut self, record: &ChangeRecord<'_>) -> Outcome {
        match record {
            ChangeRecord::Room(change) => self.apply_to_room(change),
            ChangeRecord::Erasure { user, is_last, seqs } => self.apply_erasure(user, *is_last, seqs),
            ChangeRecord::Expiry(rooms) => self.apply_expiry(rooms),
        }
    }

    /// Hides messages that were too old. Nobody waits for the outcome.
    fn apply_expiry(&mut self, rooms: &[(&str, u64)]) -> Outcome {
        for (room, through) in rooms {
            if let Some(number) = self.number(room) {
                self.raise_low_watermark(number, *through);
            }
        }
        Outcome::Changed { changed: true }
    }

    fn apply_to_room(&mut self, change: &Change<'_>) -> Outcome {
        let number = self.intern(change.room().unwrap_or_default());
        let applied = apply_change(&mut RoomEntry { rooms: self, number }, change);
        applied.unwrap_or_else(|broken| Outcome::Refused(broken.into()))
    }

    /// Hides messages of a user. With the last of them the memberships end.
    fn apply_erasure(&mut self, user: &str, is_last: bool, seqs: &[(&str, Vec<u64>)]) -> Outcome {
        let mut messages = 0;
        for (room, seqs) in seqs {
            if let Some(number) = self.number(room) {
                messages += self.erase(number, &mut seqs.iter().copied());
            }
        }
        if is_last && let Some(number) = self.users.number(user) {
            for room in self.users.rooms(number).to_vec() {
                self.set_mark(room, user, None);
            }
        }
        Outcome::Erased { messages, more: !is_last }
    }

    /// Sets a member's read mark; `None` ends the membership.
    fn set_mark(&mut self, number: RoomNumber, user: &str, mark: Option<u64>) {
        let Some(room) = self.entries.get_mut(number) else { return };
        let user = match mark {
            Some(_) => self.users.intern(user),
            None => match self.users.number(user) {
                Some(user) => user,
                None => return,
            },
        };
        match (room.set_mark(user, mark), mark) {
            (None, Some(_)) => {
                self.memberships += 1;
                self.users.join(user, number);
            }
            (Some(_), None) => {
                self.memberships -= 1;
                self.users.leave(user, number);
            }
            _ => {}
        }
    }
}
