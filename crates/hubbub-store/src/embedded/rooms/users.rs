//! Who is a member of anything: names, small numbers for them, and their rooms.

use std::collections::HashMap;
use std::sync::Arc;

use super::RoomNumber;
use crate::embedded::tail::hash::MixState;

/// Number of a user, from 0. None is given twice, as copies of rooms that are being made know users by them. Not kept across
/// starts.
pub(crate) type UserNumber = u64;

/// Everybody who is a member. Whoever leaves the last room is forgotten.
#[derive(Debug, Default)]
pub(super) struct Users {
    numbers: HashMap<Arc<str>, UserNumber>,
    entries: HashMap<UserNumber, User, MixState>,
    next: UserNumber,
}

#[derive(Debug)]
struct User {
    name: Arc<str>,
    /// Rooms joined, in the order of their numbers.
    rooms: Vec<RoomNumber>,
}

impl Users {
    pub(super) fn number(&self, name: &str) -> Option<UserNumber> {
        self.numbers.get(name).copied()
    }

    pub(super) fn name(&self, number: UserNumber) -> Option<&Arc<str>> {
        Some(&self.entries.get(&number)?.name)
    }

    pub(super) fn rooms(&self, number: UserNumber) -> &[RoomNumber] {
        self.entries.get(&number).map_or(&[], |user| &user.rooms)
    }

    /// The number of somebody who is to join a room.
    pub(super) fn intern(&mut self, name: &str) -> UserNumber {
        if let Some(number) = self.number(name) {
            return number;
        }
        let number = self.next;
        self.next += 1;
        let name: Arc<str> = Arc::from(name);
        self.numbers.insert(Arc::clone(&name), number);
        self.entries.insert(number, User { name, rooms: Vec::new() });
        number
    }

    pub(super) fn join(&mut self, user: UserNumber, room: RoomNumber) {
        let Some(User { rooms, .. }) = self.entries.get_mut(&user) else { return };
        if let Err(place) = rooms.binary_search(&room) {
            rooms.insert(place, room);
        }
    }

    pub(super) fn leave(&mut self, user: UserNumber, room: RoomNumber) {
        let Some(User { name, rooms }) = self.entries.get_mut(&user) else { return };
        if let Ok(place) = rooms.binary_search(&room) {
            rooms.remove(place);
        }
        if rooms.is_empty() {
            self.numbers.remove(name);
            self.entries.remove(&user);
        }
    }

    /// Forgets everybody who is in no room.
    pub(super) fn forget_strangers(&mut self) {
        self.entries.retain(|_, user| !user.rooms.is_empty());
        self.numbers.retain(|_, number| self.entries.contains_key(number));
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        assert_eq!(self.numbers.len(), self.entries.len());
        self.entries.len()
    }
}
