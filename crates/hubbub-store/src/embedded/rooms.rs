//! All rooms, each with a small number that the rest of the engine calls it by.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::manifest::RoomEntry;

/// Number of a room, from 0, in the order of appearance. Not kept across starts.
pub(crate) type RoomNumber = u32;

/// Rooms by name, by number and in order. A room without a head is being made by the batch under way: unknown to
/// readers.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    numbers: HashMap<Arc<str>, RoomNumber>,
    order: BTreeMap<Arc<str>, RoomNumber>,
    entries: Vec<RoomEntry>,
    known: u64,
}

impl Rooms {
    /// The number of a room.
    pub(crate) fn number(&self, name: &str) -> Option<RoomNumber> {
        self.numbers.get(name).copied()
    }

    /// A room by its number.
    pub(crate) fn get(&self, number: RoomNumber) -> Option<&RoomEntry> {
        self.entries.get(usize::try_from(number).ok()?)
    }

    /// Rooms that have or had messages.
    pub(crate) fn known(&self) -> u64 {
        self.known
    }

    /// The room of this name, made if there is none.
    pub(crate) fn intern(&mut self, name: &str) -> RoomNumber {
        if let Some(number) = self.number(name) {
            return number;
        }
        let number = RoomNumber::try_from(self.entries.len()).unwrap_or(RoomNumber::MAX);
        let name: Arc<str> = Arc::from(name);
        self.numbers.insert(Arc::clone(&name), number);
        self.order.insert(Arc::clone(&name), number);
        self.entries.push(RoomEntry { name, head: 0, last_received: i64::MIN });
        number
    }

    /// Moves a room's head forward.
    pub(crate) fn advance(&mut self, number: RoomNumber, head: u64, last_received: i64) {
        let Some(entry) = usize::try_from(number).ok().and_then(|index| self.entries.get_mut(index)) else {
            return;
        };
        if entry.head == 0 && head > 0 {
            self.known += 1;
        }
        entry.head = entry.head.max(head);
        entry.last_received = entry.last_received.max(last_received);
    }

    /// Up to `limit` known rooms in the order of their names, beginning behind `after`.
    pub(crate) fn page(&self, after: Option<&str>, limit: usize) -> Vec<(RoomNumber, RoomEntry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order
            .range::<str, _>((from, Bound::Unbounded))
            .filter_map(|(_, number)| Some((*number, self.get(*number)?)))
            .filter(|(_, entry)| entry.head > 0)
            .take(limit)
            .map(|(number, entry)| (number, entry.clone()))
            .collect()
    }

    /// How many rooms have a number.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Rooms by number, from `first` on.
    pub(crate) fn from(&self, first: usize) -> &[RoomEntry] {
        self.entries.get(first..).unwrap_or_default()
    }
}
