//! What is counted: per user, per room, per hour. Only ever added to.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use hashbrown::HashMap;
use hubbub_core::invariant::saturate;
use hubbub_core::stats::{HOUR_MICROS, TypeCounts};
use hubbub_core::{Message, MessageType};
use roaring::RoaringBitmap;

use super::source::is_hidden;
use crate::embedded::rooms::RoomNumber;
use crate::embedded::shared::Shared;
use crate::embedded::tail::hash::MixState;

/// Number of a user in one summary, from 0, in the order of appearance.
pub(super) type UserNumber = u32;

pub(super) const fn hour_of(received: i64) -> i64 {
    received.div_euclid(HOUR_MICROS)
}

pub(super) const fn hour_begin(hour: i64) -> i64 {
    hour.saturating_mul(HOUR_MICROS)
}

/// When the first and the last of some messages were received, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Times {
    const NONE: Self = Self { first: i64::MAX, last: i64::MIN };

    pub(super) fn of(received: i64) -> Self {
        Self { first: received, last: received }
    }

    pub(super) fn take_in(&mut self, other: Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}

#[derive(Debug, Clone)]
pub(super) struct UserTotal {
    pub(super) name: Arc<str>,
    pub(super) messages: u64,
    pub(super) rooms: u64,
    pub(super) times: Times,
}

/// What is counted of one room. Without messages it is nobody's.
#[derive(Debug, Clone)]
pub(super) struct RoomTotal {
    pub(super) name: Arc<str>,
    pub(super) messages: u64,
    pub(super) times: Times,
    /// Who wrote here, and how many messages.
    pub(super) users: BTreeMap<UserNumber, u64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct HourTotal {
    pub(super) messages: TypeCounts,
    pub(super) users: RoaringBitmap,
    pub(super) rooms: RoaringBitmap,
}

/// Messages of one user in one room within one hour.
#[derive(Debug, Clone, Copy)]
pub(super) struct UserHour {
    pub(super) user: UserNumber,
    pub(super) room: RoomNumber,
    pub(super) hour: i64,
    pub(super) messages: TypeCounts,
    pub(super) times: Times,
}

impl UserHour {
    pub(super) fn of(user: UserNumber, room: RoomNumber, received: i64, kind: MessageType) -> Self {
        let mut messages = TypeCounts::default();
        messages.add(kind);
        Self { user, room, hour: hour_of(received), messages, times: Times::of(received) }
    }

    /// Takes in another message if it belongs to the same user, room and hour; says whether it did.
    pub(super) fn extend(&mut self, room: RoomNumber, received: i64, kind: MessageType) -> bool {
        if self.room != room || self.hour != hour_of(received) {
            return false;
        }
        self.messages.add(kind);
        self.times.take_in(Times::of(received));
        true
    }
}

/// The rooms of messages, each looked up once: the same come again and again.
pub(super) type KnownRooms = HashMap<Box<str>, (RoomNumber, Arc<str>)>;

/// The smallest of many, at most `limit` of them.
pub(super) struct Smallest<T> {
    limit: usize,
    heap: BinaryHeap<T>,
    pub(super) more: bool,
}

impl<T: Ord> Smallest<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, heap: BinaryHeap::new(), more: false }
    }

    pub(super) fn add(&mut self, item: T) {
        if self.heap.len() < self.limit {
            self.heap.push(item);
            return;
        }
        self.more = true;
        if let Some(mut greatest) = self.heap.peek_mut()
            && item < *greatest
        {
            *greatest = item;
        }
    }

    /// What the next one has to be smaller than; `None` as long as there is room for any.
    pub(super) fn bound(&self) -> Option<&T> {
        if self.heap.len() < self.limit { None } else { self.heap.peek() }
    }

    pub(super) fn into_sorted(self) -> Vec<T> {
        self.heap.into_sorted_vec()
    }
}

pub(super) fn add_counts(to: &mut TypeCounts, more: TypeCounts) {
    to.text += more.text;
    to.join += more.join;
    to.leave += more.leave;
}

