//! Hints about users that became members of rooms, in the partitions of the users.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use hubbub_core::{RoomId, UserId};

use super::record::Entry;
use super::{Relay, USERS_PER_ENTRY, names};

impl Relay {
    /// A user became a member of a room through this server.
    pub(in super::super) fn joined(&self, room: &RoomId, user: &UserId) {
        self.outgoing.lock().add_joined(room, self.bus.partition_of(room.as_str()), user);
    }

    /// What is to be told of users that became members of a room, by partition.
    pub(super) fn joined_entries(
        &self,
        room: &RoomId,
        joined: &HashSet<UserId>,
    ) -> BTreeMap<u32, Vec<String>> {
        let mut partitions: BTreeMap<u32, Vec<&UserId>> = BTreeMap::new();
        for user in joined {
            partitions.entry(self.bus.partition_of(user.as_str())).or_default().push(user);
        }
        let entry = |users: &[&UserId]| {
            Entry { joined: names(users.iter().copied()), ..Entry::of(room.as_str()) }.to_json()
        };
        let entries = |users: Vec<&UserId>| users.chunks(USERS_PER_ENTRY).map(entry).collect();
        partitions.into_iter().map(|(partition, users)| (partition, entries(users))).collect()
    }

    /// Tells everybody that more users became members than are told, if so.
    pub(super) fn tell_lost_joins(&self, now: Duration) {
        let mut outgoing = self.outgoing.lock();
        if outgoing.take_lost_joins(now) {
            let entry = Entry { lost_joins: true, ..Entry::of("") }.to_json();
            for partition in 0..self.bus.partitions() {
                outgoing.extend(partition, vec![entry.clone()]);
            }
        }
    }
}
