//! The rows of the report, flat, for tools that read a table of numbers.

use hubbub_core::Timestamp;
use hubbub_core::message::Message;
use hubbub_core::number::parse_canonical;
use hubbub_core::stats::{HourStats, PairStats, Participation, RoomStats, UserStats};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Largest number that every reader of JSON takes exactly: 2^53 - 1.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// An integer where the id is a decimal number without leading zeros up to 2^53 - 1, else a string.
// No two ids are written alike.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(inline, extend("type" = ["integer", "string"]))]
pub(super) struct ReportId(String);

impl ReportId {
    pub(super) fn of(id: &str) -> Self {
        Self(id.to_owned())
    }
}

impl Serialize for ReportId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match parse_canonical(&self.0).filter(|number| *number <= INTEGER_MAX) {
            Some(number) => serializer.serialize_u64(number),
            None => serializer.serialize_str(&self.0),
        }
    }
}

/// `YYYY-MM-DD hh:mm:ss.ffffff`, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(inline, extend("pattern" = r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{6}$"))]
pub(super) struct PlainTime(#[schemars(with = "String")] pub(super) Timestamp);

impl Serialize for PlainTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.to_string();
        let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
        let micros = self.0.as_micros().rem_euclid(1_000_000);
        serializer.collect_str(&format_args!("{} {}.{micros:06}", part(0..10), part(11..19)))
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct RoomCount {
    room_id: ReportId,
    message_count: u64,
}

impl From<&RoomStats> for RoomCount {
    fn from(stats: &RoomStats) -> Self {
        Self { room_id: ReportId::of(stats.room.as_str()), message_count: stats.messages }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct PairCount {
    room_id: ReportId,
    user_id: ReportId,
    message_count: u64,
}

impl From<PairStats> for PairCount {
    fn from(PairStats { room, user, messages: message_count }: PairStats) -> Self {
        Self { room_id: ReportId::of(room.as_str()), user_id: ReportId::of(user.as_str()), message_count }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct RoomMessage {
    message_id: String,
    user_id: ReportId,
    content: String,
    timestamp: PlainTime,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct UserMessage {
    message_id: String,
    room_id: ReportId,
    content: String,
    timestamp: PlainTime,
}

impl From<Message<'_>> for RoomMessage {
    fn from(message: Message<'_>) -> Self {
        let (sent, timestamp) = (message.sent, PlainTime(message.received_at));
        let user_id = ReportId::of(sent.user);
        Self { message_id: sent.id.to_owned(), user_id, content: sent.text.to_owned(), timestamp }
    }
}

impl From<Message<'_>> for UserMessage {
    fn from(message: Message<'_>) -> Self {
        let (sent, timestamp) = (message.sent, PlainTime(message.received_at));
        let room_id = ReportId::of(sent.room);
        Self { message_id: sent.id.to_owned(), room_id, content: sent.text.to_owned(), timestamp }
    }
}

/// The rows of messages that come oldest first.
pub(super) fn newest_first<'a, R: From<Message<'a>>>(messages: impl Iterator<Item = Message<'a>>) -> Vec<R> {
    let mut rows: Vec<R> = messages.map(R::from).collect();
    rows.reverse();
    rows
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct UserRoom {
    room_id: ReportId,
    message_count: u64,
    pub(super) last_activity: PlainTime,
}

impl From<Participation> for UserRoom {
    fn from(Participation { room, messages: message_count, received }: Participation) -> Self {
        let last_activity = PlainTime(received.last);
        Self { room_id: ReportId::of(room.as_str()), message_count, last_activity }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct TopUser {
    user_id: ReportId,
    total_messages: u64,
    rooms_participated: u64,
    first_message: PlainTime,
    last_message: PlainTime,
}

impl From<&UserStats> for TopUser {
    fn from(stats: &UserStats) -> Self {
        Self {
            user_id: ReportId::of(stats.user.as_str()),
            total_messages: stats.messages,
            rooms_participated: stats.rooms,
            first_message: PlainTime(stats.received.first),
            last_message: PlainTime(stats.received.last),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct TopRoom {
    room_id: ReportId,
    total_messages: u64,
    unique_users: u64,
    first_message: PlainTime,
    last_activity: PlainTime,
}

impl From<&RoomStats> for TopRoom {
    fn from(stats: &RoomStats) -> Self {
        Self {
            room_id: ReportId::of(stats.room.as_str()),
            total_messages: stats.messages,
            unique_users: stats.users,
            first_message: PlainTime(stats.received.first),
            last_activity: PlainTime(stats.received.last),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct Hour {
    hour: PlainTime,
    total_messages: u64,
    unique_users: u64,
    active_rooms: u64,
}

impl From<HourStats> for Hour {
    fn from(stats: HourStats) -> Self {
        Self {
            hour: PlainTime(stats.hour),
            total_messages: stats.messages.total(),
            unique_users: stats.users,
            active_rooms: stats.rooms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ids that differ are told apart.
    #[test]
    fn decimal_ids_are_integers() {
        let written = |id: &str| serde_json::to_string(&ReportId::of(id)).unwrap();
        for id in ["0", "7", "42", "9007199254740991"] {
            assert_eq!(written(id), id);
        }
        for id in ["007", "00", "9007199254740992", "18446744073709551616", "-7", "7.0", "lobby"] {
            assert_eq!(written(id), format!("\"{id}\""));
        }
    }

    #[test]
    fn times_have_microseconds_and_no_zone() {
        let written = |text| serde_json::to_string(&PlainTime(Timestamp::parse(text).unwrap())).unwrap();
        assert_eq!(written("2026-01-31T12:00:00Z"), "\"2026-01-31 12:00:00.000000\"");
        assert_eq!(written("2026-01-31T12:00:00.123456Z"), "\"2026-01-31 12:00:00.123456\"");
        assert_eq!(written("0001-01-01T00:00:00.000001Z"), "\"0001-01-01 00:00:00.000001\"");
    }
}
