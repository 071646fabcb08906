//! Reading rooms: messages, members and read marks.

use std::pin::Pin;
use std::sync::Arc;

use super::{Read, ReadError};
use crate::id::{MessageId, RoomId, UserId};
use crate::message::MessageRun;
use crate::op::Receipt;
use crate::time::Timestamp;

/// Reads of rooms. They never wait for writes, and see everything acknowledged before they began.
pub trait RoomStore: Send + Sync + 'static {
    /// The id of the store's history; a restore changes it. Cursors of another epoch are meaningless.
    fn epoch(&self) -> Arc<str>;

    /// A page of a room's messages, oldest first; see [`HistoryQuery`]. An unknown room is
    /// [`ReadError::UnknownRoom`]; a window without messages is an empty page.
    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage>;

    /// The seq that the id of a kept message leads to. An id whose message is gone may lead nowhere, or to where it was:
    /// ask [`RoomStore::receipt`]. For people who look for one message; may read much.
    fn seq_of(&self, room: RoomId, id: MessageId) -> Read<'_, Option<u64>>;

    /// The receipt of the kept message with this id; `None` when the room has none, or is not there.
    fn receipt(&self, room: RoomId, id: MessageId) -> Read<'_, Option<Receipt>> {
        Box::pin(async move {
            let Some(seq) = self.seq_of(room.clone(), id.clone()).await? else { return Ok(None) };
            let cursor = Cursor::After(seq.saturating_sub(1));
            let query = HistoryQuery { cursor, from: None, to: None, limit: 1, bytes_max: 1 };
            let page = match self.history(room, query).await {
                Err(ReadError::UnknownRoom) => return Ok(None),
                page => page?,
            };
            let found = page.messages.get(0).filter(|message| message.sent.id == id.as_str());
            Ok(found.map(|message| Receipt { seq: message.seq, received_at: message.received_at, gap: 0 }))
        })
    }

    /// One room; `None` if there is none of that name.
    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>>;

    /// Up to `limit` rooms in the order of their ids, starting behind `after`.
    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>>;

    /// A user's access to a room.
    fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access>;

    /// Up to `limit` members in the order of their ids, starting behind `after`; none when there is no such room.
    fn members(&self, room: RoomId, after: Option<UserId>, limit: usize) -> Read<'_, Vec<Member>>;

    /// The heads of those of these rooms that exist, in any order. Polled many times a second to follow other servers'
    /// commits.
    fn heads(&self, rooms: Vec<RoomId>) -> Read<'_, Vec<RoomHead>> {
        Box::pin(async move {
            let mut heads = Vec::with_capacity(rooms.len());
            for room in rooms {
                if let Some(RoomInfo { room, head, members_only, .. }) = self.room(room).await? {
                    heads.push(RoomHead { room, head, members_only, changes: 0 });
                }
            }
            Ok(heads)
        })
    }

    /// Waits until other servers have changed rooms, and says which: a hint, which may be missing, late or wrong. Never ends
    /// where nobody tells. If the future is dropped, what it was about to say is lost.
    fn remote_changes(&self) -> Pin<Box<dyn Future<Output = RemoteChanges> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    /// Up to `limit` rooms that the user is a member of, in the order of their ids, starting behind `after`.
    fn user_rooms(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
        last: LastMessages,
    ) -> Read<'_, UserRooms>;

    /// How many rooms the user is a member of, counted up to `most`.
    fn user_room_count(&self, user: UserId, most: usize) -> Read<'_, usize>;

    /// The rooms of each of these users, in the order of the users; `None` = they are more than [`MEMBERSHIPS_MAX`]. Read every
    /// few seconds to find joins through other servers, so a store that they write to has a cheap way. Another one lists nothing.
    fn memberships(&self, users: Vec<UserId>) -> Read<'_, Vec<Option<Vec<Membership>>>> {
        Box::pin(std::future::ready(Ok(vec![Some(Vec::new()); users.len()])))
    }
}

/// Rooms that are listed for a user, with those that the user has left where a store lists them, too.
pub const MEMBERSHIPS_MAX: usize = 20_000;

