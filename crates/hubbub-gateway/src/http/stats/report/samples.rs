//! The room and the user that a report shows as samples.
//!
//! Invariant
//! - A text is in a report only where its caller would get it as history.

use hubbub_core::stats::{Counted, UserHistoryQuery};
use hubbub_core::store::{Cursor, HistoryQuery, ReadError};
use hubbub_core::{ErrorCode, Message, RoomId, Timestamp, UserId};

use super::rows::{RoomMessage, UserMessage, UserRoom, newest_first};
use crate::Gateway;
use crate::auth::Right;
use crate::auth::caller::{Caller, Requirement};
use crate::http::consistency::Reads;
use crate::problem::Problem;

/// Messages shown of the sample room and of the sample user.
const SAMPLE: usize = 10;
/// Their texts at most: 256 KiB.
const SAMPLE_BYTES_MAX: usize = 256 * 1024;
const SAMPLE_ROOMS: usize = 1_000;

#[derive(Clone, Copy)]
pub(super) struct Samples<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) reads: Reads<'a>,
    pub(super) caller: &'a Caller,
    pub(super) as_of: Timestamp,
}

impl Samples<'_> {
    /// The newest messages of a room; none where there is no room, and none where the caller may not read it. A room the
    /// request does not name may have been deleted since it was counted.
    pub(super) async fn room_messages(
        self,
        room: Option<RoomId>,
        is_named: bool,
    ) -> Result<Counted<Vec<RoomMessage>>, Problem> {
        let room = room.filter(|room| may_read(self.caller, room.as_str()));
        let Some(room) = room else { return Ok(self.counted(Vec::new())) };
        let cursor = Cursor::Before(u64::MAX);
        let query = HistoryQuery { cursor, from: None, to: None, limit: SAMPLE, bytes_max: SAMPLE_BYTES_MAX };
        let reading = self.reads.history(room.clone(), query);
        match self.gateway.read_as(&room, self.caller, reading).await {
            Ok(page) => Ok(self.counted(newest_first(page.messages.iter()))),
            Err(problem) if problem.code == ErrorCode::NotMember => Ok(self.counted(Vec::new())),
            Err(problem) if problem.code == ErrorCode::UnknownRoom && !is_named => {
                Ok(self.counted(Vec::new()))
            }
            Err(problem) => Err(problem),
        }
    }

    /// The newest messages of a user that the caller may read; none where there is no user.
    pub(super) async fn user_messages(
        self,
        user: Option<UserId>,
    ) -> Result<Counted<Vec<UserMessage>>, ReadError> {
        let user = user.filter(|user| self.caller.is_allowed(Requirement::Own(user.as_str())));
        let Some(user) = user else { return Ok(self.counted(Vec::new())) };
        let (limit, bytes_max) = (SAMPLE, SAMPLE_BYTES_MAX);
        let query = UserHistoryQuery { before: None, from: None, to: None, limit, bytes_max };
        let messages = self.reads.stats().user_history(user, query).await?.messages;
        let may_be_shown = |message: &Message<'_>| may_read(self.caller, message.sent.room);
        Ok(self.counted(newest_first(messages.iter().filter(may_be_shown))))
    }

    /// Where the user wrote, the newest activity first; nowhere where there is no user.
    pub(super) async fn user_rooms(self, user: Option<UserId>) -> Result<Counted<Vec<UserRoom>>, ReadError> {
        let Some(user) = user else { return Ok(self.counted(Vec::new())) };
        let Counted { value, as_of } = self.reads.stats().participation(user, None, SAMPLE_ROOMS).await?;
        let mut rooms: Vec<UserRoom> = value.rooms.into_iter().map(UserRoom::from).collect();
        rooms.sort_by_key(|room| std::cmp::Reverse(room.last_activity));
        Ok(Counted { value: rooms, as_of })
    }

    fn counted<T>(&self, value: T) -> Counted<T> {
        Counted { value, as_of: self.as_of }
    }
}

fn may_read(caller: &Caller, room: &str) -> bool {
    caller.is_allowed(Requirement::Room(Right::Read, room))
}
