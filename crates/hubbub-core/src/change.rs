//! Changes of rooms, members and read marks: everything of a room but its messages.

use crate::invariant::cast_or_nearest;
use crate::time::Timestamp;

/// Longest title of a room, in bytes.
pub const TITLE_BYTES_MAX: usize = 256;

/// What [`is_valid_title`] asks for, behind "must be ".
pub const TITLE_RULE: &str = "at most 256 bytes without control characters";

/// Whether a text may be a room's title; an empty one stands for none.
pub fn is_valid_title(text: &str) -> bool {
    text.len() <= TITLE_BYTES_MAX && !text.chars().any(char::is_control)
}

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
    /// Removes messages that have outlived the room's retention, a bounded number, oldest first. Only the server makes it,
    /// and only for a store that removes nothing past its log ([`LogStore::expired`](crate::LogStore::expired)); other
    /// stores remove by themselves, and refuse it.
    ExpireMessages {
        /// The room.
        room: &'a str,
        /// Messages received before are removed; of these none that had not outlived the retention when the log took the
        /// operation, by the log's clock.
        before: Timestamp,
        /// The retention, in seconds.
        retention_s: u64,
        /// Whether it is the room's own. Nothing is removed if that has changed by then.
        is_own: bool,
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
    /// Number of kept messages behind the mark, up to `head`.
    pub unread: u64,
    /// The room's newest message when this was so. Whoever hears of it beside messages knows by this which of them are counted.
    pub head: u64,
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
            | RoomChange::MarkRead { room, .. }
            | RoomChange::ExpireMessages { room, .. } => Some(room),
            RoomChange::EraseUser { .. } => None,
        }
    }

    /// Whether it must be alone in its batch; see [`Op::is_exclusive`](crate::Op::is_exclusive).
    pub fn is_exclusive(&self) -> bool {
        matches!(
            self.what,
            RoomChange::PutRoom { .. }
                | RoomChange::DeleteRoom { .. }
                | RoomChange::EraseUser { .. }
                | RoomChange::ExpireMessages { .. }
        )
    }
}

impl<'a> RoomChange<'a> {
    /// The user and the title, where it has them.
    fn user_and_title(&self) -> (&'a str, Option<&'a str>) {
        match *self {
            Self::PutRoom { settings, .. } => ("", settings.title),
            Self::DeleteRoom { .. } | Self::ExpireMessages { .. } => ("", None),
            Self::AddMember { user, .. }
            | Self::RemoveMember { user, .. }
            | Self::MarkRead { user, .. }
            | Self::EraseUser { user } => (user, None),
        }
    }

    /// The same change with other texts.
    fn with<'b>(&self, room: &'b str, user: &'b str, title: Option<&'b str>) -> RoomChange<'b> {
        match *self {
            Self::PutRoom { settings: RoomSettings { members_only, retention_s, .. }, .. } => {
                RoomChange::PutRoom { room, settings: RoomSettings { title, members_only, retention_s } }
            }
            Self::DeleteRoom { .. } => RoomChange::DeleteRoom { room },
            Self::AddMember { .. } => RoomChange::AddMember { room, user },
            Self::RemoveMember { .. } => RoomChange::RemoveMember { room, user },
            Self::MarkRead { seq, .. } => RoomChange::MarkRead { room, user, seq },
            Self::EraseUser { .. } => RoomChange::EraseUser { user },
            Self::ExpireMessages { before, retention_s, is_own, .. } => {
                RoomChange::ExpireMessages { room, before, retention_s, is_own }
            }
        }
    }
}

/// The length of an absent text.
const NONE: u16 = u16::MAX;

/// The fixed-size part of a [`Change`] whose strings are stored in a shared buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedChange {
    start: usize,
    /// Of the room, the user, the author and the title.
    lengths: [u16; 4],
    /// The change with empty texts.
    what: RoomChange<'static>,
}

impl EncodedChange {
    pub(crate) fn write(change: &Change<'_>, into: &mut String) -> Self {
        let start = into.len();
        let (user, title) = change.what.user_and_title();
        let lengths = [change.room(), Some(user), change.by, title].map(|text| {
            into.push_str(text.unwrap_or_default());
            let length = |text: &str| cast_or_nearest(text.len(), "ids and titles are at most 256 bytes");
            text.map_or(NONE, length)
        });
        Self { start, lengths, what: change.what.with("", "", None) }
    }

    /// The same after its strings moved by `offset` bytes.
    pub(crate) fn moved_by(mut self, offset: usize) -> Self {
        self.start += offset;
        self
    }

    pub(crate) fn read<'a>(&self, from: &'a str) -> Option<Change<'a>> {
        let mut rest = from.get(self.start..)?;
        let [room, user, by, title] = self.lengths.map(|bytes| {
            if bytes == NONE {
                return Some(None);
            }
            let (part, tail) = rest.split_at_checked(bytes.into())?;
            rest = tail;
            Some(Some(part))
        });
        let (room, user) = (room?.unwrap_or_default(), user?.unwrap_or_default());
        Some(Change { by: by?, what: self.what.with(room, user, title?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_what_its_rule_says() {
        assert!(TITLE_RULE.contains(&format!("at most {TITLE_BYTES_MAX} bytes")));
        for (title, is_valid) in [
            (String::new(), true),
            ("ä".repeat(TITLE_BYTES_MAX / 2), true),
            ("a".repeat(TITLE_BYTES_MAX + 1), false),
            ("a\nb".to_owned(), false),
            ("a\0b".to_owned(), false),
        ] {
            assert_eq!(is_valid_title(&title), is_valid, "{title:?}");
        }
    }
}
