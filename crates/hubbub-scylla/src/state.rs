//! The state of a room, as it is stored: one value, which is written whole.

use hubbub_core::invariant::saturate;
use hubbub_core::rules::rooms;
use hubbub_core::store::RoomInfo;
use hubbub_core::{MessageType, RoomId, Timestamp};
use scylla::{DeserializeValue, SerializeValue};

use crate::db::{Db, Result};

/// A room after the record `applied` of the log. Deterministic: it follows from the records up to that one alone, so
/// whoever writes the state as of a record writes the same.
#[derive(Debug, Clone, PartialEq, Eq, SerializeValue, DeserializeValue)]
pub(crate) struct RoomState {
    /// The last record that is in it.
    pub(crate) applied: i64,
    /// The room's partition of the log.
    pub(crate) part: i32,
    pub(crate) present: bool,
    pub(crate) members_only: bool,
    pub(crate) title: Option<String>,
    pub(crate) retention_s: Option<i64>,
    /// Number of the newest message ever.
    pub(crate) head: i64,
    /// When that was received.
    pub(crate) last_received: Option<i64>,
    /// Everything up to here was deleted with the room.
    pub(crate) floor: i64,
    /// The newest removed message that precedes all kept ones; at least `floor`. Rows of messages up to here may be there
    /// still.
    pub(crate) removed: i64,
    /// Messages kept.
    pub(crate) kept: i64,
    pub(crate) members: i64,
    /// Distinct senders of kept messages.
    pub(crate) senders: i64,
    /// When the oldest and the newest kept message were received.
    pub(crate) first_at: Option<i64>,
    pub(crate) last_at: Option<i64>,
    /// Messages that retention removed, in this life of the room. Null where version 3 of the schema found the room.
    #[scylla(default_when_null)]
    pub(crate) expired: i64,
    /// Changes of the room, its members and its stored messages.
    pub(crate) changes: i64,
    /// The bucket that is being filled, named by its first message; 0 = none.
    pub(crate) bucket: i64,
    pub(crate) bucket_messages: i64,
    pub(crate) bucket_bytes: i64,
    /// The hour of the newest message.
    pub(crate) hour: Option<i64>,
    /// Ids that were written to the room's first shard. `None` = none: the room is older than version 2 of the schema.
    pub(crate) ids: Option<i64>,
}

impl RoomState {
    /// A room that nothing is known of.
    pub(crate) fn unknown(part: i32) -> Self {
        Self {
            applied: 0,
            part,
            present: false,
            members_only: false,
            title: None,
            retention_s: None,
            head: 0,
            last_received: None,
            floor: 0,
            removed: 0,
            kept: 0,
            members: 0,
            senders: 0,
            first_at: None,
            last_at: None,
            expired: 0,
            changes: 0,
            bucket: 0,
            bucket_messages: 0,
            bucket_bytes: 0,
            hour: None,
            ids: Some(0),
        }
    }

    /// Nothing is left: the next message begins another bucket, and another hour.
    pub(crate) fn close_bucket(&mut self) {
        (self.bucket, self.bucket_messages, self.bucket_bytes, self.hour) = (0, 0, 0, None);
    }

    /// The shard of the id of the room's next message, which is counted. The first one takes `first_ids`.
    pub(crate) fn place_id(&mut self, id: &str, first_ids: i64) -> i16 {
        match &mut self.ids {
            Some(count) if *count < first_ids => {
                *count += 1;
                FIRST_SHARD
            }
            _ => id_shard(id),
        }
    }

    /// The shards that may have an id of the room.
    pub(crate) fn shards_of(&self, id: &str, first_ids: i64) -> impl Iterator<Item = i16> + use<> {
        let first = self.ids.is_some_and(|count| count > 0).then_some(FIRST_SHARD);
        let later = self.ids.is_none_or(|count| count >= first_ids).then(|| id_shard(id));
        first.into_iter().chain(later)
    }

    /// As the rules see it.
    pub(crate) fn as_rule(&self) -> rooms::RoomState {
        rooms::RoomState {
            exists: self.present,
            members_only: self.members_only,
            head: self.head.unsigned_abs(),
            last_received: self.last_received.map_or(Timestamp::MIN, Timestamp::from_micros),
        }
    }

    /// Nothing before this number is kept, and nothing from it on was removed before it could be read.
    pub(crate) fn oldest(&self) -> u64 {
        self.removed.saturating_add(1).unsigned_abs()
    }

