//! Rooms, their members, read marks, and what belongs to one user.

use hubbub_core::ErrorCode::*;

use super::super::endpoint::{Endpoint, delete, get, put};
use super::super::operation::{Media::*, PAGE};
use super::super::permission::Permission;
use super::super::{members, rooms};
use crate::auth::Right;

pub(super) static ENDPOINTS: &[Endpoint] = &[
    get("/v1/rooms", |call| Box::pin(rooms::list(call)))
        .needs(Permission::Caller)
        .named("listRooms", "List rooms")
        .about("In the order of their ids. A caller with a name does not see rooms for members only of others.")
        .parameters(&[PAGE])
        .gives(&[(200, Json("RoomList"), "")])
        .refuses(&[Invalid]),
    get("/v1/rooms/{room}", |call| Box::pin(rooms::get(call)))
        .needs(Permission::Room(Right::Read))
        .named("getRoom", "Read the state of a room")
        .gives(&[(200, Json("Room"), "")])
        .refuses(&[Invalid, UnknownRoom, NotMember]),
    get("/v1/rooms/{room}/presence", |call| Box::pin(members::presence(call)))
        .needs(Permission::Room(Right::Read))
        .named("listPresent", "Who follows a room now")
        .about("Users with at least one open subscription of the room, in the order of their ids.")
        .gives(&[(200, Json("Presence"), "")])
        .refuses(&[Invalid, NotMember]),
    put("/v1/rooms/{room}", |call| Box::pin(rooms::put(call)))
        .needs(Permission::Room(Right::Manage))
        .named("putRoom", "Create a room, or change it")
        .about(
            "What the body does not name stays as it is, or at its default in a new room. Anybody may create a room, \
             and becomes its first member; only members and administrators may change one. Without a body: the room \
             only.",
        )
        .may_take(Json("RoomSettings"))
        .gives(&[(201, Json("Room"), "Created."), (200, Json("Room"), "Changed, or as it was wanted already.")])
        .refuses(&[Malformed, Invalid, NotMember, TooManyRooms]),
    delete("/v1/rooms/{room}", |call| Box::pin(rooms::delete(call)))
        .needs(Permission::Room(Right::Manage))
        .named("deleteRoom", "Delete a room")
        .about(
            "With its messages, members and settings, for members and administrators. Subscriptions of it end with \
             `removed`. Created again, it continues behind its last `seq`.",
        )
        .gives(&[(204, Nothing, "It is gone.")])
        .refuses(&[Invalid, UnknownRoom, NotMember]),
];

pub(super) static MEMBERS: &[Endpoint] = &[
    put("/v1/rooms/{room}/members/{user}", |call| Box::pin(members::add(call)))
        .needs(Permission::Membership)
        .named("addMember", "Make a user a member")
        .about(
            "Members and administrators may, and in an open room all users for themselves. The read mark begins at the \
             head.",
        )
        .gives(&[(204, Nothing, "A member now, or before.")])
        .refuses(&[Invalid, UnknownRoom, NotMember, TooManyRooms]),
    put("/v1/rooms/{room}/read", |call| Box::pin(members::mark_read(call)))
        .needs(Permission::Room(Right::Read))
        .named("markRead", "Say how far one has read")
        .about(
            "The caller's own mark. It only moves forward, to the head at most; all sockets of the user are notified. \
             A message a member sends moves the mark along if it stood at the head.",
        )
        .takes(Json("ReadBody"))
        .gives(&[(200, Json("ReadMark"), "The mark now.")])
        .refuses(&[Malformed, Invalid, UnknownRoom, NotMember]),
    get("/v1/rooms/{room}/members", |call| Box::pin(members::list(call)))
        .needs(Permission::Room(Right::Read))
        .named("listMembers", "List a room's members")
        .about("In the order of their ids.")
        .parameters(&[PAGE])
        .gives(&[(200, Json("MemberList"), "")])
        .refuses(&[Invalid, UnknownRoom, NotMember]),
    get("/v1/users/{user}/rooms", |call| Box::pin(members::user_rooms(call)))
        .needs(Permission::Own)
        .named("listUserRooms", "List the rooms of a user")
        .about(
            "Those the user is a member of, in the order of their ids, with what is unread: messages behind the read \
             mark. For the user, and for administrators.",
        )
        .parameters(&[PAGE])
        .gives(&[(200, Json("UserRoomList"), "")])
        .refuses(&[Invalid, Forbidden]),
    delete("/v1/rooms/{room}/members/{user}", |call| Box::pin(members::remove(call)))
        .needs(Permission::Membership)
        .named("removeMember", "End a membership")
        .about(
            "Members and administrators may, and all users for themselves. Once it is answered the user's subscriptions \
             of the room have ended, with `removed`: nothing sent later reaches them.",
        )
        .gives(&[(204, Nothing, "No member now, or before.")])
        .refuses(&[Invalid, UnknownRoom, NotMember]),
    delete("/v1/users/{user}", |call| Box::pin(members::erase(call)))
        .needs(Permission::Erase)
        .named("eraseUser", "Erase a user")
        .about(
            "All messages the user wrote, in all rooms, and the memberships. For the user, and for administrators. It \
             may take a while; a client that loses the connection sends the request again, and it continues.",
        )
        .gives(&[(200, Json("Erased"), "Gone from everything that is read.")])
        .refuses(&[Invalid, Forbidden]),
];
