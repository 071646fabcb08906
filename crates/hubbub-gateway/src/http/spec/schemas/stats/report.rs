//! The report: flat rows for tools.

use serde_json::{Value, json};

use super::super::{described, integer, object};
use crate::http::stats;

fn id() -> Value {
    json!({
        "type": ["integer", "string"],
        "description": "An integer where the id is a decimal number without leading zeros up to 2^53 - 1, else a string.",
    })
}

fn time() -> Value {
    json!({
        "type": "string",
        "pattern": "^\\d{4}-\\d{2}-\\d{2} \\d{2}:\\d{2}:\\d{2}\\.\\d{6}$",
        "description": "`YYYY-MM-DD hh:mm:ss.ffffff`, in UTC.",
    })
}

fn rows(about: &str, row: Value) -> Value {
    json!({"type": "array", "items": object("", row, json!({})), "description": about})
}

fn count() -> Value {
    integer(0)
}

pub(super) fn report() -> Value {
    let report = json!({
        "coreQueries": object("", core(), json!({})),
        "analyticsQueries": object("", analytics(), json!({})),
        "metadata": metadata(),
    });
    object("Everything in one, as numbers and flat rows.", report, json!({}))
}

fn core() -> Value {
    let most = stats::ROWS_MAX;
    let text = json!({"type": "string"});
    json!({
        "totalMessages": count(),
        "messagesPerRoom": rows(
            &format!("Most messages first, at most {most} rooms."),
            json!({"roomId": id(), "messageCount": count()}),
        ),
        "userParticipation": rows(
            &format!("Who wrote where: most messages first, at most {most} pairs of a room and a user."),
            json!({"roomId": id(), "userId": id(), "messageCount": count()}),
        ),
        "sampleRoomMessages": rows(
            "The newest ten messages of a room, newest first, with the time they were received.",
            json!({"messageId": text, "userId": id(), "content": text, "timestamp": time()}),
        ),
        "sampleUserHistory": rows(
            "The newest ten messages of a user, likewise.",
            json!({"messageId": text, "roomId": id(), "content": text, "timestamp": time()}),
        ),
        "activeUsersLast24h": count(),
        "sampleUserRooms": rows(
            "Where that user wrote, the newest activity first.",
            json!({"roomId": id(), "messageCount": count(), "lastActivity": time()}),
        ),
    })
}

fn analytics() -> Value {
    json!({
        "topActiveUsers": rows("The ten with most messages.", json!({
            "userId": id(), "totalMessages": count(), "roomsParticipated": count(),
            "firstMessage": time(), "lastMessage": time(),
        })),
        "topActiveRooms": rows("The ten with most messages.", json!({
            "roomId": id(), "totalMessages": count(), "uniqueUsers": count(),
            "firstMessage": time(), "lastActivity": time(),
        })),
        "hourlyMessageDistribution": rows(
            "Those of the last 24 hours that have messages, newest first.",
            json!({"hour": time(), "totalMessages": count(), "uniqueUsers": count(), "activeRooms": count()}),
        ),
    })
}

fn metadata() -> Value {
    let number = json!({"type": "number", "minimum": 0});
    let rates = json!({
        "messagesPerSecond": object("", json!({
            "in": described(number.clone(), "Acknowledged to senders."),
            "out": described(number.clone(), "Handed to subscribers' sockets."),
        }), json!({})),
        "overSeconds": described(number.clone(), "How many seconds these are: the last ten, about."),
    });
    let pool = json!({
        "activeConnections": count(), "idleConnections": count(), "totalConnections": count(),
        "threadsAwaiting": count(),
    });
    let timing = json!({
        "asOf": described(time(), "Everything acknowledged up to here is in the answer."),
        "tookMs": described(number.clone(), "What the query took, in milliseconds."),
    });
    let queries = json!({"type": "object", "additionalProperties": object("", timing, json!({}))});
    let metadata = json!({
        "timestamp": described(time(), "When the report was made, in UTC."),
        "asOf": described(time(), "The oldest `asOf` of all queries."),
        "version": {"type": "string"},
        "uptimeSeconds": number,
        "currentRates": object("", rates, json!({})),
        "databaseConnectionPool": object("Zeros where the store needs no connections.", pool, json!({})),
        "queries": described(queries, "Each of the queries above by its name."),
    });
    object("", metadata, json!({}))
}
