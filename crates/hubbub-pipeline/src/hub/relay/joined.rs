//! Hints about users that became members of rooms, in the partitions of the users.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use hubbub_core::{RoomId, UserId};

use super::record::{Entry, JoinedUser};
use super::{Relay, USERS_PER_ENTRY};

/// Users in one entry, which fits into a notification of PostgreSQL with their marks.
const JOINS_PER_ENTRY: usize = USERS_PER_ENTRY / 2;

impl Relay {
    /// A user became a member of a room through this server, with this read mark, if it is known.
    pub(in super::super) fn joined(&self, room: &RoomId, user: &UserId, mark: Option<u64>) {
        self.outgoing.lock().add_joined(room, user, mark);
    }

    /// Lets what is to be told of joins wait for the next records, behind all else, once the joins before are written.
    pub(super) fn tell_joined(&self) {
        let mut outgoing = self.outgoing.lock();
        for (room, joined) in outgoing.take_joined() {
            let mut partitions: BTreeMap<u32, Vec<JoinedUser<'_>>> = BTreeMap::new();
            for (user, mark) in &joined {
                let partition = self.bus.partition_of(user.as_str());
                partitions.entry(partition).or_default().push((Cow::Borrowed(user.as_str()), *mark));
            }
            for (partition, users) in partitions {
                for users in users.chunks(JOINS_PER_ENTRY) {
                    let entry = Entry { joined: users.to_vec(), ..Entry::of(room.as_str()) };
                    outgoing.extend_joined(partition, entry.to_json());
                }
            }
        }
    }

    /// Tells everybody that more users became members than are told, if so.
    pub(super) fn tell_lost_joins(&self, now: Duration) {
        let mut outgoing = self.outgoing.lock();
        if outgoing.take_lost_joins(now) {
            let entry = lost_joins();
            for partition in 0..self.bus.partitions() {
                outgoing.extend(partition, vec![entry.clone()]);
            }
        }
    }
}

/// The entry that says that more users became members than are told.
pub(super) fn lost_joins() -> String {
    Entry { lost_joins: true, ..Entry::of("") }.to_json()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::relay::ENVELOPE_BYTES;

    /// Bytes of a notification of PostgreSQL.
    const NOTIFICATION_BYTES: usize = 7_999;

    #[test]
    fn the_largest_entry_fits_into_a_notification() {
        let (room, user) = ("r".repeat(64), "u".repeat(64));
        let joined = vec![(Cow::Borrowed(user.as_str()), Some(u64::MAX)); JOINS_PER_ENTRY];
        let entry = Entry { joined, ..Entry::of(&room) }.to_json();
        assert!(entry.len() + ENVELOPE_BYTES <= NOTIFICATION_BYTES, "{}", entry.len());
    }
}
