//! Changes of rooms, members and read marks: everything of a room but its messages.

use crate::invariant::cast_or_nearest;

/// Longest title of a room, in bytes.
pub const TITLE_BYTES_MAX: usize = 256;

/// Longest retention of a room, in seconds: 100 years.
pub const RETENTION_S_MAX: u64 = 100 * 365 * 24 * 3_600;

/// A change and its author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// The author; `None` = an administrator, who may do everything.
    pub by: Option<&'a str>,
    /// The change.
    pub what: RoomChange<'a>,
}

/// One change. An administrator may make all of them, other users as stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoomChange<'a> {
    /// Creates a room, or changes the given settings. Everybody may create one, only members may change it. The author of
    /// a new room becomes its first member.
    PutRoom {
        /// The room.
        room: &'a str,
        /// The settings to change.
        settings: RoomSettings<'a>,
    },
    /// Deletes a room with its messages, members and settings. If it is created again, its seqs continue. For members.
    DeleteRoom {
        /// The room.
        room: &'a str,
    },
    /// Adds a member, with the read mark at the head. For members, and for everybody's own membership of an open room.
    AddMember {
        /// The room.
        room: &'a str,
        /// The user.
        user: &'a str,
    },
    /// Removes a member and the read mark. For members, and for everybody's own membership.
    RemoveMember {
        /// The room.
        room: &'a str,
        /// The user.
        user: &'a str,
    },
    /// Moves a member's read mark forward, at most to the head. A smaller seq changes nothing.
    MarkRead {
        /// The room.
        room: &'a str,
        /// The owner of the mark.
        user: &'a str,
        /// Everything up to here is read.
        seq: u64,
    },
    /// Erases the user's messages from all rooms, a bounded number with each operation. The last operation also ends the
    /// memberships.
    EraseUser {
        /// The user.
        user: &'a str,
    },
}

/// Settings of a room. `None` keeps the value, or sets the default in a new room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoomSettings<'a> {
    /// A display name; empty = none.
    pub title: Option<&'a str>,
    /// Whether only members may read and write.
    pub members_only: Option<bool>,
    /// How long messages are kept, in seconds; 0 = the server's default.
    pub retention_s: Option<u64>,
}

/// A read mark after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadMark {
    /// Everything up to here is read.
    pub seq: u64,
    /// Number of kept messages behind the mark.
    pub unread: u64,
    /// Whether this operation moved it.
    pub moved: bool,
}

impl<'a> Change<'a> {
    /// The room, if the change concerns a single one.
    pub fn room(&self) -> Option<&'a str> {
        match self.what {
            RoomChange::PutRoom { room, .. }
            | RoomChange::DeleteRoom { room }
            | RoomChange::AddMember { room, .. }
            | RoomChange::RemoveMember { room, .. }
            | RoomChange::MarkRead { room, .. } => Some(room),
            RoomChange::EraseUser { .. } => None,
        }
    }

    /// Whether it must be alone in its batch; see [`Op::is_exclusive`](crate::Op::is_exclusive).
    pub fn is_exclusive(&self) -> bool {
        matches!(
            self.what,
            RoomChange::PutRoom { .. } | RoomChange::DeleteRoom { .. } | RoomChange::EraseUser { .. }
        )
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    PutRoom { members_only: Option<bool>, retention_s: Option<u64> },
    DeleteRoom,
    AddMember,
    RemoveMember,
    MarkRead(u64),
    EraseUser,
}

/// The fixed-size part of a [`Change`] whose strings are stored in a shared buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedChange {
    start: usize,
    room_bytes: u16,
    user_bytes: u16,
    by_bytes: Option<u16>,
    title_bytes: Option<u16>,
    kind: Kind,
}

impl EncodedChange {
    pub(crate) fn write(change: &Change<'_>, into: &mut String) -> Self {
        let start = into.len();
        let (kind, user, title) = match change.what {
            RoomChange::PutRoom { settings: RoomSettings { title, members_only, retention_s }, .. } => {
                (Kind::PutRoom { members_only, retention_s }, "", title)
            }
            RoomChange::DeleteRoom { .. } => (Kind::DeleteRoom, "", None),
            RoomChange::AddMember { user, .. } => (Kind::AddMember, user, None),
            RoomChange::RemoveMember { user, .. } => (Kind::RemoveMember, user, None),
            RoomChange::MarkRead { user, seq, .. } => (Kind::MarkRead(seq), user, None),
            RoomChange::EraseUser { user } => (Kind::EraseUser, user, None),
        };
        let room = change.room().unwrap_or_default();
        for part in [room, user, change.by.unwrap_or_default(), title.unwrap_or_default()] {
            into.push_str(part);
        }
        let length = |part: &str| cast_or_nearest(part.len(), "ids and titles are at most 256 bytes");
        Self {
            start,
            room_bytes: length(room),
            user_bytes: length(user),
            by_bytes: change.by.map(length),
            title_bytes: title.map(length),
            kind,
        }
    }

    /// The same after its strings moved by `offset` bytes.
    pub(crate) fn moved_by(mut self, offset: usize) -> Self {
        self.start += offset;
        self
    }

    pub(crate) fn read<'a>(&self, from: &'a str) -> Option<Change<'a>> {
        let mut rest = from.get(self.start..)?;
        let mut take = |bytes: u16| {
            let (part, tail) = rest.split_at_checked(bytes.into())?;
            rest = tail;
            Some(part)
        };
        let (room, user) = (take(self.room_bytes)?, take(self.user_bytes)?);
        let by = match self.by_bytes {
            Some(bytes) => Some(take(bytes)?),
            None => None,
        };
        let title = match self.title_bytes {
            Some(bytes) => Some(take(bytes)?),
            None => None,
        };
        let what = match self.kind {
            Kind::PutRoom { members_only, retention_s } => {
                RoomChange::PutRoom { room, settings: RoomSettings { title, members_only, retention_s } }
            }
            Kind::DeleteRoom => RoomChange::DeleteRoom { room },
            Kind::AddMember => RoomChange::AddMember { room, user },
            Kind::RemoveMember => RoomChange::RemoveMember { room, user },
            Kind::MarkRead(seq) => RoomChange::MarkRead { room, user, seq },
            Kind::EraseUser => RoomChange::EraseUser { user },
        };
        Some(Change { by, what })
    }
}
