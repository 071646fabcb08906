//! Members, read marks, and what belongs to one user.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;

use super::super::operation::{Media, READING, WRITING};
use super::super::schemas::{id, limit, schema};
use super::Operation;
use crate::http::page;

pub(super) const TAG: &str = "Members";

pub(in crate::http) fn add(_: &Limits) -> Operation {
    Operation::new("addMember",
        TAG,
        "Make somebody a member",
    )
    .about(
        "Members may, administrators, and in an open room everybody for themselves. The read mark begins at the head.",
    )
    .caller_by_header()
    .gives(204, Media::None, "A member now, or before.")
    .refuses(&[E::Invalid, E::UnknownRoom, E::NotMember])
    .refuses(WRITING)
}

pub(in crate::http) fn mark_read(_: &Limits) -> Operation {
    Operation::new("markRead", TAG, "Say how far one has read")
        .about(
            "The caller's own mark. It only moves forward, to the head at most; all sockets of the user are told. A \
             message a member sends moves the mark along if it stood at the head.",
        )
        .caller()
        .takes(Media::Json(schema("ReadBody")), "")
        .gives(200, Media::Json(schema("ReadMark")), "How it stands now.")
        .refuses(&[E::Malformed, E::Invalid, E::UnknownRoom, E::NotMember])
        .refuses(WRITING)
}

pub(in crate::http) fn list(_: &Limits) -> Operation {
    Operation::new("listMembers", TAG, "List a room's members")
        .about("In the order of their ids.")
        .caller()
        .query("after", id(), "Members behind this one: the `next` of the page before.")
        .query("limit", limit(page::LIMIT_DEFAULT, page::LIMIT_MAX), "Most members of the page.")
        .gives(200, Media::Json(schema("MemberList")), "")
        .refuses(&[E::Invalid, E::UnknownRoom, E::NotMember])
        .refuses(READING)
}

pub(in crate::http) fn user_rooms(_: &Limits) -> Operation {
    Operation::new("listUserRooms", TAG, "List the rooms of a user")
        .about(
            "Those the user is a member of, in the order of their ids, with what is unread: messages behind the read \
             mark. For the user, and for administrators.",
        )
        .caller_by_header()
        .query("after", id(), "Rooms behind this one: the `next` of the page before.")
        .query("limit", limit(page::LIMIT_DEFAULT, page::LIMIT_MAX), "Most rooms of the page.")
        .gives(200, Media::Json(schema("UserRoomList")), "")
        .refuses(&[E::Invalid, E::Forbidden])
        .refuses(READING)
}

pub(in crate::http) fn remove(_: &Limits) -> Operation {
    Operation::new("removeMember",
        TAG,
        "End a membership",
    )
    .about(
        "Members may, administrators, and everybody for themselves. Once it is answered the user's subscriptions of the \
         room have ended, with `removed`: nothing sent later reaches them.",
    )
    .caller_by_header()
    .gives(204, Media::None, "No member now, or before.")
    .refuses(&[E::Invalid, E::UnknownRoom, E::NotMember])
    .refuses(WRITING)
}

pub(in crate::http) fn erase(_: &Limits) -> Operation {
    Operation::new("eraseUser", TAG, "Erase a user")
        .about(
            "All messages the user wrote, in all rooms, and the memberships. For the user, and for administrators. It \
             may take a while; whoever loses the connection asks again, and it goes on where it was.",
        )
        .caller_by_header()
        .gives(200, Media::Json(schema("Erased")), "Gone from everything that is read.")
        .refuses(&[E::Invalid, E::Forbidden])
        .refuses(WRITING)
}
