//! The keys of one slot that is not sealed: for each the newest version, and where its record stands.
//!
//! About 130 bytes of memory for each key besides its name, and 12 bits for each that the slot may take.

use std::collections::BTreeMap;
use std::ops::Bound;

use hubbub_core::Timestamp;
use hubbub_core::invariant::{BrokenInvariant, cast};
use hubbub_core::kv::KvChanged;
use parking_lot::RwLock;

use super::{Key, Keys, Version};
use crate::embedded::dedup::filter::BloomFilter;
use crate::embedded::error::MaintainError;
use crate::embedded::file::cursor::index;
use crate::embedded::journal::slot::SlotLease;
use crate::embedded::kv::Patience;
use crate::embedded::record::{KeyChange, read_key_change};

/// The newest version of a key in a slot, and where its record stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyLocation {
    pub(crate) version: Version,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// A change of a key that is durable, or about to be.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) key: Key,
    pub(crate) place: KeyLocation,
    pub(crate) what: KvChanged,
    /// By how many keys there are more.
    pub(crate) more_keys: i64,
    /// When the version before was to run out, and its revision.
    pub(crate) replaces: Option<(i64, u64)>,
}

impl Written {
    /// A change whose record is `bytes` long and begins at `offset` of its slot.
    pub(crate) fn of(
        change: &KeyChange<'_>,
        key: Key,
        (offset, bytes): (u32, u32),
    ) -> Result<Self, BrokenInvariant> {
        let version = Version {
            revision: change.revision,
            expires: change.expires_at.map(Timestamp::as_micros),
            deleted: change.what != KvChanged::Put,
            value_bytes: cast(
                change.value.len(),
                "a value fits its journal slot, which has less than 4 GiB",
            )?,
        };
        let place = KeyLocation { version, offset, bytes };
        Ok(Self { key, place, what: change.what, more_keys: change.more_keys(), replaces: None })
    }
}

#[derive(Debug, Default)]
pub(crate) struct KeyIndex {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Which keys may be here: most that are asked for are not, and this says so with one look at memory.
    filter: Option<BloomFilter>,
    keys: BTreeMap<Key, KeyLocation>,
    revision: u64,
    more_keys: i64,
}

impl KeyIndex {
    /// Shows changes to readers, here and in `keys`. They are durable and follow those shown before.
    ///
    /// Whoever sees one of them here finds its revision there, and the other way round.
    pub(crate) fn publish(&self, changes: &[Written], keys: &Keys) {
        if changes.is_empty() {
            return;
        }
        let mut state = self.state.write();
        let mut filter = state.filter.take().unwrap_or_else(|| keys.tail_filter());
        for change in changes {
            filter.insert(keys.hasher.hash_key(&change.key));
            state.keys.insert(Key::clone(&change.key), change.place);
            state.revision = change.place.version.revision;
            state.more_keys += change.more_keys;
        }
        state.filter = Some(filter);
        keys.publish(changes);
    }

    pub(crate) fn len(&self) -> usize {
        self.state.read().keys.len()
    }

    /// Revision of the last change; 0 when there is none.
    pub(crate) fn revision(&self) -> u64 {
        self.state.read().revision
    }

    pub(crate) fn more_keys(&self) -> i64 {
        self.state.read().more_keys
    }

    pub(crate) fn find(&self, key: &[u8], hash: u64) -> Option<KeyLocation> {
        let state = self.state.read();
        if !state.filter.as_ref()?.may_contain(hash) {
            return None;
        }
        state.keys.get(key).copied()
    }

    pub(crate) fn page(&self, from: Bound<&[u8]>, limit: usize) -> Vec<(Key, KeyLocation)> {
        let state = self.state.read();
        let keys = state.keys.range::<[u8], _>((from, Bound::Unbounded));
        keys.take(limit).map(|(key, place)| (Key::clone(key), *place)).collect()
    }
}

/// Shows `visit` the change of `key` whose record stands at `place`.
pub(crate) fn read_change<T>(
    slot: &SlotLease,
    key: &[u8],
    place: &KeyLocation,
    patience: Patience,
    visit: impl FnOnce(&KeyChange<'_>) -> T,
) -> Result<T, MaintainError> {
    let mut record = vec![0; index(place.bytes)];
    slot.read(&mut record, place.offset.into(), patience)?;
    let change = read_key_change(&mut record.as_slice())
        .filter(|change| change.key == key && change.revision == place.version.revision);
    change.map(|change| visit(&change)).ok_or_else(|| slot.damaged(place.offset))
}