/// All counts. About 150 bytes per user, as much per room, per (room, user) 13 to 26 bytes, and per (hour, user) a bit
/// to two bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Summary {
    numbers: HashMap<Arc<str>, UserNumber>,
    users: Vec<UserTotal>,
    rooms: HashMap<RoomNumber, RoomTotal, MixState>,
    /// Oldest first.
    pub(super) hours: BTreeMap<i64, HourTotal>,
}

impl Summary {
    /// The number of a user, a new one for who was not seen before.
    pub(super) fn intern(&mut self, name: &str) -> UserNumber {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        // Memory ends long before 2^32 users.
        let number = saturate(self.users.len());
        let name: Arc<str> = Arc::from(name);
        self.numbers.insert(Arc::clone(&name), number);
        self.users.push(UserTotal { name, messages: 0, rooms: 0, times: Times::NONE });
        number
    }

    /// Counts messages. `name` is the room's.
    pub(super) fn add(&mut self, run: &UserHour, name: &Arc<str>) {
        let count = run.messages.total();
        let room = self.rooms.entry(run.room).or_insert_with(|| RoomTotal {
            name: Arc::clone(name),
            messages: 0,
            times: Times::NONE,
            users: BTreeMap::new(),
        });
        room.messages += count;
        room.times.take_in(run.times);
        let of_user = room.users.entry(run.user).or_insert(0);
        let is_new = *of_user == 0;
        *of_user += count;
        if let Some(user) = usize::try_from(run.user).ok().and_then(|user| self.users.get_mut(user)) {
            user.messages += count;
            user.rooms += u64::from(is_new);
            user.times.take_in(run.times);
        }
        let hour = self.hours.entry(run.hour).or_default();
        add_counts(&mut hour.messages, run.messages);
        hour.users.insert(run.user);
        hour.rooms.insert(run.room);
    }

    /// Counts a message unless it must not be seen. Answers its user and room when it is counted.
    pub(super) fn add_message(
        &mut self,
        shared: &Shared,
        known: &mut KnownRooms,
        message: &Message<'_>,
    ) -> Option<(UserNumber, RoomNumber)> {
        let sent = &message.sent;
        let (room, name) = match known.get(sent.room) {
            Some((room, name)) => (*room, Arc::clone(name)),
            None => {
                let rooms = shared.rooms.read();
                let number = rooms.number(sent.room)?;
                let found = (number, Arc::clone(&rooms.get(number)?.name));
                known.insert(sent.room.into(), found.clone());
                found
            }
        };
        if is_hidden(shared, room, message.seq) {
            return None;
        }
        let user = self.intern(sent.user);
        self.add(&UserHour::of(user, room, message.received_at.as_micros(), sent.kind), &name);
        Some((user, room))
    }

    pub(super) fn number(&self, name: &str) -> Option<UserNumber> {
        self.numbers.get(name).copied()
    }

    pub(super) fn user(&self, number: UserNumber) -> Option<&UserTotal> {
        self.users.get(usize::try_from(number).ok()?)
    }

    pub(super) fn users(&self) -> impl Iterator<Item = (UserNumber, &UserTotal)> {
        (0..).zip(&self.users).filter(|(_, user)| user.messages > 0)
    }

    pub(super) fn room(&self, room: RoomNumber) -> Option<&RoomTotal> {
        self.rooms.get(&room)
    }

    pub(super) fn rooms(&self) -> impl Iterator<Item = (RoomNumber, &RoomTotal)> {
        self.rooms.iter().map(|(number, room)| (*number, room))
    }

    /// Each room with each user who wrote there, and how many messages.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&RoomTotal, &UserTotal, u64)> {
        self.rooms().flat_map(move |(_, room)| {
            let users = room.users.iter();
            users.filter_map(move |(user, messages)| Some((room, self.user(*user)?, *messages)))
        })
    }
}
