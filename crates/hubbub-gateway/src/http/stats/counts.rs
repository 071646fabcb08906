//! What is counted: totals, rooms, users, hours, active users, and where a user wrote.

use hubbub_core::stats::{ActiveUsersQuery, Counted, HoursQuery};
use hubbub_core::{RoomId, StatsStore, Timestamp, UserId};
use serde::Serialize;

use super::shapes::{HourJson, Id, ParticipationJson, RoomJson, Time, TotalsJson, UserJson, shaped};
use crate::problem::Problem;

/// Microseconds of an hour.
const HOUR_MICROS: i64 = 3_600_000_000;
/// The window in which users are active, unless another one is said.
const ACTIVE_MICROS: i64 = 24 * HOUR_MICROS;

/// An answer and how current it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told<T> {
    #[serde(flatten)]
    pub(super) answer: T,
    pub(super) as_of: Time,
}

impl<T> Told<T> {
    pub(super) fn of<V>(counted: Counted<V>, answer: impl FnOnce(V) -> T) -> Self {
        Self { answer: answer(counted.value), as_of: Time(counted.as_of) }
    }
}

pub(super) type Telling<T> = Result<Told<T>, Problem>;

pub(super) async fn totals(store: &dyn StatsStore) -> Telling<TotalsJson> {
    Ok(Told::of(store.totals().await?, TotalsJson::from))
}

#[derive(Debug, Serialize)]
pub(super) struct RoomsJson {
    pub(super) rooms: Vec<RoomJson>,
}

/// The rooms with most messages.
pub(super) async fn rooms(store: &dyn StatsStore, limit: usize) -> Telling<RoomsJson> {
    Ok(Told::of(store.top_rooms(limit).await?, |rooms| RoomsJson { rooms: shaped(rooms) }))
}

/// That room, if it holds a message.
pub(super) async fn one_room(store: &dyn StatsStore, room: RoomId) -> Telling<RoomsJson> {
    let told = |room: Option<_>| RoomsJson { rooms: shaped(room.into_iter().collect()) };
    Ok(Told::of(store.room_stats(room).await?, told))
}

#[derive(Debug, Serialize)]
pub(super) struct UsersJson {
    pub(super) users: Vec<UserJson>,
}

/// The users with most messages.
pub(super) async fn users(store: &dyn StatsStore, limit: usize) -> Telling<UsersJson> {
    Ok(Told::of(store.top_users(limit).await?, |users| UsersJson { users: shaped(users) }))
}

/// That user, if a message of the user is kept.
pub(super) async fn one_user(store: &dyn StatsStore, user: UserId) -> Telling<UsersJson> {
    let told = |user: Option<_>| UsersJson { users: shaped(user.into_iter().collect()) };
    Ok(Told::of(store.user_stats(user).await?, told))
}

#[derive(Debug, Serialize)]
pub(super) struct HoursJson {
    hours: Vec<HourJson>,
    /// The `from` of the next page.
    next: Option<Time>,
}

pub(super) async fn hours(store: &dyn StatsStore, query: HoursQuery) -> Telling<HoursJson> {
    Ok(Told::of(store.hours(query).await?, |page| {
        let last = page.hours.last().filter(|_| page.more);
        let next = last.map(|last| Time(later(last.hour, HOUR_MICROS)));
        HoursJson { hours: shaped(page.hours), next }
    }))
}

#[derive(Debug, Serialize)]
pub(super) struct ActiveUsersJson {
    count: u64,
    users: Vec<Id<UserId>>,
    from: Time,
    to: Option<Time>,
    /// The `after` of the next page.
    next: Option<Id<UserId>>,
}

/// Unless said, the window ends with the last message, and begins a day before its end.
pub(super) async fn active_users(
    store: &dyn StatsStore,
    mut query: ActiveUsersQuery,
    now: Timestamp,
) -> Telling<ActiveUsersJson> {
    let from = query.from.unwrap_or_else(|| later(query.to.unwrap_or(now), -ACTIVE_MICROS));
    query.from = Some(from);
    let to = query.to.map(Time);
    Ok(Told::of(store.active_users(query).await?, |active| {
        let next = active.users.last().filter(|_| active.more).cloned().map(Id);
        let users = active.users.into_iter().map(Id).collect();
        ActiveUsersJson { count: active.count, users, from: Time(from), to, next }
    }))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UserRoomsJson {
    user_id: Id<UserId>,
    rooms: Vec<ParticipationJson>,
    /// The `after` of the next page.
    next: Option<Id<RoomId>>,
}

/// The rooms in which the user wrote.
pub(super) async fn user_rooms(
    store: &dyn StatsStore,
    user: UserId,
    after: Option<RoomId>,
    limit: usize,
) -> Telling<UserRoomsJson> {
    Ok(Told::of(store.participation(user.clone(), after, limit).await?, |page| {
        let next = page.rooms.last().filter(|_| page.more).map(|last| Id(last.room.clone()));
        UserRoomsJson { user_id: Id(user), rooms: shaped(page.rooms), next }
    }))
}

fn later(time: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_add(micros))
}
