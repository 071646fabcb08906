//! The shapes of bodies and frames, as JSON Schema.
//!
//! What the server writes is described completely: the tests refuse a member that is not listed. Clients shall ignore
//! members they do not know, so that new ones are no break.

use hubbub_core::ErrorCode;
use hubbub_core::id::ID_BYTES_MAX;
use hubbub_core::limits::Limits;
use hubbub_core::message::MessageType;
use serde_json::{Map, Value, json};

/// A reference to one of [`all`].
pub(super) fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// An id as it is written in paths, queries and answers.
pub(super) fn id() -> Value {
    schema("Id")
}

/// A whole number from `least` on.
pub(super) fn integer(least: u64) -> Value {
    json!({"type": "integer", "minimum": least})
}

/// `limit` of a list.
pub(super) fn limit(default: usize, most: usize) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": most, "default": default})
}

/// A time on input.
pub(super) fn time() -> Value {
    schema("AnyTime")
}

/// A string out of these.
pub(super) fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

/// An object with members that are always there and members that may be.
pub(super) fn object(about: &str, required: Value, optional: Value) -> Value {
    let (mut members, names) = match required {
        Value::Object(members) => (members.clone(), members.keys().cloned().collect()),
        _ => (Map::new(), Vec::new()),
    };
    if let Value::Object(optional) = optional {
        members.extend(optional);
    }
    let mut object = json!({"type": "object", "properties": members});
    if let Some(object) = object.as_object_mut() {
        if !names.is_empty() {
            object.insert("required".into(), names.into());
        }
        if !about.is_empty() {
            object.insert("description".into(), about.into());
        }
    }
    object
}

/// `schema` with a description of its own.
pub(super) fn described(mut schema: Value, about: &str) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.insert("description".into(), about.into());
    }
    schema
}

/// An object with the members of several.
pub(super) fn merged(about: &str, parts: &[&Value]) -> Value {
    let mut members = Map::new();
    let mut required = Vec::new();
    for part in parts {
        members.extend(part.get("properties").and_then(Value::as_object).cloned().unwrap_or_default());
        required.extend(part.get("required").and_then(Value::as_array).cloned().unwrap_or_default());
    }
    json!({"type": "object", "description": about, "properties": members, "required": required})
}

/// Every shape by its name.
pub(super) fn all(limits: &Limits) -> Map<String, Value> {
    let mut all = Map::new();
    let mut add = |name: &str, schema: Value| all.insert(name.to_owned(), schema);
    basics(&mut add);
    messages(&mut add, limits);
    rooms(&mut add);
    service(&mut add);
    all
}

type Add<'a> = dyn FnMut(&str, Value) -> Option<Value> + 'a;

fn basics(add: &mut Add<'_>) {
    add(
        "Id",
        json!({
            "type": "string",
            "pattern": format!("^[A-Za-z0-9_.:@-]{{1,{ID_BYTES_MAX}}}$"),
            "description": "What names a room, a user or a message.",
        }),
    );
    let about = "On input an integer stands for its decimal digits.";
    add("AnyId", json!({"anyOf": [schema("Id"), {"type": "integer"}], "description": about}));
    add(
        "Time",
        json!({"type": "string", "format": "date-time", "description": "RFC 3339, UTC, with milliseconds or finer."}),
    );
    let about = "On input also with another offset, or as decimal seconds since 1970.";
    add("AnyTime", json!({"anyOf": [schema("Time"), {"type": "number"}], "description": about}));
    add(
        "Seq",
        described(integer(1), "A message's place in its room: from 1, strictly increasing, gaps allowed."),
    );
    add(
        "Epoch",
        json!({"type": "string", "description": "Names the store's history; new after a restore from backup. Send it along with a cursor."}),
    );
    let kinds = [MessageType::Text, MessageType::Join, MessageType::Leave].map(MessageType::as_str);
    add("MessageType", json!({"type": "string", "enum": kinds}));
    add(
        "Position",
        object(
            "How a room stands.",
            json!({"epoch": schema("Epoch"), "oldest": described(integer(0), "The oldest message that is kept; one after `head` when none is."), "head": described(integer(0), "The newest message's `seq`; 0 = none yet.")}),
            json!({}),
        ),
    );
    add("Problem", problem(true));
    add("LineProblem", problem(false));
}

/// RFC 9457; without `type` where it stands in a frame or a line.
fn problem(is_whole: bool) -> Value {
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
        "errors": {"type": "array", "items": fault, "description": "Every broken rule, for `invalid`."},
        "epoch": described(schema("Epoch"), "With `reset`."),
        "oldest": described(integer(0), "With `reset`: where to start again."),
        "head": described(integer(0), "With `reset`."),
    });
    object(if is_whole { "What went wrong (RFC 9457)." } else { "What went wrong." }, required, optional)
}

fn messages(add: &mut Add<'_>, limits: &Limits) {
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
    add("DraftWithRoom", merged("A message as it is sent, where no path names the room.", &[&draft, &room]));
    add("Draft", draft);
    add(
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
    );
    add(
        "Receipt",
        object(
            "The message is on disk.",
            json!({
                "messageId": id(), "seq": schema("Seq"), "epoch": schema("Epoch"), "receivedAt": schema("Time"),
                "duplicate": {"type": "boolean", "description": "The id was stored before; `seq` is the first one's."},
            }),
            json!({}),
        ),
    );
    add("LineAnswer", json!({"anyOf": [schema("Receipt"), schema("LineProblem")]}));
    add(
        "HistoryPage",
        object(
            "",
            json!({
                "messages": {"type": "array", "items": schema("Message"), "description": "Newest last."},
                "epoch": schema("Epoch"), "oldest": integer(0), "head": integer(0),
                "next": {"type": ["integer", "null"], "description": "The `after` or `before` of the next page; `null` at the end."},
            }),
            json!({}),
        ),
    );
}

fn rooms(add: &mut Add<'_>) {
    add(
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
    );
    add(
        "RoomList",
        object(
            "",
            json!({
                "rooms": {"type": "array", "items": schema("Room")},
                "epoch": schema("Epoch"),
                "next": {"type": ["string", "null"], "description": "The `after` of the next page; `null` at the end."},
            }),
            json!({}),
        ),
    );
    add(
        "Presence",
        object(
            "",
            json!({"users": {"type": "array", "items": id(), "description": "Who follows the room now."}}),
            json!({}),
        ),
    );
}

fn service(add: &mut Add<'_>) {
    let status = one_of(&["UP", "DOWN"]);
    let component = object(
        "",
        json!({"status": status}),
        json!({
            "reason": {"type": ["string", "null"]}, "kind": {"type": "string"},
            "latencyMs": {"type": "number", "description": "What a small read took."},
        }),
    );
    add("Component", component);
    let component = schema("Component");
    let components = json!({"store": component, "disk": component, "log": component, "bus": component});
    add(
        "Health",
        object(
            "",
            json!({"status": status, "version": {"type": "string"}, "components": object("", components, json!({}))}),
            json!({}),
        ),
    );
    add("Live", object("", json!({"status": status}), json!({})));
}
