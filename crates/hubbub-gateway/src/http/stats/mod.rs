//! What is stored, counted: `/v1/stats` and what lies below, a user's messages, and the report.
//!
//! A caller without a name is an administrator and may read everything; a user may read the user's own figures. Where the
//! query's `user` selects figures, only the header names the caller.

mod accept;
mod audit;
mod counts;
mod json;
mod messages;
mod report;
mod state;

pub(super) use audit::{Audit, audit};
pub(super) use counts::{
    ActiveUsers, Current, HourStatsList, ParticipationList, RoomStatsList, UserStatsList,
};
pub(super) use json::Totals;
pub(super) use messages::messages;
pub(super) use report::{Report, metrics, report};
pub(crate) use state::SAMPLE_INTERVAL;
pub use state::{MetricsDefault, Statistics};

use std::time::Duration;

use hubbub_core::stats::{ActiveUsersQuery, HoursQuery};
use hubbub_core::{ErrorCode, RoomId, UserId};
use hyper::StatusCode;
use serde::Serialize;

use super::consistency::Reads;
use super::endpoint::Call;
use super::page::{LIMIT_DEFAULT, LIMIT_MAX};
use super::query::{Query, refuse_faults};

use super::users::check_self;
use super::{Answer, json_of};
use crate::Gateway;
use crate::auth::Caller;
use crate::problem::Problem;

/// Rooms and users of a list of those with most messages, unless said.
pub(super) const TOP_DEFAULT: usize = 10;

/// `GET /v1/stats`.
pub(super) async fn totals(call: Call) -> Answer {
    let gateway = call.gateway();
    administrators_query(&call)?;
    let reads = Reads::of(gateway, call.headers())?;
    answer(&counts::totals(reads.stats()).await?)
}

/// `GET /v1/stats/rooms`: those with most messages, or one.
pub(super) async fn rooms(call: Call) -> Answer {
    let gateway = call.gateway();
    let query = administrators_query(&call)?;
    let mut faults = Vec::new();
    let limit = query.limit(TOP_DEFAULT, LIMIT_MAX, &mut faults);
    let room = query.id("room", RoomId::new, &mut faults);
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, call.headers())?;
    match room {
        Some(room) => answer(&counts::one_room(reads.stats(), room).await?),
        None => answer(&counts::rooms(reads.stats(), limit).await?),
    }
}

/// `GET /v1/stats/users`: those with most messages, or one.
pub(super) async fn users(call: Call) -> Answer {
    let gateway = call.gateway();
    let query = call.query();
    let caller = Caller::of(call.headers(), &Query::default())?;
    let mut faults = Vec::new();
    let limit = query.limit(TOP_DEFAULT, LIMIT_MAX, &mut faults);
    let user = query.id("user", UserId::new, &mut faults);
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, call.headers())?;
    match user {
        Some(user) => {
            check_self(&caller, &user)?;
            answer(&counts::one_user(reads.stats(), user).await?)
        }
        None => {
            check_administrator(&caller)?;
            answer(&counts::users(reads.stats(), limit).await?)
        }
    }
}

/// `GET /v1/stats/hourly`.
pub(super) async fn hourly(call: Call) -> Answer {
    let gateway = call.gateway();
    let query = administrators_query(&call)?;
    let mut faults = Vec::new();
    let (from, to) = (query.time("from", &mut faults), query.time("to", &mut faults));
    let limit = query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, call.headers())?;
    answer(&counts::hours(reads.stats(), HoursQuery { from, to, limit }).await?)
}

/// `GET /v1/stats/active-users`.
pub(super) async fn active_users(call: Call) -> Answer {
    let gateway = call.gateway();
    let query = administrators_query(&call)?;
    let mut faults = Vec::new();
    let (from, to) = (query.time("from", &mut faults), query.time("to", &mut faults));
    let after = query.id("after", UserId::new, &mut faults);
    // Here nothing but the number may be wanted.
    let limit = match query.get("limit") {
        Some("0") => 0,
        _ => query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults),
    };
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, call.headers())?;
    let query = ActiveUsersQuery { from, to, after, limit };
    answer(&counts::active_users(reads.stats(), query, gateway.now()).await?)
}

/// `GET /v1/stats/users/{user}/rooms`: where the user wrote.
pub(super) async fn user_rooms(call: Call) -> Answer {
    let gateway = call.gateway();
    let user = call.user()?;
    let query = call.query();
    check_self(&call.caller_in(&query)?, &user)?;
    let mut faults = Vec::new();
    let after = query.id("after", RoomId::new, &mut faults);
    let limit = query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, call.headers())?;
    answer(&counts::user_rooms(reads.stats(), user, after, limit).await?)
}

/// The query of a request that only administrators may make, where `user` in it is not who calls.
fn administrators_only(call: &Call) -> Result<Query, Problem> {
    check_administrator(&Caller::of(call.headers(), &Query::default())?)?;
    Ok(call.query())
}

/// The query of a request that only administrators may make.
fn administrators_query(call: &Call) -> Result<Query, Problem> {
    let query = call.query();
    check_administrator(&call.caller_in(&query)?)?;
    Ok(query)
}

fn check_administrator(caller: &Caller) -> Result<(), Problem> {
    match caller.user {
        Some(_) => Err(Problem::new(ErrorCode::Forbidden, "statistics of others are for administrators")),
        None => Ok(()),
    }
}

fn answer(counts: &impl Serialize) -> Answer {
    json_of(StatusCode::OK, counts)
}

/// Milliseconds since a moment of the monotonic clock, to the microsecond.
fn millis_since(gateway: &Gateway, started: Duration) -> f64 {
    rounded(gateway.clock.monotonic().saturating_sub(started).as_secs_f64() * 1e3)
}

/// To three places.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
