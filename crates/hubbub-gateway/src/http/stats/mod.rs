//! What is stored, counted: `/v1/stats` and what lies below, a user's messages, and the report.
//!
//! Administrators may read everything, and a user the user's own figures. Where the query's `user` selects figures, only the
//! header names the caller.

mod accept;
mod json;
mod report;
mod state;

pub(super) use json::{
    ActiveUsers, Current, HourStatsList, ParticipationList, RoomStatsList, Totals, UserStatsList,
};
pub(super) use report::{Report, metrics, report};
pub(crate) use state::SAMPLE_INTERVAL;
pub use state::{MetricsDefault, Statistics};

use std::time::Duration;

use hubbub_core::stats::{ActiveUsersQuery, Counted, HOUR_MICROS, HoursQuery};
use hubbub_core::{ErrorCode, RoomId, StatsStore, Timestamp, UserId};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::consistency::Reads;
use super::endpoint::Call;
use super::query::{LIMIT_DEFAULT, LIMIT_MAX, refuse_faults};
use super::types::{Id, Time};
use super::{Answer, json_of};
use crate::Gateway;
use crate::auth::caller::Requirement;
use crate::auth::{Right, Scope};
use crate::problem::Problem;
use json::as_json;

/// Rooms and users of a list of those with most messages, unless said.
pub(super) const TOP_DEFAULT: usize = 10;

pub(super) async fn totals(call: Call) -> Answer {
    answer(reads(&call)?.totals().await?, Totals::from)
}

/// `GET /v1/stats/rooms`: those with most messages, or one.
pub(super) async fn rooms(call: Call) -> Answer {
    let mut faults = Vec::new();
    let limit = call.query.limit(TOP_DEFAULT, LIMIT_MAX, &mut faults);
    let room = call.query.id("room", RoomId::new, &mut faults);
    refuse_faults(faults)?;
    match room {
        Some(room) => answer(reads(&call)?.room_stats(room).await?, RoomStatsList::of),
        None => answer(reads(&call)?.top_rooms(limit).await?, RoomStatsList::of),
    }
}

/// `GET /v1/stats/users`: those with most messages, or one.
pub(super) async fn users(call: Call) -> Answer {
    let caller = call.caller()?;
    let mut faults = Vec::new();
    let limit = call.query.limit(TOP_DEFAULT, LIMIT_MAX, &mut faults);
    let user = call.query.id("user", UserId::new, &mut faults);
    refuse_faults(faults)?;
    let store = reads(&call)?;
    match user {
        Some(user) => {
            let own = caller.may(Requirement::Own(user.as_str()));
            own.or_else(|refusal| caller.may(Requirement::Scope(Scope::Stats)).map_err(|_| refusal))?;
            answer(store.user_stats(user).await?, UserStatsList::of)
        }
        None => {
            caller.may(Requirement::Scope(Scope::Stats))?;
            answer(store.top_users(limit).await?, UserStatsList::of)
        }
    }
}

pub(super) async fn hourly(call: Call) -> Answer {
    let mut faults = Vec::new();
    let (from, to) = (call.query.time("from", &mut faults), call.query.time("to", &mut faults));
    let limit = call.query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    refuse_faults(faults)?;
    answer(reads(&call)?.hours(HoursQuery { from, to, limit }).await?, |page| {
        let last = page.hours.last().filter(|_| page.more);
        let next = last.map(|last| Time(later(last.hour, HOUR_MICROS)));
        HourStatsList { hours: as_json(page.hours), next }
    })
}

/// `GET /v1/stats/active-users`. By default the window ends with the last message, and begins a day before its end.
pub(super) async fn active_users(call: Call) -> Answer {
    let mut faults = Vec::new();
    let (from, to) = (call.query.time("from", &mut faults), call.query.time("to", &mut faults));
    let after = call.query.id("after", UserId::new, &mut faults);
    // Here nothing but the number may be wanted.
    let limit = match call.query.get("limit") {
        Some("0") => 0,
        _ => call.query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults),
    };
    refuse_faults(faults)?;
    let store = reads(&call)?;
    let from = from.unwrap_or_else(|| later(to.unwrap_or(call.gateway().now()), -24 * HOUR_MICROS));
    let query = ActiveUsersQuery { from: Some(from), to, after, limit };
    answer(store.active_users(query).await?, |active| {
        let next = active.users.last().filter(|_| active.more).cloned().map(Id);
        let users = active.users.into_iter().map(Id).collect();
        ActiveUsers { count: active.count, users, from: Time(from), to: to.map(Time), next }
    })
}

/// `GET /v1/stats/users/{user}/rooms`: where the user wrote.
pub(super) async fn user_rooms(call: Call) -> Answer {
    let user = call.user()?;
    let mut faults = Vec::new();
    let mut after = call.query.id("after", RoomId::new, &mut faults);
    let limit = call.query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    refuse_faults(faults)?;
    let caller = call.caller()?;
    let counted = loop {
        let mut counted = reads(&call)?.participation(user.clone(), after, limit).await?;
        let page = &mut counted.value;
        let last = page.rooms.last().map(|last| last.room.clone());
        page.rooms.retain(|one| caller.is_allowed(Requirement::Room(Right::Read, one.room.as_str())));
        if !page.rooms.is_empty() || !page.more {
            break counted;
        }
        // Nothing of it may be shown, not even where it goes on.
        after = last;
        tokio::task::yield_now().await;
    };
    answer(counted, |page| {
        let next = page.rooms.last().filter(|_| page.more).map(|last| Id(last.room.clone()));
        ParticipationList { user_id: Id(user), rooms: as_json(page.rooms), next }
    })
}

fn reads(call: &Call) -> Result<&dyn StatsStore, Problem> {
    Ok(Reads::of(call.gateway(), call.headers())?.stats())
}

fn later(time: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_add(micros))
}

/// Answers with what was counted, and how current it is.
fn answer<V, T: Serialize>(counted: Counted<V>, answer: impl FnOnce(V) -> T) -> Answer {
    json_of(StatusCode::OK, &Current { answer: answer(counted.value), as_of: Time(counted.as_of) })
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Audit {
    /// Gone through.
    messages: u64,
    /// Empty when all counts are right.
    differences: Vec<String>,
    took_ms: f64,
}

pub(super) async fn audit(call: Call) -> Answer {
    let gateway = call.gateway().clone();
    // It goes on when the caller is gone, and is still the only one then.
    match tokio::spawn(async move { recount(&gateway).await }).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::error!(%error, "an audit ended early");
            Err(Problem::new(ErrorCode::Internal, "the audit ended early; see the server's log"))
        }
    }
}

async fn recount(gateway: &Gateway) -> Answer {
    // It reads everything and keeps second counts in memory: one is enough.
    let Ok(_only) = gateway.statistics.audit.try_lock() else {
        return Err(Problem::new(
            ErrorCode::Overloaded,
            "another audit is under way; ask again when it is over",
        ));
    };
    let started = gateway.clock.monotonic();
    let audit = gateway.store.audit().await?;
    let took_ms = millis_since(gateway, started);
    if !audit.value.differences.is_empty() {
        tracing::error!(differences = ?audit.value.differences, "the statistics are wrong");
    }
    answer(audit, |audit| Audit { messages: audit.messages, differences: audit.differences, took_ms })
}

/// Milliseconds since a moment of the monotonic clock, to the microsecond.
fn millis_since(gateway: &Gateway, started: Duration) -> f64 {
    rounded(gateway.clock.monotonic().saturating_sub(started).as_secs_f64() * 1e3)
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
