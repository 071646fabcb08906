//! Messages, as they are sent and as they are kept.

use hubbub_core::limits::Limits;
use serde_json::json;

use super::{Named, described, id, integer, merged, object, schema, time};

pub(super) fn all(limits: &Limits) -> Named {
    let mut all: Named = Vec::new();
    let text = json!({
        "type": "string", "minLength": 1,
        "description": format!("The text: at most {} bytes, anything but U+0000.", limits.message_bytes),
    });
    let username = json!({"type": "string", "minLength": 1, "maxLength": 255, "description": "The sender's name as it is shown."});
    let kind = json!({"$ref": "#/components/schemas/MessageType", "description": "In any case; `TEXT` unless said.", "default": "TEXT"});
    let optional = json!({
        "userId": described(schema("AnyId"), "The sender; may be left out when the caller is known, and must otherwise be the caller."),
        "messageId": described(schema("AnyId"), "The sender's idempotency key; made by the server unless given."),
        "username": username,
        "messageType": kind,
        "timestamp": described(time(), "The sender's clock; now unless given."),
    });
    let draft = object("A message as it is sent.", json!({"message": text}), optional);
    let room = object("", json!({"roomId": schema("AnyId")}), json!({}));
    all.push((
        "DraftWithRoom",
        merged("A message as it is sent, where no path names the room.", &[&draft, &room]),
    ));
    all.push(("Draft", draft));
    all.push((
        "Message",
        object(
            "A message as it is kept.",
            json!({
                "messageId": id(), "roomId": id(), "userId": id(), "message": {"type": "string"},
                "messageType": schema("MessageType"),
                "timestamp": described(schema("Time"), "The sender's clock: kept, never used for order."),
                "seq": schema("Seq"),
                "receivedAt": described(schema("Time"), "The server's clock; never decreases within a room."),
            }),
            json!({"username": {"type": "string"}}),
        ),
    ));
    all.push((
        "Receipt",
        object(
            "The message is on disk.",
            json!({
                "messageId": id(), "seq": schema("Seq"), "epoch": schema("Epoch"), "receivedAt": schema("Time"),
                "duplicate": {"type": "boolean", "description": "The id was stored before; `seq` is the first one's."},
            }),
            json!({}),
        ),));
    all.push((
        "Accepted",
        object(
            "The message is on the disk of a broker. What number it gets, and whether its id was there before, is \
             decided when it is stored.",
            json!({"messageId": id()}),
            json!({}),
        ),
    ));
    let line_answers = ["Receipt", "Accepted", "LineProblem"].map(schema);
    all.push(("LineAnswer", json!({"anyOf": line_answers})));
    all.push((
        "HistoryPage",
        object(
            "",
            json!({
                "messages": {"type": "array", "items": schema("Message"), "description": "Newest last."},
                "epoch": schema("Epoch"), "oldest": integer(0), "head": integer(0),
                "next": {"type": ["integer", "null"], "description": "The `after` or `before` of the next page; `null` at the end."},
            }),
            json!({}),
        ),));
    all
}
