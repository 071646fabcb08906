//! What is kept in memory of a room, and of what is about to be written.

use std::collections::HashMap;

use hubbub_core::Send;

use super::ids::{Digest, KnownIds};
use crate::state::{Counts, Mark, RoomState};

/// A user's messages in a room in an hour, as of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct HourUser {
    pub(super) counts: Counts,
    /// The last message that is counted.
    pub(super) seq: i64,
}

/// A room as of the last record that was applied to it, as far as it was needed.
#[derive(Debug)]
pub(super) struct RoomEntry {
    pub(super) state: RoomState,
    /// `None` = no member.
    pub(super) members: HashMap<String, Option<Mark>>,
    /// `None` = no sender of a kept message.
    pub(super) senders: HashMap<String, Option<Counts>>,
    /// By hour and user.
    pub(super) hour_users: HashMap<(i64, String), Option<HourUser>>,
    /// How many of the room's senders are among `senders`. If all are, others are known to be none.
    pub(super) senders_known: i64,
    /// The bucket that is being filled, and its name.
    pub(super) bucket: Option<(i64, Bucket)>,
    /// All ids of messages that are kept; `None` = the store must be asked.
    pub(super) ids: Option<KnownIds>,
}

impl RoomEntry {
    pub(super) fn new(state: RoomState) -> Self {
        Self {
            state,
            members: HashMap::new(),
            senders: HashMap::new(),
            hour_users: HashMap::new(),
            senders_known: 0,
            bucket: None,
            ids: None,
        }
    }

    /// A room that has no messages.
    pub(super) fn empty(state: RoomState) -> Self {
        Self { ids: Some(KnownIds::default()), ..Self::new(state) }
    }

    pub(super) fn size(&self) -> usize {
        let ids = self.ids.as_ref().map_or(0, KnownIds::size);
        1 + self.members.len() + self.senders.len() + self.hour_users.len() + ids
    }
}

/// A message to be written.
pub(super) struct NewMessage<'a> {
    pub(super) seq: i64,
    pub(super) bucket: i64,
    pub(super) received_at: i64,
    pub(super) send: Send<'a>,
    pub(super) digest: Digest,
    /// The shard of its id.
    pub(super) shard: i16,
    pub(super) place: Place,
    /// Kept messages of the room, up to this one.
    pub(super) kept: i64,
}

/// Where a message is listed for its sender.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// Among the first ones of the room, which list the room, too.
    First,
    /// In its span of time.
    Slot {
        /// Whether that is to be listed, too.
        is_slot_new: bool,
        /// Whether the room is to be listed, too.
        is_room_new: bool,
    },
}

/// A bucket, as a room lists it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    pub(super) kept: i64,
    pub(super) first_at: i64,
}
