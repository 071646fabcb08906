//! Rooms.

use hubbub_core::id::ID_RULE;
use hubbub_core::limits::Limits;
use hubbub_core::{ErrorCode as E, Fault};
use serde_json::{Value, json};

use super::super::operation::{Media, READING, WRITING};
use super::super::schemas::{id, limit, schema};
use super::super::values::{EPOCH, NOW, answered, invalid, no_room, refusal, with};
use super::Operation;
use crate::http::page;
use crate::problem::Problem;

pub(super) const TAG: &str = "Rooms";

fn room(id: &str, head: u64) -> Value {
    json!({
        "roomId": id, "title": null, "membersOnly": false, "retention": null, "head": head, "oldest": 1,
        "messages": head, "members": 0, "lastReceivedAt": NOW,
    })
}

/// The room `tea`, for members only, without a message.
fn tea(title: &str) -> Value {
    let settings = json!({"title": title, "membersOnly": true, "retention": 2_592_000});
    with(with(room("tea", 0), settings), json!({"members": 1, "lastReceivedAt": null}))
}

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
        .example(
            "firstPage",
            &[("limit", "1")],
            (200, json!({"rooms": [room("garden", 1)], "epoch": EPOCH, "next": "garden"})),
        )
        .example(
            "lastPage",
            &[("after", "garden")],
            (200, json!({"rooms": [room("lobby", 3)], "epoch": EPOCH, "next": null})),
        )
        .example(
            "tooMany",
            &[("limit", "5000")],
            answered(&invalid(&[("limit", "must be between 1 and 1000")])),
        )
}

pub(in crate::http) fn get(_: &Limits) -> Operation {
    Operation::new("getRoom", TAG, "Read how a room stands")
        .caller()
        .gives(200, Media::Json(schema("Room")), "")
        .refuses(&[E::Invalid, E::UnknownRoom, E::NotMember])
        .refuses(READING)
        .example("lobby", &[("room", "lobby")], (200, room("lobby", 3)))
        .example(
            "nowhere",
            &[("room", "nowhere")],
            answered(&refusal(E::UnknownRoom, "there is no such room")),
        )
}

pub(in crate::http) fn presence(_: &Limits) -> Operation {
    Operation::new("listPresent", TAG, "Who follows a room now")
        .about("Users with at least one open subscription of the room, in the order of their ids.")
        .caller()
        .gives(200, Media::Json(schema("Presence")), "")
        .refuses(&[E::Invalid, E::NotMember])
        .example("nobody", &[("room", "lobby")], (200, json!({"users": []})))
        .example("noId", &[("room", "the lobby")], answered(&invalid(&[("roomId", ID_RULE)])))
}

pub(in crate::http) fn put(_: &Limits) -> Operation {
    let retention = format!(
        "must be null, seconds from 1 to {}, or a time such as 12h or 30d",
        hubbub_core::change::RETENTION_S_MAX
    );
    let wrong = Problem::invalid(vec![
        Fault::new("membersOnly", "must be true or false"),
        Fault::new("retention", retention),
    ]);
    let as_ada = &[("room", "tea"), ("Hubbub-User", "ada")][..];
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
        .example_with(
            "make",
            as_ada,
            json!({"title": "Tea", "membersOnly": true, "retention": "30d"}),
            (201, tea("Tea")),
        )
        .example_with("rename", as_ada, json!({"title": "Tea time"}), (200, tea("Tea time")))
        .example_with(
            "stranger",
            &[("room", "tea"), ("Hubbub-User", "bob")],
            json!({"title": "Mine"}),
            answered(&Problem::not_member()),
        )
        .example_with("invalid", as_ada, json!({"membersOnly": "yes", "retention": "soon"}), answered(&wrong))
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
        .example("tea", &[("room", "tea"), ("Hubbub-User", "ada")], (204, Value::Null))
        .example("again", &[("room", "tea")], answered(&no_room()))
}
