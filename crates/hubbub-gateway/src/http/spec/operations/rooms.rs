//! Rooms.

use hubbub_core::ErrorCode as E;
use hubbub_core::id::ID_RULE;
use serde_json::{Value, json};

use super::super::operation::{Media, READING};
use super::super::schemas::{id, limit, schema};
use super::super::values::{EPOCH, NOW, answered, invalid, refusal};
use super::Operation;
use crate::http::rooms;

pub(super) const TAG: &str = "Rooms";

pub(super) fn all() -> Vec<Operation> {
    vec![list(), get(), presence()]
}

fn room(id: &str, head: u64) -> Value {
    json!({"roomId": id, "head": head, "oldest": 1, "messages": head, "lastReceivedAt": NOW})
}

fn list() -> Operation {
    Operation::new(("get", "/v1/rooms"), "listRooms", TAG, "List rooms")
        .about("In the order of their ids.")
        .query("after", id(), "Rooms behind this one: the `next` of the page before.")
        .query("limit", limit(rooms::LIMIT_DEFAULT, rooms::LIMIT_MAX), "Most rooms of the page.")
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

fn get() -> Operation {
    Operation::new(("get", "/v1/rooms/{room}"), "getRoom", TAG, "Read how a room stands")
        .gives(200, Media::Json(schema("Room")), "")
        .refuses(&[E::Invalid, E::UnknownRoom])
        .refuses(READING)
        .example("lobby", &[("room", "lobby")], (200, room("lobby", 3)))
        .example(
            "nowhere",
            &[("room", "nowhere")],
            answered(&refusal(E::UnknownRoom, "there is no such room")),
        )
}

fn presence() -> Operation {
    Operation::new(("get", "/v1/rooms/{room}/presence"), "listPresent", TAG, "Who follows a room now")
        .about("Users with at least one open subscription of the room, in the order of their ids.")
        .gives(200, Media::Json(schema("Presence")), "")
        .refuses(&[E::Invalid])
        .example("nobody", &[("room", "lobby")], (200, json!({"users": []})))
        .example("noId", &[("room", "the lobby")], answered(&invalid(&[("roomId", ID_RULE)])))
}
