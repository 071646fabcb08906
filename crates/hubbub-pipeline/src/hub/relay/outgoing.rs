//! What is to be told to other servers: changes of rooms, collected until the next tick, and the entries that wait to be
//! written.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use hubbub_core::{ReadMark, RoomId, UserId};

/// Rooms whose changes are collected; beyond that they are as good as lost, and asked for.
const ROOMS_MAX: usize = 50_000;
/// Users of one room whose changes are collected; beyond that everybody who is there is told.
const USERS_MAX: usize = 500;
/// Users of one room that are said to be typing in one tick.
const TYPING_MAX: usize = 50;

/// What changed in a room since the last tick.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Users that came or left.
    pub(super) users: HashSet<UserId>,
    /// Everybody who is there is to be told.
    pub(super) is_full: bool,
    /// Others are to say who is there.
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

/// One partition of what carries the records.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Entries of the next records.
    pub(super) entries: VecDeque<String>,
    /// Number of the last record.
    pub(super) n: u64,
    /// When it was written.
    pub(super) written_at: Option<Duration>,
    /// Users in rooms of the partition, each counted for each room.
    pub(super) present: usize,
}

#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) rooms: HashMap<RoomId, Changes>,
    pub(super) lanes: Vec<Lane>,
    /// The lane that is written first; another one each time.
    pub(super) first: usize,
}

impl Outgoing {
    pub(super) fn change(&mut self, room: &RoomId, lane: u32, change: impl FnOnce(&mut Changes)) {
        if self.rooms.len() >= ROOMS_MAX && !self.rooms.contains_key(room) {
            // Others notice that a number is missing, and ask.
            if let Some(lane) = self.lanes.get_mut(lane as usize) {
                lane.n += 1;
            }
            return;
        }
        change(self.rooms.entry(room.clone()).or_default());
    }

    /// Takes the changes of up to `count` rooms.
    pub(super) fn take(&mut self, count: usize) -> Vec<(RoomId, Changes)> {
        let rooms: Vec<RoomId> = self.rooms.keys().take(count).cloned().collect();
        rooms.into_iter().filter_map(|room| self.rooms.remove_entry(&room)).collect()
    }
}

impl Lane {
    /// Takes the entries of the next record, of at most `bytes`; one may be of any size.
    pub(super) fn next_entries(&mut self, bytes: usize) -> Vec<String> {
        let (mut taken, mut size) = (Vec::new(), 0);
        while let Some(entry) = self.entries.pop_front_if(|entry| size == 0 || size + entry.len() < bytes) {
            size += entry.len() + 1;
            taken.push(entry);
        }
        taken
    }
}
