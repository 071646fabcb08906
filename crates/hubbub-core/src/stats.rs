//! Statistics: exact counts of messages, and a user's history over all rooms.
//!
//! All times are `received_at`. Users are senders: a user who never sent a message is not counted. Messages that were
//! deleted or erased, or are older than the retention, are not counted either.

use crate::id::{RoomId, UserId};
use crate::message::{MessageRun, MessageType};
use crate::store::Read;
use crate::time::Timestamp;

/// Microseconds of an hour.
pub const HOUR_MICROS: i64 = 3_600_000_000;

/// Counts and histories. Reads never wait for writes, and do not slow them down.
///
/// - **Exact:** every count equals a count of all messages, see [`Self::audit`]; nothing is sampled or estimated.
/// - **As of:** see [`Counted::as_of`]. It is the time of the call, unless deleted messages are still being subtracted:
///   then it is the time before the deletion.
/// - **After a crash:** counts are derived from the messages, so they survive whatever the messages survive.
pub trait StatsStore: Send + Sync + 'static {
    /// Everything together.
    fn totals(&self) -> Read<'_, Counted<Totals>>;

    /// One room; `None` if it holds no message.
    fn room_stats(&self, room: RoomId) -> Read<'_, Counted<Option<RoomStats>>>;

    /// Up to `limit` rooms with most messages, most first; ties in the order of their ids.
    fn top_rooms(&self, limit: usize) -> Read<'_, Counted<Vec<RoomStats>>>;

    /// One user; `None` if no message of the user is kept.
    fn user_stats(&self, user: UserId) -> Read<'_, Counted<Option<UserStats>>>;

    /// Up to `limit` users with most messages, most first; ties in the order of their ids.
    fn top_users(&self, limit: usize) -> Read<'_, Counted<Vec<UserStats>>>;

    /// Up to `limit` pairs of a room and a sender with most messages, most first; ties in the order of the rooms' ids, then
    /// of the users'.
    fn top_pairs(&self, limit: usize) -> Read<'_, Counted<Vec<PairStats>>>;

    /// The hours of the window that have messages, oldest first.
    fn hours(&self, query: HoursQuery) -> Read<'_, Counted<HoursPage>>;

    /// The number of users who sent messages in a window, and a page of them.
    fn active_users(&self, query: ActiveUsersQuery) -> Read<'_, Counted<ActiveUsers>>;

    /// Up to `limit` rooms in which the user wrote, in the order of their ids, starting behind `after`.
    fn participation(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
    ) -> Read<'_, Counted<ParticipationPage>>;

    /// A page of a user's messages over all rooms, in the order of (`received_at`, room, seq), newest last; see
    /// [`UserHistoryQuery`]. Empty for a user who never sent a message. Contains everything acknowledged before the call,
    /// and nothing deleted before it.
    fn user_history(&self, user: UserId, query: UserHistoryQuery) -> Read<'_, UserHistoryPage>;

    /// Reads all messages once, recounts them, and compares with the results of the other methods. Takes as long as reading
    /// everything; writes and other reads continue meanwhile.
    fn audit(&self) -> Read<'_, Counted<Audit>>;
}

/// A result and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted<T> {
    /// The result.
    pub value: T,
    /// Everything acknowledged up to this time is counted.
    pub as_of: Timestamp,
}

/// Number of messages by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypeCounts {
    /// [`MessageType::Text`].
    pub text: u64,
    /// [`MessageType::Join`].
    pub join: u64,
    /// [`MessageType::Leave`].
    pub leave: u64,
}

impl TypeCounts {
    /// Counts one more message.
    pub fn add(&mut self, kind: MessageType) {
        match kind {
            MessageType::Text => self.text += 1,
            MessageType::Join => self.join += 1,
            MessageType::Leave => self.leave += 1,
        }
    }

    /// Messages of all types.
    pub const fn total(&self) -> u64 {
        self.text + self.join + self.leave
    }

    /// Each type with its count.
    pub const fn each(&self) -> [(MessageType, u64); 3] {
        [(MessageType::Text, self.text), (MessageType::Join, self.join), (MessageType::Leave, self.leave)]
    }
}

/// When the first and the last of some messages were received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstLast {
    /// The oldest.
    pub first: Timestamp,
    /// The newest.
    pub last: Timestamp,
}

/// Everything together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Messages by type; [`TypeCounts::total`] is all of them.
    pub messages: TypeCounts,
    /// Distinct senders.
    pub users: u64,
    /// Rooms that hold messages.
    pub rooms: u64,
    /// Oldest and newest message; `None` when there is none.
    pub received: Option<FirstLast>,
}

