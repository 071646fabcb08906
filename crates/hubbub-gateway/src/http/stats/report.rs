//! `GET /v1/stats/report`: everything in one object, each query with the time it took; also what `GET /metrics`
//! answers to those who take JSON.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::message::MessageRun;
use hubbub_core::stats::{ActiveUsersQuery, HoursQuery, UserHistoryQuery};
use hubbub_core::store::{Cursor, HistoryQuery, ReadError};
use hubbub_core::{RoomId, Timestamp, UserId};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HeaderValue, VARY};
use serde::Serialize;
use serde_json::value::RawValue;

use super::counts::{self, ActiveUsersJson, HoursJson, RoomsJson, Told, UserRoomsJson, UsersJson};
use super::shapes::{Id, Time, TotalsJson};
use super::state::MetricsDefault;
use super::{TOP_DEFAULT, accept, administrators_only, answer, messages, named};
use crate::Gateway;
use crate::http::consistency::Reads;
use crate::http::query::refuse_faults;
use crate::http::{Answer, health};
use crate::problem::Problem;

/// Rooms and users of the lists that are not those of the top ones.
const LIST: usize = 100;
/// Messages shown of the sample room and of the sample user.
const SAMPLE: usize = 50;
/// Their texts at most: 256 KiB.
const SAMPLE_BYTES_MAX: usize = 256 * 1024;
/// Hours of the distribution, the one under way included: a week.
const HOURS: usize = 7 * 24;
const HOUR_MICROS: i64 = 3_600_000_000;

/// An answer and the time it took.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Timed<T> {
    #[serde(flatten)]
    answer: T,
    took_ms: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    core_queries: CoreQueries,
    analytics_queries: AnalyticsQueries,
    metadata: Metadata,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CoreQueries {
    total_messages: Timed<Told<TotalsJson>>,
    messages_per_room: Timed<Told<RoomsJson>>,
    user_participation: Timed<Told<UsersJson>>,
    sample_room_messages: Timed<RoomSample>,
    sample_user_history: Timed<UserSample>,
    #[serde(rename = "activeUsersLast24h")]
    active_users_last_24h: Timed<Told<ActiveUsersJson>>,
    sample_user_rooms: Option<Timed<Told<UserRoomsJson>>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AnalyticsQueries {
    top_active_users: Timed<Told<UsersJson>>,
    top_active_rooms: Timed<Told<RoomsJson>>,
    hourly_message_distribution: Timed<Told<HoursJson>>,
}

/// The newest messages of a room; of none when there is no room.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RoomSample {
    room_id: Option<Id<RoomId>>,
    messages: Box<RawValue>,
}

/// The newest messages of a user; of none when there is no user.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UserSample {
    user_id: Option<Id<UserId>>,
    messages: Box<RawValue>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    generated_at: Time,
    as_of: Time,
    version: &'static str,
    uptime_seconds: f64,
    current_rates: CurrentRates,
    database_connection_pool: ConnectionPool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CurrentRates {
    messages_per_second: InOut,
    over_seconds: f64,
}

#[derive(Debug, Serialize)]
struct InOut {
    #[serde(rename = "in")]
    messages_in: f64,
    out: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConnectionPool {
    active_connections: u64,
    idle_connections: u64,
    total_connections: u64,
    threads_awaiting: u64,
}

/// `GET /metrics`.
pub(in crate::http) async fn metrics(gateway: &Arc<Gateway>, request: &Request<Incoming>) -> Answer {
    let wanted = accept::wanted(request.headers(), gateway.statistics.metrics_default);
    let mut response = match wanted {
        MetricsDefault::Prometheus => health::metrics(gateway)?,
        MetricsDefault::Report => report(gateway, request).await?,
    };
    response.headers_mut().insert(VARY, HeaderValue::from(ACCEPT));
    Ok(response)
}

/// `GET /v1/stats/report`.
pub(in crate::http) async fn report(gateway: &Arc<Gateway>, request: &Request<Incoming>) -> Answer {
    let query = administrators_only(request)?;
    let mut faults = Vec::new();
    let room = named(&query, "room", RoomId::new, &mut faults);
    let user = named(&query, "user", UserId::new, &mut faults);
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, request.headers())?;
    answer(&make(gateway, reads, room, user).await?)
}

