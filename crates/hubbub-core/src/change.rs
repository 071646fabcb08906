//! Changes of rooms, members and read marks: everything about a room besides its messages.

/// Longest title of a room, in bytes.
pub const TITLE_BYTES_MAX: usize = 256;

/// Longest retention of a room that can be set, in seconds: a hundred years.
pub const RETENTION_S_MAX: u64 = 100 * 365 * 24 * 3_600;

/// What is to be changed, and who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// Who asks; `None` = an administrator, who may do everything.
    pub by: Option<&'a str>,
    /// What.
    pub what: What<'a>,
}

/// One change. Who may: an administrator everything; others as is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'a> {
    /// Makes a room, or changes what is given. Anybody may make one, only members may change it. Whoever makes one
    /// becomes its first member.
    PutRoom {
        /// The room.
        room: &'a str,
        /// What it shall be.
        settings: RoomSettings<'a>,
    },
    /// Deletes a room with its messages, members and settings. Its numbers go on if it is made again. Members may.
    DeleteRoom {
        /// The room.
        room: &'a str,
    },
    /// Makes somebody a member, with the read mark at the head. Members may, and everybody for themselves where the
    /// room is open.
    AddMember {
        /// The room.
        room: &'a str,
        /// Who.
        user: &'a str,
    },
    /// Takes a membership and its read mark back. Members may, and everybody for themselves.
    RemoveMember {
        /// The room.
        room: &'a str,
        /// Who.
        user: &'a str,
    },
    /// Moves a member's read mark forward, to the head at most. A smaller one is no change.
    MarkRead {
        /// The room.
        room: &'a str,
        /// Whose mark.
        user: &'a str,
        /// Everything up to here is read.
        seq: u64,
    },
    /// Erases messages of a user from all rooms, a bounded number for each operation; the last one ends the
    /// memberships too.
    EraseUser {
        /// Who.
        user: &'a str,
    },
}

/// What a room shall be; `None` leaves it as it is, or at its default in a new room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoomSettings<'a> {
    /// A name for people; empty = none.
    pub title: Option<&'a str>,
    /// Whether only members may read and write.
    pub members_only: Option<bool>,
    /// How long messages are kept, in seconds; 0 = as the server keeps those of other rooms.
    pub retention_s: Option<u64>,
}

/// A read mark as it stands after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadMark {
    /// Everything up to here is read.
    pub seq: u64,
    /// Messages kept that are not.
    pub unread: u64,
    /// Whether this operation moved it.
    pub moved: bool,
}

impl<'a> Change<'a> {
    /// The room it belongs to, if it is one.
    pub fn room(&self) -> Option<&'a str> {
        match self.what {
            What::PutRoom { room, .. }
            | What::DeleteRoom { room }
            | What::AddMember { room, .. }
            | What::RemoveMember { room, .. }
            | What::MarkRead { room, .. } => Some(room),
            What::EraseUser { .. } => None,
        }
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self.what, What::PutRoom { .. } | What::DeleteRoom { .. } | What::EraseUser { .. })
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

/// The fixed part of a [`Change`] whose strings stand one after another in a shared text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeHead {
    start: usize,
    room_bytes: u16,
    user_bytes: u16,
    by_bytes: Option<u16>,
    title_bytes: Option<u16>,
    kind: Kind,
}

impl ChangeHead {
    pub(crate) fn write(change: &Change<'_>, into: &mut String) -> Self {
        let start = into.len();
        let (kind, user, title) = match change.what {
            What::PutRoom { settings: RoomSettings { title, members_only, retention_s }, .. } => {
                (Kind::PutRoom { members_only, retention_s }, "", title)
            }
            What::DeleteRoom { .. } => (Kind::DeleteRoom, "", None),
            What::AddMember { user, .. } => (Kind::AddMember, user, None),
            What::RemoveMember { user, .. } => (Kind::RemoveMember, user, None),
            What::MarkRead { user, seq, .. } => (Kind::MarkRead(seq), user, None),
            What::EraseUser { user } => (Kind::EraseUser, user, None),
        };
        let room = change.room().unwrap_or_default();
        for part in [room, user, change.by.unwrap_or_default(), title.unwrap_or_default()] {
            into.push_str(part);
        }
        // Ids and titles were limited when they were checked; nothing is cut.
        let length = |part: &str| u16::try_from(part.len()).unwrap_or(u16::MAX);
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
            let (head, tail) = rest.split_at_checked(bytes.into())?;
            rest = tail;
            Some(head)
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
                What::PutRoom { room, settings: RoomSettings { title, members_only, retention_s } }
            }
            Kind::DeleteRoom => What::DeleteRoom { room },
            Kind::AddMember => What::AddMember { room, user },
            Kind::RemoveMember => What::RemoveMember { room, user },
            Kind::MarkRead(seq) => What::MarkRead { room, user, seq },
            Kind::EraseUser => What::EraseUser { user },
        };
        Some(Change { by, what })
    }
}
