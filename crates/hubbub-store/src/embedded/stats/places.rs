//! Every message of a user, for erasing them.

use super::source::{RoomFinder, each_message, is_hidden};
use crate::embedded::error::MaintainError;
use crate::embedded::rooms::RoomNumber;
use crate::embedded::shared::Shared;

impl Shared {
    /// Room and seq of up to `limit` messages of a user that are not hidden, the oldest segments' first. All of them
    /// when there are fewer. Needs no counts, so it can be called with the writer's lock held; reads the slots that
    /// are not sealed.
    pub(crate) fn user_places(
        &self,
        user: &str,
        limit: usize,
    ) -> Result<Vec<(RoomNumber, u64)>, MaintainError> {
        let view = self.view();
        let mut places = Vec::new();
        for segment in &view.segments {
            let Some(part) = segment.user(user)? else { continue };
            let mut rooms = RoomFinder::new(self, segment);
            let mut postings = segment.postings(&part);
            while places.len() < limit
                && let Some(posting) = postings.next()?
            {
                let Some(room) = rooms.find(posting.ordinal) else { continue };
                let seq = match room.seq(posting.ordinal) {
                    Some(seq) => seq,
                    None => segment.with_message(posting.ordinal, |message| message.seq)?,
                };
                if !is_hidden(self, room.number, seq) {
                    places.push((room.number, seq));
                }
            }
        }
        for tail in &view.tails {
            if places.len() >= limit {
                break;
            }
            each_message(self, tail, 0, tail.end(), |_, message| {
                let wanted = message.sent.user == user && places.len() < limit;
                if let Some(room) = wanted.then(|| self.rooms.read().number(message.sent.room)).flatten()
                    && !is_hidden(self, room, message.seq)
                {
                    places.push((room, message.seq));
                }
            })?;
        }
        Ok(places)
    }
}
