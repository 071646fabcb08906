//! The rooms that an import makes by its messages. Such a room is open, whatever it was where the messages come from, so the
//! import says at its end which ones they are. Whether there was a room is asked before its first message is sent: behind a
//! broker, nobody can say so afterwards.

use std::collections::HashMap;

use hubbub_core::text::counted;

use super::Waiting;
use crate::client::connection::Connection;
use crate::client::session::escape;

/// Rooms that are looked for; what comes after so many is not known.
const ROOMS_MAX: usize = 10_000;
/// Rooms that are named.
const NAMED_MAX: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    There,
    Missing,
    Made,
}

/// What is known of the rooms of an import.
#[derive(Debug, Default)]
pub(super) struct MadeRooms {
    rooms: HashMap<String, State>,
    /// The first ones that were made.
    names: Vec<String>,
    made: usize,
    /// Of some it is not known: the server does not say, or there are too many.
    is_partial: bool,
    /// Nothing more is asked.
    is_over: bool,
}

impl MadeRooms {
    /// Asks which rooms of these messages there are, where that is not known yet. Nothing fails because of it.
    pub(super) async fn look(&mut self, connection: &mut Connection, waiting: &[Waiting]) {
        for room in waiting.iter().filter_map(|message| message.room.as_deref()) {
            if self.is_over || self.rooms.contains_key(room) {
                continue;
            }
            let answer = connection.read(&format!("/v1/rooms/{}", escape(room))).await;
            let state = match answer.map_or_else(|error| error.status, |_| 200) {
                404 => State::Missing,
                200 => State::There,
                // Of one that cannot be, or that the caller may not see.
                status => {
                    self.is_partial |= status == 403;
                    self.is_over = !matches!(status, 400 | 403 | 422);
                    State::There
                }
            };
            self.rooms.insert(room.to_owned(), state);
            self.is_over |= self.rooms.len() >= ROOMS_MAX;
            self.is_partial |= self.is_over;
        }
    }

    /// A message of this room was stored.
    pub(super) fn note(&mut self, room: Option<&str>) {
        let Some(room) = room else { return };
        let Some(state) = self.rooms.get_mut(room).filter(|state| **state == State::Missing) else { return };
        *state = State::Made;
        self.made += 1;
        if self.names.len() < NAMED_MAX {
            self.names.push(room.to_owned());
        }
    }

    /// What to say of them; `None` = there are none, as far as is known.
    pub(super) fn warning(&self) -> Option<String> {
        let names = self.names.join(", ");
        let more = if self.made > self.names.len() { ", …" } else { "" };
        let least = if self.is_partial { "at least " } else { "" };
        let count = counted(self.made as u64, "room");
        (self.made > 0).then(|| {
            format!(
                "the import made {least}{count} ({names}{more}), which everybody can read who may read open rooms; what is to be for \
                 members only must be made so, with its members, before an import"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rooms_are_named_and_all_counted() {
        let mut made = MadeRooms::default();
        assert_eq!(made.warning(), None);
        made.rooms.insert("there".to_owned(), State::There);
        for number in 0..7 {
            made.rooms.insert(format!("r{number}"), State::Missing);
        }
        made.note(Some("there"));
        made.note(None);
        made.note(Some("unknown"));
        assert_eq!(made.warning(), None);
        made.note(Some("r0"));
        made.note(Some("r0"));
        let told = made.warning().unwrap();
        assert!(told.starts_with("the import made 1 room (r0), which everybody"), "{told}");
        (1..7).for_each(|number| made.note(Some(&format!("r{number}"))));
        made.is_partial = true;
        let told = made.warning().unwrap();
        assert!(
            told.starts_with("the import made at least 7 rooms (r0, r1, r2, r3, r4, …), which"),
            "{told}"
        );
    }
}
