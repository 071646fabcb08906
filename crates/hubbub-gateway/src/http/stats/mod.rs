//! What is stored, counted: `/v1/stats` and what lies below, a user's messages, and the report.
//!
//! Whoever calls without a name is an administrator and may see everything; a user sees what is the user's own. Where
//! the query's `user` names whose figures are wanted, only the header says who calls.

mod accept;
mod audit;
mod counts;
mod messages;
mod report;
mod shapes;
mod state;

pub(super) use audit::audit;
pub(super) use messages::{CURSOR_RULE, messages};
pub(super) use report::{ROWS_MAX, metrics, report};
pub(crate) use state::SAMPLE_INTERVAL;
pub use state::{MetricsDefault, Statistics};

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::id::{ID_RULE, InvalidId};
use hubbub_core::stats::{ActiveUsersQuery, HoursQuery};
use hubbub_core::{ErrorCode, Fault, RoomId, UserId};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::Serialize;

use super::consistency::Reads;
use super::query::{Query, refuse_faults};
use super::rooms::{LIMIT_DEFAULT, LIMIT_MAX};
use super::users::check_self;
use super::{Answer, json, user_of};
use crate::Gateway;
use crate::auth::Caller;
use crate::problem::Problem;

/// Rooms and users of a list of those with most messages, unless said.
pub(super) const TOP_DEFAULT: usize = 10;

/// `GET /v1/stats`.
pub(super) async fn totals(gateway: &Arc<Gateway>, request: &Request<Incoming>) -> Answer {
    administrators_query(request)?;
    let reads = Reads::of(gateway, request.headers())?;
    answer(&counts::totals(reads.stats()).await?)
}

/// `GET /v1/stats/rooms`: those with most messages, or one.
pub(super) async fn rooms(gateway: &Arc<Gateway>, request: &Request<Incoming>) -> Answer {
    let query = administrators_query(request)?;
    let mut faults = Vec::new();
    let limit = query.limit(TOP_DEFAULT, LIMIT_MAX, &mut faults);
    let room = named(&query, "room", RoomId::new, &mut faults);
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, request.headers())?;
    match room {
        Some(room) => answer(&counts::one_room(reads.stats(), room).await?),
        None => answer(&counts::rooms(reads.stats(), limit).await?),
    }
}

/// `GET /v1/stats/users`: those with most messages, or one.
pub(super) async fn users(gateway: &Arc<Gateway>, request: &Request<Incoming>) -> Answer {
    let query = Query::parse(request.uri().query());
    let caller = Caller::of(request.headers(), &Query::default())?;
    let mut faults = Vec::new();
    let limit = query.limit(TOP_DEFAULT, LIMIT_MAX, &mut faults);
    let user = named(&query, "user", UserId::new, &mut faults);
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, request.headers())?;
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
pub(super) async fn hourly(gateway: &Arc<Gateway>, request: &Request<Incoming>) -> Answer {
    let query = administrators_query(request)?;
    let mut faults = Vec::new();
    let (from, to) = (query.time("from", &mut faults), query.time("to", &mut faults));
    let limit = query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, request.headers())?;
    answer(&counts::hours(reads.stats(), HoursQuery { from, to, limit }).await?)
}

/// `GET /v1/stats/active-users`.
pub(super) async fn active_users(gateway: &Arc<Gateway>, request: &Request<Incoming>) -> Answer {
    let query = administrators_query(request)?;
    let mut faults = Vec::new();
    let (from, to) = (query.time("from", &mut faults), query.time("to", &mut faults));
    let after = query.after(UserId::new, &mut faults);
    // Here nothing but the number may be wanted.
    let limit = match query.get("limit") {
        Some("0") => 0,
        _ => query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults),
    };
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, request.headers())?;
    let query = ActiveUsersQuery { from, to, after, limit };
    answer(&counts::active_users(reads.stats(), query, gateway.now()).await?)
}

/// `GET /v1/stats/users/{user}/rooms`: where the user wrote.
pub(super) async fn user_rooms(gateway: &Arc<Gateway>, user: &str, request: &Request<Incoming>) -> Answer {
    let user = user_of(user)?;
    let query = Query::parse(request.uri().query());
    check_self(&Caller::of(request.headers(), &query)?, &user)?;
    let mut faults = Vec::new();
    let after = query.after(RoomId::new, &mut faults);
    let limit = query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, request.headers())?;
    answer(&counts::user_rooms(reads.stats(), user, after, limit).await?)
}

/// The query of a request that only administrators may make, where `user` in it is not who calls.
fn administrators_only(request: &Request<Incoming>) -> Result<Query, Problem> {
    check_administrator(&Caller::of(request.headers(), &Query::default())?)?;
    Ok(Query::parse(request.uri().query()))
}

/// The query of a request that only administrators may make.
fn administrators_query(request: &Request<Incoming>) -> Result<Query, Problem> {
    let query = Query::parse(request.uri().query());
    check_administrator(&Caller::of(request.headers(), &query)?)?;
    Ok(query)
}

fn check_administrator(caller: &Caller) -> Result<(), Problem> {
    match caller.user {
        Some(_) => Err(Problem::new(ErrorCode::Forbidden, "statistics of others are for administrators")),
        None => Ok(()),
    }
}

/// The thing the query names, if it names one.
fn named<T>(
    query: &Query,
    name: &'static str,
    parse: fn(&str) -> Result<T, InvalidId>,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    query.get(name).map(parse).transpose().unwrap_or_else(|_| {
        faults.push(Fault::new(name, ID_RULE));
        None
    })
}

fn answer(told: &impl Serialize) -> Answer {
    let out = serde_json::to_vec(told).map_err(|error| unwritable(&error))?;
    Ok(json(StatusCode::OK, out))
}

fn unwritable(error: &serde_json::Error) -> Problem {
    tracing::error!(%error, "cannot write an answer");
    Problem::new(ErrorCode::Internal, "the answer could not be written; see the server's log")
}

/// Milliseconds since a moment of the monotonic clock, to the microsecond.
fn millis_since(gateway: &Gateway, started: Duration) -> f64 {
    rounded(gateway.clock.monotonic().saturating_sub(started).as_secs_f64() * 1e3)
}

/// To three places.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