/// Statistics of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomStats {
    /// The room.
    pub room: RoomId,
    /// Messages, at least one.
    pub messages: u64,
    /// Distinct senders.
    pub users: u64,
    /// Oldest and newest message.
    pub received: FirstLast,
}

/// Statistics of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserStats {
    /// The user.
    pub user: UserId,
    /// Messages, at least one.
    pub messages: u64,
    /// Rooms they are in.
    pub rooms: u64,
    /// Oldest and newest message.
    pub received: FirstLast,
}

/// Number of a user's messages in a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairStats {
    /// The room.
    pub room: RoomId,
    /// The user.
    pub user: UserId,
    /// Messages, at least one.
    pub messages: u64,
}

/// A user's messages in one room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participation {
    /// The room.
    pub room: RoomId,
    /// Messages, at least one.
    pub messages: u64,
    /// Oldest and newest message.
    pub received: FirstLast,
}

/// Rooms in which a user sent messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParticipationPage {
    /// In the order of their ids.
    pub rooms: Vec<Participation>,
    /// Whether there are more behind the last one.
    pub more: bool,
}

/// Selects hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoursQuery {
    /// Only hours from the hour of this time on.
    pub from: Option<Timestamp>,
    /// Only hours that start before this.
    pub to: Option<Timestamp>,
    /// Maximum number of hours, the oldest of the window; at least 1.
    pub limit: usize,
}

/// One hour, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HourStats {
    /// Start of the hour.
    pub hour: Timestamp,
    /// Messages received in it, at least one.
    pub messages: TypeCounts,
    /// Distinct senders of them.
    pub users: u64,
    /// Rooms they are in.
    pub rooms: u64,
}

/// A page of hours with messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HoursPage {
    /// Oldest first; hours without messages are left out.
    pub hours: Vec<HourStats>,
    /// Whether the window holds more behind the last one.
    pub more: bool,
}

/// Start of the hour that contains `time`.
pub const fn hour_of(time: Timestamp) -> Timestamp {
    Timestamp::from_micros(time.as_micros().div_euclid(HOUR_MICROS) * HOUR_MICROS)
}

/// Selects a page of the users who sent messages in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveUsersQuery {
    /// Messages received at or after this; `None` = from the first.
    pub from: Option<Timestamp>,
    /// Messages received before this; `None` = to the last.
    pub to: Option<Timestamp>,
    /// The page starts behind this user.
    pub after: Option<UserId>,
    /// Maximum number of users in the page; 0 = only count them.
    pub limit: usize,
}

/// Users who sent messages in a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActiveUsers {
    /// Their number in the whole window, whatever the page.
    pub count: u64,
    /// A page of them, in the order of their ids.
    pub users: Vec<UserId>,
    /// Whether there are more behind the last one of the page.
    pub more: bool,
}

/// A position in a user's history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserHistoryCursor {
    /// When the message was received.
    pub received_at: Timestamp,
    /// Its room.
    pub room: RoomId,
    /// Its number in the room.
    pub seq: u64,
}

/// Selects a page of a user's messages: the newest ones of the window before the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserHistoryQuery {
    /// Only messages before this one; `None` = from the newest. The first message of a page leads to the previous page.
    pub before: Option<UserHistoryCursor>,
    /// Only messages received at or after this.
    pub from: Option<Timestamp>,
    /// Only messages received before this.
    pub to: Option<Timestamp>,
    /// Maximum number of messages, at least 1.
    pub limit: usize,
    /// Most bytes of texts in the page, which contains at least one message.
    pub bytes_max: usize,
}

/// A page of a user's history, newest last.
#[derive(Debug, Clone, Default)]
pub struct UserHistoryPage {
    /// The messages.
    pub messages: MessageRun,
    /// Whether the window holds older ones.
    pub more: bool,
}

/// Result of a recount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audit {
    /// Messages counted.
    pub messages: u64,
    /// Descriptions of the differences, at most [`AUDIT_DIFFERENCES_MAX`]. Empty if all counts are correct.
    pub differences: Vec<String>,
}

/// Most differences that one audit reports.
pub const AUDIT_DIFFERENCES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_begin_on_the_hour() {
        let time = |text| Timestamp::parse(text).unwrap();
        assert_eq!(hour_of(time("2026-01-31T12:59:59.999999Z")), time("2026-01-31T12:00:00Z"));
        assert_eq!(hour_of(time("2026-01-31T12:00:00Z")), time("2026-01-31T12:00:00Z"));
        assert_eq!(hour_of(time("1969-12-31T23:30:00Z")), time("1969-12-31T23:00:00Z"));
    }
}
