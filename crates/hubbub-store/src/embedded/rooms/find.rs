//! Finds the message of an id: in what is not sealed yet by reading the room backwards, then in the segments by their
//! tables of ids.

use hubbub_core::store::ReadError;

use crate::embedded::engine::Engine;
use crate::embedded::error::MaintainError;
use crate::embedded::rooms::{Hidden, RoomNumber};
use crate::embedded::view::View;

impl Engine {
    /// The seq of the kept message with this id; see [`hubbub_core::RoomStore::seq_of`].
    pub fn seq_of(&self, room: &str, id: &str) -> Result<Option<u64>, ReadError> {
        let found = {
            let rooms = self.shared.rooms.read();
            rooms.find(room).map(|(number, room)| (number, room.hidden()))
        };
        let Some((number, hidden)) = found else { return Ok(None) };
        let (view, hash) = (self.shared.view(), self.shared.hasher.hash(room, id));
        view.seq_of((room, number), (id, hash), &hidden).map_err(|error| self.shared.unreadable(error))
    }
}

impl View {
    fn seq_of(
        &self,
        (name, room): (&str, RoomNumber),
        (id, hash): (&str, u64),
        hidden: &Hidden,
    ) -> Result<Option<u64>, MaintainError> {
        // An id may be used again once its message is hidden; so the newest one counts.
        for tail in self.tails.iter().rev() {
            if let Some(seq) = tail.seq_of(room, id, hidden)? {
                return Ok(Some(seq));
            }
        }
        for segment in self.segments.iter().rev() {
            let mut seq = None;
            segment.find_id(hash, |message| {
                let sent = &message.sent;
                let is_it = sent.id == id && sent.room == name && !hidden.hides(message.seq);
                seq = is_it.then_some(message.seq);
                is_it
            })?;
            if seq.is_some() {
                return Ok(seq);
            }
        }
        Ok(None)
    }
}
