//! Rooms and who is in them.

use hubbub_core::change::{RETENTION_S_MAX, TITLE_BYTES_MAX};
use serde_json::{Value, json};

use super::{Named, described, id, integer, object, schema};

pub(super) fn all() -> Named {
    let mut all: Named = Vec::new();
    all.push((
        "Room",
        object(
            "",
            json!({
                "roomId": id(), "title": title(), "membersOnly": members_only(),
                "retention": {"type": ["integer", "null"], "description": "Seconds its messages are kept; `null` = as those of other rooms."},
                "head": described(integer(0), "The newest message's `seq`."),
                "oldest": described(integer(0), "The oldest message that is kept."),
                "messages": described(integer(0), "How many are kept."),
                "members": described(integer(0), "How many there are."),
                "lastReceivedAt": {"type": ["string", "null"], "format": "date-time"},
            }),
            json!({}),
        ),
    ));
    all.push((
        "RoomList",
        object(
            "",
            json!({
                "rooms": {"type": "array", "items": schema("Room")},
                "epoch": schema("Epoch"),
                "next": {"type": ["string", "null"], "description": "The `after` of the next page; `null` at the end."},
            }),
            json!({}),
        ),));
    all.push((
        "Presence",
        object(
            "",
            json!({"users": {"type": "array", "items": id(), "description": "Who follows the room now."}}),
            json!({}),
        ),
    ));
    all.push((
        "RoomSettings",
        object(
            "",
            json!({}),
            json!({
                "title": title(), "membersOnly": members_only(),
                "retention": {
                    "anyOf": [{"type": "integer", "minimum": 1, "maximum": RETENTION_S_MAX}, {"type": "string"}, {"type": "null"}],
                    "description": "How long its messages are kept: seconds, or a time such as `12h` or `30d`; `null` = as those of other rooms.",
                },
            }),
        ),
    ));
    let seq = || described(integer(0), "Everything up to here is read.");
    let unread = || described(integer(0), "Messages that are kept and lie behind it.");
    all.push(("ReadBody", object("", json!({"seq": seq()}), json!({}))));
    all.push((
        "ReadMark",
        object("", json!({"roomId": id(), "readSeq": seq(), "unread": unread()}), json!({})),
    ));
    let member = object("", json!({"userId": id(), "readSeq": seq()}), json!({}));
    let next = || json!({"type": ["string", "null"], "description": "The `after` of the next page; `null` at the end."});
    all.push((
        "MemberList",
        object("", json!({"members": {"type": "array", "items": member}, "next": next()}), json!({})),
    ));
    let user_room = object(
        "A room as one of its members sees it.",
        json!({
            "roomId": id(), "title": title(), "membersOnly": members_only(), "head": integer(0), "oldest": integer(0),
            "messages": integer(0), "readSeq": seq(), "unread": unread(),
            "lastMessage": {"anyOf": [schema("Message"), {"type": "null"}], "description": "The newest one that is kept."},
        }),
        json!({}),
    );
    all.push(("UserRoom", user_room));
    let rooms = json!({"type": "array", "items": schema("UserRoom")});
    all.push((
        "UserRoomList",
        object("", json!({"rooms": rooms, "epoch": schema("Epoch"), "next": next()}), json!({})),
    ));
    let messages = described(integer(0), "How many were erased.");
    all.push(("Erased", object("", json!({"userId": id(), "messages": messages}), json!({}))));
    all
}

fn title() -> Value {
    json!({"type": ["string", "null"], "maxLength": TITLE_BYTES_MAX, "description": "A name for people; `null` = none."})
}

fn members_only() -> Value {
    json!({"type": "boolean", "description": "Whether only members may read and write."})
}
