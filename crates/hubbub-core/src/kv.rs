//! Keys and values: operations, outcomes, and what reads return.

use std::sync::Arc;

use crate::time::Timestamp;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 512;

/// Longest time to live, in milliseconds: 100 years.
pub const TTL_MS_MAX: u64 = 100 * 365 * 24 * 3_600 * 1_000;

/// Number of changes kept for watchers.
pub const CHANGES_KEPT: usize = 100_000;

/// Behind which revisions begin where a store goes on without changes that may have been made: nobody knows which revisions were
/// given, and none may come again. Two such histories may begin at the same change, as of a backup that is restored twice. They
/// differ by their time: no store makes a million changes a second. Where `last` is ahead of the clock, or but little behind, as
/// after another jump, it is left far behind, too, by what of the time tells histories apart. A clock that is ahead cannot use up
/// the numbers below 2^53, which clients take as they are.
pub fn first_revision(last: u64, now: Timestamp) -> u64 {
    const FAR: u64 = 1 << 32;
    let time = u64::try_from(now.as_micros()).unwrap_or(0).min(1 << 52);
    let ahead = last.saturating_add(FAR);
    if time >= ahead { time } else { ahead.saturating_add(time % FAR) }
}

/// A change of one key, or a sweep of expired keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvOp<'a> {
    /// Sets a key to a value.
    Put {
        /// The key, 1 to [`KEY_BYTES_MAX`] bytes, any of them.
        key: &'a [u8],
        /// The value; may be empty.
        value: &'a [u8],
        /// Time to live in milliseconds; `None` = until it is deleted, whatever was set before.
        ttl_ms: Option<u64>,
        /// The condition of the change.
        condition: Condition,
    },
    /// Deletes a key. If there is none, nothing changes and no revision is used.
    Delete {
        /// The key.
        key: &'a [u8],
        /// The condition of the change.
        condition: Condition,
    },
    /// Deletes expired keys, a bounded number with each operation. Reads do not see them even before.
    Sweep,
}

/// Whether a key has expired at `now`, by the store's clock. The one rule for reads, lists, conditions, sweeps and caches.
pub fn has_expired(expires_at: Option<Timestamp>, now: Timestamp) -> bool {
    expires_at.is_some_and(|expires_at| expires_at <= now)
}

/// The condition of a change, which is otherwise refused as [`crate::Refusal::Condition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Condition {
    /// Always true.
    #[default]
    Always,
    /// The key exists.
    Present,
    /// The key does not exist.
    Absent,
    /// The key has this revision.
    Is(u64),
    /// The key does not exist, or has another revision.
    IsNot(u64),
}

impl Condition {
    /// Whether it holds for a key with this revision; `None` = the key does not exist.
    pub fn holds(self, revision: Option<u64>) -> bool {
        match self {
            Self::Always => true,
            Self::Present => revision.is_some(),
            Self::Absent => revision.is_none(),
            Self::Is(wanted) => revision == Some(wanted),
            Self::IsNot(unwanted) => revision != Some(unwanted),
        }
    }
}

/// The outcome of an operation that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvOutcome {
    /// The key has the value.
    Put {
        /// Its revision: greater than every earlier one of this store, never reused.
        revision: u64,
        /// When it expires.
        expires_at: Option<Timestamp>,
        /// Whether the key was created.
        created: bool,
    },
    /// The key is gone.
    Deleted {
        /// The revision of its deletion; `None` if there was no such key.
        revision: Option<u64>,
    },
    /// Expired keys are deleted.
    Swept {
        /// The last revision used: each deleted key has its own. `None` = no key had expired.
        revision: Option<u64>,
        /// Whether there is more: repeat the operation.
        more: bool,
    },
}

/// A value as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEntry {
    /// The value.
    pub value: Arc<[u8]>,
    /// Its revision.
    pub revision: u64,
    /// When it expires. Expired values are not returned.
    pub expires_at: Option<Timestamp>,
}

/// A key as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// The key.
    pub key: Arc<[u8]>,
    /// Revision of its value.
    pub revision: u64,
    /// Bytes of its value.
    pub bytes: u64,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// Keys as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPage {
    /// In the order of their bytes.
    pub keys: Vec<KeyInfo>,
    /// Changes up to this one are in the list, later ones may be. Not less than any that was acknowledged before the list was asked
    /// for, by whichever server.
    pub revision: u64,
}

/// One change, as watchers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvChange {
    /// Its revision.
    pub revision: u64,
    /// The key.
    pub key: Arc<[u8]>,
    /// What happened.
    pub what: KvChanged,
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvChanged {
    /// It got a value.
    Put,
    /// It was deleted.
    Deleted,
    /// It expired.
    Expired,
}

/// Changes behind a revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KvChanges {
    /// The requested changes, oldest first.
    pub changes: Vec<KvChange>,
    /// All changes up to this revision were considered; continue behind it.
    pub through: u64,
    /// Whether there are more behind it.
    pub more: bool,
}

/// A page of changes, unless they are not kept any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvChangesRead {
    /// The changes.
    Changes(KvChanges),
    /// Some changes behind the requested revision are not kept any more, or it is greater than the last one.
    Compacted {
        /// The revision behind which all changes are kept.
        oldest: u64,
        /// Revision of the last change.
        head: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_histories_that_begin_at_one_change_are_apart() {
        let at = |second: i64| Timestamp::from_micros(1_800_000_000_000_000 + second * 1_000_000);
        let first = first_revision(7, at(0));
        assert_eq!(first, 1_800_000_000_000_000);
        // The second and the third are both of what the first one left, a moment after it had begun, or far ahead of the clock.
        for last in [first + 10, first + (1 << 40)] {
            let (second, third) = (first_revision(last, at(1)), first_revision(last, at(2)));
            assert!(second >= last + (1 << 32) && second.abs_diff(third) == 1_000_000, "{second} {third}");
        }
    }
}
