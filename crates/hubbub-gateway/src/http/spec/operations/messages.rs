//! Sending and reading messages.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;
use serde_json::json;

use super::super::operation::{Media, READING, WRITING};
use super::super::schemas::{id, integer, limit, one_of, schema, time};
use super::Operation;
use crate::http::{events, history};

pub(super) const TAG: &str = "Messages";

pub(in crate::http) fn send(_: &Limits) -> Operation {
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
}

pub(in crate::http) fn send_many(limits: &Limits) -> Operation {
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
}

pub(in crate::http) fn history(limits: &Limits) -> Operation {
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
}

pub(in crate::http) fn events(_: &Limits) -> Operation {
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
}
