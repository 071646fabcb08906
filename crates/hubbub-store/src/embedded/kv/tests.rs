//! The store of keys against a plain model, with restarts, seals and merges in between.

mod damage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::{Condition, KvChange, KvChanged, KvChangesRead, KvOp, KvOutcome};
use hubbub_core::{Op, OpBatch, Outcome, RandomSource, Refusal, Timestamp};
use proptest::prelude::*;

use super::KV_DIR;
use crate::embedded::disk::Disk;
use crate::embedded::sim::SimDisk;
use crate::embedded::{Durability, Engine, EngineOptions};

const START: i64 = 1_800_000_000_000_000;

struct Bench {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    options: EngineOptions,
    engine: Option<Engine>,
}

impl Bench {
    fn new(slot_bytes: u64) -> Self {
        let options = EngineOptions { slot_bytes, reserve_bytes: 0, ..EngineOptions::default() };
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
        let mut bench = Self { disk: SimDisk::new(), clock, options, engine: None };
        bench.open();
        bench
    }

    fn open(&mut self) {
        self.engine = None;
        let (disk, clock) = (Arc::new(self.disk.clone()), Arc::clone(&self.clock) as _);
        self.engine = Some(Engine::open(self.options.clone(), disk, clock, &SeededRandom::new(3)).unwrap());
    }

