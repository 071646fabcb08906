//! Hints about users that became members of rooms, or were removed, in the partitions of the users.

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

    /// A user was removed from a room through this server.
    pub(in super::super) fn left(&self, room: &RoomId, user: &UserId) {
        self.outgoing.lock().add_left(room, user);
    }

    /// Queues hints about joins and removals for the next records, behind all else, once those before are written.
    pub(super) fn queue_membership_hints(&self) {
        let mut outgoing = self.outgoing.lock();
        for (room, changes) in outgoing.take_joined() {
            let mut partitions: BTreeMap<u32, (Vec<Cow<'_, str>>, Vec<JoinedUser<'_>>)> = BTreeMap::new();
            for (user, change) in &changes {
                let (left, joined) = partitions.entry(self.bus.partition_of(user.as_str())).or_default();
                let user = Cow::Borrowed(user.as_str());
                left.extend(change.has_left.then(|| user.clone()));
                joined.extend(change.joined.map(|mark| (user, mark)));
            }
            for (partition, (left, joined)) in partitions {
                // Removals first: who joined again is a member.
                for users in left.chunks(JOINS_PER_ENTRY) {
                    let entry = Entry { left: users.to_vec(), ..Entry::of(room.as_str()) };
                    outgoing.extend_joined(partition, entry.to_json());
                }
                for users in joined.chunks(JOINS_PER_ENTRY) {
                    let entry = Entry { joined: users.to_vec(), ..Entry::of(room.as_str()) };
                    outgoing.extend_joined(partition, entry.to_json());
                }
            }
        }
    }

    /// Queues a notice of dropped joins for all servers, if it is due.
    pub(super) fn queue_lost_joins(&self, now: Duration) {
        let mut outgoing = self.outgoing.lock();
        if outgoing.take_lost_joins(now) {
            let entry = lost_joins();
            for partition in 0..self.bus.partitions() {
                outgoing.extend(partition, vec![entry.clone()]);
            }
        }
    }
}

/// The notice that joins were dropped.
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
