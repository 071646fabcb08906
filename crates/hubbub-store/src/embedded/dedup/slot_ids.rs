//! Which ids stand in a slot, by their hashes. Only the writer looks here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::embedded::tail::hash::MixState;

/// Hash of an id → where its record begins. Sized for a whole slot once and handed from slot to slot, because a map
/// that grows stalls a commit.
#[derive(Debug)]
pub(crate) struct SlotIds {
    places: HashMap<u64, u32, MixState>,
    /// Further records whose ids have a hash that is taken. With 64 keyed bits there is practically never one.
    others: Vec<(u64, u32)>,
}

impl SlotIds {
    pub(crate) fn with_capacity(ids: usize) -> Self {
        Self { places: HashMap::with_capacity_and_hasher(ids, MixState), others: Vec::new() }
    }

    pub(crate) fn insert(&mut self, hash: u64, offset: u32) {
        match self.places.entry(hash) {
            Entry::Vacant(place) => {
                place.insert(offset);
            }
            Entry::Occupied(_) => self.others.push((hash, offset)),
        }
    }

    pub(crate) fn find(&self, hash: u64) -> impl Iterator<Item = u32> {
        let first = self.places.get(&hash).copied();
        let others = if first.is_some() { self.others.as_slice() } else { &[] };
        first.into_iter().chain(others.iter().filter(move |other| other.0 == hash).map(|other| other.1))
    }

    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.places.contains_key(&hash)
    }

    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.places.keys().copied().chain(self.others.iter().map(|other| other.0))
    }

    /// Forgets the ids, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.others.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_hashes_are_all_found() {
        let mut ids = SlotIds::with_capacity(4);
        for (hash, offset) in [(1, 10), (2, 20), (1, 30), (1, 40)] {
            ids.insert(hash, offset);
        }
        assert_eq!(ids.find(1).collect::<Vec<_>>(), [10, 30, 40]);
        assert_eq!(ids.find(2).collect::<Vec<_>>(), [20]);
        ids.clear();
        assert_eq!(ids.find(1).count(), 0);
    }
}
