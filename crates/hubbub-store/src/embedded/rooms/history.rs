//! Reading rooms: the segments, then what is not sealed yet.

use hubbub_core::store::{
    Access, Cursor, HistoryPage, HistoryQuery, Member, ReadError, RoomInfo, UserRoom, UserRooms,
};
use hubbub_core::{Message, MessageRun, RoomId, Timestamp, UserId};

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
        let newest =
            messages.len().checked_sub(1).and_then(|last| messages.get(last)).map_or(0, |last| last.seq);
        let head = head.max(newest);
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

    /// The rooms of a user with their newest messages.
    pub fn user_rooms(&self, user: &str, after: Option<&str>, limit: usize) -> Result<UserRooms, ReadError> {
        let (mut rooms, mut newest) = (Vec::new(), Vec::new());
        for (number, room, mark) in self.shared.rooms.read().rooms_of(user, after, limit) {
            let Some(info) = room_info(room) else { continue };
            if info.messages > 0 {
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

/// Adds the message unless the page is full. The first one is added however large it is.
pub(crate) fn add_to_page(message: &Message<'_>, query: &HistoryQuery, page: &mut MessageRun) -> bool {
    let sent = &message.sent;
    let names = sent.room.len() + sent.user.len() + sent.id.len() + sent.username.map_or(0, str::len);
    let too_large = !page.is_empty() && page.bytes() + names + sent.text.len() > query.bytes_max;
    let has_space = page.len() < query.limit && !too_large;
    if has_space {
        page.push(message);
    }
    has_space
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
        let backward = matches!(query.cursor, Cursor::Before(_));
        if backward && self.read_tails(room.1, query, hidden, run)? {
            return Ok(true);
        }
        let segments: Box<dyn Iterator<Item = _>> =
            if backward { Box::new(self.segments.iter().rev()) } else { Box::new(self.segments.iter()) };
        for segment in segments {
            if segment.read_room(room.0, query, hidden, run)? == ReadEnd::Full {
                return Ok(true);
            }
        }
        if backward { Ok(false) } else { self.read_tails(room.1, query, hidden, run) }
    }

    /// Adds the newest message of a room, if there is any, and reads nothing else.
    fn read_newest(
        &self,
        room: (&str, RoomNumber),
        hidden: &Hidden,
        run: &mut MessageRun,
    ) -> Result<(), MaintainError> {
        let limit = run.len() + 1;
        let cursor = Cursor::Before(u64::MAX);
        let query = HistoryQuery { cursor, from: None, to: None, limit, bytes_max: usize::MAX };
        for tail in self.tails.iter().rev() {
            tail.history(room.1, &query, hidden, run)?;
            if run.len() == limit {
                return Ok(());
            }
        }
        for segment in self.segments.iter().rev() {
            segment.read_room(room.0, &query, hidden, run)?;
            if run.len() == limit {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_tails(
        &self,
        room: RoomNumber,
        query: &HistoryQuery,
        hidden: &Hidden,
        run: &mut MessageRun,
    ) -> Result<bool, MaintainError> {
        let tails: Box<dyn Iterator<Item = _>> = match query.cursor {
            Cursor::Before(_) => Box::new(self.tails.iter().rev()),
            Cursor::After(_) => Box::new(self.tails.iter()),
        };
        for tail in tails {
            if tail.history(room, query, hidden, run)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