    fn crash(&mut self, seed: u64) {
        self.engine = None;
        self.disk.crash(seed);
        self.open();
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    fn apply(&self, ops: &[KvOp<'_>]) -> Vec<Outcome> {
        let mut batch = OpBatch::default();
        ops.iter().for_each(|op| batch.push(&Op::Kv(*op)));
        let outcomes = self.engine().apply(&batch).unwrap();
        while self.engine().prepare_step().unwrap() {}
        outcomes
    }

    fn put(&self, key: &str, value: &str, ttl_ms: Option<u64>) -> u64 {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        match self.apply(&[KvOp::Put { key, value, ttl_ms, condition: Condition::Always }]).as_slice() {
            [Outcome::Kv(KvOutcome::Put { revision, .. })] => *revision,
            other => panic!("{other:?}"),
        }
    }

    fn seal(&self) {
        let shared = &self.engine().shared;
        while self.engine().seal_step().unwrap() {}
        let mut writer = self.engine().writer.lock();
        if writer.place.batch > 1 {
            writer.next_slot(shared).unwrap();
        }
        drop(writer);
        while self.engine().seal_step().unwrap() {}
    }

    fn get(&self, key: &str) -> Option<String> {
        let entry = self.engine().value(key.as_bytes()).unwrap()?;
        Some(String::from_utf8(entry.value.to_vec()).unwrap())
    }

    fn changes(&self, after: u64) -> KvChangesRead {
        self.engine().shared.keys.changes(b"", after, usize::MAX)
    }

    fn files(&self, end: &str) -> usize {
        self.disk.list(KV_DIR).unwrap().iter().filter(|name| name.ends_with(end)).count()
    }
}

#[test]
fn values_are_there_after_seal_merge_and_restart() {
    let mut bench = Bench::new(32 * 1024);
    let long = "long ".repeat(2_000);
    for round in 0..30_u64 {
        for key in 0..20 {
            bench.put(&format!("key {key}"), &format!("{round} {key}"), None);
        }
        bench.put("long", &long, None);
        bench.put(&format!("once {round}"), "", None);
        bench.seal();
    }
    assert_eq!(bench.files(".run"), 30);
    while bench.engine().merge_step().unwrap() {}
    assert_eq!((bench.files(".run"), bench.files(".log"), bench.files(".tmp")), (6, 1, 0));
    for _ in 0..2 {
        for key in 0..20 {
            assert_eq!(bench.get(&format!("key {key}")).unwrap(), format!("29 {key}"));
        }
        for round in 0..30 {
            assert_eq!(bench.get(&format!("once {round}")).unwrap(), "");
        }
        assert_eq!(bench.get("long").unwrap(), long);
        assert_eq!(bench.get("key"), None);
        assert_eq!(bench.engine().figures().keys, 51);
        bench.open();
    }
}

#[test]
fn what_says_that_a_key_is_deleted_goes_once_nothing_older_is_left() {
    let bench = Bench::new(32 * 1024);
    bench.put("a", "1", None);
    bench.seal();
    let gone = bench.apply(&[KvOp::Delete { key: b"a", condition: Condition::Always }]);
    assert_eq!(gone, [Outcome::Kv(KvOutcome::Deleted { revision: Some(2) })]);
    for _ in 0..40 {
        bench.seal();
        while bench.engine().merge_step().unwrap() {}
        bench.put("b", "2", None);
    }
    assert_eq!(bench.get("a"), None);
    let view = bench.engine().shared.view();
    let keys: u64 = view.runs.first().unwrap().keys();
    assert_eq!(keys, 1, "the oldest run holds b alone");
}

#[test]
fn deleting_what_is_not_there_writes_nothing() {
    let bench = Bench::new(32 * 1024);
    bench.put("a", "1", Some(5));
    bench.clock.advance_micros(5_000);
    let position = || bench.engine().writer.lock().place.position;
    let before = position();
    for key in [b"a".as_slice(), b"b"] {
        let gone = bench.apply(&[KvOp::Delete { key, condition: Condition::Always }]);
        assert_eq!(gone, [Outcome::Kv(KvOutcome::Deleted { revision: None })]);
    }
    assert_eq!(position(), before);
    assert_eq!(bench.engine().shared.keys.revision(), 1);
}

#[test]
fn what_ran_out_is_hidden_then_swept_unless_it_was_renewed() {
    let mut bench = Bench::new(32 * 1024);
    for key in ["a", "b", "c", "d"] {
        bench.put(key, "1", Some(10));
    }
    bench.seal();
    bench.put("a", "2", Some(20));
    bench.put("b", "2", None);
    bench.open();
    assert_eq!(bench.engine().shared.keys.due_in(START), Some(Duration::from_millis(10)));
    bench.clock.advance_micros(10_000);
    let list = |bench: &Bench| bench.engine().keys(b"", None, 9).unwrap().len();
    assert_eq!((bench.get("c"), bench.get("a").unwrap(), list(&bench)), (None, "2".into(), 2));
    let created =
        bench.apply(&[KvOp::Put { key: b"d", value: b"2", ttl_ms: None, condition: Condition::Absent }]);
    assert!(matches!(created[0], Outcome::Kv(KvOutcome::Put { created: true, .. })));
    assert_eq!(
        bench.apply(&[KvOp::Sweep, KvOp::Sweep]),
        [Some(8), None].map(|revision| Outcome::Kv(KvOutcome::Swept { revision, more: false }))
    );
    match bench.changes(7) {
        KvChangesRead::Changes(found) => {
            let expired = KvChange { revision: 8, key: b"c".as_slice().into(), what: KvChanged::Expired };
            assert_eq!(found.changes, [expired]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.engine().figures().keys, 3);
    assert_eq!(bench.engine().shared.keys.due_in(START + 10_000), Some(Duration::from_millis(10)));
    bench.clock.advance_micros(10_000);
    assert_eq!(bench.get("a"), None);
}

#[test]
fn revisions_go_on_behind_what_may_be_lost() {
    let mut bench = Bench::new(32 * 1024);
    bench.options.durability = Durability::Os;
    bench.open();
    let before = bench.put("a", "1", None);
    bench.crash(7);
    let after = bench.put("a", "2", None);
    assert!(after > before + 1_000_000);
    match bench.changes(before) {
        KvChangesRead::Compacted { oldest, head } => assert_eq!((oldest, head), (after - 1, after)),
        other => panic!("{other:?}"),
    }
    bench.seal();
    bench.open();
    assert!(bench.put("a", "3", None) > after);
}

#[test]
fn readers_never_go_back_while_slots_are_sealed_and_runs_merged() {
    const KEYS: u64 = 7;
    const ROUNDS: u64 = 1_500;
    let bench = Bench::new(16 * 1024);
    let engine = bench.engine();
    let (acknowledged, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    let key = |number: u64| format!("key {number}");
    let put = |round: u64| {
        let value = round.to_string().repeat(30);
        let mut batch = OpBatch::default();
        for number in 0..KEYS {
            let (key, value) = (key(number), value.as_bytes());
            let condition = Condition::Always;
            batch.push(&Op::Kv(KvOp::Put { key: key.as_bytes(), value, ttl_ms: None, condition }));
        }
        while engine.apply(&batch).is_err() {
            std::thread::yield_now();
        }
        acknowledged.store(round * KEYS, Ordering::Release);
    };
    put(1);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            (2..=ROUNDS).for_each(put);
            is_done.store(true, Ordering::Release);
        });
        threads.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                while engine.seal_step().unwrap() || engine.merge_step().unwrap() {}
            }
        });
        for _ in 0..2 {
            threads.spawn(|| {
                let mut last = 0;
                while !is_done.load(Ordering::Acquire) {
                    for number in 0..KEYS {
                        let least = acknowledged.load(Ordering::Acquire) - KEYS + 1 + number;
                        let entry = engine.value(key(number).as_bytes()).unwrap().unwrap();
                        assert!(
                            entry.revision >= least.max(last),
                            "{} is older than {least}",
                            entry.revision
                        );
                        assert!(entry.revision <= engine.shared.keys.revision());
                        last = entry.revision - number;
                    }
                    let listed = engine.keys(b"", None, 99).unwrap();
                    assert_eq!(listed.len() as u64, KEYS);
                }
            });
        }
    });
    assert!(bench.files(".run") > 1);
}

