//! Who is a member of anything: names, small numbers for them, and their rooms.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::invariant::saturate;

use super::RoomNumber;
use crate::embedded::file::cursor::index;

/// Number of a user, from 0. Not kept across starts.
pub(crate) type UserNumber = u32;

/// Everybody who is or was a member since the start.
#[derive(Debug, Default)]
pub(super) struct Users {
    numbers: HashMap<Arc<str>, UserNumber>,
    entries: Vec<User>,
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
        Some(&self.entries.get(index(number))?.name)
    }

    pub(super) fn rooms(&self, number: UserNumber) -> &[RoomNumber] {
        self.entries.get(index(number)).map_or(&[], |user| &user.rooms)
    }

    pub(super) fn intern(&mut self, name: &str) -> UserNumber {
        if let Some(number) = self.number(name) {
            return number;
        }
        // Memory ends long before 2^32 users.
        let number = saturate(self.entries.len());
        let name: Arc<str> = Arc::from(name);
        self.numbers.insert(Arc::clone(&name), number);
        self.entries.push(User { name, rooms: Vec::new() });
        number
    }

    pub(super) fn join(&mut self, user: UserNumber, room: RoomNumber) {
        self.change(user, |rooms| {
            if let Err(place) = rooms.binary_search(&room) {
                rooms.insert(place, room);
            }
        });
    }

    pub(super) fn leave(&mut self, user: UserNumber, room: RoomNumber) {
        self.change(user, |rooms| {
            if let Ok(place) = rooms.binary_search(&room) {
                rooms.remove(place);
            }
        });
    }

    fn change(&mut self, user: UserNumber, how: impl FnOnce(&mut Vec<RoomNumber>)) {
        if let Some(user) = self.entries.get_mut(index(user)) {
            how(&mut user.rooms);
        }
    }
}
