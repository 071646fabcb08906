//! Sending and reading messages.

use hubbub_core::ErrorCode::*;
use serde_json::json;

use super::super::endpoint::{Endpoint, get, post};
use super::super::operation::{FROM_TO, HISTORY_LIMIT, Media::*, REPLICATED, header, query};
use super::super::permission::Permission;
use super::super::spec::schemas::{id, integer, one_of, schema, text};
use super::super::{bulk, events, history, send, timeline};
use crate::auth::Right;

const ON_RESET: &str =
    "Where to continue after a `reset`: from the oldest (the default), or with the next message.";

pub(super) static ENDPOINTS: &[Endpoint] = &[
    post("/v1/rooms/{room}/messages", |call| Box::pin(send::send(call)))
        .needs(Permission::Room(Right::Write))
        .named("sendMessage", "Send a message")
        .about(
            "Answered once the message is on disk. Send it again with the same `messageId` when no answer came: it is \
             stored once. The first message creates the room, unless `rooms.autocreate` is off.",
        )
        .parameters(&[&[header("Idempotency-Key", id, "Stands in for `messageId`.")]])
        .takes(Json("Draft"))
        .gives(&[
            (201, Json("Receipt"), "Stored."),
            (200, Json("Receipt"), "Stored before, under the same id."),
            (202, Json("Accepted"), "With a broker as the log: it keeps the message until it is stored."),
        ])
        .refuses(&[Malformed, Invalid, IdReused, UnknownRoom, NotMember]),
    post("/v1/messages", |call| Box::pin(bulk::send_bulk(call)))
        .needs(Permission::Caller)
        .named("sendMessages", "Send many messages")
        .about(
            "One message a line in, one receipt or error a line out, in the same order, streamed both ways. A line \
             may have {body_bytes} bytes. Once a line was refused for overload, all later ones are, so that sending \
             them again keeps the order.",
        )
        .takes(Lines("DraftWithRoom"))
        .gives(&[(200, Lines("LineAnswer"), "An answer for each line.")])
        .refuses_only(&[Malformed, Invalid, Forbidden, RequestTimeout]),
    get("/v1/rooms/{room}/messages", |call| Box::pin(history::history(call)))
        .needs(Permission::Room(Right::Read))
        .named("readHistory", "Read a room's history")
        .about(
            "By `seq` or by time, newest last. Without a cursor: the newest, or from `from` on. `after=0` means from \
             the oldest and is never answered with `reset`.",
        )
        .parameters(&[
            REPLICATED,
            &[
                query("after", integer, "Messages with a greater `seq`, oldest first."),
                query("before", integer, "Messages with a smaller `seq`; not together with `after`."),
            ],
            FROM_TO,
            &[
                HISTORY_LIMIT,
                query("epoch", |_| schema("Epoch"), "The history the cursor belongs to."),
            ],
        ])
        .gives(&[(200, Json("HistoryPage"), "")])
        .refuses(&[Malformed, Invalid, UnknownRoom, NotMember, Reset]),
    get("/v1/rooms/{room}/messages/{id}/timeline", |call| Box::pin(timeline::timeline(call)))
        .needs(Permission::Room(Right::Read))
        .named("traceMessage", "What became of a message")
        .about(
            "When it was received, queued, stored, published, and delivered to how many: as the server that answers has it \
             on record. Other servers have records of their own. A record is about a batch, in a ring of a fixed size, \
             `timeline.memory`.",
        )
        .gives(&[(200, Json("Timeline"), "")])
        .refuses(&[Invalid, NotMember, UnknownMessage]),
    get("/v1/rooms/{room}/events", |call| Box::pin(events::events(call)))
        .without_head()
        .needs(Permission::Room(Right::Read))
        .named("followRoom", "Follow a room (Server-Sent Events)")
        .about(
            "First `subscribed`, or `reset` where the cursor could not be honoured; then what was missed, then live \
             messages. A message's id is `epoch:seq`, so that a browser's `EventSource` resumes by itself. The first \
             event has the id of where the stream begins, unless the last messages follow. A comment every \
             {heartbeat_seconds} s keeps proxies from closing an idle stream; a reader that lags too far behind is cut \
             off and resumes.",
        )
        .parameters(&[
            &[
                header("Last-Event-ID", text, "Continue behind this event; counts before `after`."),
                query("after", integer, "Begin behind this `seq`; 0 = with the oldest."),
                query("last", |_| json!({"type": "integer", "minimum": 0, "maximum": events::LAST_MAX}), "Begin with the last so many."),
                query("epoch", |_| schema("Epoch"), "The history `after` belongs to."),
                query("onReset", |_| one_of(&["replay", "live"]), ON_RESET),
            ],
        ])
        .gives(&[(
            200,
            Events(&[
                ("subscribed", "Position"),
                ("reset", "Position"),
                ("message", "Message"),
                ("error", "LineProblem"),
            ]),
            "Does not end by itself, unless the caller loses the room (`removed`).",
        )])
        .refuses(&[Invalid, NotMember]),
];