async fn make(
    gateway: &Gateway,
    reads: Reads<'_>,
    room: Option<RoomId>,
    user: Option<UserId>,
) -> Result<Report, Problem> {
    let store = reads.stats();
    let now = gateway.now();
    let total_messages = timed(gateway, counts::totals(store)).await?;
    let messages_per_room = timed(gateway, counts::rooms(store, LIST)).await?;
    let user_participation = timed(gateway, counts::users(store, LIST)).await?;
    let busiest_room = messages_per_room.answer.answer.rooms.first().map(|room| room.room_id.0.clone());
    let busiest_user = user_participation.answer.answer.users.first().map(|user| user.user_id.0.clone());
    let is_named = room.is_some();
    let sample_room_messages = timed(gateway, room_sample(reads, room.or(busiest_room), is_named)).await?;
    let user = user.or(busiest_user);
    let sample_user_history = timed(gateway, user_sample(reads, user.clone())).await?;
    let day = ActiveUsersQuery { from: None, to: None, after: None, limit: 0 };
    let active_users_last_24h = timed(gateway, counts::active_users(store, day, now)).await?;
    let sample_user_rooms = match user {
        Some(user) => Some(timed(gateway, counts::user_rooms(store, user, None, LIST)).await?),
        None => None,
    };
    let top_active_users = timed(gateway, counts::users(store, TOP_DEFAULT)).await?;
    let top_active_rooms = timed(gateway, counts::rooms(store, TOP_DEFAULT)).await?;
    let week = i64::try_from(HOURS - 1).unwrap_or(0).saturating_mul(HOUR_MICROS);
    let from = Some(Timestamp::from_micros(now.as_micros().saturating_sub(week)));
    let hours = counts::hours(store, HoursQuery { from, to: None, limit: HOURS });
    let hourly_message_distribution = timed(gateway, hours).await?;
    let as_of = [
        Some(total_messages.answer.as_of),
        Some(messages_per_room.answer.as_of),
        Some(user_participation.answer.as_of),
        Some(active_users_last_24h.answer.as_of),
        sample_user_rooms.as_ref().map(|rooms| rooms.answer.as_of),
        Some(top_active_users.answer.as_of),
        Some(top_active_rooms.answer.as_of),
        Some(hourly_message_distribution.answer.as_of),
    ];
    let metadata = metadata(gateway, as_of.into_iter().flatten().min().unwrap_or(Time(now)));
    Ok(Report {
        core_queries: CoreQueries {
            total_messages,
            messages_per_room,
            user_participation,
            sample_room_messages,
            sample_user_history,
            active_users_last_24h,
            sample_user_rooms,
        },
        analytics_queries: AnalyticsQueries {
            top_active_users,
            top_active_rooms,
            hourly_message_distribution,
        },
        metadata,
    })
}

async fn timed<T>(
    gateway: &Gateway,
    query: impl Future<Output = Result<T, Problem>>,
) -> Result<Timed<T>, Problem> {
    let started = gateway.clock.monotonic();
    let answer = query.await?;
    Ok(Timed { answer, took_ms: millis_since(gateway, started) })
}

/// A room nobody asked for by name may have been deleted since it was counted.
async fn room_sample(reads: Reads<'_>, room: Option<RoomId>, is_named: bool) -> Result<RoomSample, Problem> {
    let messages = match &room {
        Some(room) => {
            let (cursor, limit, bytes_max) = (Cursor::Before(u64::MAX), SAMPLE, SAMPLE_BYTES_MAX);
            let query = HistoryQuery { cursor, from: None, to: None, limit, bytes_max };
            match reads.history(room.clone(), query).await {
                Ok(page) => page.messages,
                Err(ReadError::UnknownRoom) if !is_named => MessageRun::default(),
                Err(error) => return Err(error.into()),
            }
        }
        None => MessageRun::default(),
    };
    Ok(RoomSample { room_id: room.map(Id), messages: raw(&messages)? })
}

async fn user_sample(reads: Reads<'_>, user: Option<UserId>) -> Result<UserSample, Problem> {
    let messages = match &user {
        Some(user) => {
            let (limit, bytes_max) = (SAMPLE, SAMPLE_BYTES_MAX);
            let query = UserHistoryQuery { before: None, from: None, to: None, limit, bytes_max };
            reads.stats().user_history(user.clone(), query).await?.messages
        }
        None => MessageRun::default(),
    };
    Ok(UserSample { user_id: user.map(Id), messages: raw(&messages)? })
}

/// Messages in the one shape they have everywhere.
fn raw(messages: &MessageRun) -> Result<Box<RawValue>, Problem> {
    let mut out = Vec::with_capacity(messages.bytes() + messages.len() * 256 + 2);
    messages::write_messages(messages, &mut out);
    serde_json::from_slice(&out).map_err(|error| super::unwritable(&error))
}

fn metadata(gateway: &Gateway, as_of: Time) -> Metadata {
    let now = gateway.clock.monotonic();
    let rates = gateway.statistics.rates(&gateway.metrics, now);
    let pool = gateway.store.figures().pool;
    Metadata {
        generated_at: Time(gateway.now()),
        as_of,
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: rounded(gateway.statistics.uptime(now).as_secs_f64()),
        current_rates: CurrentRates {
            messages_per_second: InOut {
                messages_in: rounded(rates.messages_in),
                out: rounded(rates.messages_out),
            },
            over_seconds: rounded(rates.over.as_secs_f64()),
        },
        database_connection_pool: ConnectionPool {
            active_connections: pool.active,
            idle_connections: pool.idle,
            total_connections: pool.active.saturating_add(pool.idle),
            threads_awaiting: pool.waiting,
        },
    }
}

/// Milliseconds, to the microsecond.
pub(super) fn millis_since(gateway: &Gateway, started: Duration) -> f64 {
    rounded(gateway.clock.monotonic().saturating_sub(started).as_secs_f64() * 1e3)
}

/// To three places.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
