//! What keys are, in the plainest way: one map.

use std::collections::BTreeMap;

use hubbub_core::kv::KvChanged;
use hubbub_core::{KvOp, KvOutcome, Outcome, Refusal, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptValue {
    pub(super) value: Vec<u8>,
    pub(super) revision: u64,
    pub(super) expires: Option<i64>,
}

/// All keys, and all that ever happened to them.
#[derive(Debug, Clone, Default)]
pub struct Model {
    keys: BTreeMap<Vec<u8>, KeptValue>,
    pub(super) changes: Vec<(u64, Vec<u8>, KvChanged)>,
    /// The last one given.
    pub revision: u64,
}

impl Model {
    /// What is there at a time.
    pub(super) fn at(&self, now: i64) -> impl Iterator<Item = (&Vec<u8>, &KeptValue)> {
        self.keys.iter().filter(move |(_, kept)| kept.expires.is_none_or(|expires| expires > now))
    }

    pub(super) fn get(&self, key: &[u8], now: i64) -> Option<&KeptValue> {
        self.keys.get(key).filter(|kept| kept.expires.is_none_or(|expires| expires > now))
    }

    /// Undoes all deletions.
    #[cfg(test)]
    pub(super) fn bring_back(&mut self) {
        for (revision, key, what) in &self.changes {
            if *what == KvChanged::Deleted {
                let empty = KeptValue { value: Vec::new(), revision: *revision, expires: None };
                self.keys.entry(key.clone()).or_insert(empty);
            }
        }
    }

    fn change(&mut self, key: &[u8], what: KvChanged) -> u64 {
        self.revision += 1;
        self.changes.push((self.revision, key.to_vec(), what));
        self.revision
    }

    /// What an operation comes to.
    pub fn apply(&mut self, op: &KvOp<'_>, now: i64) -> Outcome {
        let (key, condition) = match *op {
            KvOp::Put { key, condition, .. } | KvOp::Delete { key, condition } => (key, condition),
            KvOp::Sweep => {
                let before = self.revision;
                self.sweep(now);
                let revision = (self.revision > before).then_some(self.revision);
                return Outcome::Kv(KvOutcome::Swept { more: false, revision });
            }
        };
        let before = self.get(key, now).map(|kept| kept.revision);
        if !condition.holds(before) {
            return Outcome::Refused(Refusal::Condition { revision: before });
        }
        Outcome::Kv(match *op {
            KvOp::Put { value, ttl_ms, .. } => {
                let revision = self.change(key, KvChanged::Put);
                let expires = ttl_ms.map(|ttl| now + i64::try_from(ttl).unwrap() * 1_000);
                self.keys.insert(key.to_vec(), KeptValue { value: value.to_vec(), revision, expires });
                KvOutcome::Put {
                    revision,
                    expires_at: expires.map(Timestamp::from_micros),
                    created: before.is_none(),
                }
            }
            _ => {
                let revision = before.map(|_| self.change(key, KvChanged::Deleted));
                if revision.is_some() {
                    self.keys.remove(key);
                }
                KvOutcome::Deleted { revision }
            }
        })
    }

    fn sweep(&mut self, now: i64) {
        // What ran out first goes first, of what ran out together what was put first.
        let is_over = |kept: &&KeptValue| kept.expires.is_some_and(|expires| expires <= now);
        let over = self.keys.iter().filter(|(_, kept)| is_over(kept));
        let mut over: Vec<_> = over.map(|(key, kept)| (kept.expires, kept.revision, key.clone())).collect();
        over.sort();
        for (_, _, key) in over {
            self.keys.remove(&key);
            self.change(&key, KvChanged::Expired);
        }
    }
}
