//! What is stored, counted.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;
use hubbub_core::time::TIMESTAMP_RULE;
use serde_json::{Value, json};

use super::super::operation::{Media, READING};
use super::super::schemas::{id, limit, schema, time};
use super::super::values::{EPOCH, NOW, answered, invalid, message, refusal, with};
use super::Operation;
use crate::http::page::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::http::{consistency, history, stats};

pub(super) const TAG: &str = "Statistics";

const HOUR: &str = "2026-01-31T12:00:00.000Z";
/// Windows of examples begin here: everything lies behind it.
const FROM: &str = "2001-01-01T00:00:00.000Z";

/// An answer with when its messages were received.
fn spanned(value: Value) -> Value {
    with(value, json!({"firstMessageAt": NOW, "lastMessageAt": NOW}))
}

fn told(value: Value) -> Value {
    with(value, json!({"asOf": NOW}))
}

fn by_type() -> Value {
    json!({"TEXT": 4, "JOIN": 0, "LEAVE": 0})
}

fn all_totals() -> Value {
    told(spanned(json!({"messages": 4, "messagesByType": by_type(), "users": 2, "rooms": 2})))
}

fn room(id: &str, messages: u64, users: u64) -> Value {
    spanned(json!({"roomId": id, "messages": messages, "uniqueUsers": users}))
}

fn all_rooms() -> Value {
    told(json!({"rooms": [room("lobby", 3, 2), room("garden", 1, 1)]}))
}

fn user(id: &str, messages: u64, rooms: u64) -> Value {
    spanned(json!({"userId": id, "messages": messages, "rooms": rooms}))
}

fn all_users() -> Value {
    told(json!({"users": [user("ada", 3, 2), user("bob", 1, 1)]}))
}

fn rooms_of(user: &str, rooms: &[(&str, u64)]) -> Value {
    let room = |(id, messages): &(&str, u64)| spanned(json!({"roomId": id, "messages": messages}));
    let rooms: Vec<Value> = rooms.iter().map(room).collect();
    told(json!({"userId": user, "rooms": rooms, "next": null}))
}

/// The one message of bob.
fn of_bob() -> Value {
    with(message("m-2", "bob", "hello, Ada", 2), json!({"username": "Bob"}))
}

fn all_hours() -> Value {
    let hour = json!({
        "hour": HOUR, "messages": 4, "messagesByType": by_type(), "uniqueUsers": 2, "activeRooms": 2,
    });
    told(json!({"hours": [hour], "next": null}))
}

/// Reads for administrators only.
fn of_all(id: &'static str, summary: &'static str, shape: &str) -> Operation {
    Operation::new(id, TAG, summary)
        .caller()
        .replicated()
        .gives(200, Media::Json(schema(shape)), "")
        .refuses(&[E::Invalid, E::Forbidden])
        .refuses(READING)
        .example(
            "notOfOthers",
            &[("Hubbub-User", "bob")],
            answered(&refusal(E::Forbidden, "statistics of others are for administrators")),
        )
}

pub(in crate::http) fn user_messages(limits: &Limits) -> Operation {
    let most = limits.page_messages;
    Operation::new("readUserMessages",
        TAG,
        "What a user wrote, over all rooms",
    )
    .about(
        "By time, newest last; of equal times by room, then by `seq`. For the user, and for administrators.",
    )
    .caller()
    .replicated()
    .query("before", json!({"type": "string"}), "The `next` of the page with newer ones.")
    .query("from", time(), "Received at this time or later.")
    .query("to", time(), "Received before this time.")
    .query("limit", limit(history::LIMIT_DEFAULT.min(most), most), "Most messages of the page.")
    .gives(200, Media::Json(schema("UserMessages")), "")
    .refuses(&[E::Invalid, E::Forbidden])
    .refuses(READING)
    .example("bob", &[("user", "bob")], (200, json!({"messages": [of_bob()], "epoch": EPOCH, "next": null})))
    .example(
        "window",
        &[("user", "ada"), ("from", FROM), ("to", "2001-01-02T00:00:00.000Z")],
        (200, json!({"messages": [], "epoch": EPOCH, "next": null})),
    )
    .example(
        "noCursor",
        &[("user", "ada"), ("before", "7")],
        answered(&invalid(&[("before", stats::CURSOR_RULE)])),
    )
    .example(
        "somebodyElse",
        &[("user", "ada"), ("Hubbub-User", "bob")],
        answered(&refusal(E::Forbidden, "this is for 'ada' and for administrators")),
    )
}

pub(in crate::http) fn totals(_: &Limits) -> Operation {
    of_all("getTotals", "Everything together", "Totals")
        .about("Exact, as all statistics are: what counting all messages would give. What was deleted is not counted.")
        .example("all", &[], (200, all_totals()))
        .example("strong", &[(consistency::HEADER, consistency::STRONG)], (200, all_totals()))
}

