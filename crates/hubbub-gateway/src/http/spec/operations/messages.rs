//! Sending and reading messages.

use hubbub_core::ErrorCode as E;
use hubbub_core::id::ID_RULE;
use hubbub_core::limits::Limits;
use serde_json::{Value, json};

use super::super::operation::{Media, READING, WRITING};
use super::super::schemas::{id, integer, limit, one_of, schema, time};
use super::super::values::{
    EPOCH, about_message, answered, inner, invalid, message, receipt, refusal, reset, with,
};
use super::Operation;
use crate::http::{consistency, events, history};

pub(super) const TAG: &str = "Messages";

pub(in crate::http) fn send(_: &Limits) -> Operation {
    let hello = json!({"userId": "ada", "message": "hello", "messageId": "m-1"});
    let reused = "messageId belongs to message 1 of the room, whose user, text or type differs";
    let reused = about_message("m-1", refusal(E::IdReused, reused));
    let faulty = invalid(&[("userId", "is required"), ("message", "must not be empty")]);
    Operation::new("sendMessage", TAG, "Send a message")
        .about(
            "Answered once the message is on disk. Send it again with the same `messageId` when no answer came: it is \
             stored once. A room springs into being with its first message, unless `rooms.autocreate` is off.",
        )
        .caller()
        .header("Idempotency-Key", id(), "Stands in for `messageId`.")
        .takes(Media::Json(schema("Draft")), "")
        .gives(201, Media::Json(schema("Receipt")), "Stored.")
        .gives(200, Media::Json(schema("Receipt")), "Stored before, under the same id.")
        .gives(202, Media::Json(schema("Accepted")), "With a broker as the log: it keeps the message until it is stored.")
        .refuses(&[E::Malformed, E::Invalid, E::IdReused, E::UnknownRoom, E::NotMember])
        .refuses(WRITING)
        .example_with("first", &[("room", "lobby")], hello.clone(), (201, receipt("m-1", 1, false)))
        .example_with("again", &[("room", "lobby")], hello, (200, receipt("m-1", 1, true)))
        .example_with(
            "withKey",
            &[("room", "lobby"), ("Hubbub-User", "bob"), ("Idempotency-Key", "m-2")],
            json!({"message": "hello, Ada", "username": "Bob", "timestamp": "2026-01-31T12:00:00Z"}),
            (201, receipt("m-2", 2, false)),
        )
        .example_with(
            "idReused",
            &[("room", "lobby")],
            json!({"userId": "ada", "message": "something else", "messageId": "m-1"}),
            answered(&reused),
        )
        .example_with("invalid", &[("room", "lobby")], json!({"message": ""}), answered(&faulty))
        .example_with(
            "malformed",
            &[("room", "lobby")],
            json!([]),
            answered(&refusal(E::Malformed, "not the expected JSON: an array, where an object belongs")),
        )
}

pub(in crate::http) fn send_many(limits: &Limits) -> Operation {
    let line = |room: &str, id: &str, text: &str| json!({"roomId": room, "userId": "ada", "message": text, "messageId": id});
    let refused = inner(&invalid(&[("userId", "is required"), ("message", "is required")]));
    Operation::new("sendMessages", TAG, "Send many messages")
        .about(format!(
            "One message a line in, one receipt or error a line out, in the same order, streamed both ways. A line \
             may have {} bytes. Once a line was refused for overload, all later ones are, so that sending them again \
             keeps the order.",
            limits.body_bytes
        ))
        .caller()
        .takes(Media::Lines(schema("DraftWithRoom")), "")
        .gives(200, Media::Lines(schema("LineAnswer")), "An answer for each line.")
        .refuses(&[E::Invalid, E::Forbidden])
        .example_with(
            "three",
            &[],
            json!([line("lobby", "m-3", "one"), {"roomId": "lobby"}, line("garden", "m-1", "two")]),
            (200, json!([receipt("m-3", 3, false), refused, receipt("m-1", 1, false)])),
        )
        .example_with(
            "badCaller",
            &[("user", "a b")],
            json!([line("lobby", "m-4", "x")]),
            answered(&invalid(&[("user", ID_RULE)])),
        )
}

