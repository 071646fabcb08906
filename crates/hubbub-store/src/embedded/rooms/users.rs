//! Who is a member of anything: names, small numbers for them, and their rooms.

use std::collections::HashMap;
use std::sync::Arc;

use super::RoomNumber;

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
        Some(&self.entries.get(usize::try_from(number).ok()?)?.name)
    }

    /// The rooms of a user.
    pub(super) fn rooms(&self, number: UserNumber) -> &[RoomNumber] {
        let user = usize::try_from(number).ok().and_then(|number| self.entries.get(number));
        user.map_or(&[], |user| &user.rooms)
    }

    pub(super) fn intern(&mut self, name: &str) -> UserNumber {
        if let Some(number) = self.number(name) {
            return number;
        }
        let number = UserNumber::try_from(self.entries.len()).unwrap_or(UserNumber::MAX);
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
        if let Some(user) = usize::try_from(user).ok().and_then(|user| self.entries.get_mut(user)) {
            how(&mut user.rooms);
        }
    }
}
