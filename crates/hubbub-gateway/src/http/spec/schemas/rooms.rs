//! Rooms and who is in them.

use serde_json::json;

use super::{Named, described, id, integer, object, schema};

pub(super) fn all() -> Named {
    let mut all: Named = Vec::new();
    all.push((
        "Room",
        object(
            "",
            json!({
                "roomId": id(),
                "head": described(integer(0), "The newest message's `seq`."),
                "oldest": described(integer(0), "The oldest message that is kept."),
                "messages": described(integer(0), "How many are kept."),
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
    all
}
