//! A user's messages over all rooms, newest first, then turned round.
//!
//! Each part (a segment, a tail) tells from memory or from postings when the user's messages in it were received. The
//! parts are looked through in the order of their newest, and only while they can hold something newer than what was
//! found; only the messages of the page itself are read.

use std::cmp::Reverse;
use std::sync::Arc;

use hubbub_core::stats::{UserHistoryCursor, UserHistoryPage, UserHistoryQuery};
use hubbub_core::store::ReadError;
use hubbub_core::{Message, MessageRun};

use super::source::{RoomFinder, is_hidden};
use super::summary::Smallest;
use crate::embedded::engine::Engine;
use crate::embedded::error::MaintainError;
use crate::embedded::rooms::RoomNumber;
use crate::embedded::segment::{Segment, UserPart};
use crate::embedded::shared::Shared;
use crate::embedded::view::View;

/// Messages looked for at once at most, however many of those found turn out to be hidden.
const WANTED_MAX: usize = 8_192;

/// Where a message stands. The order is that of a user's history: the seq of two messages of a room that were received
/// at the same time goes by part and place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FoundMessage {
    received: i64,
    name: Arc<str>,
    /// Number of the segment or tail, oldest first.
    part: usize,
    at: u32,
    room: RoomNumber,
}

/// The newest messages in a window before a place.
struct Search<'a> {
    query: &'a UserHistoryQuery,
    /// Found and done with; only what stands before is wanted.
    before: Option<FoundMessage>,
    newest: Smallest<Reverse<FoundMessage>>,
}

impl Search<'_> {
    /// Whether messages received then can be wanted still.
    #[inline]
    fn takes_time(&self, received: i64) -> bool {
        in_window(self.query, received)
            && self.before.as_ref().is_none_or(|before| received <= before.received)
            && self.takes_part(received)
    }

    /// Whether a part whose newest message was received then can hold something wanted.
    fn takes_part(&self, last: i64) -> bool {
        self.newest.bound().is_none_or(|Reverse(oldest)| last >= oldest.received)
    }

    fn add(&mut self, found: FoundMessage) {
        if self.before.as_ref().is_none_or(|before| found < *before) {
            self.newest.add(Reverse(found));
        }
    }
}

impl Engine {
    /// See [`hubbub_core::StatsStore::user_history`].
    pub fn user_history(&self, user: &str, query: &UserHistoryQuery) -> Result<UserHistoryPage, ReadError> {
        self.shared.collect_history(user, query).map_err(|error| self.shared.unreadable(error))
    }
}

impl Shared {
    fn collect_history(
        &self,
        user: &str,
        query: &UserHistoryQuery,
    ) -> Result<UserHistoryPage, MaintainError> {
        let (view, posts) = self.posts(user, query)?;
        let mut sources = Vec::new();
        for (part, segment) in view.segments.iter().enumerate() {
            if let Some(user) = segment.user(user)? {
                sources.push((part, segment, user));
            }
        }
        sources.sort_by_key(|(.., user)| Reverse(user.last));

        let mut page = UserHistoryPage { messages: MessageRun::default(), more: false };
        let mut wanted = query.limit.saturating_add(1).min(WANTED_MAX);
        let mut before = None;
        loop {
            let mut search = Search { query, before, newest: Smallest::new(wanted) };
            for post in &posts {
                if search.takes_time(post.received) {
                    search.add(post.clone());
                }
            }
            self.search_segments(&sources, &mut search)?;
            let found = search.newest.into_sorted();
            for Reverse(place) in &found {
                let add = |message: &Message<'_>| self.add(message, place.room, query, &mut page.messages);
                let tail = view.tails.get(place.part.wrapping_sub(view.segments.len()));
                page.more = match (view.segments.get(place.part), tail) {
                    (Some(segment), _) => segment.with_message(place.at, add)?,
                    (None, Some(tail)) => tail.visit(place.at, add)?,
                    (None, None) => false,
                };
                if page.more {
                    break;
                }
            }
            if page.more || found.len() < wanted {
                page.messages.reverse();
                return Ok(page);
            }
            before = found.into_iter().next_back().map(|Reverse(oldest)| oldest);
            // So many were hidden that more are looked for at once.
            wanted = wanted.saturating_mul(4).min(WANTED_MAX);
        }
    }

    /// Adds a message unless it must not be seen; says whether it did not fit any more.
    fn add(
        &self,
        message: &Message<'_>,
        room: RoomNumber,
        query: &UserHistoryQuery,
        page: &mut MessageRun,
    ) -> bool {
        self.rooms.read().is_shown(room, message.seq)
            && stands_before(message, query.before.as_ref())
            && !page.push_within(message, query.limit.max(1), query.bytes_max)
    }

    /// What a user wrote in tails, and may be wanted, as of the segments and tails of the view.
    fn posts(
        &self,
        user: &str,
        query: &UserHistoryQuery,
    ) -> Result<(Arc<View>, Vec<FoundMessage>), MaintainError> {
        let current = self.current()?;
        let mut found = Vec::new();
        if let Some(number) = current.summary().number(user) {
            for (tail, part) in current.view.tails.iter().zip(current.view.segments.len()..) {
                let posts = current.state.part(tail).into_iter().flat_map(|counted| counted.posts(number));
                for post in posts.filter(|post| in_window(query, post.received)) {
                    if let Some(room) = current.summary().room(post.room) {
                        let name = Arc::clone(&room.name);
                        let (received, at, room) = (post.received, post.offset, post.room);
                        found.push(FoundMessage { received, name, part, at, room });
                    }
                }
            }
        }
        Ok((Arc::clone(&current.view), found))
    }

    fn search_segments(
        &self,
        sources: &[(usize, &Segment, UserPart)],
        search: &mut Search<'_>,
    ) -> Result<(), MaintainError> {
        for (part, segment, user) in sources {
            if !search.takes_part(user.last) {
                return Ok(());
            }
            let mut rooms = RoomFinder::new(self, segment);
            let mut postings = segment.postings(user);
            while let Some(posting) = postings.next()? {
                if search.takes_time(posting.received)
                    && let Some(room) = rooms.find(posting.ordinal)
                    && !room.seq(posting.ordinal).is_some_and(|seq| is_hidden(self, room.number, seq))
                {
                    search.add(FoundMessage {
                        received: posting.received,
                        name: Arc::clone(&room.name),
                        part: *part,
                        at: posting.ordinal,
                        room: room.number,
                    });
                }
            }
        }
        Ok(())
    }
}

#[inline]
fn in_window(query: &UserHistoryQuery, received: i64) -> bool {
    query.from.is_none_or(|from| received >= from.as_micros())
        && query.to.is_none_or(|to| received < to.as_micros())
        && query.before.as_ref().is_none_or(|before| received <= before.received_at.as_micros())
}

fn stands_before(message: &Message<'_>, before: Option<&UserHistoryCursor>) -> bool {
    before.is_none_or(|before| {
        (message.received_at, message.sent.room, message.seq)
            < (before.received_at, before.room.as_str(), before.seq)
    })
}
