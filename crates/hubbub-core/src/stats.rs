//! What a store tells about what it holds: exact counts, and a user's history over all rooms.
//!
//! Everything goes by `received_at`. Users are senders: whoever never wrote is not counted. What was deleted, erased or
//! has outlived its retention is not counted either.

use crate::id::{RoomId, UserId};
use crate::message::{MessageRun, MessageType};
use crate::store::Read;
use crate::time::Timestamp;

/// Microseconds of an hour.
const HOUR_MICROS: i64 = 3_600_000_000;

/// Counts and histories. Reads never wait for writes, and nothing here slows a write down.
///
/// - **Exact:** every count is what going through all messages would give, see [`Self::audit`]; nothing is sampled,
///   estimated or refreshed as a whole.
/// - **As of:** see [`Counted::as_of`]. It is the moment of the question, except while what was deleted is still
///   being taken out of the counts: then it is the moment before the deletion.
/// - **Across a crash:** counts follow from the messages, so they survive what the messages survive.
pub trait StatsStore: Send + Sync + 'static {
    /// Everything together.
    fn totals(&self) -> Read<'_, Counted<Totals>>;

    /// One room; `None` when it holds no message.
    fn room_stats(&self, room: RoomId) -> Read<'_, Counted<Option<RoomStats>>>;

    /// The up to `limit` rooms with most messages, most first, equal ones in the order of their ids.
    fn top_rooms(&self, limit: usize) -> Read<'_, Counted<Vec<RoomStats>>>;

    /// One user; `None` when no message of the user is kept.
    fn user_stats(&self, user: UserId) -> Read<'_, Counted<Option<UserStats>>>;

    /// The up to `limit` users with most messages, most first, equal ones in the order of their ids.
    fn top_users(&self, limit: usize) -> Read<'_, Counted<Vec<UserStats>>>;

    /// The up to `limit` pairs of a room and a user who wrote there with most messages, most first, equal ones in the
    /// order of the rooms' ids, then of the users'.
    fn top_pairs(&self, limit: usize) -> Read<'_, Counted<Vec<PairStats>>>;

    /// The hours that hold messages and lie in the query's window, oldest first.
    fn hours(&self, query: HoursQuery) -> Read<'_, Counted<HoursPage>>;

    /// How many users sent something in a window, and a page of who.
    fn active_users(&self, query: ActiveUsersQuery) -> Read<'_, Counted<ActiveUsers>>;

    /// Up to `limit` rooms in which the user wrote, in the order of their ids, beginning behind `after`.
    fn participation(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
    ) -> Read<'_, Counted<ParticipationPage>>;

    /// A page of a user's messages over all rooms, in the order of (`received_at`, room, seq), newest last; see
    /// [`UserHistoryQuery`]. A user who never wrote has an empty page. Holds everything acknowledged before the call
    /// and nothing that was deleted before it.
    fn user_history(&self, user: UserId, query: UserHistoryQuery) -> Read<'_, UserHistoryPage>;

    /// Goes through all messages once, counts anew, and compares with what the other methods answer for the same
    /// messages. Takes as long as reading everything; writes and other reads go on meanwhile.
    fn audit(&self) -> Read<'_, Counted<Audit>>;
}

/// An answer and how current it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted<T> {
    /// The answer.
    pub value: T,
    /// Everything acknowledged up to here is counted, and nothing later than the moment of counting.
    pub as_of: Timestamp,
}

/// Messages by what they stand for.
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

/// What a room holds.
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

/// What a user wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserStats {
    /// The user.
    pub user: UserId,
    /// Messages, at least one.
    pub messages: u64,
    /// Rooms they stand in.
    pub rooms: u64,
    /// Oldest and newest message.
    pub received: FirstLast,
}

/// How much a user wrote in a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairStats {
    /// The room.
    pub room: RoomId,
    /// The user.
    pub user: UserId,
    /// Messages, at least one.
    pub messages: u64,
}

/// What a user wrote in one room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participation {
    /// The room.
    pub room: RoomId,
    /// Messages, at least one.
    pub messages: u64,
    /// Oldest and newest message.
    pub received: FirstLast,
}

/// Rooms in which a user wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParticipationPage {
    /// In the order of their ids.
    pub rooms: Vec<Participation>,
    /// Whether there are more behind the last one.
    pub more: bool,
}

/// Which hours are wanted. An hour is asked for as a whole: it is in the window if it begins in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoursQuery {
    /// Only hours that begin at or after the begin of this one's hour.
    pub from: Option<Timestamp>,
    /// Only hours that begin before this.
    pub to: Option<Timestamp>,
    /// At most so many hours, the oldest ones of the window; at least 1.
    pub limit: usize,
}

/// One hour, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HourStats {
    /// Begin of the hour.
    pub hour: Timestamp,
    /// Messages received in it, at least one.
    pub messages: TypeCounts,
    /// Distinct senders of them.
    pub users: u64,
    /// Rooms they stand in.
    pub rooms: u64,
}

/// Hours with messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HoursPage {
    /// Oldest first; hours without messages are left out.
    pub hours: Vec<HourStats>,
    /// Whether the window holds more behind the last one.
    pub more: bool,
}

/// Begin of the hour in which `time` lies.
pub const fn hour_of(time: Timestamp) -> Timestamp {
    Timestamp::from_micros(time.as_micros().div_euclid(HOUR_MICROS) * HOUR_MICROS)
}

/// The window in which users are active, and the page of them that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveUsersQuery {
    /// Messages received at or after this; `None` = from the first.
    pub from: Option<Timestamp>,
    /// Messages received before this; `None` = to the last.
    pub to: Option<Timestamp>,
    /// The page begins behind this user.
    pub after: Option<UserId>,
    /// At most so many users in the page; 0 when only the number is wanted.
    pub limit: usize,
}

/// Who sent something in a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActiveUsers {
    /// How many in the whole window, whatever page was asked for.
    pub count: u64,
    /// A page of them, in the order of their ids.
    pub users: Vec<UserId>,
    /// Whether there are more behind the last one of the page.
    pub more: bool,
}

/// A place in a user's history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserHistoryCursor {
    /// When the message was received.
    pub received_at: Timestamp,
    /// The room it stands in.
    pub room: RoomId,
    /// Its number there.
    pub seq: u64,
}

/// Which messages of a user are wanted: the newest ones of the window before the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserHistoryQuery {
    /// Only messages that stand before this one; `None` = from the newest. The first message of a page, given here,
    /// leads to the page before it.
    pub before: Option<UserHistoryCursor>,
    /// Only messages received at or after this.
    pub from: Option<Timestamp>,
    /// Only messages received before this.
    pub to: Option<Timestamp>,
    /// At most so many messages, at least 1.
    pub limit: usize,
    /// The page ends before the message that would bring its texts over this, but holds at least one.
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

/// What a recount found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audit {
    /// Messages gone through.
    pub messages: u64,
    /// What differs, in words; at most [`AUDIT_DIFFERENCES_MAX`] of them. Empty when all counts are right.
    pub differences: Vec<String>,
}

/// Differences told by one audit; where there are more, the rest is left out.
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
