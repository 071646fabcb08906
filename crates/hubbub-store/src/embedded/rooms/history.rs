//! Reading rooms: the segments, then what is not sealed yet.

use std::ops::Range;

use hubbub_core::store::{
    Access, Cursor, HistoryPage, HistoryQuery, LastMessages, Member, ReadError, RoomInfo, UserRoom, UserRooms,
};
use hubbub_core::{MessageRun, RoomId, Timestamp, UserId};

use crate::embedded::engine::Engine;
use crate::embedded::error::MaintainError;
use crate::embedded::rooms::{Hidden, Room, RoomNumber};
use crate::embedded::segment::ReadEnd;
use crate::embedded::view::View;

impl Engine {
    /// A page of a room's messages; see [`hubbub_core::RoomStore::history`].
    pub fn history(&self, room: &str, query: &HistoryQuery) -> Result<HistoryPage, ReadError> {
        loop {
            let page = self.read_history(room, query)?;
            // What retention removed meanwhile may be missing in the page, whose `oldest` would not say so.
            if self.shared.rooms.read().find(room).is_none_or(|(_, room)| room.oldest() <= page.oldest) {
                return Ok(page);
            }
        }
    }

    fn read_history(&self, room: &str, query: &HistoryQuery) -> Result<HistoryPage, ReadError> {
        let (number, head, hidden) = {
            let rooms = self.shared.rooms.read();
            let (number, room) = rooms.find(room).ok_or(ReadError::UnknownRoom)?;
            (number, room.head, room.hidden())
        };
        // Taken after the head, so that everything up to it is in the view.
        let view = self.shared.view();
        let mut messages = MessageRun::default();
        let more = view
            .read((room, number), query, &hidden, &mut messages)
            .map_err(|error| self.shared.unreadable(error))?;
        if matches!(query.cursor, Cursor::Before(_)) {
            messages.reverse();
        }
        Ok(HistoryPage { messages, head, oldest: hidden.low_watermark + 1, more })
    }

    /// One room; `None` when there is none of that name.
    pub fn room(&self, room: &str) -> Option<RoomInfo> {
        room_info(self.shared.rooms.read().find(room)?.1)
    }

    /// Rooms in the order of their names.
    pub fn rooms(&self, after: Option<&str>, limit: usize) -> Vec<RoomInfo> {
        self.shared.rooms.read().page(after, limit).into_iter().filter_map(room_info).collect()
    }

    /// How a user stands to a room.
    pub fn access(&self, room: &str, user: &str) -> Access {
        let rooms = self.shared.rooms.read();
        let Some((number, room)) = rooms.find(room) else { return Access::Unknown };
        match rooms.mark(number, user) {
            Some(read_seq) => Access::Member { read_seq },
            None if room.members_only => Access::Closed,
            None => Access::Open,
        }
    }

    /// Members in the order of their names.
    pub fn members(&self, room: &str, after: Option<&str>, limit: usize) -> Vec<Member> {
        let rooms = self.shared.rooms.read();
        let Some((number, _)) = rooms.find(room) else { return Vec::new() };
        let members = rooms.members(number, after, limit).into_iter();
        members
            .filter_map(|(user, read_seq)| Some(Member { user: UserId::new(&user).ok()?, read_seq }))
            .collect()
    }

    /// How many rooms a user is a member of.
    pub fn user_room_count(&self, user: &str) -> usize {
        self.shared.rooms.read().count_of(user)
    }

    /// The rooms of a user, with their newest messages where they are wanted.
    pub fn user_rooms(
        &self,
        user: &str,
        after: Option<&str>,
        limit: usize,
        last: LastMessages,
    ) -> Result<UserRooms, ReadError> {
        let (mut rooms, mut newest) = (Vec::new(), Vec::new());
        for (number, room, mark) in self.shared.rooms.read().rooms_of(user, after, limit) {
            let Some(info) = room_info(room) else { continue };
            if last == LastMessages::Read && info.messages > 0 {
                newest.push((info.room.clone(), number, room.hidden()));
            }
            rooms.push(UserRoom { info, read_seq: mark, unread: room.unread(mark) });
        }
        let view = self.shared.view();
        let mut last = MessageRun::default();
        for (name, number, hidden) in newest {
            view.read_newest((name.as_str(), number), &hidden, &mut last)
                .map_err(|error| self.shared.unreadable(error))?;
        }
        Ok(UserRooms { rooms, last })
    }
}

