//! Ids, times, positions, and what went wrong.

use hubbub_core::ErrorCode;
use hubbub_core::id::ID_BYTES_MAX;
use hubbub_core::message::MessageType;
use serde_json::{Value, json};

use super::{Named, described, id, integer, object, schema};

pub(super) fn all() -> Named {
    let mut all: Named = Vec::new();
    all.push((
        "Id",
        json!({
            "type": "string",
            "pattern": format!("^[A-Za-z0-9_.:@-]{{1,{ID_BYTES_MAX}}}$"),
            "description": "What names a room, a user or a message.",
        }),
    ));
    let about = "On input an integer stands for its decimal digits.";
    all.push(("AnyId", json!({"anyOf": [schema("Id"), {"type": "integer"}], "description": about})));
    all.push((
        "Time",
        json!({"type": "string", "format": "date-time", "description": "RFC 3339, UTC, with milliseconds or finer."}),));
    let about = "On input also with another offset, or as decimal seconds since 1970.";
    all.push(("AnyTime", json!({"anyOf": [schema("Time"), {"type": "number"}], "description": about})));
    all.push((
        "Seq",
        described(integer(1), "A message's place in its room: from 1, strictly increasing, gaps allowed."),
    ));
    all.push((
        "Epoch",
        json!({"type": "string", "description": "Names the store's history; new after a restore from backup. Send it along with a cursor."}),));
    let kinds = [MessageType::Text, MessageType::Join, MessageType::Leave].map(MessageType::as_str);
    all.push(("MessageType", json!({"type": "string", "enum": kinds})));
    all.push((
        "Position",
        object(
            "How a room stands.",
            json!({"epoch": schema("Epoch"), "oldest": described(integer(0), "The oldest message that is kept; one after `head` when none is."), "head": described(integer(0), "The newest message's `seq`; 0 = none yet.")}),
            json!({}),
        ),));
    all.push(("Problem", problem(true)));
    all.push(("LineProblem", problem(false)));
    all
}

/// RFC 9457; without `type` where it stands in a frame or a line.
pub(super) fn problem(is_whole: bool) -> Value {
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let table: Vec<Value> = ErrorCode::ALL
        .iter()
        .map(|code| {
            json!({"code": code.as_str(), "status": code.http_status(), "retryable": code.is_retryable(), "meaning": code.about()})
        })
        .collect();
    let mut required = json!({
        "code": {"type": "string", "enum": codes, "x-codes": table, "description": "Stable: never renamed, never reused."},
        "title": {"type": "string", "description": "The code in words."},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "retryable": {"type": "boolean", "description": "Whether the same again, with the same `messageId`, can succeed."},
        "detail": {"type": "string", "description": "For people."},
    });
    if let Some(members) = required.as_object_mut().filter(|_| is_whole) {
        members.insert(
            "type".into(),
            json!({"type": "string", "format": "uri", "description": "`urn:hubbub:error:` and the code."}),
        );
    }
    let fault = object("", json!({"field": {"type": "string"}, "rule": {"type": "string"}}), json!({}));
    let optional = json!({
        "messageId": described(id(), "The message it is about, also when the server made its id."),
        "roomId": described(id(), "With `removed`: the room whose subscription ended."),
        "errors": {"type": "array", "items": fault, "description": "Every broken rule, for `invalid`."},
        "revision": described(integer(1), "With `condition_failed`: what the key has, if it is there."),
        "epoch": described(schema("Epoch"), "With `reset` and `compacted`."),
        "oldest": described(integer(0), "With `reset` and `compacted`: where to start again."),
        "head": described(integer(0), "With `reset` and `compacted`."),
    });
    object(if is_whole { "What went wrong (RFC 9457)." } else { "What went wrong." }, required, optional)
}
