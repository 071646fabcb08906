//! The rules of keys without a store: a view in memory, and what must hold after any operations.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;
use crate::kv::{Condition, TTL_MS_MAX};

/// Keys in memory. What is said of `damaged` cannot be read.
#[derive(Default)]
struct Memory {
    versions: BTreeMap<&'static [u8], KeyVersion>,
    revision: u64,
    damaged: Option<&'static [u8]>,
    /// What the next sweep of the batch is shown, and how many it may be shown.
    expired: ExpiredKeys<'static>,
}

impl View<'static> for Memory {
    type LoadRequest = ();

    fn version(&self, key: &[u8]) -> Result<Option<KeyVersion>, ()> {
        if self.damaged == Some(key) { Err(()) } else { Ok(self.versions.get(key).copied()) }
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn take_expired(&mut self) -> ExpiredKeys<'static> {
        let has_more = self.expired.has_more;
        ExpiredKeys { keys: std::mem::take(&mut self.expired.keys), has_more }
    }
}

impl Memory {
    /// Loads what has expired for the sweeps of a batch.
    fn begin_batch(&mut self, now: Timestamp, most: usize) {
        let over = self.versions.iter().filter(|(_, version)| has_expired(version.expires_at, now));
        let mut keys: Vec<_> = over.map(|(key, version)| (*key, *version)).collect();
        let has_more = keys.len() > most;
        keys.truncate(most);
        self.expired = ExpiredKeys { keys, has_more };
    }

    fn apply(&mut self, changes: &[KeyChange<'static>]) {
        for change in changes {
            assert_eq!(change.revision, self.revision + 1, "revisions have no gaps");
            self.revision = change.revision;
            let before = match change.version() {
                Some(version) => self.versions.insert(change.key, version),
                None => self.versions.remove(change.key),
            };
            assert_eq!(change.is_new, change.what == KvChanged::Put && before.is_none());
            assert_eq!(
                change.more_keys(),
                i64::from(before.is_none()) - i64::from(change.what != KvChanged::Put)
            );
        }
    }

    fn run(&mut self, op: &KvOp<'static>, now: Timestamp) -> Outcome {
        let decision = decide(self, op, now).expect("nothing is damaged");
        self.apply(decision.changes.as_slice());
        decision.outcome
    }

    fn visible(&self, key: &[u8], now: Timestamp) -> Option<u64> {
        let version = self.versions.get(key).filter(|version| !has_expired(version.expires_at, now))?;
        Some(version.revision)
    }
}

const KEYS: [&[u8]; 3] = [b"a", b"b", b""];

fn conditions() -> impl Strategy<Value = Condition> {
    prop_oneof![
        3 => Just(Condition::Always),
        1 => Just(Condition::Present),
        1 => Just(Condition::Absent),
        1 => (0_u64..9).prop_map(Condition::Is),
        1 => (0_u64..9).prop_map(Condition::IsNot),
    ]
}

fn ops() -> impl Strategy<Value = KvOp<'static>> {
    let key = proptest::sample::select(&KEYS[..]);
    let ttl = proptest::option::of(prop_oneof![0_u64..5, Just(TTL_MS_MAX), Just(u64::MAX)]);
    let put = (key.clone(), ttl, conditions());
    prop_oneof![
        4 => put.prop_map(|(key, ttl_ms, condition)| KvOp::Put { key, value: b"v", ttl_ms, condition }),
        2 => (key, conditions()).prop_map(|(key, condition)| KvOp::Delete { key, condition }),
        1 => Just(KvOp::Sweep),
    ]
}

/// Checks one answer against what was visible before and is visible after.
fn check(
    op: &KvOp<'_>,
    before: Option<u64>,
    after: Option<u64>,
    outcome: &Outcome,
    last: u64,
) -> ControlFlow<String> {
    let holds = match (op, outcome) {
        (
            KvOp::Put { condition, .. } | KvOp::Delete { condition, .. },
            Outcome::Refused(Refusal::Condition { revision }),
        ) => !condition.holds(before) && *revision == before && after == before,
        (
            KvOp::Put { condition, ttl_ms, .. },
            Outcome::Kv(KvOutcome::Put { revision, created, expires_at }),
        ) => {
            let is_there = *ttl_ms != Some(0);
            condition.holds(before)
                && *created == before.is_none()
                && *revision == last + 1
                && expires_at.is_some() == ttl_ms.is_some()
                && after == is_there.then_some(*revision)
        }
        (KvOp::Delete { condition, .. }, Outcome::Kv(KvOutcome::Deleted { revision })) => {
            condition.holds(before) && after.is_none() && *revision == before.map(|_| last + 1)
        }
        (KvOp::Sweep, Outcome::Kv(KvOutcome::Swept { .. })) => true,
        _ => false,
    };
    if holds {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(format!("{op:?}: {before:?} {outcome:?} {after:?}"))
    }
}