pub(in crate::http) fn history(limits: &Limits) -> Operation {
    let page = |messages: Value, next: Value| json!({"messages": messages, "epoch": EPOCH, "oldest": 1, "head": 3, "next": next});
    let second = with(message("m-2", "bob", "hello, Ada", 2), json!({"username": "Bob"}));
    let most = limits.page_messages;
    Operation::new("readHistory", TAG, "Read a room's history")
        .about(
            "By `seq` or by time, newest last. Without a cursor: the newest, or from `from` on. `after=0` means from \
             the oldest and is never answered with `reset`.",
        )
        .caller()
        .replicated()
        .query("after", integer(0), "Messages with a greater `seq`, oldest first.")
        .query("before", integer(0), "Messages with a smaller `seq`; not together with `after`.")
        .query("from", time(), "Received at this time or later.")
        .query("to", time(), "Received before this time.")
        .query("limit", limit(history::LIMIT_DEFAULT.min(most), most), "Most messages of the page.")
        .query("epoch", schema("Epoch"), "The history the cursor belongs to.")
        .gives(200, Media::Json(schema("HistoryPage")), "")
        .refuses(&[E::Invalid, E::UnknownRoom, E::NotMember, E::Reset])
        .refuses(READING)
        .example(
            "newest",
            &[("room", "lobby"), ("limit", "2")],
            (200, page(json!([second, message("m-3", "ada", "one", 3)]), json!(2))),
        )
        .example(
            "fromTheOldest",
            &[("room", "lobby"), ("after", "0"), ("limit", "1")],
            (200, page(json!([message("m-1", "ada", "hello", 1)]), json!(1))),
        )
        .example(
            "window",
            &[("room", "lobby"), ("from", "2001-01-01T00:00:00Z"), ("to", "2001-01-02T00:00:00Z")],
            (200, page(json!([]), Value::Null)),
        )
        .example(
            "sameEpoch",
            &[("room", "lobby"), ("after", "2"), ("epoch", EPOCH)],
            (200, page(json!([message("m-3", "ada", "one", 3)]), Value::Null)),
        )
        .taking("epoch", "sendMessage.first#/epoch")
        .example("otherEpoch", &[("room", "lobby"), ("after", "2"), ("epoch", "gone")], answered(&reset(1, 3)))
        .example(
            "noConsistency",
            &[("room", "lobby"), (consistency::HEADER, "weak")],
            answered(&refusal(E::Malformed, consistency::RULE)),
        )
        .example(
            "nowhere",
            &[("room", "nowhere")],
            answered(&refusal(E::UnknownRoom, "there is no such room")),
        )
}

pub(in crate::http) fn events(_: &Limits) -> Operation {
    let stands = json!({"epoch": EPOCH, "oldest": 1, "head": 3});
    let last = message("m-3", "ada", "one", 3);
    let stream = format!("event: subscribed\ndata: {stands}\n\nid: {EPOCH}:3\ndata: {last}\n\n");
    let kinds = json!({
        "subscribed": schema("Position"), "reset": schema("Position"), "message": schema("Message"),
        "error": schema("LineProblem"),
    });
    let last = json!({"type": "integer", "minimum": 0, "maximum": events::LAST_MAX});
    let on_reset = "Where to go on after a `reset`: from the oldest (unless said), or with the next message.";
    Operation::new("followRoom", TAG, "Follow a room (Server-Sent Events)")
        .about(format!(
            "First `subscribed`, or `reset` where the cursor could not be honoured; then what was missed, then live \
             messages. A message's id is `epoch:seq`, so that a browser's `EventSource` resumes by itself. A comment \
             every {} s keeps proxies from closing an idle stream; a reader that lags too far behind is cut off and \
             resumes.",
            events::HEARTBEAT.as_secs()
        ))
        .caller()
        .header("Last-Event-ID", json!({"type": "string"}), "Go on behind this event; counts before `after`.")
        .query("after", integer(0), "Begin behind this `seq`; 0 = with the oldest.")
        .query("last", last, "Begin with the last so many.")
        .query("epoch", schema("Epoch"), "The history `after` belongs to.")
        .query("onReset", one_of(&["replay", "live"]), on_reset)
        .gives(200, Media::Events(kinds), "Does not end by itself, unless the caller loses the room (`removed`).")
        .refuses(&[E::Invalid, E::NotMember])
        .example("last", &[("room", "lobby"), ("last", "1")], (200, stream.into()))
        .example(
            "twoBeginnings",
            &[("room", "lobby"), ("after", "1"), ("last", "1")],
            answered(&invalid(&[("last", "cannot be combined with after")])),
        )
}
