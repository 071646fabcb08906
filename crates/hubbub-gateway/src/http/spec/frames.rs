//! Every kind of frame over WebSocket, with its schema.

use hubbub_core::limits::Limits;
use serde_json::{Map, Value, json};

use super::schemas::{described, id, integer, merged, object, one_of, schema};

/// The two dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// `/v1/ws`.
    Api,
    /// `/chat/{room}`.
    Chat,
}

/// One kind of frame.
pub(super) struct Frame {
    /// Unique over both dialects.
    pub(super) name: &'static str,
    pub(super) channel: Channel,
    pub(super) is_from_client: bool,
    pub(super) summary: &'static str,
    pub(super) payload: Value,
    /// Names of the frames that may answer it.
    pub(super) replies: &'static [&'static str],
}

/// The schemas of [`super::schemas`] by their names.
type Schemas = Map<String, Value>;

/// The frames of both dialects.
pub(super) fn all(limits: &Limits) -> Vec<Frame> {
    let components = super::schemas::all(limits);
    let mut all = api_client(limits, &components);
    all.extend(api_server(limits, &components));
    all.extend(chat(limits, &components));
    all
}

/// A frame with a `type`.
fn typed(kind: &str, required: Value, optional: Value) -> Value {
    let kind = object("", json!({"type": {"const": kind}}), json!({}));
    merged("", &[&kind, &object("", required, optional)])
}

/// A `ref`, which the answer repeats.
fn reference() -> Value {
    json!({"description": "Any JSON of at most 256 bytes; the answer repeats it."})
}

fn api_client(limits: &Limits, components: &Schemas) -> Vec<Frame> {
    let says = |name, summary, payload, replies| Frame {
        name,
        channel: Channel::Api,
        is_from_client: true,
        summary,
        payload,
        replies,
    };
    let room = || json!({"roomId": schema("AnyId")});
    let with_ref = || json!({"ref": reference()});
    let last = json!({"type": "integer", "minimum": 0, "maximum": limits.page_messages, "description": "Begin with the last so many; not together with `after`."});
    let subscribe = json!({
        "ref": reference(),
        "after": described(integer(limits), "Begin behind this `seq`; 0 = with the oldest. Without it, and without `last`: with the next message."),
        "last": last,
        "epoch": described(schema("Epoch"), "The history `after` belongs to."),
        "onReset": described(one_of(&["replay", "live"]), "Where to go on after a `reset`: from the oldest (unless said), or with the next message."),
    });
    let cursors = json!({
        "type": "object", "additionalProperties": integer(limits),
        "description": "Where to begin in some of the rooms, as `after` does; in the others at the read mark.",
    });
    let all_rooms = json!({
        "ref": reference(),
        "cursors": cursors,
        "epoch": described(schema("Epoch"), "The history the cursors belong to."),
        "onReset": described(one_of(&["replay", "live"]), "Where to go on after a `reset`: from the oldest (unless said), or with the next message."),
    });
    vec![
        says("subscribe", "Follow a room", typed("subscribe", room(), subscribe), &["subscribed", "error"]),
        says(
            "subscribeAll",
            "Follow all rooms the user is a member of, present and future",
            typed("subscribe", json!({"roomId": {"const": "*"}}), all_rooms),
            &["subscribedMine", "subscribedAll", "error"],
        ),
        says(
            "unsubscribe",
            "Follow it no more; `\"*\"` ends all that came through it",
            typed("unsubscribe", json!({"roomId": {"anyOf": [schema("AnyId"), {"const": "*"}]}}), with_ref()),
            &["unsubscribed", "error"],
        ),
        says(
            "read",
            "Everything up to here is read; answered if it has a `ref`",
            typed("read", json!({"roomId": schema("AnyId"), "seq": integer(limits)}), with_ref()),
            &["marked", "error"],
        ),
        says("send", "Send a message", like("send", "DraftWithRoom", components), &["ack", "error"]),
        says(
            "typing",
            "Tell the others that the caller writes; passed on at most once a second",
            typed("typing", room(), with_ref()),
            &["error"],
        ),
        says("ping", "Ask for a sign of life", typed("ping", json!({}), with_ref()), &["pong"]),
    ]
}

/// A frame of this `type` that has the members of a schema too, and `ref`.
fn like(kind: &str, schema_name: &str, components: &Schemas) -> Value {
    let own = object("", json!({"type": {"const": kind}}), json!({"ref": reference()}));
    merged("", &[&own, components.get(schema_name).unwrap_or(&Value::Null)])
}

