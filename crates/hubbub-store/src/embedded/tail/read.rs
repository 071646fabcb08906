//! Reading messages of a slot.

use hubbub_core::invariant::saturate;
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{Message, MessageRun};

use super::{RecordLocation, Tail};
use crate::embedded::error::MaintainError;
use crate::embedded::file::Patience;
use crate::embedded::record;
use crate::embedded::rooms::{Hidden, HistoryWindow, RoomNumber};

/// Records that stand closer together than this are read with one call.
const READ_BYTES: usize = 32 * 1024;

impl Tail {
    /// Adds to `run` the messages of a room that `query` wants and that are not hidden, from the cursor's end (so newest first with
    /// [`Cursor::Before`]), until the run has the query's limit of messages or bytes. Says whether there were more.
    pub(crate) fn history(
        &self,
        room: RoomNumber,
        query: &HistoryQuery,
        hidden: &Hidden,
        run: &mut MessageRun,
    ) -> Result<bool, MaintainError> {
        let places =
            self.wanted(room, query, hidden, query.limit.saturating_sub(run.len()).saturating_add(1));
        let window = if query.limit.saturating_sub(run.len()) <= 1 { 0 } else { READ_BYTES };
        let mut reader = Reader::new(self, matches!(query.cursor, Cursor::Before(_)), window);
        for place in places {
            if run.len() >= query.limit
                || !run.push_within(&reader.message(place)?, query.limit, query.bytes_max)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The seq of the newest message of a room with this id that is not hidden. Reads the room's records one by one.
    pub(crate) fn seq_of(
        &self,
        room: RoomNumber,
        id: &str,
        hidden: &Hidden,
    ) -> Result<Option<u64>, MaintainError> {
        let mut reader = Reader::new(self, true, READ_BYTES);
        for place in self.places(room).into_iter().rev().filter(|place| !hidden.hides(place.seq)) {
            if reader.message(place)?.sent.id == id {
                return Ok(Some(place.seq));
            }
        }
        Ok(None)
    }

    /// Copies the places that `query` wants, at most `limit`, in the order in which they are to be read.
    fn wanted(
        &self,
        room: RoomNumber,
        query: &HistoryQuery,
        hidden: &Hidden,
        limit: usize,
    ) -> Vec<RecordLocation> {
        let index = self.index.read();
        let Some(places) = index.rooms.get(&room) else { return Vec::new() };
        let window = HistoryWindow::of(query, hidden);
        let begin = places.partition_point(|place| window.begins_behind(place.seq, place.received));
        let end = places.partition_point(|place| window.ends_behind(place.seq, place.received));
        let wanted = window.in_order(begin..end).filter_map(|place| places.get(place));
        wanted.filter(|place| !hidden.hides(place.seq)).take(limit).copied().collect()
    }

    /// Calls `visit` with the message whose record begins at `offset`, of unknown length.
    pub(crate) fn visit<R>(
        &self,
        offset: u32,
        visit: impl FnOnce(&Message<'_>) -> R,
    ) -> Result<R, MaintainError> {
        let mut bytes = 512;
        loop {
            let whole = self.slot.bytes.saturating_sub(u64::from(offset)).min(bytes);
            let mut buffer = vec![0; saturate(whole)];
            self.slot.read(&mut buffer, offset.into(), Patience::Wait)?;
            match record::read_message(&mut buffer.as_slice()) {
                Some(message) => return Ok(visit(&message)),
                None if whole < bytes => return Err(self.slot.damaged(offset)),
                None => bytes *= 16,
            }
        }
    }
}

/// Reads records one after another through a window, because neighbours are likely wanted too.
struct Reader<'a> {
    tail: &'a Tail,
    backward: bool,
    window_bytes: usize,
    window: Vec<u8>,
    start: u64,
}

impl<'a> Reader<'a> {
    fn new(tail: &'a Tail, backward: bool, window_bytes: usize) -> Self {
        Self { tail, backward, window_bytes, window: Vec::new(), start: 0 }
    }

    fn message(&mut self, place: RecordLocation) -> Result<Message<'_>, MaintainError> {
        let (offset, bytes) = (u64::from(place.offset), u64::from(place.bytes));
        if offset < self.start || offset + bytes > self.start + self.window.len() as u64 {
            let window = bytes.max(self.window_bytes as u64);
            // Backwards, what is wanted next stands before this record.
            self.start = if self.backward { (offset + bytes).saturating_sub(window) } else { offset };
            let length = window.min(self.tail.slot.bytes.saturating_sub(self.start));
            self.window.resize(saturate(length), 0);
            self.tail.slot.read(&mut self.window, self.start, Patience::Wait)?;
        }
        let mut record = self.window.get(saturate(offset - self.start)..).unwrap_or_default();
        record::read_message(&mut record).ok_or_else(|| self.tail.slot.damaged(place.offset))
    }
}
