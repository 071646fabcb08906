//! What each frame needs.

use hubbub_core::RoomId;

use crate::auth::Right;
use crate::auth::caller::{Caller, Requirement};
use crate::problem::Problem;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FramePermission {
    /// Allowed before it is known who sends it.
    Open,
    /// Allowed to everybody who is known.
    Caller,
    /// Something with the room that the frame names.
    Room(Right),
}

/// The frames of `/v1/ws` by their `type`. One that is not here is not known.
pub(crate) const FRAMES: &[(&str, FramePermission)] = &[
    ("auth", FramePermission::Open),
    ("send", FramePermission::Room(Right::Write)),
    // For "*" without the rooms that the caller may not read.
    ("subscribe", FramePermission::Room(Right::Read)),
    ("unsubscribe", FramePermission::Caller),
    ("read", FramePermission::Room(Right::Read)),
    ("typing", FramePermission::Room(Right::Write)),
    ("ping", FramePermission::Caller),
];

pub(super) fn of_frame(kind: &str) -> Option<FramePermission> {
    FRAMES.iter().find(|(name, _)| *name == kind).map(|(_, permission)| *permission)
}

/// Refuses a frame about a room, which has been read already.
pub(super) fn check_room(permission: FramePermission, caller: &Caller, room: &str) -> Result<(), Problem> {
    match permission {
        FramePermission::Room(right) => caller.may(Requirement::Room(right, room)),
        FramePermission::Open | FramePermission::Caller => Ok(()),
    }
}

/// Refuses a socket of `/chat/{room}` on which the caller could do nothing. Each message is checked again.
pub(super) fn check_chat(caller: &Caller, room: &RoomId, is_live: bool) -> Result<(), Problem> {
    let may = |right| caller.may(Requirement::Room(right, room.as_str()));
    match is_live {
        true => may(Right::Read),
        false => may(Right::Write),
    }
}
