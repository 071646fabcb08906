//! What is stored, counted.

mod report;

use serde_json::{Value, json};

use super::{Named, described, id, integer, merged, object, schema};

/// The members that say when the first and the last message were received.
fn span(is_always: bool) -> Value {
    let time = if is_always {
        schema("Time")
    } else {
        json!({"type": ["string", "null"], "format": "date-time", "description": "`null` where there is no message."})
    };
    object("", json!({"firstMessageAt": time, "lastMessageAt": time}), json!({}))
}

fn list(of: &str) -> Value {
    json!({"type": "array", "items": schema(of)})
}

fn next(kind: &str, of: &str) -> Value {
    json!({"type": ["string", "null"], "description": format!("The `{kind}` of {of}; `null` at the end.")})
}

/// An answer with its `asOf`.
fn told(about: &str, members: Value) -> Value {
    merged(about, &[&object("", members, json!({})), &as_of()])
}

fn as_of() -> Value {
    let as_of = described(schema("Time"), "Everything acknowledged up to here is counted.");
    object("", json!({"asOf": as_of}), json!({}))
}

pub(super) fn all() -> Named {
    let mut all: Named = Vec::new();
    let messages = described(integer(0), "How many are kept.");
    let types = json!({"TEXT": integer(0), "JOIN": integer(0), "LEAVE": integer(0)});
    all.push(("MessagesByType", object("", types, json!({}))));
    let by_type = schema("MessagesByType");
    let users = described(integer(0), "Distinct senders.");
    let rooms = described(integer(0), "Rooms with messages.");
    let totals = json!({"messages": messages, "messagesByType": by_type, "users": users, "rooms": rooms});
    let totals = merged("", &[&object("", totals, json!({})), &span(false), &as_of()]);
    all.push(("Totals", totals));

    let room = json!({"roomId": id(), "messages": messages, "uniqueUsers": users});
    all.push(("RoomStats", merged("", &[&object("", room, json!({})), &span(true)])));
    let rooms_list = told("Most messages first.", json!({"rooms": list("RoomStats")}));
    all.push(("RoomStatsList", rooms_list));

    let user =
        json!({"userId": id(), "messages": messages, "rooms": described(integer(0), "Rooms they stand in.")});
    all.push(("UserStats", merged("", &[&object("", user, json!({})), &span(true)])));
    let users_list = told("Most messages first.", json!({"users": list("UserStats")}));
    all.push(("UserStatsList", users_list));

    let hour = json!({
        "hour": described(schema("Time"), "Its begin."),
        "messages": messages, "messagesByType": by_type, "uniqueUsers": users, "activeRooms": rooms,
    });
    all.push(("HourStats", object("An hour with messages, in UTC.", hour, json!({}))));
    let hours = json!({"hours": list("HourStats"), "next": next("from", "the next page")});
    let hours = told("Oldest first; hours without messages are left out.", hours);
    all.push(("HourStatsList", hours));

    let active = json!({
        "count": described(integer(0), "Of the whole window, whatever page this is."),
        "users": {"type": "array", "items": id(), "description": "A page of them, in the order of their ids."},
        "from": schema("Time"),
        "to": {"type": ["string", "null"], "format": "date-time"},
        "next": next("after", "the next page"),
    });
    let active = told("Who sent something in the window.", active);
    all.push(("ActiveUsers", active));

    let part = json!({"roomId": id(), "messages": described(integer(0), "The user's.")});
    all.push(("Participation", merged("", &[&object("", part, json!({})), &span(true)])));
    let parts =
        json!({"userId": id(), "rooms": list("Participation"), "next": next("after", "the next page")});
    let parts = told("In the order of the rooms' ids.", parts);
    all.push(("ParticipationList", parts));

    let page = json!({
        "messages": {"type": "array", "items": schema("Message"), "description": "Newest last."},
        "epoch": schema("Epoch"),
        "next": next("before", "the page with older ones"),
    });
    all.push(("UserMessages", object("", page, json!({}))));

    let audit = json!({
        "messages": described(integer(0), "Gone through."),
        "differences": {"type": "array", "items": {"type": "string"}, "description": "Empty when all counts are right."},
        "tookMs": {"type": "number"},
    });
    all.push(("Audit", told("", audit)));

    all.push(("Report", report::report()));
    all
}
