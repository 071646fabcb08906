//! Rooms.

use hubbub_core::ErrorCode::*;

use super::super::endpoint::{Endpoint, delete, get, put};
use super::super::operation::{Media::*, PAGE};
use super::super::{members, rooms};

pub(super) static ENDPOINTS: &[Endpoint] = &[
    get("/v1/rooms", |call| Box::pin(rooms::list(call)))
        .named("listRooms", "List rooms")
        .about("In the order of their ids. A caller with a name does not see rooms for members only of others.")
        .parameters(&[PAGE])
        .gives(&[(200, Json("RoomList"), "")])
        .refuses(&[Invalid]),
    get("/v1/rooms/{room}", |call| Box::pin(rooms::get(call)))
        .named("getRoom", "Read the state of a room")
        .gives(&[(200, Json("Room"), "")])
        .refuses(&[Invalid, UnknownRoom, NotMember]),
    get("/v1/rooms/{room}/presence", |call| Box::pin(members::presence(call)))
        .named("listPresent", "Who follows a room now")
        .about("Users with at least one open subscription of the room, in the order of their ids.")
        .gives(&[(200, Json("Presence"), "")])
        .refuses(&[Invalid, NotMember]),
    put("/v1/rooms/{room}", |call| Box::pin(rooms::put(call)))
        .named("putRoom", "Create a room, or change it")
        .about(
            "What the body does not name stays as it is, or at its default in a new room. Anybody may create a room, \
             and becomes its first member; only members and administrators may change one. Without a body: the room \
             only.",
        )
        .takes(Json("RoomSettings"))
        .gives(&[(201, Json("Room"), "Created."), (200, Json("Room"), "Changed, or as it was wanted already.")])
        .refuses(&[Malformed, Invalid, NotMember]),
    delete("/v1/rooms/{room}", |call| Box::pin(rooms::delete(call)))
        .named("deleteRoom", "Delete a room")
        .about(
            "With its messages, members and settings, for members and administrators. Subscriptions of it end with \
             `removed`. Created again, it continues behind its last `seq`.",
        )
        .gives(&[(204, Nothing, "It is gone.")])
        .refuses(&[Invalid, UnknownRoom, NotMember]),
];