#[derive(Debug, Clone)]
struct Entry {
    value: Vec<u8>,
    revision: u64,
    expires: Option<i64>,
}

#[derive(Debug, Default)]
struct Model {
    keys: BTreeMap<Vec<u8>, Entry>,
    revision: u64,
    changes: Vec<KvChange>,
}

impl Model {
    fn note(&mut self, key: &[u8], what: KvChanged) -> u64 {
        self.revision += 1;
        self.changes.push(KvChange { revision: self.revision, key: key.into(), what });
        self.revision
    }

    fn seen(&self, key: &[u8], now: i64) -> Option<&Entry> {
        self.keys.get(key).filter(|entry| entry.expires.is_none_or(|expires| now < expires))
    }

    fn apply(&mut self, op: &KvOp<'_>, now: i64) -> Outcome {
        let revision = op.key().and_then(|key| self.seen(key, now)).map(|entry| entry.revision);
        match *op {
            KvOp::Put { condition, .. } | KvOp::Delete { condition, .. } if !condition.holds(revision) => {
                Outcome::Refused(Refusal::Condition { revision })
            }
            KvOp::Put { key, value, ttl_ms, .. } => {
                let expires = ttl_ms.map(|ms| now + i64::try_from(ms).unwrap() * 1_000);
                let created = revision.is_none();
                let revision = self.note(key, KvChanged::Put);
                self.keys.insert(key.to_vec(), Entry { value: value.to_vec(), revision, expires });
                let expires_at = expires.map(Timestamp::from_micros);
                Outcome::Kv(KvOutcome::Put { revision, expires_at, created })
            }
            KvOp::Delete { key, .. } => {
                let revision = revision.map(|_| {
                    self.keys.remove(key);
                    self.note(key, KvChanged::Deleted)
                });
                Outcome::Kv(KvOutcome::Deleted { revision })
            }
            KvOp::Sweep => {
                let before = self.revision;
                let mut due: Vec<(i64, u64, Vec<u8>)> = self
                    .keys
                    .iter()
                    .filter_map(|(key, entry)| Some((entry.expires?, entry.revision, key.clone())))
                    .filter(|due| due.0 <= now)
                    .collect();
                due.sort();
                for (_, _, key) in due {
                    self.keys.remove(&key);
                    self.note(&key, KvChanged::Expired);
                }
                let revision = Some(self.revision).filter(|revision| *revision > before);
                Outcome::Kv(KvOutcome::Swept { revision, more: false })
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put { key: u8, bytes: usize, ttl_ms: Option<u64>, condition: u8 },
    Delete { key: u8, condition: u8 },
    Sweep,
    Apply,
    Wait(u64),
    Seal,
    Merge,
    Restart,
    Crash(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ttl = proptest::option::weighted(0.4, 1_u64..40);
    let bytes = prop_oneof![6 => 0_usize..40, 1 => 900_usize..1_200, 1 => Just(3_000)];
    let put = (0_u8..40, bytes, ttl, 0_u8..9).prop_map(|(key, bytes, ttl_ms, condition)| Step::Put {
        key,
        bytes,
        ttl_ms,
        condition,
    });
    let delete = (0_u8..40, 0_u8..9).prop_map(|(key, condition)| Step::Delete { key, condition });
    let step = prop_oneof![
        40 => put,
        10 => delete,
        3 => Just(Step::Sweep),
        12 => Just(Step::Apply),
        5 => (1_u64..30).prop_map(Step::Wait),
        5 => Just(Step::Seal),
        3 => Just(Step::Merge),
        2 => Just(Step::Restart),
        1 => any::<u64>().prop_map(Step::Crash),
    ];
    proptest::collection::vec(step, 1..250)
}

fn key_of(number: u8) -> Vec<u8> {
    format!("{}/{}", ["a", "b", "ba", "c"][usize::from(number % 4)], number / 4).into_bytes()
}

fn condition_of(number: u8, revision: Option<u64>) -> Condition {
    let known = revision.unwrap_or(1);
    match number {
        0 => Condition::Present,
        1 => Condition::Absent,
        2 => Condition::Is(known),
        3 => Condition::IsNot(known),
        4 => Condition::Is(known + 1),
        _ => Condition::Always,
    }
}

fn compare(bench: &Bench, model: &Model, now: i64) {
    let engine = bench.engine();
    for number in 0..40 {
        let key = key_of(number);
        let found = engine.value(&key).unwrap();
        let expected = model.seen(&key, now);
        assert_eq!(found.as_ref().map(|entry| &*entry.value), expected.map(|entry| entry.value.as_slice()));
        assert_eq!(found.as_ref().map(|entry| entry.revision), expected.map(|entry| entry.revision));
        let expires = expected.and_then(|entry| entry.expires).map(Timestamp::from_micros);
        assert_eq!(found.and_then(|entry| entry.expires_at), expires);
    }
    for prefix in [b"".as_slice(), b"b", b"b/", b"zz"] {
        for limit in [1, 3, 100] {
            let (mut listed, mut after): (Vec<_>, Option<Vec<u8>>) = (Vec::new(), None);
            loop {
                let page = engine.keys(prefix, after.as_deref(), limit).unwrap();
                assert!(page.len() <= limit);
                after = page.last().map(|info| info.key.to_vec());
                let is_last = page.len() < limit;
                listed.extend(page.into_iter().map(|info| (info.key.to_vec(), info.revision, info.bytes)));
                if is_last {
                    break;
                }
            }
            let expected: Vec<_> = model
                .keys
                .iter()
                .filter(|(key, _)| key.starts_with(prefix) && model.seen(key, now).is_some())
                .map(|(key, entry)| (key.clone(), entry.revision, entry.value.len() as u64))
                .collect();
            assert_eq!(listed, expected);
        }
    }
    let keys = &engine.shared.keys;
    assert_eq!((keys.revision(), keys.count()), (model.revision, model.keys.len() as u64));
    match bench.changes(0) {
        KvChangesRead::Changes(found) => assert_eq!(found.changes, model.changes),
        other => panic!("{other:?}"),
    }
    let due = model.keys.values().filter_map(|entry| entry.expires).min();
    let told = keys.due_in(now);
    // It may be told too early, for a version that is not the newest any more, never too late.
    if let Some(due) = due {
        assert!(told.unwrap() <= Duration::from_micros(u64::try_from(due - now).unwrap_or(0)));
    }
}

/// Does what `waiting` says in one batch, and the same to the model.
fn apply_all(bench: &Bench, model: &mut Model, waiting: &mut Vec<Step>, now: i64) {
    let keys: Vec<Vec<u8>> = (0..40).map(key_of).collect();
    let noise = SeededRandom::new(model.revision);
    let values: Vec<u8> =
        std::iter::repeat_with(|| noise.next_u64().to_le_bytes()).take(400).flatten().collect();
    let (mut ops, mut expected) = (Vec::new(), Vec::new());
    for step in waiting.drain(..) {
        let op = match step {
            Step::Put { key, bytes, ttl_ms, condition } => {
                let key = &keys[usize::from(key)];
                let condition = condition_of(condition, model.seen(key, now).map(|entry| entry.revision));
                KvOp::Put { key, value: &values[..bytes], ttl_ms, condition }
            }
            Step::Delete { key, condition } => {
                let key = &keys[usize::from(key)];
                let condition = condition_of(condition, model.seen(key, now).map(|entry| entry.revision));
                KvOp::Delete { key, condition }
            }
            other => panic!("{other:?}"),
        };
        expected.push(model.apply(&op, now));
        ops.push(op);
    }
    if !ops.is_empty() {
        assert_eq!(bench.apply(&ops), expected);
    }
    while bench.engine().shared.waiting_slots() > 1 && bench.engine().seal_step().unwrap() {}
}

fn has_more(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Kv(KvOutcome::Swept { more: true, .. }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_a_plain_map_does(steps in steps()) {
        let mut bench = Bench::new(32 * 1024);
        let (mut model, mut now) = (Model::default(), START);
        let mut waiting: Vec<Step> = Vec::new();
        for step in steps.into_iter().chain([Step::Apply]) {
            if matches!(step, Step::Put { .. } | Step::Delete { .. }) && waiting.len() < 8 {
                waiting.push(step);
                continue;
            }
            apply_all(&bench, &mut model, &mut waiting, now);
            match step {
                Step::Put { .. } | Step::Delete { .. } => waiting.push(step),
                Step::Apply => {}
                Step::Sweep => {
                    model.apply(&KvOp::Sweep, now);
                    while bench.apply(&[KvOp::Sweep]).iter().any(has_more) {}
                }
                Step::Wait(ms) => {
                    let micros = i64::try_from(ms).unwrap() * 1_000;
                    now += micros;
                    bench.clock.advance_micros(micros);
                }
                Step::Seal => bench.seal(),
                Step::Merge => while bench.engine().merge_step().unwrap() {},
                Step::Restart => bench.open(),
                Step::Crash(seed) => bench.crash(seed),
            }
            compare(&bench, &model, now);
        }
    }
}
