//! Rules of keys: conditions, revisions, times to live, and sweeps of what has expired.
//!
//! Each change takes the revision behind the last one. A key that has expired is not there for conditions, although its
//! version is stored until a sweep deletes it. An operation that changes nothing takes no revision.

use crate::kv::{KvChanged, KvOp, KvOutcome, has_expired};
use crate::op::{Outcome, Refusal};
use crate::time::Timestamp;

/// The stored version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyVersion {
    /// Its revision.
    pub revision: u64,
    /// When it expires; it stays stored after that until a sweep deletes it.
    pub expires_at: Option<Timestamp>,
}

/// Keys that have expired, for a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpiredKeys<'a> {
    /// Keys with the versions that have expired, in the order of their deletion.
    pub keys: Vec<(&'a [u8], KeyVersion)>,
    /// Whether more keys have expired than these.
    pub has_more: bool,
}

/// What decisions about keys read. It reflects every change that was decided before.
pub trait View<'a> {
    /// Why a key cannot be decided about.
    type LoadRequest;

    /// The stored version of a key; `None` = there is none.
    /// The error is what is needed first, or what is damaged.
    fn version(&self, key: &[u8]) -> Result<Option<KeyVersion>, Self::LoadRequest>;

    /// The revision of the last change.
    fn revision(&self) -> u64;

    /// Takes what a sweep is to delete. Nothing is left for a second sweep of the same batch but
    /// [`ExpiredKeys::has_more`].
    fn take_expired(&mut self) -> ExpiredKeys<'a>;
}

/// A change of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyChange<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The revision it takes.
    pub revision: u64,
    /// What happens.
    pub what: KvChanged,
    /// The new value; empty unless it is put.
    pub value: &'a [u8],
    /// When the new value expires.
    pub expires_at: Option<Timestamp>,
    /// Whether no version of the key was stored, not even one that had expired.
    pub is_new: bool,
}

impl KeyChange<'_> {
    /// The version that is stored after the change; `None` = none.
    pub fn version(&self) -> Option<KeyVersion> {
        let version = KeyVersion { revision: self.revision, expires_at: self.expires_at };
        (self.what == KvChanged::Put).then_some(version)
    }

    /// By how many the number of stored keys grows.
    pub fn more_keys(&self) -> i64 {
        match self.what {
            KvChanged::Put => i64::from(self.is_new),
            KvChanged::Deleted | KvChanged::Expired => -1,
        }
    }
}

/// What an operation comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a> {
    /// The answer.
    pub outcome: Outcome,
    /// What changes, in the order of the revisions.
    pub changes: Changes<'a>,
}

/// The changes of one operation. Only a sweep makes more than one, so only a sweep allocates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes<'a> {
    /// None.
    None,
    /// Of one key.
    One(KeyChange<'a>),
    /// Of the keys of a sweep.
    Sweep(Vec<KeyChange<'a>>),
}

impl<'a> Changes<'a> {
    /// All of them.
    pub fn as_slice(&self) -> &[KeyChange<'a>] {
        match self {
            Self::None => &[],
            Self::One(change) => std::slice::from_ref(change),
            Self::Sweep(changes) => changes,
        }
    }
}

/// When a value expires that is put at `now` and stays for `ttl_ms` milliseconds.
pub fn expiry(now: Timestamp, ttl_ms: u64) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_add_unsigned(ttl_ms.saturating_mul(1_000)))
}

/// Decides about one operation. `now` is the clock's time, by which keys are hidden once they expire.
/// The error is what the view needs first, or what is damaged. Nothing is changed then.
pub fn decide<'a, V: View<'a>>(
    view: &mut V,
    op: &KvOp<'a>,
    now: Timestamp,
) -> Result<Decision<'a>, V::LoadRequest> {
    let (key, condition) = match *op {
        KvOp::Put { key, condition, .. } | KvOp::Delete { key, condition } => (key, condition),
        KvOp::Sweep => return Ok(sweep(view)),
    };
    let stored = view.version(key)?;
    let visible = stored.filter(|stored| !has_expired(stored.expires_at, now));
    let found = visible.map(|version| version.revision);
    if !condition.holds(found) {
        let outcome = Outcome::Refused(Refusal::Condition { revision: found });
        return Ok(Decision { outcome, changes: Changes::None });
    }
    let revision = view.revision() + 1;
    let is_new = stored.is_none();
    let (outcome, change) = match *op {
        KvOp::Put { value, ttl_ms, .. } => {
            let expires_at = ttl_ms.map(|ttl_ms| expiry(now, ttl_ms));
            let outcome = KvOutcome::Put { revision, expires_at, created: found.is_none() };
            (outcome, Some(KeyChange { key, revision, what: KvChanged::Put, value, expires_at, is_new }))
        }
        _ if found.is_none() => (KvOutcome::Deleted { revision: None }, None),
        _ => {
            let outcome = KvOutcome::Deleted { revision: Some(revision) };
            (outcome, Some(gone(key, revision, KvChanged::Deleted)))
        }
    };
    Ok(Decision { outcome: Outcome::Kv(outcome), changes: change.map_or(Changes::None, Changes::One) })
}

/// Deletes keys that have expired, unless their version was replaced meanwhile or cannot be looked up.
fn sweep<'a, V: View<'a>>(view: &mut V) -> Decision<'a> {
    let ExpiredKeys { keys, has_more } = view.take_expired();
    let mut changes = Vec::with_capacity(keys.len());
    let mut revision = view.revision();
    for (key, expired) in keys {
        if matches!(view.version(key), Ok(Some(stored)) if stored == expired) {
            revision += 1;
            changes.push(gone(key, revision, KvChanged::Expired));
        }
    }
    let revision = changes.last().map(|last| last.revision);
    Decision {
        outcome: Outcome::Kv(KvOutcome::Swept { revision, more: has_more }),
        changes: Changes::Sweep(changes),
    }
}

fn gone(key: &[u8], revision: u64, what: KvChanged) -> KeyChange<'_> {
    KeyChange { key, revision, what, value: &[], expires_at: None, is_new: false }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