/// A room that a user is a member of, or may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The room.
    pub room: RoomId,
    /// `None` = the user is a member. Otherwise the user is a member, or was one, or becomes one in a moment, or only wrote
    /// there; the number changes whenever the user becomes a member again.
    pub version: Option<u64>,
}

/// Rooms that other servers have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteChanges {
    /// The rooms that changed.
    Rooms(Vec<RoomId>),
    /// Any room may have changed.
    Any,
}

/// The head of a room, to detect that something happened in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomHead {
    /// Its name.
    pub room: RoomId,
    /// Seq of its newest message; 0 if there never was one.
    pub head: u64,
    /// Whether only members may read and write.
    pub members_only: bool,
    /// Changes with each change of the room, its members, or its stored messages. Constant on a store with a single
    /// writing server.
    pub changes: u64,
}

/// A user's access to a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// There is no such room.
    Unknown,
    /// The room is open, and the user is not a member.
    Open,
    /// The room is for members only, and the user is not one.
    Closed,
    /// The user is a member.
    Member {
        /// The user's read mark.
        read_seq: u64,
    },
}

/// A member of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The user.
    pub user: UserId,
    /// The member's read mark.
    pub read_seq: u64,
}

/// Whether the newest messages are read with a user's rooms. They take up to 64 KiB a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastMessages {
    /// The newest message of each room is read.
    Read,
    /// They are not read, so one that is unreadable fails nothing.
    Leave,
}

/// Rooms of a user.
#[derive(Debug, Clone, Default)]
pub struct UserRooms {
    /// The rooms, in the order of their ids.
    pub rooms: Vec<UserRoom>,
    /// The newest message of each room that has any, in the same order; none with [`LastMessages::Leave`].
    pub last: MessageRun,
}

/// A room as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRoom {
    /// The room.
    pub info: RoomInfo,
    /// Everything up to here is read.
    pub read_seq: u64,
    /// Number of kept messages behind the mark: `info.head` minus the mark, minus those erased in between.
    pub unread: u64,
}

/// Where a page of history starts, and its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    /// The oldest messages with a greater seq. `After(0)` begins with the oldest kept.
    After(u64),
    /// The newest messages with a smaller seq. `Before(u64::MAX)` ends with the newest.
    Before(u64),
}

/// Selects a page of a room's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Where the page starts or ends.
    pub cursor: Cursor,
    /// Only messages received at or after this.
    pub from: Option<Timestamp>,
    /// Only messages received before this.
    pub to: Option<Timestamp>,
    /// Maximum number of messages, at least 1.
    pub limit: usize,
    /// Most bytes of texts in the page, which contains at least one message.
    pub bytes_max: usize,
}

/// A page of history, oldest first.
#[derive(Debug, Clone, Default)]
pub struct HistoryPage {
    /// The messages.
    pub messages: MessageRun,
    /// Seq of the room's newest message when the page was read; 0 if there never was one.
    pub head: u64,
    /// What follows the newest removed message that precedes all kept ones. Where numbers have no gaps: the seq of the
    /// oldest kept message; `head + 1` if there is none. Where they have gaps it may be smaller: a message that was removed
    /// while older ones were kept need not count once those are removed, too. A cursor before `oldest - 1` missed something.
    pub oldest: u64,
    /// Whether there is more in the direction of the cursor.
    pub more: bool,
}

/// A room, its settings and its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomInfo {
    /// Its name.
    pub room: RoomId,
    /// Seq of its newest message; 0 if there never was one.
    pub head: u64,
    /// What follows the newest removed message that precedes all kept ones. Where numbers have no gaps: the seq of the
    /// oldest kept message; `head + 1` if there is none. Where they have gaps it may be smaller: a message that was removed
    /// while older ones were kept need not count once those are removed, too. A cursor before `oldest - 1` missed something.
    pub oldest: u64,
    /// Messages kept.
    pub messages: u64,
    /// When the newest message was received.
    pub last_received_at: Option<Timestamp>,
    /// A display name.
    pub title: Option<String>,
    /// Whether only members may read and write.
    pub members_only: bool,
    /// How long its messages are kept, in seconds; `None` = the server's default.
    pub retention_s: Option<u64>,
    /// Number of members.
    pub members: u64,
}
