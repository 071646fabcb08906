//! Reading rooms: the segments, then what is not sealed yet.

use hubbub_core::store::{Cursor, HistoryPage, HistoryQuery, ReadError, RoomInfo};
use hubbub_core::{MessageRun, RoomId, Timestamp};

use super::error::MaintainError;
use super::manifest::RoomEntry;
use super::rooms::RoomNumber;
use super::segment::ReadEnd;
use super::shared::Shared;
use super::view::View;

impl Shared {
    /// A page of a room's messages; see [`hubbub_core::RoomStore::history`].
    pub(crate) fn history(&self, room: &str, query: &HistoryQuery) -> Result<HistoryPage, ReadError> {
        let (number, head) = {
            let rooms = self.rooms.read();
            let number = rooms.number(room).ok_or(ReadError::UnknownRoom)?;
            let head = rooms.get(number).map_or(0, |entry| entry.head);
            (number, head)
        };
        if head == 0 {
            return Err(ReadError::UnknownRoom);
        }
        // Taken after the head, so that everything up to it is in the view.
        let view = self.view();
        let span = view.span(room, number);
        let mut messages = MessageRun::default();
        let more = view
            .read(room, number, query, &mut messages)
            .map_err(|error| ReadError::Unavailable { reason: error.to_string() })?;
        if matches!(query.cursor, Cursor::Before(_)) {
            messages.reverse();
        }
        let head = head.max(span.map_or(0, |span| span.last_seq));
        let newest =
            messages.len().checked_sub(1).and_then(|last| messages.get(last)).map_or(0, |last| last.seq);
        let head = head.max(newest);
        Ok(HistoryPage { messages, head, oldest: span.map_or(head + 1, |span| span.first_seq), more })
    }

    /// One room; `None` when there is none of that name.
    pub(crate) fn room(&self, room: &str) -> Option<RoomInfo> {
        let (number, entry) = {
            let rooms = self.rooms.read();
            let number = rooms.number(room)?;
            (number, rooms.get(number)?.clone())
        };
        room_info(&self.view(), number, &entry)
    }

    /// Rooms in the order of their names.
    pub(crate) fn rooms(&self, after: Option<&str>, limit: usize) -> Vec<RoomInfo> {
        let page = self.rooms.read().page(after, limit);
        let view = self.view();
        page.iter().filter_map(|(number, entry)| room_info(&view, *number, entry)).collect()
    }
}

fn room_info(view: &View, number: RoomNumber, entry: &RoomEntry) -> Option<RoomInfo> {
    let span = view.span(&entry.name, number);
    let head = entry.head.max(span.map_or(0, |span| span.last_seq));
    (head > 0).then_some(())?;
    Some(RoomInfo {
        room: RoomId::new(&entry.name).ok()?,
        head,
        oldest: span.map_or(head + 1, |span| span.first_seq),
        messages: span.map_or(0, |span| span.messages),
        last_received_at: (entry.last_received > i64::MIN)
            .then(|| Timestamp::from_micros(entry.last_received)),
    })
}

impl View {
    /// Fills a page from the cursor's end. Says whether the window holds more.
    fn read(
        &self,
        name: &str,
        room: RoomNumber,
        query: &HistoryQuery,
        run: &mut MessageRun,
    ) -> Result<bool, MaintainError> {
        let backward = matches!(query.cursor, Cursor::Before(_));
        if backward && self.read_tails(room, query, run)? {
            return Ok(true);
        }
        let segments: Box<dyn Iterator<Item = _>> =
            if backward { Box::new(self.segments.iter().rev()) } else { Box::new(self.segments.iter()) };
        for segment in segments {
            if segment.read_room(name, query, run)? == ReadEnd::Full {
                return Ok(true);
            }
        }
        if backward { Ok(false) } else { self.read_tails(room, query, run) }
    }

    fn read_tails(
        &self,
        room: RoomNumber,
        query: &HistoryQuery,
        run: &mut MessageRun,
    ) -> Result<bool, MaintainError> {
        let tails: Box<dyn Iterator<Item = _>> = match query.cursor {
            Cursor::Before(_) => Box::new(self.tails.iter().rev()),
            Cursor::After(_) => Box::new(self.tails.iter()),
        };
        for tail in tails {
            if tail.history(room, query, run)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
