//! `GET /v1/stats/report`: everything in one object; also what `GET /metrics` answers to those who take JSON.
//!
//! Counts are numbers and lists are arrays of flat rows, so that a tool reads `totalMessages` or `messagesPerRoom[0]`
//! without knowing anything of this server. How current each answer is and what it took stands in `metadata.queries`.

mod metadata;
mod rows;
mod samples;

use hubbub_core::invariant::saturate;
use hubbub_core::stats::{ActiveUsersQuery, Counted, HoursQuery, hour_of};
use hubbub_core::{RoomId, Timestamp, UserId};
use hyper::StatusCode;
use hyper::header::{ACCEPT, HeaderValue, VARY};
use schemars::JsonSchema;
use serde::Serialize;

use super::state::MetricsDefault;
use super::{HOUR_MICROS, accept};
use crate::Gateway;
use crate::auth::Scope;
use crate::auth::caller::Requirement;
use crate::http::consistency::Reads;
use crate::http::endpoint::Call;
use crate::http::query::refuse_faults;
use crate::http::{Answer, health, json_of};
use crate::problem::Problem;
use metadata::{Metadata, Timing};
use rows::{Hour, PairCount, RoomCount, RoomMessage, TopRoom, TopUser, UserMessage, UserRoom};
use samples::Samples;

/// Most rows of `messagesPerRoom` and of `userParticipation`; their comments name the number, too.
const ROWS_MAX: usize = 10_000;
const TOP: usize = 10;
/// Hours of the distribution, the one under way included.
const HOURS: usize = 24;

/// Everything in one, as numbers and flat rows.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Report {
    core_queries: CoreQueries,
    analytics_queries: AnalyticsQueries,
    metadata: Metadata,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct CoreQueries {
    total_messages: u64,
    /// Most messages first, at most 10,000 rooms.
    messages_per_room: Vec<RoomCount>,
    /// Who wrote where: most messages first, at most 10,000 pairs of a room and a user.
    user_participation: Vec<PairCount>,
    /// The newest ten messages of a room, newest first, with the time they were received. Empty where the caller may not
    /// read the room.
    sample_room_messages: Vec<RoomMessage>,
    /// The newest ten messages of a user, likewise: for the user and for administrators, without those of rooms that the
    /// caller may not read.
    sample_user_history: Vec<UserMessage>,
    #[serde(rename = "activeUsersLast24h")]
    active_users_last_24h: u64,
    /// Where that user wrote, the newest activity first.
    sample_user_rooms: Vec<UserRoom>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct AnalyticsQueries {
    /// The ten with most messages.
    top_active_users: Vec<TopUser>,
    /// The ten with most messages.
    top_active_rooms: Vec<TopRoom>,
    /// Those of the last 24 hours that have messages, newest first.
    hourly_message_distribution: Vec<Hour>,
}

pub(in crate::http) async fn metrics(call: Call) -> Answer {
    let gateway = call.gateway();
    let format = accept::preferred(call.headers(), gateway.statistics.metrics_default);
    let mut response = match format {
        MetricsDefault::Prometheus => health::metrics(gateway)?,
        MetricsDefault::Report => report(call).await?,
    };
    response.headers_mut().insert(VARY, HeaderValue::from(ACCEPT));
    Ok(response)
}

pub(in crate::http) async fn report(call: Call) -> Answer {
    let gateway = call.gateway();
    let caller = call.caller()?;
    // Also where `/metrics` answers with it.
    caller.may(Requirement::Scope(Scope::Stats))?;
    let mut faults = Vec::new();
    let room = call.query.id("room", RoomId::new, &mut faults);
    let user = call.query.id("user", UserId::new, &mut faults);
    refuse_faults(faults)?;
    let reads = Reads::of(gateway, call.headers())?;
    let now = gateway.now();
    let samples = Samples { gateway, reads, caller: &caller, as_of: now };
    let mut queries = Queries { gateway, reads, samples, now, timings: Vec::new() };
    let core_queries = queries.core(room, user).await?;
    let analytics_queries = queries.analytics().await?;
    let metadata = Metadata::of(gateway, queries.now, queries.timings);
    json_of(StatusCode::OK, &Report { core_queries, analytics_queries, metadata })
}

/// Runs the queries of one report and keeps their timings.
struct Queries<'a> {
    gateway: &'a Gateway,
    reads: Reads<'a>,
    samples: Samples<'a>,
    now: Timestamp,
    timings: Vec<Timing>,
}

impl Queries<'_> {
    async fn timed<T, E: Into<Problem>>(
        &mut self,
        name: &'static str,
        query: impl Future<Output = Result<Counted<T>, E>>,
    ) -> Result<T, Problem> {
        let started = self.gateway.clock.monotonic();
        let counted = query.await.map_err(Into::into)?;
        self.timings.push(Timing::since(self.gateway, name, counted.as_of, started));
        Ok(counted.value)
    }

    async fn core(&mut self, room: Option<RoomId>, user: Option<UserId>) -> Result<CoreQueries, Problem> {
        let (store, samples) = (self.reads.stats(), self.samples);
        let total_messages = self.timed("totalMessages", store.totals()).await?.messages.total();
        let rooms = self.timed("messagesPerRoom", store.top_rooms(ROWS_MAX)).await?;
        let user_participation = self.timed("userParticipation", store.top_pairs(ROWS_MAX)).await?;
        let busiest_user = store.top_users(1).await?.value.into_iter().next().map(|stats| stats.user);
        let is_named = room.is_some();
        let room = room.or_else(|| rooms.first().map(|stats| stats.room.clone()));
        let user = user.or(busiest_user);
        let in_room = samples.room_messages(room, is_named);
        let sample_room_messages = self.timed("sampleRoomMessages", in_room).await?;
        let of_user = samples.user_messages(user.clone());
        let sample_user_history = self.timed("sampleUserHistory", of_user).await?;
        let day = self.now.as_micros().saturating_sub(24 * HOUR_MICROS);
        let from = Some(Timestamp::from_micros(day));
        let active = store.active_users(ActiveUsersQuery { from, to: None, after: None, limit: 0 });
        let active_users_last_24h = self.timed("activeUsersLast24h", active).await?.count;
        let sample_user_rooms = self.timed("sampleUserRooms", samples.user_rooms(user)).await?;
        Ok(CoreQueries {
            total_messages,
            messages_per_room: rooms.iter().map(RoomCount::from).collect(),
            user_participation: user_participation.into_iter().map(PairCount::from).collect(),
            sample_room_messages,
            sample_user_history,
            active_users_last_24h,
            sample_user_rooms,
        })
    }

    async fn analytics(&mut self) -> Result<AnalyticsQueries, Problem> {
        let store = self.reads.stats();
        let users = self.timed("topActiveUsers", store.top_users(TOP)).await?;
        let rooms = self.timed("topActiveRooms", store.top_rooms(TOP)).await?;
        let earlier = saturate::<usize, i64>(HOURS - 1).saturating_mul(HOUR_MICROS);
        let first = hour_of(self.now).as_micros().saturating_sub(earlier);
        // A clock that was set back leaves messages in hours to come. They are the newest.
        let query = HoursQuery { from: Some(Timestamp::from_micros(first)), to: None, limit: 2 * HOURS };
        let hours = self.timed("hourlyMessageDistribution", store.hours(query)).await?.hours;
        Ok(AnalyticsQueries {
            top_active_users: users.iter().map(TopUser::from).collect(),
            top_active_rooms: rooms.iter().map(TopRoom::from).collect(),
            hourly_message_distribution: hours.into_iter().rev().take(HOURS).map(Hour::from).collect(),
        })
    }
}
