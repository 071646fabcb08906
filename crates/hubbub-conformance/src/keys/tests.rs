//! The suite for keys itself: a right store passes, and every kind of wrong one is found.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::kv::{
    CHANGES_KEPT, Condition, KeyInfo, KeyPage, KvChange, KvChanges, KvChangesRead, KvEntry,
};
use hubbub_core::store::Read;
use hubbub_core::{Clock, KvOp, KvStore, Outcome, Timestamp};

use super::super::tests::{Flaw, InMemory, Memory, missed};
use super::model::{KeptValue, Model};

const FLAWS: [Flaw; 12] = [
    Flaw::KeyChangesForgetDeletions,
    Flaw::KeyChangesWithoutEnd,
    Flaw::KeyConditionsHold,
    Flaw::KeyExpiresLate,
    Flaw::KeyListsTheExpired,
    Flaw::KeyPagesRepeat,
    Flaw::KeyPrefixIsIgnored,
    Flaw::KeyRevisionsStartAnew,
    Flaw::KeyTtlIsForgotten,
    Flaw::KeyTtlStays,
    Flaw::KeysComeBackWhenRestarted,
    Flaw::KeysAreText,
];

/// One operation, done as the flaw will have it.
pub(crate) fn apply(store: &InMemory, op: KvOp<'_>) -> Outcome {
    let mut model = store.keys.lock();
    let now = store.clock.now().as_micros();
    let text;
    let op = match op {
        KvOp::Put { key, value, ttl_ms, .. } if store.flaw == Flaw::KeyConditionsHold => {
            KvOp::Put { key, value, ttl_ms, condition: Condition::Always }
        }
        KvOp::Put { key, value, ttl_ms: None, condition } if store.flaw == Flaw::KeyTtlStays => {
            let before = model.get(key, now).and_then(|kept| kept.expires);
            let ttl_ms = before.map(|expires| u64::try_from((expires - now) / 1_000).unwrap());
            KvOp::Put { key, value, ttl_ms, condition }
        }
        KvOp::Put { key, value, condition, .. } if store.flaw == Flaw::KeyTtlIsForgotten => {
            KvOp::Put { key, value, ttl_ms: None, condition }
        }
        KvOp::Put { key, value, ttl_ms, condition } if store.flaw == Flaw::KeysAreText => {
            text = String::from_utf8_lossy(key).into_owned();
            KvOp::Put { key: text.as_bytes(), value, ttl_ms, condition }
        }
        op => op,
    };
    model.apply(&op, now)
}

/// The keys of a store that was started again.
pub(crate) fn restarted(flaw: Flaw, mut model: Model) -> Model {
    match flaw {
        Flaw::KeyRevisionsStartAnew => {
            model.revision = model.at(0).map(|(_, kept)| kept.revision).max().unwrap_or(0)
        }
        Flaw::KeysComeBackWhenRestarted => model.bring_back(),
        _ => {}
    }
    model
}

impl InMemory {
    fn key_info((key, kept): (&Vec<u8>, &KeptValue)) -> KeyInfo {
        KeyInfo {
            key: Arc::from(key.as_slice()),
            revision: kept.revision,
            bytes: kept.value.len() as u64,
            expires_at: kept.expires.map(Timestamp::from_micros),
        }
    }

    fn time_for_keys(&self) -> i64 {
        let late = if self.flaw == Flaw::KeyExpiresLate { 1 } else { 0 };
        self.clock.now().as_micros() - late
    }
}

impl KvStore for InMemory {
    fn value(&self, key: &[u8]) -> Read<'_, Option<KvEntry>> {
        let model = self.keys.lock();
        let found = model.get(key, self.time_for_keys()).map(|kept| KvEntry {
            value: Arc::from(kept.value.as_slice()),
            revision: kept.revision,
            expires_at: kept.expires.map(Timestamp::from_micros),
        });
        Box::pin(ready(Ok(found)))
    }

    fn keys(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Read<'_, KeyPage> {
        let model = self.keys.lock();
        let now = if self.flaw == Flaw::KeyListsTheExpired { 0 } else { self.time_for_keys() };
        let is_behind = |key: &[u8]| {
            after.is_none_or(|after| key > after || (self.flaw == Flaw::KeyPagesRepeat && key == after))
        };
        let is_meant = |key: &[u8]| self.flaw == Flaw::KeyPrefixIsIgnored || key.starts_with(prefix);
        let fits = |(key, _): &(&Vec<u8>, &KeptValue)| is_meant(key) && is_behind(key);
        let keys = model.at(now).filter(fits).take(limit).map(Self::key_info).collect();
        Box::pin(ready(Ok(KeyPage { keys, revision: model.revision })))
    }

    fn changes(&self, prefix: &[u8], after: u64, limit: usize) -> Read<'_, KvChangesRead> {
        let model = self.keys.lock();
        let kept = model.changes.len().saturating_sub(CHANGES_KEPT) as u64;
        let is_gone = after < kept && self.flaw != Flaw::KeyChangesWithoutEnd;
        if is_gone || after > model.revision {
            let compacted = KvChangesRead::Compacted { oldest: kept, head: model.revision };
            return Box::pin(ready(Ok(compacted)));
        }
        let is_hidden = |what| {
            self.flaw == Flaw::KeyChangesForgetDeletions && what == hubbub_core::kv::KvChanged::Deleted
        };
        let mut found = KvChanges { through: model.revision, ..KvChanges::default() };
        for (revision, key, what) in model.changes.iter().filter(|(revision, ..)| *revision > after) {
            if !key.starts_with(prefix) || is_hidden(*what) {
                continue;
            }
            if found.changes.len() == limit {
                found.more = true;
                found.through = found.changes.last().map_or(after, |last: &KvChange| last.revision);
                break;
            }
            found.changes.push(KvChange { revision: *revision, key: Arc::from(key.as_slice()), what: *what });
        }
        Box::pin(ready(Ok(KvChangesRead::Changes(found))))
    }

    fn revision(&self) -> u64 {
        self.keys.lock().revision
    }

    fn kv_due_in(&self) -> Option<Duration> {
        let (model, now) = (self.keys.lock(), self.clock.now().as_micros());
        let first = model.at(i64::MIN).filter_map(|(_, kept)| kept.expires).min()?;
        Some(Duration::from_micros(u64::try_from(first - now).unwrap_or(0)))
    }
}

mod a_right_store {
    use super::{Flaw, Memory};

    crate::key_conformance_tests!(Memory::fresh(Flaw::None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_flaw_is_found() {
    let missed = missed(&FLAWS, |flaw| crate::key_conformance_tests!(@list Memory::fresh(flaw))).await;
    assert!(missed.is_empty(), "no case minds {missed:?}");
}
