//! Judging changes of keys.
//!
//! The newest versions of all keys of a batch are looked up before anything is changed, so that a block that cannot be
//! read refuses the operations that need it and no others.

use hashbrown::HashMap;
use hubbub_core::kv::{KEY_BYTES_MAX, KvChanged, KvOp, KvOutcome};
use hubbub_core::{Op, Outcome, Refusal, Timestamp};

use super::{Scratch, Writer};
use crate::embedded::kv::state::Due;
use crate::embedded::kv::tail::Written;
use crate::embedded::kv::{Key, Version};
use crate::embedded::record::{KEY_GONE_BYTES_MAX, KeyChange};
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
    /// Versions that were to run out and are not the newest any more.
    gone: Vec<Due>,
}

/// The newest version of a key as the batch left it so far.
#[derive(Debug, Clone, Copy)]
enum Known {
    Version(Option<Version>),
    /// What is stored of it cannot be read.
    Unreadable,
}

/// What has run out and is to be swept.
#[derive(Debug, Default)]
pub(super) struct DueKeys {
    keys: Vec<(Due, Key)>,
    more: bool,
}

/// The newest versions of all keys of a batch.
#[derive(Debug)]
pub(super) struct KnownKeys<'a> {
    versions: HashMap<&'a [u8], Known>,
    /// What the first sweep of the batch takes; further ones find nothing left.
    due: &'a [(Due, Key)],
    more_due: bool,
}

impl DueKeys {
    /// What a batch sweeps, if it sweeps.
    pub(super) fn find(shared: &Shared, ops: &[Op<'_>], now: i64) -> Self {
        if !has_sweep(ops) {
            return Self::default();
        }
        let most = (sweep_bytes_max(shared.options.slot_bytes) / SWEPT_BYTES_MAX).max(1);
        let (keys, more) = shared.keys.due_by(now, most);
        Self { keys, more }
    }
}

impl<'a> KnownKeys<'a> {
    /// Looks up every key of the batch.
    pub(super) fn look_up(shared: &Shared, view: &View, ops: &[Op<'a>], due: &'a DueKeys) -> Self {
        let mut versions = HashMap::new();
        let of_ops = ops.iter().filter_map(|op| match op {
            Op::Kv(op) => op.key(),
            _ => None,
        });
        for key in of_ops.chain(due.keys.iter().map(|(_, key)| &**key)) {
            versions.entry(key).or_insert_with(|| {
                view.key_version(key, shared.hasher.hash_key(key)).map_or_else(
                    |error| {
                        shared.status.damage.note(&error.into());
                        Known::Unreadable
                    },
                    Known::Version,
                )
            });
        }
        Self { versions, due: &due.keys, more_due: due.more }
    }
}

impl Writer {
    /// Decides about a change of a key and encodes it if there is one.
    pub(super) fn judge_key<'a>(
        &mut self,
        op: &KvOp<'a>,
        known: &mut KnownKeys<'a>,
        now: i64,
        scratch: &mut Scratch,
    ) -> Outcome {
        let (key, condition) = match *op {
            KvOp::Put { key, condition, .. } | KvOp::Delete { key, condition } => (key, condition),
            KvOp::Sweep => return self.sweep(known, scratch),
        };
        let Some(Known::Version(version)) = known.versions.get(key).copied() else {
            return Outcome::Refused(Refusal::Unreadable);
        };
        let seen = version.filter(|version| version.is_seen(now));
        let revision = seen.map(|version| version.revision);
        if !condition.holds(revision) {
            return Outcome::Refused(Refusal::Condition { revision });
        }
        let change = match *op {
            KvOp::Put { value, ttl_ms, .. } => {
                let micros = |ms: u64| i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
                let expires = ttl_ms.map(|ms| now.saturating_add(micros(ms)));
                (KvChanged::Put, value, expires)
            }
            _ if seen.is_none() => return Outcome::Kv(KvOutcome::Deleted { revision: None }),
            _ => (KvChanged::Deleted, [].as_slice(), None),
        };
        let revision = self.write_key(key, change, known, scratch);
        Outcome::Kv(match change {
            (KvChanged::Put, _, expires) => KvOutcome::Put {
                revision,
                expires_at: expires.map(Timestamp::from_micros),
                created: seen.is_none(),
            },
            _ => KvOutcome::Deleted { revision: Some(revision) },
        })
    }

    /// Deletes what has run out.
    fn sweep(&mut self, known: &mut KnownKeys<'_>, scratch: &mut Scratch) -> Outcome {
        let (mut revision, more) = (None, known.more_due);
        for (due, key) in std::mem::take(&mut known.due) {
            match known.versions.get(&**key) {
                Some(Known::Version(Some(version)))
                    if (version.expires, version.revision) == (Some(due.0), due.1) =>
                {
                    revision = Some(self.write_key(key, (KvChanged::Expired, &[], None), known, scratch));
                }
                // Another version took its place, or it cannot be read: then a restart looks at it again.
                _ => scratch.keys.gone.push(*due),
            }
        }
        Outcome::Kv(KvOutcome::Swept { revision, more })
    }

    /// Encodes a change and notes it. Answers its revision.
    fn write_key<'a>(
        &mut self,
        key: &'a [u8],
        (what, value, expires): (KvChanged, &[u8], Option<i64>),
        known: &mut KnownKeys<'a>,
        scratch: &mut Scratch,
    ) -> u64 {
        self.revision += 1;
        let before = match known.versions.get(key) {
            Some(Known::Version(version)) => version.filter(|version| !version.deleted),
            _ => None,
        };
        let change =
            KeyChange { key, revision: self.revision, what, value, expires, is_new: before.is_none() };
        let begin = scratch.block.len();
        change.write(&mut scratch.block);
        // Slots are smaller than 4 GiB.
        let bytes = u32::try_from(scratch.block.len() - begin).unwrap_or(u32::MAX);
        let offset = u32::try_from(self.place.position + begin as u64).unwrap_or(u32::MAX);
        let mut written = Written::of(&change, key.into(), (offset, bytes));
        written.replaces = before.and_then(|before| Some((before.expires?, before.revision)));
        known.versions.insert(key, Known::Version(Some(written.place.version)));
        scratch.keys.written.push(written);
        scratch.records += 1;
        self.revision
    }

    /// Begins a batch.
    pub(super) fn begin_keys(scratch: &mut KeyScratch) {
        scratch.written.clear();
        scratch.gone.clear();
    }

    /// Shows readers what is durable now. Also called for a batch of which nothing had to be written.
    pub(super) fn publish_keys(&self, shared: &Shared, scratch: &KeyScratch) {
        self.place.tail.keys.publish(&scratch.written, &shared.keys);
        shared.keys.forget_due(&scratch.gone);
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
    let eighth = usize::try_from(slot_bytes / 8).unwrap_or(usize::MAX);
    eighth.clamp(SWEPT_BYTES_MAX, SWEPT_MAX * SWEPT_BYTES_MAX)
}
