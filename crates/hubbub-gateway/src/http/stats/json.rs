//! Counts as JSON, made from those of the store.

use hubbub_core::stats::{self, FirstLast, TypeCounts};
use hubbub_core::{RoomId, UserId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::http::types::{Id, Time};

// An answer and how current it is. The documents know it by the answer's name and description.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "{T}")]
pub(in crate::http) struct Current<T> {
    #[serde(flatten)]
    pub(super) answer: T,
    /// Everything acknowledged up to here is counted.
    pub(super) as_of: Time,
}

/// How many messages of each type.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
struct MessagesByType {
    text: u64,
    join: u64,
    leave: u64,
}

impl From<TypeCounts> for MessagesByType {
    fn from(TypeCounts { text, join, leave }: TypeCounts) -> Self {
        Self { text, join, leave }
    }
}

// When the first and the last message were received.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Span {
    first_message_at: Time,
    last_message_at: Time,
}

impl From<FirstLast> for Span {
    fn from(FirstLast { first, last }: FirstLast) -> Self {
        Self { first_message_at: Time(first), last_message_at: Time(last) }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Totals {
    /// How many are kept.
    messages: u64,
    messages_by_type: MessagesByType,
    /// Distinct senders.
    users: u64,
    /// Rooms with messages.
    rooms: u64,
    /// `null` where there is no message.
    first_message_at: Option<Time>,
    /// `null` where there is no message.
    last_message_at: Option<Time>,
}

impl From<stats::Totals> for Totals {
    fn from(totals: stats::Totals) -> Self {
        Self {
            messages: totals.messages.total(),
            messages_by_type: totals.messages.into(),
            users: totals.users,
            rooms: totals.rooms,
            first_message_at: totals.received.map(|times| Time(times.first)),
            last_message_at: totals.received.map(|times| Time(times.last)),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RoomStats {
    room_id: Id<RoomId>,
    /// How many are kept.
    messages: u64,
    /// Distinct senders.
    unique_users: u64,
    #[serde(flatten)]
    span: Span,
}

impl From<stats::RoomStats> for RoomStats {
    fn from(stats::RoomStats { room, messages, users: unique_users, received }: stats::RoomStats) -> Self {
        Self { room_id: Id(room), messages, unique_users, span: received.into() }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct UserStats {
    user_id: Id<UserId>,
    /// How many are kept.
    messages: u64,
    /// Rooms they are in.
    rooms: u64,
    #[serde(flatten)]
    span: Span,
}

impl From<stats::UserStats> for UserStats {
    fn from(stats::UserStats { user, messages, rooms, received }: stats::UserStats) -> Self {
        Self { user_id: Id(user), messages, rooms, span: received.into() }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Participation {
    room_id: Id<RoomId>,
    /// The user's.
    messages: u64,
    #[serde(flatten)]
    span: Span,
}

impl From<stats::Participation> for Participation {
    fn from(stats::Participation { room, messages, received }: stats::Participation) -> Self {
        Self { room_id: Id(room), messages, span: received.into() }
    }
}

/// An hour with messages, in UTC.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HourStats {
    /// Its begin.
    hour: Time,
    /// How many are kept.
    messages: u64,
    messages_by_type: MessagesByType,
    /// Distinct senders.
    unique_users: u64,
    /// Rooms with messages.
    active_rooms: u64,
}

impl From<stats::HourStats> for HourStats {
    fn from(stats: stats::HourStats) -> Self {
        Self {
            hour: Time(stats.hour),
            messages: stats.messages.total(),
            messages_by_type: stats.messages.into(),
            unique_users: stats.users,
            active_rooms: stats.rooms,
        }
    }
}

pub(super) fn as_json<T, J: From<T>>(all: impl IntoIterator<Item = T>) -> Vec<J> {
    all.into_iter().map(J::from).collect()
}

/// Most messages first.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::http) struct RoomStatsList {
    rooms: Vec<RoomStats>,
}

impl RoomStatsList {
    pub(super) fn of(rooms: impl IntoIterator<Item = stats::RoomStats>) -> Self {
        Self { rooms: as_json(rooms) }
    }
}

/// Most messages first.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::http) struct UserStatsList {
    users: Vec<UserStats>,
}

impl UserStatsList {
    pub(super) fn of(users: impl IntoIterator<Item = stats::UserStats>) -> Self {
        Self { users: as_json(users) }
    }
}

/// Oldest first; hours without messages are left out.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::http) struct HourStatsList {
    pub(super) hours: Vec<HourStats>,
    /// The `from` of the next page; `null` at the end.
    pub(super) next: Option<Time>,
}

/// Who sent something in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::http) struct ActiveUsers {
    /// Of the whole window, whatever page this is.
    pub(super) count: u64,
    /// A page of them, in the order of their ids.
    pub(super) users: Vec<Id<UserId>>,
    pub(super) from: Time,
    pub(super) to: Option<Time>,
    /// The `after` of the next page; `null` at the end.
    pub(super) next: Option<Id<UserId>>,
}

/// In the order of the rooms' ids.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct ParticipationList {
    pub(super) user_id: Id<UserId>,
    pub(super) rooms: Vec<Participation>,
    /// The `after` of the next page; `null` at the end.
    pub(super) next: Option<Id<RoomId>>,
}
