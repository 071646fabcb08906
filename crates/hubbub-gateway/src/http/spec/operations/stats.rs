//! What is stored, counted.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;
use serde_json::json;

use super::super::operation::{Media, READING};
use super::super::schemas::{id, limit, schema, time};
use super::Operation;
use crate::http::page::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::http::{history, stats};

pub(super) const TAG: &str = "Statistics";

/// Reads for administrators only.
fn of_all(id: &'static str, summary: &'static str, shape: &str) -> Operation {
    Operation::new(id, TAG, summary)
        .caller()
        .replicated()
        .gives(200, Media::Json(schema(shape)), "")
        .refuses(&[E::Invalid, E::Forbidden])
        .refuses(READING)
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
}

pub(in crate::http) fn totals(_: &Limits) -> Operation {
    of_all("getTotals", "Everything together", "Totals")
        .about("Exact, as all statistics are: what counting all messages would give. What was deleted is not counted.")
}

pub(in crate::http) fn rooms(_: &Limits) -> Operation {
    of_all("listRoomStats", "The rooms with most messages", "RoomStatsList")
        .about("Equal ones in the order of their ids.")
        .query("limit", limit(stats::TOP_DEFAULT, LIMIT_MAX), "Most rooms of the list.")
        .query("room", id(), "Only this one; an empty list when it holds no message.")
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
}

pub(in crate::http) fn hourly(_: &Limits) -> Operation {
    of_all("listHours", "Messages, users and rooms of each hour", "HourStatsList")
        .about("In UTC. An hour is in the window as a whole, if it begins in it.")
        .query("from", time(), "Hours from the one on in which this lies.")
        .query("to", time(), "Hours that begin before this time.")
        .query("limit", limit(LIMIT_DEFAULT, LIMIT_MAX), "Most hours of the page.")
}

pub(in crate::http) fn active_users(_: &Limits) -> Operation {
    let limit = json!({"type": "integer", "minimum": 0, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT});
    of_all("listActiveUsers", "Who sent something in a window", "ActiveUsers")
        .about("The last 24 hours, unless said: `from` is a day before `to`, `to` is now.")
        .query("from", time(), "Received at this time or later.")
        .query("to", time(), "Received before this time.")
        .query("after", id(), "Users behind this one: the `next` of the page before, with the same window.")
        .query("limit", limit, "Most users of the page; 0 when only the number is wanted.")
}

pub(in crate::http) fn audit(_: &Limits) -> Operation {
    Operation::new("auditStats", TAG, "Recount everything and compare")
        .about("Takes as long as reading everything; one at a time, another one is `overloaded`.")
        .caller()
        .gives(200, Media::Json(schema("Audit")), "Counted, whether it agrees or not.")
        .refuses(&[E::Invalid, E::Forbidden, E::Overloaded])
        .refuses(READING)
}
