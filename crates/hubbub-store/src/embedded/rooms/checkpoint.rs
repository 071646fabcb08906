//! The checkpoint of all rooms: their encoding in the manifest.
//!
//! ```text
//! position: journal, batch | users: count, {name} | rooms: count, {room}                              (varints)
//! room = name, flags (1 exists, 2 members only), head, last_received zz, low watermark, retention, title, erased,
//!        members: count, {user index, mark}
//! name, title, erased = length, bytes; erased as the roaring crate serialises a treemap
//! ```

use std::sync::Arc;

use roaring::RoaringTreemap;

use super::copy::RoomsCopy;
use super::users::UserNumber;
use super::{Position, Room, Rooms};
use crate::embedded::file::varint::{self, read_bytes, read_text, write_bytes, write_text};

const EXISTS: u64 = 1;
const MEMBERS_ONLY: u64 = 2;

impl Rooms {
    pub(crate) fn encode(&self) -> Vec<u8> {
        RoomsCopy::default().finish(self).into_bytes()
    }

    pub(crate) fn decode(mut input: &[u8]) -> Option<Self> {
        let input = &mut input;
        let mut rooms = Self::default();
        let journal = varint::read(input)?;
        rooms.at = Position { journal, batch: u32::try_from(varint::read(input)?).ok()? };
        let mut users = Vec::new();
        for _ in 0..varint::read(input)? {
            users.push(rooms.users.intern(read_text(input)?));
        }
        for _ in 0..varint::read(input)? {
            rooms.read_room(input, &users)?;
        }
        // It may name somebody who left while it was made.
        rooms.users.forget_strangers();
        // Segments may hold what was hidden before.
        rooms.hidings = rooms.entries.all().iter().any(Room::hides_any).into();
        input.is_empty().then_some(rooms)
    }

    fn read_room(&mut self, input: &mut &[u8], users: &[UserNumber]) -> Option<()> {
        let number = self.intern(read_text(input)?);
        let flags = varint::read(input)?;
        let room = self.entries.get_mut(number)?;
        room.exists = flags & EXISTS != 0;
        room.members_only = flags & MEMBERS_ONLY != 0;
        room.head = varint::read(input)?;
        room.last_received = varint::unzigzag(varint::read(input)?);
        room.low_watermark = varint::read(input)?;
        // Why it is hidden is not written down.
        room.deleted_through = room.low_watermark;
        room.retention_s = varint::read(input)?;
        let title = read_text(input)?;
        room.title = (!title.is_empty()).then(|| title.into());
        let erased = read_bytes(input)?;
        if !erased.is_empty() {
            room.erased = Some(Arc::new(RoaringTreemap::deserialize_from(erased).ok()?));
        }
        for _ in 0..varint::read(input)? {
            let user = *users.get(usize::try_from(varint::read(input)?).ok()?)?;
            room.set_mark(user, Some(varint::read(input)?));
            self.users.join(user, number);
            self.memberships += 1;
        }
        self.known += u64::from(room.exists);
        self.messages += room.messages();
        Some(())
    }
}

/// Appends a room; `index` says the place of a user in the table of users.
pub(super) fn write_room(room: &Room, mut index: impl FnMut(UserNumber) -> u64, out: &mut Vec<u8>) {
    write_text(&room.name, out);
    let exists = if room.exists { EXISTS } else { 0 };
    varint::write(exists | if room.members_only { MEMBERS_ONLY } else { 0 }, out);
    varint::write(room.head, out);
    varint::write(varint::zigzag(room.last_received), out);
    varint::write(room.low_watermark, out);
    varint::write(room.retention_s, out);
    write_text(room.title.as_deref().unwrap_or_default(), out);
    let mut erased = Vec::new();
    if let Some(numbers) = &room.erased {
        // Writing into a Vec cannot fail.
        let _ = numbers.serialize_into(&mut erased);
    }
    write_bytes(&erased, out);
    varint::write(room.members.len() as u64, out);
    for (user, mark) in &room.members {
        varint::write(index(*user), out);
        varint::write(*mark, out);
    }
}
