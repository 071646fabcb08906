//! Applies durable changes to rooms and members.

use hubbub_core::{Outcome, ReadMark};

use super::{Room, RoomNumber, Rooms};
use crate::embedded::record::Logged;

impl Rooms {
    /// Applies a change that was decided and is durable. Returns its outcome.
    pub(crate) fn change(&mut self, logged: &Logged<'_>) -> Outcome {
        match *logged {
            Logged::PutRoom { room, founder, title, members_only, retention_s } => {
                let number = self.intern(room);
                let created = self.put(number, |room| {
                    if let Some(title) = title {
                        room.title = (!title.is_empty()).then(|| title.into());
                    }
                    room.members_only = members_only.unwrap_or(room.members_only);
                    room.retention_s = retention_s.unwrap_or(room.retention_s);
                });
                if created && let Some(founder) = founder {
                    self.join(number, founder);
                }
                Outcome::Room { created }
            }
            Logged::DeleteRoom { room } => Outcome::Changed { changed: self.delete(room) },
            Logged::AddMember { room, user } => {
                let number = self.intern(room);
                Outcome::Changed { changed: self.join(number, user) }
            }
            Logged::RemoveMember { room, user } => {
                Outcome::Changed { changed: self.number(room).is_some_and(|number| self.leave(number, user)) }
            }
            Logged::MarkRead { room, user, seq } => Outcome::Read(self.mark_read(room, user, seq)),
            Logged::Erase { user, is_last, ref seqs } => {
                let mut messages = 0;
                for (room, seqs) in seqs {
                    if let Some(number) = self.number(room) {
                        messages += self.erase(number, &mut seqs.iter().copied());
                    }
                }
                if is_last && let Some(number) = self.users.number(user) {
                    for room in self.users.rooms(number).to_vec() {
                        self.leave(room, user);
                    }
                }
                Outcome::Erased { messages, more: !is_last }
            }
        }
    }

    /// Changes a room's settings. Whether it is new.
    fn put(&mut self, number: RoomNumber, change: impl FnOnce(&mut Room)) -> bool {
        let Some(room) = self.entries.get_mut(number) else { return false };
        change(room);
        let created = !room.exists;
        room.exists = true;
        self.known += u64::from(created);
        created
    }

    /// Leaves nothing of a room but its numbers.
    fn delete(&mut self, name: &str) -> bool {
        let Some((number, room)) = self.find(name) else { return false };
        let head = room.head;
        let members: Vec<_> = room.members.keys().copied().collect();
        for user in &members {
            self.users.leave(*user, number);
        }
        self.memberships -= members.len() as u64;
        self.raise_low_watermark(number, head);
        if let Some(room) = self.entries.get_mut(number) {
            let empty = Room::new(room.name.clone());
            *room = Room { head, low_watermark: head, last_received: room.last_received, ..empty };
        }
        self.known -= 1;
        true
    }

    /// Makes somebody a member, who has read everything up to the head. Whether it is new.
    fn join(&mut self, number: RoomNumber, user: &str) -> bool {
        let Some(room) = self.entries.get_mut(number) else { return false };
        let user = self.users.intern(user);
        if room.members.contains_key(&user) {
            return false;
        }
        room.set_mark(user, Some(room.head));
        self.memberships += 1;
        self.users.join(user, number);
        true
    }

    fn leave(&mut self, number: RoomNumber, user: &str) -> bool {
        let Some(user) = self.users.number(user) else { return false };
        let Some(room) = self.entries.get_mut(number) else { return false };
        if room.set_mark(user, None).is_none() {
            return false;
        }
        self.memberships -= 1;
        self.users.leave(user, number);
        true
    }

    fn mark_read(&mut self, room: &str, user: &str, seq: u64) -> ReadMark {
        let user = self.users.number(user);
        let found = self.number(room).and_then(|number| self.entries.get_mut(number));
        let Some((room, user)) = found.zip(user) else {
            return ReadMark { seq: 0, unread: 0, moved: false };
        };
        let head = room.head;
        let Some(before) = room.members.get(&user).copied() else {
            return ReadMark { seq: 0, unread: 0, moved: false };
        };
        let seq = before.max(seq.min(head));
        if seq > before {
            room.set_mark(user, Some(seq));
        }
        ReadMark { seq, unread: room.unread(seq), moved: seq > before }
    }
}
