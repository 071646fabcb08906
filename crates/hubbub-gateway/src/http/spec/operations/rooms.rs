//! Rooms.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;

use super::super::operation::{Media, READING, WRITING};
use super::super::schemas::{id, limit, schema};
use super::Operation;
use crate::http::page;

pub(super) const TAG: &str = "Rooms";

pub(in crate::http) fn list(_: &Limits) -> Operation {
    Operation::new("listRooms", TAG, "List rooms")
        .about(
            "In the order of their ids. A caller with a name is not shown rooms for members only of others.",
        )
        .caller()
        .query("after", id(), "Rooms behind this one: the `next` of the page before.")
        .query("limit", limit(page::LIMIT_DEFAULT, page::LIMIT_MAX), "Most rooms of the page.")
        .gives(200, Media::Json(schema("RoomList")), "")
        .refuses(&[E::Invalid])
        .refuses(READING)
}

pub(in crate::http) fn get(_: &Limits) -> Operation {
    Operation::new("getRoom", TAG, "Read how a room stands")
        .caller()
        .gives(200, Media::Json(schema("Room")), "")
        .refuses(&[E::Invalid, E::UnknownRoom, E::NotMember])
        .refuses(READING)
}

pub(in crate::http) fn presence(_: &Limits) -> Operation {
    Operation::new("listPresent", TAG, "Who follows a room now")
        .about("Users with at least one open subscription of the room, in the order of their ids.")
        .caller()
        .gives(200, Media::Json(schema("Presence")), "")
        .refuses(&[E::Invalid, E::NotMember])
}

pub(in crate::http) fn put(_: &Limits) -> Operation {
    Operation::new("putRoom", TAG, "Make a room, or change it")
        .about(
            "What the body does not name stays as it is, or at its default in a new room. Anybody may make a room, and \
             becomes its first member; only members may change one, and administrators. Without a body: the room only.",
        )
        .caller()
        .takes(Media::Json(schema("RoomSettings")), "")
        .gives(201, Media::Json(schema("Room")), "Made.")
        .gives(200, Media::Json(schema("Room")), "Changed, or as it was wanted already.")
        .refuses(&[E::Malformed, E::Invalid, E::NotMember])
        .refuses(WRITING)
}

/// The last one, because what is deleted is gone for those behind it.
pub(in crate::http) fn delete(_: &Limits) -> Operation {
    Operation::new("deleteRoom", TAG, "Delete a room")
        .about(
            "With its messages, members and settings, for members and administrators. Subscriptions of it end with \
             `removed`. Made again, it counts on behind its last `seq`.",
        )
        .caller()
        .gives(204, Media::None, "It is gone.")
        .refuses(&[E::Invalid, E::UnknownRoom, E::NotMember])
        .refuses(WRITING)
}