proptest! {
    #[test]
    fn answers_say_what_readers_see(
        batches in proptest::collection::vec((proptest::collection::vec(ops(), 1..8), 0_i64..4_000, 1_usize..3), 1..12),
    ) {
        let (mut keys, mut now) = (Memory::default(), Timestamp::from_micros(0));
        for (ops, passed, most) in &batches {
            now = Timestamp::from_micros(now.as_micros() + passed);
            keys.begin_batch(now, *most);
            for op in ops {
                let see = |keys: &Memory| op.key().and_then(|key| keys.visible(key, now));
                let all = |keys: &Memory| KEYS.map(|key| keys.visible(key, now));
                let (before, all_before, last) = (see(&keys), all(&keys), keys.revision);
                let outcome = keys.run(op, now);
                let checked = check(op, before, see(&keys), &outcome, last);
                prop_assert!(checked.is_continue(), "{checked:?}");
                if matches!(op, KvOp::Sweep) {
                    prop_assert_eq!(all_before, all(&keys), "a sweep changes nothing that readers see");
                }
                if let Outcome::Kv(KvOutcome::Swept { revision, .. }) = outcome {
                    prop_assert_eq!(revision, (keys.revision > last).then_some(keys.revision));
                }
            }
        }
        // Sweeps until nothing is left leave only what readers see.
        loop {
            keys.begin_batch(now, 2);
            let Outcome::Kv(KvOutcome::Swept { more, .. }) = keys.run(&KvOp::Sweep, now) else { unreachable!() };
            if !more { break }
        }
        prop_assert!(keys.versions.values().all(|version| !has_expired(version.expires_at, now)));
    }

    #[test]
    fn what_is_damaged_is_not_decided_about_and_takes_no_revision(ops in proptest::collection::vec(ops(), 1..20)) {
        let mut keys = Memory { damaged: Some(b"a"), ..Memory::default() };
        for op in &ops {
            let last = keys.revision;
            match decide(&mut keys, op, Timestamp::from_micros(0)) {
                Ok(decision) => keys.apply(decision.changes.as_slice()),
                Err(()) => prop_assert_eq!(op.key(), Some(b"a".as_slice())),
            }
            prop_assert!(op.key() != Some(b"a") || keys.revision == last);
        }
    }
}

#[test]
fn a_sweep_leaves_what_the_batch_replaced_and_passes_over_what_is_damaged() {
    let (start, later) = (Timestamp::from_micros(0), Timestamp::from_micros(2_000));
    let put = |key| KvOp::Put { key, value: b"v", ttl_ms: Some(1), condition: Condition::Always };
    let mut keys = Memory::default();
    for key in KEYS {
        keys.run(&put(key), start);
    }
    keys.begin_batch(later, 9);
    keys.run(&put(b"a"), later);
    keys.damaged = Some(b"b");
    let swept = keys.run(&KvOp::Sweep, later);
    assert_eq!(swept, Outcome::Kv(KvOutcome::Swept { revision: Some(5), more: false }));
    assert_eq!(keys.versions.keys().copied().collect::<Vec<_>>(), [b"a".as_slice(), b"b"]);
    // The second one of the batch finds nothing left.
    let again = keys.run(&KvOp::Sweep, later);
    assert_eq!(again, Outcome::Kv(KvOutcome::Swept { revision: None, more: false }));
}

#[test]
fn no_time_to_live_is_too_long() {
    assert_eq!(expiry(Timestamp::from_micros(5), 2), Timestamp::from_micros(2_005));
    assert_eq!(expiry(Timestamp::from_micros(i64::MAX), u64::MAX), Timestamp::from_micros(i64::MAX));
}