fn api_server(limits: &Limits, components: &Schemas) -> Vec<Frame> {
    let says = |name, summary, payload| Frame {
        name,
        channel: Channel::Api,
        is_from_client: false,
        summary,
        payload,
        replies: &[],
    };
    let with_ref = || json!({"ref": reference()});
    let about_user = || json!({"roomId": id(limits), "userId": id(limits)});
    let position = || json!({"roomId": id(limits), "epoch": schema("Epoch"), "oldest": integer(limits), "head": integer(limits)});
    let online = json!({"roomId": id(limits), "userId": id(limits), "online": {"type": "boolean"}});
    vec![
        says("subscribed", "The room is followed from here on", typed("subscribed", position(), with_ref())),
        says(
            "subscribedMine",
            "One of all rooms is followed from here on",
            merged(
                "",
                &[
                    &typed("subscribed", position(), with_ref()),
                    &object(
                        "",
                        json!({"readSeq": described(integer(limits), "The user's read mark.")}),
                        json!({}),
                    ),
                ],
            ),
        ),
        says(
            "subscribedAll",
            "All rooms there are were announced, and what was missed came; others follow as they are joined",
            typed("subscribed", json!({"roomId": {"const": "*"}, "rooms": integer(limits)}), with_ref()),
        ),
        says(
            "marked",
            "How a read mark stands: the answer to `read`, and without `ref` to all sockets of the user when it moved",
            typed(
                "read",
                json!({"roomId": id(limits), "userId": id(limits), "seq": integer(limits), "unread": integer(limits)}),
                with_ref(),
            ),
        ),
        says(
            "reset",
            "The cursor cannot be honoured; comes once, after `subscribed`",
            typed("reset", position(), json!({})),
        ),
        says("message", "A message of a followed room", like("message", "Message", components)),
        says(
            "unsubscribed",
            "Nothing of the room follows",
            typed("unsubscribed", json!({"roomId": {"anyOf": [id(limits), {"const": "*"}]}}), with_ref()),
        ),
        says(
            "ack",
            "The message is durable. With a broker as the log it is so there, not numbered yet, and only `messageId` \
             is told",
            typed(
                "ack",
                json!({"messageId": id(limits)}),
                json!({
                    "ref": reference(), "seq": schema("Seq"), "epoch": schema("Epoch"),
                    "receivedAt": schema("Time"), "duplicate": {"type": "boolean"},
                }),
            ),
        ),
        says(
            "presence",
            "Somebody's first subscription of the room began, or the last ended",
            typed("presence", online, json!({})),
        ),
        says("somebodyTypes", "Somebody writes", typed("typing", about_user(), json!({}))),
        says("pong", "The answer to `ping`", typed("pong", json!({}), with_ref())),
        says(
            "error",
            "What was wrong; the socket stays open. With `removed`, of a subscription that ended",
            like("error", "LineProblem", components),
        ),
    ]
}

fn chat(limits: &Limits, components: &Schemas) -> Vec<Frame> {
    let frame = |name, is_from_client, summary, payload, replies| Frame {
        name,
        channel: Channel::Chat,
        is_from_client,
        summary,
        payload,
        replies,
    };
    let user = json!({"anyOf": [schema("Id"), {"type": "integer", "minimum": 1, "maximum": 100_000}]});
    let message = object(
        "",
        json!({
            "userId": user,
            "username": {"type": "string", "minLength": 3, "maxLength": 20, "description": "Letters and digits."},
            "message": {"type": "string", "minLength": 1, "maxLength": 500},
            "timestamp": schema("AnyTime"),
            "messageType": {"$ref": "#/components/schemas/MessageType", "description": "In any case."},
        }),
        json!({"messageId": schema("AnyId")}),
    );
    let success = object(
        "",
        json!({
            "status": {"const": "success"}, "messageId": id(limits),
            "serverReceiveTime": schema("Time"), "serverSendTime": schema("Time"),
        }),
        json!({
            "seq": described(schema("Seq"), "Left out with a broker as the log."),
            "duplicate": {"const": true, "description": "The id was stored before; `seq` is the first one's."},
            "originalMessage": {"description": "The frame as it came, with `?echo=1`."},
        }),
    );
    let code = components.get("LineProblem").and_then(|problem| problem.pointer("/properties/code"));
    let error = object(
        "",
        json!({
            "status": {"const": "error"},
            "errors": {"type": "array", "items": {"type": "string"}, "description": "Every fault."},
            "code": code.unwrap_or(&Value::Null), "retryable": {"type": "boolean"},
        }),
        json!({"messageId": id(limits)}),
    );
    vec![
        frame("chatMessage", true, "A message to the room", message, &["chatSuccess", "chatError"]),
        frame("chatSuccess", false, "It is on disk", success, &[]),
        frame("chatError", false, "What was wrong; the socket stays open", error, &[]),
    ]
}