/// Which messages of a room a query wants, by seq and time; both rise within a room.
pub(crate) struct HistoryWindow {
    after: u64,
    before: u64,
    from: i64,
    to: i64,
    is_backward: bool,
}

impl HistoryWindow {
    /// The window of a query, without what is hidden up to the low watermark, and behind the head.
    pub(crate) fn of(query: &HistoryQuery, hidden: &Hidden) -> Self {
        let end = hidden.head.saturating_add(1);
        let (after, before) = match query.cursor {
            Cursor::After(seq) => (seq.max(hidden.low_watermark), end),
            Cursor::Before(seq) => (hidden.low_watermark, seq.min(end)),
        };
        let (from, to) = (query.from.map_or(i64::MIN, Timestamp::as_micros), query.to);
        let is_backward = matches!(query.cursor, Cursor::Before(_));
        Self { after, before, from, to: to.map_or(i64::MAX, Timestamp::as_micros), is_backward }
    }

    /// Whether all that is wanted comes behind this message.
    pub(crate) fn begins_behind(&self, seq: u64, received: i64) -> bool {
        seq <= self.after || received < self.from
    }

    /// Whether this message comes before the window's end.
    pub(crate) fn ends_behind(&self, seq: u64, received: i64) -> bool {
        seq < self.before && received < self.to
    }

    pub(crate) fn in_order(&self, range: Range<usize>) -> impl Iterator<Item = usize> + use<> {
        let (backward, Range { start, end }) = (self.is_backward, range.clone());
        range.map(move |place| if backward { start + (end - 1 - place) } else { place })
    }
}

fn room_info(room: &Room) -> Option<RoomInfo> {
    Some(RoomInfo {
        room: RoomId::new(&room.name).ok()?,
        head: room.head,
        oldest: room.oldest(),
        messages: room.messages(),
        last_received_at: (room.last_received > i64::MIN).then(|| Timestamp::from_micros(room.last_received)),
        title: room.title.as_deref().map(str::to_owned),
        members_only: room.members_only,
        retention_s: (room.retention_s > 0).then_some(room.retention_s),
        members: room.members.len() as u64,
    })
}

impl View {
    /// Fills a page from the cursor's end. Says whether the window holds more.
    pub(crate) fn read(
        &self,
        room: (&str, RoomNumber),
        query: &HistoryQuery,
        hidden: &Hidden,
        run: &mut MessageRun,
    ) -> Result<bool, MaintainError> {
        for place in HistoryWindow::of(query, hidden).in_order(0..self.segments.len() + self.tails.len()) {
            if self.read_part(place, room, query, hidden, run)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds the newest message of a room, if there is any, and reads nothing else.
    fn read_newest(
        &self,
        room: (&str, RoomNumber),
        hidden: &Hidden,
        run: &mut MessageRun,
    ) -> Result<(), MaintainError> {
        let (cursor, limit) = (Cursor::Before(u64::MAX), run.len() + 1);
        let query = HistoryQuery { cursor, from: None, to: None, limit, bytes_max: usize::MAX };
        for place in (0..self.segments.len() + self.tails.len()).rev() {
            self.read_part(place, room, &query, hidden, run)?;
            // Another part would be read only to learn that it holds more.
            if run.len() == limit {
                break;
            }
        }
        Ok(())
    }

    /// Fills a page from one of the segments, which come first, or of the tails; both are oldest first. Says whether it
    /// holds more.
    fn read_part(
        &self,
        place: usize,
        (name, room): (&str, RoomNumber),
        query: &HistoryQuery,
        hidden: &Hidden,
        run: &mut MessageRun,
    ) -> Result<bool, MaintainError> {
        match (self.segments.get(place), self.tails.get(place.wrapping_sub(self.segments.len()))) {
            (Some(segment), _) => Ok(segment.read_room(name, query, hidden, run)? == ReadEnd::Full),
            (None, Some(tail)) => tail.history(room, query, hidden, run),
            (None, None) => Ok(false),
        }
    }
}
