//! Keys and values: what may be done to them, and what comes back.

use std::sync::Arc;

use crate::time::Timestamp;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 512;

/// Longest time to live: a hundred years, in milliseconds.
pub const TTL_MS_MAX: u64 = 100 * 365 * 24 * 3_600 * 1_000;

/// Changes kept for those who watch.
pub const CHANGES_KEPT: usize = 100_000;

/// A change of one key, or what time brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvOp<'a> {
    /// Sets a key to a value.
    Put {
        /// The key, 1 to [`KEY_BYTES_MAX`] bytes, any of them.
        key: &'a [u8],
        /// The value; may be empty.
        value: &'a [u8],
        /// How long it stays, in milliseconds; `None` = until it is deleted, whatever was said before.
        ttl_ms: Option<u64>,
        /// When to do it.
        condition: Condition,
    },
    /// Deletes a key. Where there is none nothing changes, and no revision is used.
    Delete {
        /// The key.
        key: &'a [u8],
        /// When to do it.
        condition: Condition,
    },
    /// Deletes what has run out, a bounded number of keys for each operation. Reads do not see such keys even before.
    Sweep,
}

/// Whether a key that runs out at `expires_at` is gone. The one decision about it, for reads, lists, conditions, sweeps
/// and caches; `now` is the store's clock.
pub fn has_expired(expires_at: Option<Timestamp>, now: Timestamp) -> bool {
    expires_at.is_some_and(|expires_at| expires_at <= now)
}

/// When a change is made; otherwise it is refused as [`crate::Refusal::Condition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Condition {
    /// In any case.
    #[default]
    Always,
    /// If the key is there.
    Present,
    /// If the key is not there.
    Absent,
    /// If the key has this revision.
    Is(u64),
    /// If the key is not there, or has another revision.
    IsNot(u64),
}

impl Condition {
    /// Whether it holds for a key with this revision, `None` = not there.
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

/// What became of an operation that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvOutcome {
    /// The key has the value.
    Put {
        /// Its revision: greater than every one given before by this store, never used again.
        revision: u64,
        /// When it runs out.
        expires_at: Option<Timestamp>,
        /// Whether the key was not there before.
        created: bool,
    },
    /// The key is gone.
    Deleted {
        /// The revision of its deletion; `None` when it was not there.
        revision: Option<u64>,
    },
    /// What had run out is gone.
    Swept {
        /// The last revision this used: each key that went has one of its own. `None` = nothing had run out.
        revision: Option<u64>,
        /// Whether there is more: repeat the operation.
        more: bool,
    },
}

/// A value, as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEntry {
    /// The value.
    pub value: Arc<[u8]>,
    /// Its revision.
    pub revision: u64,
    /// When it runs out. What has run out is not given back.
    pub expires_at: Option<Timestamp>,
}

/// A key, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// The key.
    pub key: Arc<[u8]>,
    /// Revision of its value.
    pub revision: u64,
    /// Bytes of its value.
    pub bytes: u64,
    /// When it runs out.
    pub expires_at: Option<Timestamp>,
}

/// One change, as those who watch see it.
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
    /// It ran out.
    Expired,
}

/// Changes behind a revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KvChanges {
    /// The changes that were asked for, oldest first.
    pub changes: Vec<KvChange>,
    /// Everything up to this revision was looked at; go on behind it.
    pub through: u64,
    /// Whether there is more behind it now.
    pub more: bool,
}

/// Whether the changes somebody wants are still kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvHistory {
    /// They are.
    Changes(KvChanges),
    /// Some behind the revision asked for are not kept any more, or the revision is ahead of all.
    Compacted {
        /// The revision behind which everything is kept.
        oldest: u64,
        /// Revision of the last change.
        head: u64,
    },
}
