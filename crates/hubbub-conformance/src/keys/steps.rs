//! What cases are made of.

use hubbub_core::kv::{Condition, KeyInfo, KvChange, KvChanged, KvChangesRead, KvEntry};
use hubbub_core::{KvOp, KvOutcome, Op, OpBatch, Outcome, Refusal};

use super::super::Fixture;

/// Applies one batch.
pub(super) async fn batch(fixture: &impl Fixture, ops: &[KvOp<'_>]) -> Vec<Outcome> {
    let mut batch = OpBatch::default();
    ops.iter().for_each(|op| batch.push(&Op::Kv(*op)));
    let store = fixture.store();
    let outcomes = tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap();
    let outcomes = outcomes.unwrap_or_else(|error| panic!("{ops:?} was not applied: {error}"));
    assert_eq!(outcomes.len(), ops.len(), "there must be one outcome for each operation");
    outcomes
}

pub(super) async fn one(fixture: &impl Fixture, op: KvOp<'_>) -> Outcome {
    batch(fixture, &[op]).await.remove(0)
}

/// What an operation comes to that must not be refused.
pub(super) async fn done(fixture: &impl Fixture, op: KvOp<'_>) -> KvOutcome {
    match one(fixture, op).await {
        Outcome::Kv(outcome) => outcome,
        other => panic!("{op:?} was answered {other:?}"),
    }
}

pub(super) async fn refused(fixture: &impl Fixture, op: KvOp<'_>) -> Option<u64> {
    match one(fixture, op).await {
        Outcome::Refused(Refusal::Condition { revision }) => revision,
        other => panic!("{op:?} must be refused, but was answered {other:?}"),
    }
}

pub(super) fn put_op<'a>(key: &'a str, value: &'a str) -> KvOp<'a> {
    KvOp::Put { key: key.as_bytes(), value: value.as_bytes(), ttl_ms: None, condition: Condition::Always }
}

pub(super) fn delete_op(key: &str) -> KvOp<'_> {
    KvOp::Delete { key: key.as_bytes(), condition: Condition::Always }
}

/// Sets a key and says its revision, and whether it is new.
pub(super) async fn put(fixture: &impl Fixture, key: &str, value: &str) -> (u64, bool) {
    put_for(fixture, key, value, None).await
}

pub(super) async fn put_for(
    fixture: &impl Fixture,
    key: &str,
    value: &str,
    ttl_ms: Option<u64>,
) -> (u64, bool) {
    let op = KvOp::Put { key: key.as_bytes(), value: value.as_bytes(), ttl_ms, condition: Condition::Always };
    match done(fixture, op).await {
        KvOutcome::Put { revision, created, .. } => (revision, created),
        other => panic!("{op:?} was answered {other:?}"),
    }
}

/// Deletes a key and says the revision of that.
pub(super) async fn delete(fixture: &impl Fixture, key: &str) -> Option<u64> {
    match done(fixture, delete_op(key)).await {
        KvOutcome::Deleted { revision } => revision,
        other => panic!("a deletion was answered {other:?}"),
    }
}

pub(super) async fn entry(fixture: &impl Fixture, key: &[u8]) -> Option<KvEntry> {
    fixture.store().value(key).await.unwrap()
}

/// A key's value as text.
pub(super) async fn value(fixture: &impl Fixture, key: &str) -> Option<String> {
    entry(fixture, key.as_bytes()).await.map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
}

pub(super) async fn keys(
    fixture: &impl Fixture,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Vec<KeyInfo> {
    let store = fixture.store();
    let page = store.keys(prefix.as_bytes(), after.map(str::as_bytes), limit).await.unwrap();
    assert_eq!(page.revision, store.revision(), "nobody changes keys meanwhile");
    page.keys
}

pub(super) fn names(keys: &[KeyInfo]) -> Vec<&str> {
    keys.iter().map(|info| std::str::from_utf8(&info.key).unwrap()).collect()
}

/// All changes behind a revision, which must still be kept.
pub(super) async fn changes(fixture: &impl Fixture, prefix: &str, mut after: u64) -> Vec<KvChange> {
    let mut all = Vec::new();
    loop {
        match fixture.store().changes(prefix.as_bytes(), after, 1_000).await.unwrap() {
            KvChangesRead::Changes(some) => {
                all.extend(some.changes);
                assert!(some.through >= after && (some.through > after || !some.more), "it does not get on");
                after = some.through;
                if !some.more {
                    return all;
                }
            }
            KvChangesRead::Compacted { oldest, head } => {
                panic!("{after} is gone: {oldest} to {head} are kept")
            }
        }
    }
}

pub(super) fn told(changes: &[KvChange]) -> Vec<(u64, &str, KvChanged)> {
    changes.iter().map(|one| (one.revision, std::str::from_utf8(&one.key).unwrap(), one.what)).collect()
}

/// Ends what has run out.
pub(super) async fn sweep(fixture: &impl Fixture) {
    while matches!(done(fixture, KvOp::Sweep).await, KvOutcome::Swept { more: true, .. }) {}
}

pub(super) fn advance_ms(fixture: &impl Fixture, ms: i64) {
    fixture.clock().advance_micros(ms * 1_000);
}
