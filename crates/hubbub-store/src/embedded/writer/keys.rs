//! Changes of keys: the working set of a batch, and the records of what it changes.
//!
//! The stored versions of all keys of a batch are looked up before anything is changed, so that a block that cannot be
//! read refuses the operations that need it and no others.

use hashbrown::HashMap;
use hubbub_core::invariant::{BrokenInvariant, saturate};
use hubbub_core::kv::{KEY_BYTES_MAX, KvOp};
use hubbub_core::rules::keys::{self, ExpiredKeys, KeyChange, KeyVersion};
use hubbub_core::{Op, Outcome, Refusal, Timestamp};

use super::{Scratch, Writer};
use crate::embedded::kv::state::Due;
use crate::embedded::kv::tail::Written;
use crate::embedded::kv::{Key, Version};
use crate::embedded::record::{KEY_GONE_BYTES_MAX, write_key_change};
use crate::embedded::shared::Shared;
use crate::embedded::view::View;

/// Keys that one batch sweeps at most, so that no commit takes long.
const SWEPT_MAX: usize = 500;

/// Bytes that the record of one of them takes at most.
const SWEPT_BYTES_MAX: usize = KEY_BYTES_MAX + KEY_GONE_BYTES_MAX;

/// What the batch under way does to keys.
#[derive(Debug, Default)]
pub(super) struct KeyScratch {
    pub(super) written: Vec<Written>,
    /// What its sweep was shown: each is deleted, or its version is not the newest any more, or it cannot be read; then a
    /// restart finds it again.
    swept: Vec<Due>,
}

impl KeyScratch {
    pub(super) fn clear(&mut self) {
        self.written.clear();
        self.swept.clear();
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Unreadable;

#[derive(Debug, Default)]
pub(super) struct DueKeys {
    keys: Vec<(Due, Key)>,
    has_more: bool,
}

/// The stored versions of all keys of a batch, as the operations before left them.
#[derive(Debug)]
pub(super) struct KeyWorkingSet<'a> {
    versions: HashMap<&'a [u8], Result<Option<KeyVersion>, Unreadable>>,
    revision: u64,
    expired: ExpiredKeys<'a>,
}

impl DueKeys {
    pub(super) fn find(shared: &Shared, ops: &[Op<'_>], now: Timestamp) -> Self {
        if !has_sweep(ops) {
            return Self::default();
        }
        let most = (sweep_bytes_max(shared.options.slot_bytes) / SWEPT_BYTES_MAX).max(1);
        let (keys, has_more) = shared.keys.due_by(now.as_micros(), most);
        Self { keys, has_more }
    }

    fn expired(&self) -> ExpiredKeys<'_> {
        let version = |(expires, revision): Due| KeyVersion {
            revision,
            expires_at: Some(Timestamp::from_micros(expires)),
        };
        let keys = self.keys.iter().map(|(due, key)| (&**key, version(*due))).collect();
        ExpiredKeys { keys, has_more: self.has_more }
    }
}

impl<'a> KeyWorkingSet<'a> {
    pub(super) fn load(
        shared: &Shared,
        view: &View,
        ops: &[Op<'a>],
        due: &'a DueKeys,
        revision: u64,
    ) -> Self {
        let mut versions = HashMap::new();
        let of_ops = ops.iter().filter_map(|op| match op {
            Op::Kv(op) => op.key(),
            _ => None,
        });
        for key in of_ops.chain(due.keys.iter().map(|(_, key)| &**key)) {
            versions.entry(key).or_insert_with(|| {
                view.key_version(key, shared.hasher.hash_key(key))
                    .map(|found| found.and_then(stored))
                    .map_err(|error| {
                        shared.status.damage.note(&error.into());
                        Unreadable
                    })
            });
        }
        Self { versions, revision, expired: due.expired() }
    }

    /// Applies a change. Answers the version that it replaces.
    fn apply(&mut self, change: &KeyChange<'a>) -> Option<KeyVersion> {
        self.revision = change.revision;
        self.versions.insert(change.key, Ok(change.version())).and_then(Result::ok).flatten()
    }
}

fn stored(version: Version) -> Option<KeyVersion> {
    let expires_at = version.expires.map(Timestamp::from_micros);
    (!version.deleted).then_some(KeyVersion { revision: version.revision, expires_at })
}

impl<'a> keys::View<'a> for KeyWorkingSet<'a> {
    type LoadRequest = Unreadable;

    fn version(&self, key: &[u8]) -> Result<Option<KeyVersion>, Unreadable> {
        self.versions.get(key).copied().unwrap_or(Err(Unreadable))
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn take_expired(&mut self) -> ExpiredKeys<'a> {
        let keys = std::mem::take(&mut self.expired.keys);
        ExpiredKeys { keys, has_more: self.expired.has_more }
    }
}

impl Writer {
    /// Decides about an operation on keys and encodes what it changes.
    pub(super) fn decide_key<'a>(
        &mut self,
        op: &KvOp<'a>,
        keys: &mut KeyWorkingSet<'a>,
        now: Timestamp,
        scratch: &mut Scratch,
    ) -> Outcome {
        let Ok(decision) = keys::decide(keys, op, now) else {
            return Outcome::Refused(Refusal::Unreadable);
        };
        for change in decision.changes.as_slice() {
            if let Err(broken) = self.write_key(change, keys, scratch) {
                return Outcome::Refused(broken.into());
            }
        }
        decision.outcome
    }

    /// Encodes a change and applies it to the working set.
    fn write_key<'a>(
        &mut self,
        change: &KeyChange<'a>,
        keys: &mut KeyWorkingSet<'a>,
        scratch: &mut Scratch,
    ) -> Result<(), BrokenInvariant> {
        let begin = scratch.block.len();
        write_key_change(change, &mut scratch.block);
        let at = self.place.locate(&mut scratch.block, begin)?;
        let written = Written::of(change, change.key.into(), (at.offset, at.bytes));
        let mut written = written.inspect_err(|_| scratch.block.truncate(begin))?;
        let replaced = keys.apply(change);
        written.replaces =
            replaced.and_then(|before| Some((before.expires_at?.as_micros(), before.revision)));
        self.revision = change.revision;
        scratch.keys.written.push(written);
        scratch.records += 1;
        Ok(())
    }

    /// Begins a batch that sweeps what is due.
    pub(super) fn begin_keys(scratch: &mut KeyScratch, due: &DueKeys) {
        scratch.swept.extend(due.keys.iter().map(|(due, _)| *due));
    }

    /// Shows readers what is durable now. Also called for a batch of which nothing had to be written.
    pub(super) fn publish_keys(&self, shared: &Shared, scratch: &KeyScratch) {
        self.place.tail.keys.publish(&scratch.written, &shared.keys);
        shared.keys.forget_due(&scratch.swept);
    }
}

/// Bytes that sweeps need besides what the operations of their batch hold.
pub(super) fn sweep_bytes(ops: &[Op<'_>], slot_bytes: u64) -> usize {
    if has_sweep(ops) { sweep_bytes_max(slot_bytes) } else { 0 }
}

fn has_sweep(ops: &[Op<'_>]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Kv(KvOp::Sweep)))
}

/// At most an eighth of a slot, but one key at least.
fn sweep_bytes_max(slot_bytes: u64) -> usize {
    saturate::<u64, usize>(slot_bytes / 8).clamp(SWEPT_BYTES_MAX, SWEPT_MAX * SWEPT_BYTES_MAX)
}
