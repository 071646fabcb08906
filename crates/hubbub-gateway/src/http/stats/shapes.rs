//! The JSON of statistics, made from what the store tells.

use hubbub_core::message::MessageType;
use hubbub_core::stats::{FirstLast, HourStats, Participation, RoomStats, Totals, TypeCounts, UserStats};
use hubbub_core::{RoomId, Timestamp, UserId};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Written as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time(pub(super) Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Written as its text.
#[derive(Debug, Clone)]
pub(super) struct Id<T>(pub(super) T);

impl<T: std::fmt::Display> Serialize for Id<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// `{"TEXT":3,"JOIN":1,"LEAVE":0}`.
#[derive(Debug)]
struct ByType(TypeCounts);

impl Serialize for ByType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (kind, count) in self.0.each() {
            map.serialize_entry(MessageType::as_str(kind), &count)?;
        }
        map.end()
    }
}

/// When the first and the last message were received; `null` where there is none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    first_message_at: Option<Time>,
    last_message_at: Option<Time>,
}

impl From<Option<FirstLast>> for Span {
    fn from(received: Option<FirstLast>) -> Self {
        Self {
            first_message_at: received.map(|times| Time(times.first)),
            last_message_at: received.map(|times| Time(times.last)),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TotalsJson {
    messages: u64,
    messages_by_type: ByType,
    users: u64,
    rooms: u64,
    #[serde(flatten)]
    span: Span,
}

impl From<Totals> for TotalsJson {
    fn from(totals: Totals) -> Self {
        Self {
            messages: totals.messages.total(),
            messages_by_type: ByType(totals.messages),
            users: totals.users,
            rooms: totals.rooms,
            span: totals.received.into(),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RoomJson {
    pub(super) room_id: Id<RoomId>,
    messages: u64,
    unique_users: u64,
    #[serde(flatten)]
    span: Span,
}

impl From<RoomStats> for RoomJson {
    fn from(stats: RoomStats) -> Self {
        let RoomStats { room, messages, users, received } = stats;
        Self { room_id: Id(room), messages, unique_users: users, span: Some(received).into() }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UserJson {
    pub(super) user_id: Id<UserId>,
    messages: u64,
    rooms: u64,
    #[serde(flatten)]
    span: Span,
}

impl From<UserStats> for UserJson {
    fn from(stats: UserStats) -> Self {
        let UserStats { user, messages, rooms, received } = stats;
        Self { user_id: Id(user), messages, rooms, span: Some(received).into() }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ParticipationJson {
    room_id: Id<RoomId>,
    messages: u64,
    #[serde(flatten)]
    span: Span,
}

impl From<Participation> for ParticipationJson {
    fn from(stats: Participation) -> Self {
        let Participation { room, messages, received } = stats;
        Self { room_id: Id(room), messages, span: Some(received).into() }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HourJson {
    hour: Time,
    messages: u64,
    messages_by_type: ByType,
    unique_users: u64,
    active_rooms: u64,
}

impl From<HourStats> for HourJson {
    fn from(stats: HourStats) -> Self {
        Self {
            hour: Time(stats.hour),
            messages: stats.messages.total(),
            messages_by_type: ByType(stats.messages),
            unique_users: stats.users,
            active_rooms: stats.rooms,
        }
    }
}

/// Each of them in its shape.
pub(super) fn shaped<T, J: From<T>>(all: Vec<T>) -> Vec<J> {
    all.into_iter().map(J::from).collect()
}