pub(in crate::http) fn rooms(_: &Limits) -> Operation {
    of_all("listRoomStats", "The rooms with most messages", "RoomStatsList")
        .about("Equal ones in the order of their ids.")
        .query("limit", limit(stats::TOP_DEFAULT, LIMIT_MAX), "Most rooms of the list.")
        .query("room", id(), "Only this one; an empty list when it holds no message.")
        .example("all", &[], (200, all_rooms()))
        .example("one", &[("room", "garden")], (200, told(json!({"rooms": [room("garden", 1, 1)]}))))
        .example("unknown", &[("room", "nowhere")], (200, told(json!({"rooms": []}))))
        .example(
            "tooMany",
            &[("limit", "5000")],
            answered(&invalid(&[("limit", "must be between 1 and 1000")])),
        )
}

pub(in crate::http) fn users(_: &Limits) -> Operation {
    let who =
        "Only this one, who may ask too; an empty list for whoever never wrote. Says nothing of who calls.";
    Operation::new("listUserStats", TAG, "The users with most messages")
        .about("Equal ones in the order of their ids.")
        .header("Hubbub-User", id(), "Who calls. Without it the administrator.")
        .replicated()
        .query("limit", limit(stats::TOP_DEFAULT, LIMIT_MAX), "Most users of the list.")
        .query("user", id(), who)
        .gives(200, Media::Json(schema("UserStatsList")), "")
        .refuses(&[E::Invalid, E::Forbidden])
        .refuses(READING)
        .example("all", &[], (200, all_users()))
        .example(
            "myself",
            &[("user", "bob"), ("Hubbub-User", "bob")],
            (200, told(json!({"users": [user("bob", 1, 1)]}))),
        )
        .example(
            "notOfOthers",
            &[("Hubbub-User", "bob")],
            answered(&refusal(E::Forbidden, "statistics of others are for administrators")),
        )
}

pub(in crate::http) fn user_rooms(_: &Limits) -> Operation {
    Operation::new("listUserParticipation", TAG, "Where a user wrote")
        .about("For the user, and for administrators.")
        .caller()
        .replicated()
        .query("after", id(), "Rooms behind this one: the `next` of the page before.")
        .query("limit", limit(LIMIT_DEFAULT, LIMIT_MAX), "Most rooms of the page.")
        .gives(200, Media::Json(schema("ParticipationList")), "")
        .refuses(&[E::Invalid, E::Forbidden])
        .refuses(READING)
        .example("ada", &[("user", "ada")], (200, rooms_of("ada", &[("garden", 1), ("lobby", 2)])))
        .example(
            "somebodyElse",
            &[("user", "ada"), ("Hubbub-User", "bob")],
            answered(&refusal(E::Forbidden, "this is for 'ada' and for administrators")),
        )
}

pub(in crate::http) fn hourly(_: &Limits) -> Operation {
    of_all("listHours", "Messages, users and rooms of each hour", "HourStatsList")
        .about("In UTC. An hour is in the window as a whole, if it begins in it.")
        .query("from", time(), "Hours from the one on in which this lies.")
        .query("to", time(), "Hours that begin before this time.")
        .query("limit", limit(LIMIT_DEFAULT, LIMIT_MAX), "Most hours of the page.")
        .example("all", &[("from", FROM)], (200, all_hours()))
        .example("noTime", &[("from", "noon")], answered(&invalid(&[("from", TIMESTAMP_RULE)])))
}

pub(in crate::http) fn active_users(_: &Limits) -> Operation {
    let limit = json!({"type": "integer", "minimum": 0, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT});
    let active = |users: &[&str], next: Value| {
        told(json!({"count": 2, "users": users, "from": FROM, "to": null, "next": next}))
    };
    of_all("listActiveUsers", "Who sent something in a window", "ActiveUsers")
        .about("The last 24 hours, unless said: `from` is a day before `to`, `to` is now.")
        .query("from", time(), "Received at this time or later.")
        .query("to", time(), "Received before this time.")
        .query("after", id(), "Users behind this one: the `next` of the page before, with the same window.")
        .query("limit", limit, "Most users of the page; 0 when only the number is wanted.")
        .example("firstPage", &[("from", FROM), ("limit", "1")], (200, active(&["ada"], json!("ada"))))
        .example("lastPage", &[("from", FROM), ("after", "ada")], (200, active(&["bob"], Value::Null)))
        .example("howMany", &[("from", FROM), ("limit", "0")], (200, active(&[], Value::Null)))
}

pub(in crate::http) fn audit(_: &Limits) -> Operation {
    Operation::new("auditStats", TAG, "Recount everything and compare")
        .about("Takes as long as reading everything; one at a time, another one is `overloaded`.")
        .caller()
        .gives(200, Media::Json(schema("Audit")), "Counted, whether it agrees or not.")
        .refuses(&[E::Invalid, E::Forbidden, E::Overloaded])
        .refuses(READING)
        .example("right", &[], (200, told(json!({"messages": 4, "differences": [], "tookMs": 0.3}))))
        .example(
            "notOfOthers",
            &[("Hubbub-User", "bob")],
            answered(&refusal(E::Forbidden, "statistics of others are for administrators")),
        )
}
