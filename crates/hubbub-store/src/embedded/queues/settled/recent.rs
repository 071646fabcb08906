//! Ids remembered in memory, in the order in which their messages went.

use std::collections::VecDeque;

use hashbrown::HashTable;
use hubbub_core::invariant::cast_or_nearest;

use super::record::SettledId;
use crate::embedded::file::cursor::index;

/// Ids forgotten by one call at most, so that no batch waits long; the rest is for the next call.
const FORGOTTEN_MAX: usize = 500;

/// A table of ids that are forgotten oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecentIds {
    records: VecDeque<SettledId>,
    /// Number of the first record; numbers count on and wrap around.
    first: u32,
    /// Numbers of the newest record of each id.
    numbers: HashTable<u32>,
}

fn get(records: &VecDeque<SettledId>, first: u32, number: u32) -> Option<&SettledId> {
    records.get(index(number.wrapping_sub(first)))
}

impl RecentIds {
    pub(super) fn with_capacity(ids: usize) -> Self {
        Self { records: VecDeque::with_capacity(ids), first: 0, numbers: HashTable::with_capacity(ids) }
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// All records, oldest first. An id that was used again has several; the last one counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SettledId> {
        self.records.iter()
    }

    /// What counts of each id, sorted by hash.
    pub(super) fn sorted(&self) -> Vec<SettledId> {
        let mut sorted: Vec<SettledId> = self.records.iter().copied().collect();
        // Stable, so that the newest of an id is the last.
        sorted.sort_by_key(|record| record.known_as);
        sorted.reverse();
        sorted.dedup_by_key(|record| record.known_as);
        sorted.reverse();
        sorted
    }

    /// Remembers an id, in place of what was remembered of it.
    pub(crate) fn insert(&mut self, record: SettledId) {
        let Self { records, first, numbers } = self;
        let number = first
            .wrapping_add(cast_or_nearest(records.len(), "fewer than 2^32 ids are remembered in memory"));
        records.push_back(record);
        let known_as = |number: &u32| get(records, *first, *number).map(|record| record.known_as);
        let hash = |number: &u32| known_as(number).map_or(0, |known_as| known_as[0]);
        if let Some(old) = numbers.find_mut(record.known_as[0], |old| known_as(old) == Some(record.known_as))
        {
            *old = number;
        } else {
            numbers.insert_unique(record.known_as[0], number, hash);
        }
    }

    /// What is remembered of an id, be it over or not.
    pub(crate) fn find(&self, known_as: [u64; 2]) -> Option<&SettledId> {
        let record = |number: &u32| get(&self.records, self.first, *number);
        let found = self
            .numbers
            .find(known_as[0], |number| record(number).is_some_and(|record| record.known_as == known_as));
        found.and_then(record)
    }

    /// Forgets the oldest ones whose time has come.
    pub(super) fn forget(&mut self, now: i64) {
        for _ in 0..FORGOTTEN_MAX {
            let Some(record) = self.records.front().filter(|record| record.forget_at <= now).copied() else {
                break;
            };
            if let Ok(found) = self.numbers.find_entry(record.known_as[0], |number| *number == self.first) {
                found.remove();
            }
            self.records.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(name: u64, id: u64, forget_at: i64) -> SettledId {
        // Few different hashes, so that they collide.
        SettledId { known_as: [name % 3, name], content: 0, copies: 1, id, sent_at: 0, forget_at }
    }

    proptest! {
        #[test]
        fn the_newest_counts_until_it_is_forgotten(names in proptest::collection::vec(0_u64..20, 0..200), first: u32) {
            let mut recent = RecentIds { first, ..RecentIds::default() };
            let mut model = std::collections::HashMap::new();
            for (at, name) in (0_i64..).zip(names) {
                recent.insert(record(name, at.cast_unsigned(), at + 50));
                model.insert(name, at);
                recent.forget(at);
                for name in 0..20 {
                    let expected = model.get(&name).filter(|sent| **sent + 50 > at).map(|sent| sent.cast_unsigned());
                    prop_assert_eq!(recent.find([name % 3, name]).map(|found| found.id), expected);
                }
            }
        }
    }
}
