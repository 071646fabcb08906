//! Changes of rooms that are collected until the next tick, and entries that wait to be written.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use hubbub_core::{ReadMark, RoomId, UserId};

#[cfg(feature = "kafka")]
use super::joined::lost_joins;
use super::{FULL_INTERVAL, HEARTBEAT};

/// Rooms whose changes are collected; others are dropped, and requested again.
const ROOMS_MAX: usize = 50_000;
/// Users of one room whose changes are collected; beyond that a snapshot is sent.
const USERS_MAX: usize = 500;
/// Joins that are collected; beyond that a notice says that some are missing.
const JOINS_MAX: usize = 1_000;
/// Joins and removals that leave room for another removal. One that is dropped matters only to a socket that has unsubscribed from
/// the room alone, if the user joins again within seconds.
const LEFT_MAX: usize = JOINS_MAX / 2;
/// Typing users of one room in one tick.
const TYPING_MAX: usize = 50;

/// What changed in a room since the last tick.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Users that came or left.
    pub(super) users: HashSet<UserId>,
    /// A snapshot is to be sent.
    pub(super) is_full: bool,
    /// A snapshot is to be requested.
    pub(super) asks: bool,
    pub(super) typing: HashSet<UserId>,
    pub(super) marks: HashMap<UserId, ReadMark>,
}

impl Changes {
    pub(super) fn add_user(&mut self, user: &UserId) {
        if self.is_full || self.users.len() >= USERS_MAX {
            self.is_full = true;
            self.users.clear();
        } else {
            self.users.insert(user.clone());
        }
    }

    pub(super) fn add_typing(&mut self, user: &UserId) {
        if self.typing.len() < TYPING_MAX {
            self.typing.insert(user.clone());
        }
    }

    pub(super) fn add_mark(&mut self, user: &UserId, mark: ReadMark) {
        if self.marks.len() < USERS_MAX || self.marks.contains_key(user) {
            self.marks.insert(user.clone(), mark);
        }
    }
}

/// How the membership of a user changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MembershipChange {
    /// The user was removed, perhaps before joining again.
    pub(super) has_left: bool,
    /// The user became a member, with this read mark if it is known.
    pub(super) joined: Option<Option<u64>>,
}

/// One partition of the bus.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Entries of the next records.
    pub(super) entries: VecDeque<String>,
    /// Entries about joins, which go behind these.
    joined: VecDeque<String>,
    /// Number of the last record.
    n: u64,
    /// When it was written.
    written_at: Option<Duration>,
    /// Users in rooms of the partition, each counted for each room.
    pub(super) present: usize,
    /// Whether the last record had entries, so that a heartbeat must follow by which its loss is noticed.
    owes_heartbeat: bool,
}

/// The entries of one record, and its number.
#[derive(Debug)]
pub(super) struct OutgoingRecord {
    pub(super) partition: u32,
    pub(super) n: u64,
    pub(super) entries: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Outgoing {
    rooms: HashMap<RoomId, Changes>,
    /// The same rooms, in the order of their first change.
    order: VecDeque<RoomId>,
    pub(super) lanes: Vec<Lane>,
    /// The lane that is written first; another one each time.
    first: usize,
    /// Users that became members, or were removed, by room.
    joined: HashMap<RoomId, HashMap<UserId, MembershipChange>>,
    joined_count: usize,
    /// Whether joins were dropped.
    has_lost_joins: bool,
    /// When the last notice of that was sent.
    lost_joins_at: Option<Duration>,
}

impl Outgoing {
    pub(super) fn new(lanes: u32) -> Self {
        Self { lanes: (0..lanes).map(|_| Lane::default()).collect(), ..Self::default() }
    }

    pub(super) fn change(&mut self, room: &RoomId, lane: u32, change: impl FnOnce(&mut Changes)) {
        if self.rooms.len() >= ROOMS_MAX && !self.rooms.contains_key(room) {
            // Others notice that a number is missing, and request a snapshot.
            if let Some(lane) = self.lanes.get_mut(lane as usize) {
                lane.n += 1;
            }
            return;
        }
        change(self.rooms.entry(room.clone()).or_insert_with(|| {
            self.order.push_back(room.clone());
            Changes::default()
        }));
    }

    /// A user became a member of a room.
    pub(super) fn add_joined(&mut self, room: &RoomId, user: &UserId, mark: Option<u64>) {
        // Joined again; a mark that is known stays known.
        let is_kept = self.add_membership_change(room, user, JOINS_MAX, |change| {
            change.joined = Some(mark.or(change.joined.flatten()));
        });
        self.has_lost_joins |= !is_kept;
    }

    /// A user was removed from a room.
    pub(super) fn add_left(&mut self, room: &RoomId, user: &UserId) {
        self.add_membership_change(room, user, LEFT_MAX, |change| change.has_left = true);
    }

    /// Returns false if there are `most` already.
    fn add_membership_change(
        &mut self,
        room: &RoomId,
        user: &UserId,
        most: usize,
        change: impl FnOnce(&mut MembershipChange),
    ) -> bool {
        let waiting = self.joined.get_mut(room).and_then(|users| users.get_mut(user));
        if waiting.is_none() && self.joined_count >= most {
            return false;
        }
        match waiting {
            Some(waiting) => change(waiting),
            None => {
                change(self.joined.entry(room.clone()).or_default().entry(user.clone()).or_default());
                self.joined_count += 1;
            }
        }
        true
    }

    /// Takes what users became members of, and were removed from, unless some of what was taken before still waits.
    pub(super) fn take_joined(&mut self) -> HashMap<RoomId, HashMap<UserId, MembershipChange>> {
        if self.lanes.iter().any(|lane| !lane.joined.is_empty()) {
            return HashMap::new();
        }
        self.joined_count = 0;
        std::mem::take(&mut self.joined)
    }

