//! What is counted: totals, rooms, users, hours, active users, and where a user wrote.

use hubbub_core::stats::{ActiveUsersQuery, Counted, HoursQuery};
use hubbub_core::{RoomId, StatsStore, Timestamp, UserId};
use schemars::JsonSchema;
use serde::Serialize;

use super::json::{HourStats, Participation, RoomStats, Totals, UserStats, as_json};
use crate::http::types::{Id, Time};
use crate::problem::Problem;

/// Microseconds of an hour.
const HOUR_MICROS: i64 = 3_600_000_000;
/// The window in which users are active, unless another one is said.
const ACTIVE_MICROS: i64 = 24 * HOUR_MICROS;

// An answer and how current it is. The documents know it by the answer's name and description.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "{T}")]
pub(in crate::http) struct Current<T> {
    #[serde(flatten)]
    answer: T,
    /// Everything acknowledged up to here is counted.
    as_of: Time,
}

impl<T> Current<T> {
    pub(super) fn of<V>(counted: Counted<V>, answer: impl FnOnce(V) -> T) -> Self {
        Self { answer: answer(counted.value), as_of: Time(counted.as_of) }
    }
}

pub(super) type Counts<T> = Result<Current<T>, Problem>;

pub(super) async fn totals(store: &dyn StatsStore) -> Counts<Totals> {
    Ok(Current::of(store.totals().await?, Totals::from))
}

/// Most messages first.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::http) struct RoomStatsList {
    pub(super) rooms: Vec<RoomStats>,
}

/// The rooms with most messages.
pub(super) async fn rooms(store: &dyn StatsStore, limit: usize) -> Counts<RoomStatsList> {
    Ok(Current::of(store.top_rooms(limit).await?, |rooms| RoomStatsList { rooms: as_json(rooms) }))
}

/// That room, if it holds a message.
pub(super) async fn one_room(store: &dyn StatsStore, room: RoomId) -> Counts<RoomStatsList> {
    let answer = |room: Option<_>| RoomStatsList { rooms: as_json(room.into_iter().collect()) };
    Ok(Current::of(store.room_stats(room).await?, answer))
}

/// Most messages first.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::http) struct UserStatsList {
    pub(super) users: Vec<UserStats>,
}

/// The users with most messages.
pub(super) async fn users(store: &dyn StatsStore, limit: usize) -> Counts<UserStatsList> {
    Ok(Current::of(store.top_users(limit).await?, |users| UserStatsList { users: as_json(users) }))
}

/// That user, if a message of the user is kept.
pub(super) async fn one_user(store: &dyn StatsStore, user: UserId) -> Counts<UserStatsList> {
    let answer = |user: Option<_>| UserStatsList { users: as_json(user.into_iter().collect()) };
    Ok(Current::of(store.user_stats(user).await?, answer))
}

/// Oldest first; hours without messages are left out.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::http) struct HourStatsList {
    hours: Vec<HourStats>,
    /// The `from` of the next page; `null` at the end.
    next: Option<Time>,
}

pub(super) async fn hours(store: &dyn StatsStore, query: HoursQuery) -> Counts<HourStatsList> {
    Ok(Current::of(store.hours(query).await?, |page| {
        let last = page.hours.last().filter(|_| page.more);
        let next = last.map(|last| Time(later(last.hour, HOUR_MICROS)));
        HourStatsList { hours: as_json(page.hours), next }
    }))
}

/// Who sent something in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::http) struct ActiveUsers {
    /// Of the whole window, whatever page this is.
    count: u64,
    /// A page of them, in the order of their ids.
    users: Vec<Id<UserId>>,
    from: Time,
    to: Option<Time>,
    /// The `after` of the next page; `null` at the end.
    next: Option<Id<UserId>>,
}

/// Unless said, the window ends with the last message, and begins a day before its end.
pub(super) async fn active_users(
    store: &dyn StatsStore,
    mut query: ActiveUsersQuery,
    now: Timestamp,
) -> Counts<ActiveUsers> {
    let from = query.from.unwrap_or_else(|| later(query.to.unwrap_or(now), -ACTIVE_MICROS));
    query.from = Some(from);
    let to = query.to.map(Time);
    Ok(Current::of(store.active_users(query).await?, |active| {
        let next = active.users.last().filter(|_| active.more).cloned().map(Id);
        let users = active.users.into_iter().map(Id).collect();
        ActiveUsers { count: active.count, users, from: Time(from), to, next }
    }))
}

/// In the order of the rooms' ids.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct ParticipationList {
    user_id: Id<UserId>,
    rooms: Vec<Participation>,
    /// The `after` of the next page; `null` at the end.
    next: Option<Id<RoomId>>,
}

/// The rooms in which the user wrote.
pub(super) async fn user_rooms(
    store: &dyn StatsStore,
    user: UserId,
    after: Option<RoomId>,
    limit: usize,
) -> Counts<ParticipationList> {
    Ok(Current::of(store.participation(user.clone(), after, limit).await?, |page| {
        let next = page.rooms.last().filter(|_| page.more).map(|last| Id(last.room.clone()));
        ParticipationList { user_id: Id(user), rooms: as_json(page.rooms), next }
    }))
}

fn later(time: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_add(micros))
}
