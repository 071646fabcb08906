//! Encodes all rooms while they change, without holding their lock for long.
//!
//! Rooms are encoded in steps, each of which holds the lock for a bounded amount of work. What changes after it was
//! encoded is noted ([`Entries`]) and encoded again; the last of it together with the position, so that the result is the
//! state at one moment. Readers and the commit thread wait for one step at most, not for all rooms.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::checkpoint::write_room;
use super::users::{UserNumber, Users};
use super::{Position, Room, RoomNumber, Rooms};
use crate::embedded::file::cursor::index;
use crate::embedded::file::varint;

/// One hold of the lock encodes so many rooms at most, and ends earlier once it wrote so many bytes.
const STEP_ROOMS: usize = 256;
const STEP_BYTES: usize = 64 * 1024;

/// Rounds over what changed meanwhile. After them the rest is encoded in one step, however much it is.
const ROUNDS: usize = 8;

/// Numbers of rooms that changed since somebody began to copy them.
type Touched = Mutex<HashSet<RoomNumber>>;

/// The rooms by their numbers. Every change of one goes through [`Self::get_mut`], which notes it for copies under way.
#[derive(Debug, Default)]
pub(super) struct Entries {
    rooms: Vec<Room>,
    copies: Mutex<Vec<Weak<Touched>>>,
}

impl Entries {
    pub(super) fn all(&self) -> &[Room] {
        &self.rooms
    }

    pub(super) fn push(&mut self, room: Room) {
        self.rooms.push(room);
    }

    pub(super) fn get_mut(&mut self, number: RoomNumber) -> Option<&mut Room> {
        let copies = self.copies.get_mut();
        if !copies.is_empty() {
            copies.retain(|copy| match copy.upgrade() {
                Some(touched) => {
                    touched.lock().insert(number);
                    true
                }
                None => false,
            });
        }
        self.rooms.get_mut(index(number))
    }
}

/// A copy under way: what is encoded so far.
#[derive(Debug, Default)]
pub(crate) struct RoomsCopy {
    touched: Arc<Touched>,
    bytes: Vec<u8>,
    /// Where in `bytes` each room stands, by its number; of no length when it is left out.
    parts: Vec<(usize, usize)>,
    /// Who is a member of anything, in the order of the table of users, and everybody's place there.
    names: Vec<Arc<str>>,
    indexes: HashMap<UserNumber, u64>,
}

impl RoomsCopy {
    /// Encodes nearly everything, in short steps.
    pub(crate) fn begin(rooms: &RwLock<Rooms>) -> Self {
        let mut copy = Self::default();
        rooms.read().entries.copies.lock().push(Arc::downgrade(&copy.touched));
        while copy.encode_more(&rooms.read()) {}
        for _ in 0..ROUNDS {
            let changed: Vec<RoomNumber> = copy.touched.lock().drain().collect();
            let is_little = changed.len() <= STEP_ROOMS;
            let mut rest = changed.as_slice();
            while let Some((number, others)) = rest.split_first() {
                // One by one: whoever waits for the lock gets it in between.
                copy.encode_again(&rooms.read(), *number);
                rest = others;
            }
            if is_little {
                break;
            }
        }
        copy
    }

    /// Encodes the next rooms that were never encoded. Says whether there are more.
    fn encode_more(&mut self, rooms: &Rooms) -> bool {
        let (all, begin) = (rooms.entries.all(), self.bytes.len());
        for room in all.iter().skip(self.parts.len()).take(STEP_ROOMS) {
            let part = self.encode(room, &rooms.users);
            self.parts.push(part);
            if self.bytes.len() - begin >= STEP_BYTES {
                break;
            }
        }
        self.parts.len() < all.len()
    }

    fn encode_again(&mut self, rooms: &Rooms, number: RoomNumber) {
        let at = index(number);
        if at < self.parts.len()
            && let Some(room) = rooms.entries.all().get(at)
        {
            let encoded = self.encode(room, &rooms.users);
            if let Some(part) = self.parts.get_mut(at) {
                *part = encoded;
            }
        }
    }

    fn encode(&mut self, room: &Room, users: &Users) -> (usize, usize) {
        let begin = self.bytes.len();
        // Rooms to which nothing was ever applied are left out.
        if room.exists || room.head > 0 {
            let (names, indexes) = (&mut self.names, &mut self.indexes);
            let user_index = |user: UserNumber| {
                *indexes.entry(user).or_insert_with(|| {
                    names.push(users.name(user).map_or_else(|| Arc::from(""), Arc::clone));
                    names.len() as u64 - 1
                })
            };
            write_room(room, user_index, &mut self.bytes);
        }
        (begin, self.bytes.len())
    }

    /// Encodes what is left, as it is now.
    pub(crate) fn finish(mut self, rooms: &Rooms) -> EncodedRooms {
        while self.encode_more(rooms) {}
        let changed: Vec<RoomNumber> = self.touched.lock().drain().collect();
        changed.into_iter().for_each(|number| self.encode_again(rooms, number));
        EncodedRooms { at: rooms.at, copy: self }
    }
}

#[derive(Debug)]
pub(crate) struct EncodedRooms {
    at: Position,
    copy: RoomsCopy,
}

impl EncodedRooms {
    /// The bytes of [`Rooms::encode`].
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let RoomsCopy { bytes, parts, names, .. } = self.copy;
        let mut out = Vec::with_capacity(64 + bytes.len());
        varint::write(self.at.journal, &mut out);
        varint::write(self.at.batch.into(), &mut out);
        varint::write(names.len() as u64, &mut out);
        names.iter().for_each(|name| varint::write_text(name, &mut out));
        let kept = || parts.iter().filter(|(begin, end)| begin < end);
        varint::write(kept().count() as u64, &mut out);
        for (begin, end) in kept() {
            out.extend_from_slice(bytes.get(*begin..*end).unwrap_or_default());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a copy says is the state at its end, whatever changed while it was made, and no step does much.
    #[test]
    fn a_copy_made_in_steps_is_one_moment() {
        let mut rooms = Rooms::default();
        for number in 0..2_000 {
            let room = rooms.intern(&format!("room {number}"));
            rooms.store(room, 1, 5, || Some("ada"));
        }
        let lock = RwLock::new(rooms);
        let mut copy = RoomsCopy::begin(&lock);
        let mut rooms = lock.into_inner();
        // As if it had been in the middle.
        copy.parts.truncate(700);
        for number in (0..2_000).step_by(3) {
            rooms.store(number, 2, 6, || Some("eve"));
        }
        let before = copy.parts.len();
        assert!(copy.encode_more(&rooms));
        assert!(copy.parts.len() <= before + STEP_ROOMS);
        rooms.store(1, 9, 9, || Some("eve"));
        let new = rooms.intern("new");
        rooms.store(new, 1, 1, || Some("eve"));
        rooms.at = Position { journal: 3, batch: 4 };
        let bytes = copy.finish(&rooms).into_bytes();
        assert_eq!(bytes, rooms.encode());
        assert!(rooms.entries.get_mut(0).is_some());
        assert!(rooms.entries.copies.get_mut().is_empty(), "a copy that is done is not told of changes");
    }
}
