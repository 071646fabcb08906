//! What subscribers get: messages, and notices that are not stored.

use hubbub_core::{Message, ReadMark};

/// Encodes messages and notices as frames for subscribers.
#[derive(Debug, Clone, Copy)]
pub struct FrameEncoder {
    /// Appends one message.
    pub message: fn(&Message<'_>, &mut Vec<u8>),
    /// Appends a notice.
    pub notice: fn(&Notice<'_>, &mut Vec<u8>),
}

/// An event that is delivered to the sockets connected now, and not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A user's first subscription of the room began, or the last one ended.
    Presence {
        /// The room.
        room: &'a str,
        /// The user.
        user: &'a str,
        /// Whether there is a subscription now.
        is_online: bool,
    },
    /// A user is typing.
    Typing {
        /// The room.
        room: &'a str,
        /// The user.
        user: &'a str,
    },
    /// Sent to all sockets of a user: the user's read mark moved.
    Read {
        /// The room.
        room: &'a str,
        /// The owner of the mark.
        user: &'a str,
        /// Its new position.
        mark: ReadMark,
    },
    /// Sent to a subscriber: the subscription of the room ended here.
    Removed {
        /// The room.
        room: &'a str,
    },
}