    /// The kept messages that a mark with this rank has behind it.
    pub(crate) fn unread(&self, rank: i64) -> i64 {
        (self.kept - self.kept_until(rank)).max(0)
    }

    /// The kept messages up to a mark with this rank.
    pub(crate) fn kept_until(&self, rank: i64) -> i64 {
        rank.saturating_sub(self.expired).max(0)
    }

    /// As readers see it.
    pub(crate) fn info(&self, room: RoomId) -> RoomInfo {
        RoomInfo {
            room,
            head: self.head.unsigned_abs(),
            oldest: self.oldest(),
            messages: self.kept.unsigned_abs(),
            last_received_at: self.last_received.map(Timestamp::from_micros),
            title: self.title.clone(),
            members_only: self.members_only,
            retention_s: self.retention_s.map(i64::unsigned_abs),
            members: self.members.unsigned_abs(),
        }
    }
}

/// Reads a room; `None` = nobody ever made or wrote to one of that name.
pub(crate) async fn read(db: &Db, room: &str) -> Result<Option<RoomState>> {
    let row = db.row::<(Option<RoomState>,)>("reading a room", &db.statements.room, (room,)).await?;
    Ok(row.and_then(|(state,)| state))
}

/// Reads a room that is there.
pub(crate) async fn read_present(db: &Db, room: &str) -> Result<Option<RoomState>> {
    Ok(read(db, room).await?.filter(|state| state.present))
}

/// A member's read mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Everything up to here is read.
    pub(crate) seq: i64,
    /// Kept messages up to there, and those that have expired: so marks stay as they are when messages expire.
    pub(crate) rank: i64,
}

/// Messages by type, and when the first and the last of them were received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) texts: i64,
    pub(crate) joins: i64,
    pub(crate) leaves: i64,
    pub(crate) first_at: i64,
    pub(crate) last_at: i64,
}

impl Counts {
    pub(crate) fn none(at: i64) -> Self {
        Self { texts: 0, joins: 0, leaves: 0, first_at: at, last_at: at }
    }

    pub(crate) fn add(&mut self, kind: MessageType, at: i64) {
        match kind {
            MessageType::Text => self.texts += 1,
            MessageType::Join => self.joins += 1,
            MessageType::Leave => self.leaves += 1,
        }
        self.last_at = self.last_at.max(at);
        self.first_at = self.first_at.min(at);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.texts += other.texts;
        self.joins += other.joins;
        self.leaves += other.leaves;
        self.first_at = self.first_at.min(other.first_at);
        self.last_at = self.last_at.max(other.last_at);
    }

    /// Without messages that were counted; those first received at `first_at` are left.
    pub(crate) fn without(&self, gone: &Self, first_at: i64) -> Self {
        Self {
            texts: self.texts - gone.texts,
            joins: self.joins - gone.joins,
            leaves: self.leaves - gone.leaves,
            first_at,
            last_at: self.last_at,
        }
    }

    pub(crate) fn total(&self) -> u64 {
        (self.texts + self.joins + self.leaves).unsigned_abs()
    }
}

/// The shard of a room's first ids, which are looked up and written together.
pub(crate) const FIRST_SHARD: i16 = -1;
/// Shards of a room's later ids. A room of 80 million messages has 100 MB in each.
pub(crate) const ID_SHARDS: i16 = 64;

/// The same everywhere and always.
pub(crate) fn id_hash(id: &str) -> u64 {
    id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A user's first messages in a room are listed together with the rooms of the user: one write for both. A user of 50,000
/// rooms has 40 MB there.
pub(crate) const FIRST_MESSAGES: u64 = 8;

/// The shard of a message id.
pub(crate) fn id_shard(id: &str) -> i16 {
    let hash = id_hash(id);
    saturate((hash ^ (hash >> 32)) % u64::from(ID_SHARDS.unsigned_abs()))
}

/// The span of time of a user's messages that share a partition: ten minutes, 2 million messages at 100 MB.
pub(crate) fn slot_of(received_at: i64) -> i64 {
    received_at.div_euclid(600_000_000)
}

/// The hour, as microseconds.
pub(crate) fn hour_of(received_at: i64) -> i64 {
    hubbub_core::stats::hour_of(Timestamp::from_micros(received_at)).as_micros()
}
