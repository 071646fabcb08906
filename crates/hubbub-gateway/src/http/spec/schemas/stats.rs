//! What is stored, counted.

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

/// An answer inside the report.
fn timed(of: &Value) -> Value {
    let took = json!({"tookMs": {"type": "number", "description": "What the query took, in milliseconds."}});
    merged("", &[of, &object("", took, json!({}))])
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
    all.push(("Totals", totals.clone()));

    let room = json!({"roomId": id(), "messages": messages, "uniqueUsers": users});
    all.push(("RoomStats", merged("", &[&object("", room, json!({})), &span(true)])));
    let rooms_list = told("Most messages first.", json!({"rooms": list("RoomStats")}));
    all.push(("RoomStatsList", rooms_list.clone()));

    let user =
        json!({"userId": id(), "messages": messages, "rooms": described(integer(0), "Rooms they stand in.")});
    all.push(("UserStats", merged("", &[&object("", user, json!({})), &span(true)])));
    let users_list = told("Most messages first.", json!({"users": list("UserStats")}));
    all.push(("UserStatsList", users_list.clone()));

    let hour = json!({
        "hour": described(schema("Time"), "Its begin."),
        "messages": messages, "messagesByType": by_type, "uniqueUsers": users, "activeRooms": rooms,
    });
    all.push(("HourStats", object("An hour with messages, in UTC.", hour, json!({}))));
    let hours = json!({"hours": list("HourStats"), "next": next("from", "the next page")});
    let hours = told("Oldest first; hours without messages are left out.", hours);
    all.push(("HourStatsList", hours.clone()));

    let active = json!({
        "count": described(integer(0), "Of the whole window, whatever page this is."),
        "users": {"type": "array", "items": id(), "description": "A page of them, in the order of their ids."},
        "from": schema("Time"),
        "to": {"type": ["string", "null"], "format": "date-time"},
        "next": next("after", "the next page"),
    });
    let active = told("Who sent something in the window.", active);
    all.push(("ActiveUsers", active.clone()));

    let part = json!({"roomId": id(), "messages": described(integer(0), "The user's.")});
    all.push(("Participation", merged("", &[&object("", part, json!({})), &span(true)])));
    let parts =
        json!({"userId": id(), "rooms": list("Participation"), "next": next("after", "the next page")});
    let parts = told("In the order of the rooms' ids.", parts);
    all.push(("ParticipationList", parts.clone()));

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

    let sample = |of: &str| {
        let who = json!({of: {"type": ["string", "null"]}, "messages": list("Message")});
        timed(&object("", who, json!({})))
    };
    let core = json!({
        "totalMessages": timed(&totals),
        "messagesPerRoom": timed(&rooms_list),
        "userParticipation": timed(&users_list),
        "sampleRoomMessages": sample("roomId"),
        "sampleUserHistory": sample("userId"),
        "activeUsersLast24h": timed(&active),
        "sampleUserRooms": {"anyOf": [timed(&parts), {"type": "null"}]},
    });
    let analytics = json!({
        "topActiveUsers": timed(&users_list),
        "topActiveRooms": timed(&rooms_list),
        "hourlyMessageDistribution": timed(&hours),
    });
    let report = json!({
        "coreQueries": object("", core, json!({})),
        "analyticsQueries": object("", analytics, json!({})),
        "metadata": metadata(),
    });
    all.push(("Report", object("Everything in one.", report, json!({}))));
    all
}

fn metadata() -> Value {
    let rate = json!({"type": "number", "minimum": 0});
    let rates = json!({
        "messagesPerSecond": object("", json!({
            "in": described(rate.clone(), "Acknowledged to senders."),
            "out": described(rate.clone(), "Handed to subscribers' sockets."),
        }), json!({})),
        "overSeconds": described(rate.clone(), "How many seconds these are: the last ten, about."),
    });
    let pool = json!({
        "activeConnections": integer(0), "idleConnections": integer(0), "totalConnections": integer(0),
        "threadsAwaiting": integer(0),
    });
    let metadata = json!({
        "generatedAt": schema("Time"),
        "asOf": described(schema("Time"), "The oldest `asOf` of all answers."),
        "version": {"type": "string"},
        "uptimeSeconds": rate,
        "currentRates": object("", rates, json!({})),
        "databaseConnectionPool": object("Zeros where the store needs no connections.", pool, json!({})),
    });
    object("", metadata, json!({}))
}
