//! All statistics in one.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;
use serde_json::{Value, json};

use super::super::operation::{Media, READING};
use super::super::schemas::{id, schema};
use super::super::values::{answered, refusal};
use super::Operation;
use super::stats::TAG;

/// A time of the report.
const PLAIN: &str = "2026-01-31 12:00:00.000000";

/// What all the queries of the report say of themselves.
fn timings() -> Value {
    let timing = json!({"asOf": PLAIN, "tookMs": 0.1});
    let names = [
        "totalMessages",
        "messagesPerRoom",
        "userParticipation",
        "sampleRoomMessages",
        "sampleUserHistory",
        "activeUsersLast24h",
        "sampleUserRooms",
        "topActiveUsers",
        "topActiveRooms",
        "hourlyMessageDistribution",
    ];
    names.iter().map(|name| ((*name).to_owned(), timing.clone())).collect::<serde_json::Map<_, _>>().into()
}

fn report_example() -> Value {
    let in_lobby = |id: &str, user: &str, text: &str| json!({"messageId": id, "userId": user, "content": text, "timestamp": PLAIN});
    let pair =
        |room: &str, user: &str, count: u64| json!({"roomId": room, "userId": user, "messageCount": count});
    let user = |id: &str, count: u64, rooms: u64| {
        json!({
            "userId": id, "totalMessages": count, "roomsParticipated": rooms,
            "firstMessage": PLAIN, "lastMessage": PLAIN,
        })
    };
    let room = |id: &str, count: u64, users: u64| {
        json!({
            "roomId": id, "totalMessages": count, "uniqueUsers": users,
            "firstMessage": PLAIN, "lastActivity": PLAIN,
        })
    };
    json!({
        "coreQueries": {
            "totalMessages": 4,
            "messagesPerRoom": [
                {"roomId": "lobby", "messageCount": 3}, {"roomId": "garden", "messageCount": 1},
            ],
            "userParticipation": [pair("lobby", "ada", 2), pair("garden", "ada", 1), pair("lobby", "bob", 1)],
            "sampleRoomMessages": [
                in_lobby("m-3", "ada", "one"), in_lobby("m-2", "bob", "hello, Ada"), in_lobby("m-1", "ada", "hello"),
            ],
            "sampleUserHistory": [
                {"messageId": "m-2", "roomId": "lobby", "content": "hello, Ada", "timestamp": PLAIN},
            ],
            "activeUsersLast24h": 2,
            "sampleUserRooms": [{"roomId": "lobby", "messageCount": 1, "lastActivity": PLAIN}],
        },
        "analyticsQueries": {
            "topActiveUsers": [user("ada", 3, 2), user("bob", 1, 1)],
            "topActiveRooms": [room("lobby", 3, 2), room("garden", 1, 1)],
            "hourlyMessageDistribution": [
                {"hour": "2026-01-31 12:00:00.000000", "totalMessages": 4, "uniqueUsers": 2, "activeRooms": 2},
            ],
        },
        "metadata": {
            "timestamp": PLAIN, "asOf": PLAIN, "version": env!("CARGO_PKG_VERSION"), "uptimeSeconds": 1.5,
            "currentRates": {"messagesPerSecond": {"in": 0.4, "out": 0.0}, "overSeconds": 10.0},
            "databaseConnectionPool": {
                "activeConnections": 0, "idleConnections": 0, "totalConnections": 0, "threadsAwaiting": 0,
            },
            "queries": timings(),
        },
    })
}

pub(in crate::http) fn report(_: &Limits) -> Operation {
    Operation::new("getReport", TAG, "All statistics in one")
        .about(
            "Numbers and flat rows, for tools; what the other paths answer has more. `GET /metrics` answers the same to \
             those who take JSON.",
        )
        .header("Hubbub-User", id(), "Who calls. Without it the administrator.")
        .replicated()
        .query("room", id(), "The sample room; the one with most messages unless said.")
        .query("user", id(), "The sample user, likewise. Says nothing of who calls.")
        .gives(200, Media::Json(schema("Report")), "")
        .refuses(&[E::Invalid, E::Forbidden, E::UnknownRoom])
        .refuses(READING)
        .example("all", &[("user", "bob")], (200, report_example()))
        .example(
            "nowhere",
            &[("room", "nowhere")],
            answered(&refusal(E::UnknownRoom, "there is no such room")),
        )
}