    pub(super) fn extend_joined(&mut self, lane: u32, entry: String) {
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            lane.joined.push_back(entry);
        }
    }

    /// Whether a notice of lost joins is due.
    pub(super) fn take_lost_joins(&mut self, now: Duration) -> bool {
        let is_early = self.lost_joins_at.is_some_and(|at| now.saturating_sub(at) < FULL_INTERVAL);
        let is_due = self.has_lost_joins && !is_early;
        if is_due {
            (self.has_lost_joins, self.lost_joins_at) = (false, Some(now));
        }
        is_due
    }

    /// Lets entries wait for the next records of a lane.
    pub(super) fn extend(&mut self, lane: u32, entries: Vec<String>) {
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            lane.entries.extend(entries);
        }
    }

    /// Takes the changes of up to `count` rooms, those that have waited longest first.
    pub(super) fn take(&mut self, count: usize) -> Vec<(RoomId, Changes)> {
        let rooms = self.order.drain(..count.min(self.order.len()));
        rooms.filter_map(|room| self.rooms.remove_entry(&room)).collect()
    }

    /// Up to `count` records of at most `bytes`, and besides that one for each lane that must not be silent any longer.
    pub(super) fn next_records(&mut self, now: Duration, count: usize, bytes: usize) -> Vec<OutgoingRecord> {
        let (lanes, mut records, mut rest) = (self.lanes.len(), Vec::new(), count);
        self.first = (self.first + 1) % lanes.max(1);
        for number in (self.first..lanes).chain(0..self.first) {
            let Some(lane) = self.lanes.get_mut(number) else { continue };
            let mut is_due = lane.is_due(now);
            while is_due || rest > 0 && lane.has_entries() {
                let entries = lane.next_entries(bytes);
                (lane.written_at, lane.owes_heartbeat) = (Some(now), !entries.is_empty());
                records.push(lane.numbered(number, entries));
                rest = rest.saturating_sub(1);
                is_due = false;
            }
        }
        records
    }

    /// A last record for each lane that was written; for all of them, if joins were dropped.
    #[cfg(feature = "kafka")]
    pub(super) fn last_records(&mut self) -> Vec<OutgoingRecord> {
        let is_waiting = !self.joined.is_empty() || self.lanes.iter().any(|lane| !lane.joined.is_empty());
        let lost: Vec<String> = (self.has_lost_joins || is_waiting).then(lost_joins).into_iter().collect();
        let is_wanted = |lane: &Lane| lane.written_at.is_some() || !lost.is_empty();
        let lanes = self.lanes.iter_mut().enumerate().filter(|(_, lane)| is_wanted(lane));
        lanes.map(|(number, lane)| lane.numbered(number, lost.clone())).collect()
    }
}

impl Lane {
    /// Whether a record is due, even without entries.
    fn is_due(&self, now: Duration) -> bool {
        let is_silent = self.written_at.is_none_or(|at| now.saturating_sub(at) >= HEARTBEAT);
        is_silent && (self.present > 0 || self.owes_heartbeat)
    }

    /// Entries as the next record of the lane with this number.
    fn numbered(&mut self, number: usize, entries: Vec<String>) -> OutgoingRecord {
        self.n += 1;
        OutgoingRecord { partition: hubbub_core::invariant::saturate(number), n: self.n, entries }
    }

    /// Takes the entries of the next record, of at most `bytes`; one may be of any size.
    fn next_entries(&mut self, bytes: usize) -> Vec<String> {
        let (mut taken, mut size) = (Vec::new(), 0);
        let fits = |entry: &String, size: usize| size == 0 || size + entry.len() < bytes;
        for waiting in [&mut self.entries, &mut self.joined] {
            while waiting.front().is_some_and(|entry| fits(entry, size))
                && let Some(entry) = waiting.pop_front()
            {
                size += entry.len() + 1;
                taken.push(entry);
            }
        }
        taken
    }

    fn has_entries(&self) -> bool {
        !self.entries.is_empty() || !self.joined.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_wait_behind_all_else_and_are_bounded() {
        let mut outgoing = Outgoing::new(1);
        let room = RoomId::new("r").unwrap();
        outgoing.extend_joined(0, "joined".to_owned());
        outgoing.extend(0, vec!["present".to_owned()]);
        let mut users = (0..).map(|number| UserId::new(&format!("user-{number}")).unwrap());
        for user in users.by_ref().take(JOINS_MAX) {
            outgoing.add_joined(&room, &user, Some(7));
        }
        assert!(outgoing.take_joined().is_empty(), "those before are not written yet");
        let mut next = || outgoing.next_records(Duration::ZERO, 1, 8).pop().map(|record| record.entries);
        assert_eq!(next(), Some(vec!["present".to_owned()]));
        assert_eq!(next(), Some(vec!["joined".to_owned()]));
        // Who joins again takes no more room.
        let again = UserId::new("user-3").unwrap();
        outgoing.add_joined(&room, &again, Some(9));
        outgoing.add_joined(&room, &again, None);
        // Removals are not told then, and nobody misses them.
        outgoing.add_left(&room, &UserId::new("gone").unwrap());
        assert!(!outgoing.take_lost_joins(Duration::ZERO));
        outgoing.add_joined(&room, &users.next().unwrap(), None);
        assert!(outgoing.take_lost_joins(Duration::ZERO) && !outgoing.take_lost_joins(Duration::ZERO));
        let joined = outgoing.take_joined();
        assert_eq!(joined.values().map(HashMap::len).sum::<usize>(), JOINS_MAX);
        assert_eq!(joined[&room][&again], MembershipChange { has_left: false, joined: Some(Some(9)) });
    }
}
