//! The cache in front of a store in memory with slow reads.

mod lease;
mod model;
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::clock::{ManualClock, RandomSource, SeededRandom};
use hubbub_core::kv::Condition;
use hubbub_core::{KvOp, KvStore, Op, OpBatch, Outcome};
use tokio::sync::mpsc;

use super::*;
use model::Model;

fn keys_of(model: &Arc<Model>, clock: &Arc<ManualClock>, limits: CacheLimits) -> (Arc<Keys>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    let store: Arc<dyn KvStore> = model.clone();
    (Arc::new(Keys::new(store, clock.clone(), metrics.clone(), limits)), metrics)
}

fn limits(bytes: u64, entries: usize) -> CacheLimits {
    CacheLimits { bytes, entries, value_bytes: 256 << 10 }
}

fn batch(ops: &[KvOp<'_>]) -> OpBatch {
    let mut batch = OpBatch::default();
    ops.iter().for_each(|op| batch.push(&Op::Kv(*op)));
    batch
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> KvOp<'a> {
    KvOp::Put { key, value, ttl_ms: None, condition: Condition::Always }
}

fn delete(key: &[u8]) -> KvOp<'_> {
    KvOp::Delete { key, condition: Condition::Always }
}

struct Fixture {
    model: Arc<Model>,
    clock: Arc<ManualClock>,
    keys: Arc<Keys>,
    metrics: Arc<Metrics>,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000)));
        let model = Arc::new(Model::new(clock.clone()));
        let (keys, metrics) = keys_of(&model, &clock, limits(1 << 20, 1_000));
        Self { model, clock, keys, metrics }
    }

    async fn apply(&self, ops: &[KvOp<'_>]) {
        let ops = batch(ops);
        let outcomes = self.model.apply(&ops);
        self.keys.apply_committed(&ops, &outcomes, None).await;
    }

    /// The value, and whether it was in memory.
    async fn get(&self, key: &[u8]) -> (Option<Vec<u8>>, bool) {
        let found = self.keys.get(key).await.unwrap();
        (found.value.map(|value| value.bytes.to_vec()), found.is_hit)
    }
}

async fn eventually(is_so: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain");
}

#[tokio::test]
async fn values_are_found_as_they_were_put() {
    let it = Fixture::new();
    assert_eq!(it.get(b"a").await, (None, false));
    assert_eq!(it.get(b"a").await, (None, true), "that it is not there is remembered");
    it.apply(&[put(b"a", b"1"), put(b"b", b"2")]).await;
    assert_eq!(it.get(b"a").await, (Some(b"1".to_vec()), true));
    it.apply(&[put(b"a", b"3"), delete(b"b")]).await;
    assert_eq!(it.get(b"a").await, (Some(b"3".to_vec()), true));
    assert_eq!(it.get(b"b").await, (None, false));
    let large = vec![7; 100_000];
    it.apply(&[put(b"a", &large)]).await;
    assert_eq!(it.get(b"a").await, (Some(large.clone()), false), "too large to be copied when it is put");
    assert_eq!(it.get(b"a").await, (Some(large), true));
    assert_eq!(it.keys.revision(), 5);
    it.keys.measure();
    assert_eq!(it.metrics.kv_entries.get(), 2);
    assert!(it.metrics.kv_bytes.get() > 100_000);
}

#[tokio::test]
async fn refused_changes_change_nothing() {
    let it = Fixture::new();
    it.apply(&[put(b"a", b"1")]).await;
    let refused = [
        KvOp::Put { key: b"a", value: b"2", ttl_ms: None, condition: Condition::Absent },
        KvOp::Delete { key: b"a", condition: Condition::Is(7) },
    ];
    it.apply(&refused).await;
    assert_eq!(it.get(b"a").await, (Some(b"1".to_vec()), true));
    assert_eq!(it.keys.revision(), 1);
}

#[tokio::test]
async fn what_ran_out_is_gone_at_once_and_leaves_with_the_sweep() {
    let it = Fixture::new();
    let brief = |key| KvOp::Put { key, value: b"x", ttl_ms: Some(1_000), condition: Condition::Always };
    it.apply(&[brief(b"a"), brief(b"b"), put(b"c", b"stays")]).await;
    it.clock.advance_micros(999_999);
    assert_eq!(it.get(b"a").await, (Some(b"x".to_vec()), true));
    it.clock.advance_micros(1);
    assert_eq!(it.get(b"a").await, (None, true));
    // One of them comes back in the same batch, behind the sweep.
    it.apply(&[KvOp::Sweep, put(b"b", b"new")]).await;
    assert_eq!(it.keys.revision(), 6);
    assert_eq!(it.get(b"b").await, (Some(b"new".to_vec()), true));
    assert_eq!(it.get(b"a").await, (None, false));
    assert_eq!(it.get(b"c").await, (Some(b"stays".to_vec()), true));
}

/// A store that was opened with a clock that is ahead hides keys, and shows them again once the clock is right.
#[tokio::test]
async fn what_ran_out_too_early_is_there_again() {
    let it = Fixture::new();
    it.apply(&[KvOp::Put { key: b"a", value: b"x", ttl_ms: Some(1_000), condition: Condition::Always }])
        .await;
    let (keys, _) = keys_of(&it.model, &it.clock, limits(1 << 20, 1_000));
    let it = Fixture { keys, ..it };
    it.clock.step_micros(7_200_000_000);
    assert_eq!(it.get(b"a").await, (None, false));
    assert_eq!(it.get(b"a").await, (None, true));
    it.clock.step_micros(-7_200_000_000);
    assert_eq!(it.get(b"a").await, (Some(b"x".to_vec()), false));
    assert_eq!(it.get(b"a").await, (Some(b"x".to_vec()), true));
}

#[tokio::test]
async fn one_load_serves_all_who_wait() {
    let it = Fixture::new();
    it.model.apply(&batch(&[put(b"a", b"1")]));
    it.keys.publish(1);
    it.model.hold_reads();
    let gets: Vec<_> = (0..20)
        .map(|_| {
            let keys = it.keys.clone();
            tokio::spawn(async move { keys.get(b"a").await.unwrap() })
        })
        .collect();
    eventually(|| it.metrics.kv_misses.get() == 20).await;
    it.model.release_reads();
    for get in gets {
        assert_eq!(get.await.unwrap().value.unwrap().revision, 1);
    }
    assert_eq!(it.model.reads(), 1);
}

#[tokio::test]
async fn a_load_that_fails_fails_for_all_who_waited_for_it() {
    let it = Fixture::new();
    it.model.hold_reads();
    it.model.fail_reads(true);
    let get = || {
        let keys = it.keys.clone();
        tokio::spawn(async move { keys.get(b"a").await })
    };
    let gets: Vec<_> = (0..20).map(|_| get()).collect();
    eventually(|| it.metrics.kv_misses.get() == 20).await;
    it.model.release_reads();
    for get in gets {
        assert!(get.await.unwrap().is_err());
    }
    assert_eq!(it.model.reads(), 1);
    // Who comes afterwards reads again. A load that was given up has not failed.
    it.model.hold_reads();
    it.model.fail_reads(false);
    let (given_up, waiting) = (get(), get());
    eventually(|| it.metrics.kv_misses.get() == 22).await;
    it.model.release_next_reads();
    given_up.abort();
    assert!(waiting.await.unwrap().is_ok());
    assert_eq!(it.model.reads(), 3);
}

/// The clock of the store is not the one of this machine.
#[tokio::test]
async fn the_time_that_is_left_is_by_the_clock_of_the_store() {
    let it = Fixture::new();
    let ten_seconds =
        KvOp::Put { key: b"a", value: b"x", ttl_ms: Some(10_000), condition: Condition::Always };
    it.apply(&[ten_seconds, put(b"b", b"stays")]).await;
    let value = async |key: &[u8]| it.keys.get(key).await.unwrap().value.unwrap();
    assert_eq!(it.keys.time_left(&value(b"a").await), Some(Duration::from_secs(10)));
    it.model.set_time(it.clock.now().as_micros() + 4_000_000);
    assert_eq!(it.keys.time_left(&value(b"a").await), Some(Duration::from_secs(6)));
    assert_eq!(it.keys.time_left(&value(b"b").await), None);
}

#[tokio::test]
async fn a_load_that_was_overtaken_is_not_remembered() {
    for overtaken_by in [put(b"a", b"new"), put(b"a", &[7; 100_000]), delete(b"a")] {
        let it = Fixture::new();
        it.model.apply(&batch(&[put(b"a", b"old")]));
        it.model.hold_reads();
        let loading = tokio::spawn({
            let keys = it.keys.clone();
            async move { keys.get(b"a").await.unwrap() }
        });
        eventually(|| it.model.is_reading()).await;
        // It has read the old value, and does not know of the change.
        it.apply(&[overtaken_by]).await;
        it.model.release_reads();
        loading.await.unwrap();
        let now = it.model.value(b"a").await.unwrap().map(|entry| entry.value.to_vec());
        assert_eq!(it.get(b"a").await.0, now);
        assert_eq!(it.get(b"a").await.0, now);
    }
}

#[tokio::test]
async fn nothing_is_shown_before_it_is_published() {
    let it = Fixture::new();
    it.apply(&[put(b"a", b"old")]).await;
    it.keys.invalidate(batch(&[put(b"a", b"")]).iter());
    // Durable, but not processed by the dispatcher yet.
    let ops = batch(&[put(b"a", b"new")]);
    let outcomes = it.model.apply(&ops);
    let mut get = tokio::spawn({
        let keys = it.keys.clone();
        async move { keys.get(b"a").await.unwrap() }
    });
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut get).await.is_err(), "held back");
    it.keys.apply_committed(&ops, &outcomes, None).await;
    assert_eq!(get.await.unwrap().value.unwrap().revision, 2);
    // Nothing of an unconfirmed commit is cached, but reads return it.
    it.keys.invalidate(batch(&[put(b"a", b"")]).iter());
    it.model.apply(&batch(&[put(b"a", b"unconfirmed")]));
    assert_eq!(it.get(b"a").await, (Some(b"unconfirmed".to_vec()), false));
    assert_eq!(it.get(b"a").await, (Some(b"unconfirmed".to_vec()), false));
}

#[tokio::test]
async fn bytes_and_entries_are_bounded() {
    let it = Fixture::new();
    for limits in [limits(64 << 20, 100), limits(64 << 10, 100_000)] {
        let (keys, metrics) = keys_of(&it.model, &it.clock, limits);
        for number in 0..10_000_u32 {
            let ops = batch(&[put(&number.to_le_bytes(), &[1; 100])]);
            keys.apply_committed(&ops, &it.model.apply(&ops), None).await;
        }
        keys.measure();
        let (entries, bytes) = (metrics.kv_entries.get(), metrics.kv_bytes.get());
        assert!((10..=limits.entries as i64).contains(&entries), "{entries} of {limits:?}");
        assert!(bytes <= limits.bytes as i64, "{bytes} of {limits:?}");
        assert_eq!(metrics.kv_evictions.get() as i64, 10_000 - entries);
    }
    let (keys, _) = keys_of(&it.model, &it.clock, limits(0, 100));
    for _ in 0..2 {
        let found = keys.get(&1_u32.to_le_bytes()).await.unwrap();
        assert!(found.value.is_some() && !found.is_hit);
    }
}

/// Keys of the race below: few, so that all meet.
const KEYS: u8 = 6;

/// What is known of each key: the last revision of its state that any client has seen.
#[derive(Default)]
struct Known([AtomicU64; KEYS as usize]);

impl Known {
    /// Clients learn of the keys that a batch changed.
    fn learn(&self, changed: &[u8], outcomes: &[Outcome]) {
        for (key, outcome) in changed.iter().zip(outcomes) {
            if let Some(revision) = model::revision(outcome) {
                self.0[usize::from(*key)].fetch_max(revision, Ordering::SeqCst);
            }
        }
    }

    /// Gets any key, and compares with what was known before.
    async fn check_a_get(&self, keys: &Keys, model: &Model) {
        let key = (model.random() % u64::from(KEYS)) as u8;
        let known = &self.0[usize::from(key)];
        let floor = known.load(Ordering::SeqCst);
        let found = keys.get(&[key]).await.unwrap();
        let revision = found.value.map(|value| value.revision);
        let seen = model.state_since(key, revision, floor).unwrap_or_else(|| {
            panic!("key {key}: {revision:?} although {floor} was known, hit: {}", found.is_hit)
        });
        known.fetch_max(seen, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }
}

/// Puts and deletes of some keys, and which keys.
fn any_batch(random: &SeededRandom) -> (OpBatch, Vec<u8>) {
    let (mut ops, mut changed) = (OpBatch::default(), Vec::new());
    for _ in 0..1 + random.next_u64() % 3 {
        let key = (random.next_u64() % u64::from(KEYS)) as u8;
        // Some too large for the smaller caches, one in a while too large to be copied into any.
        let bytes = [10, 100, 600, 600, 3_000, 70_000][(random.next_u64() % 6) as usize];
        let (name, value) = ([key], vec![key; bytes]);
        let is_delete = random.next_u64().is_multiple_of(4);
        ops.push(&Op::Kv(if is_delete { delete(&name) } else { put(&name, &value) }));
        changed.push(key);
    }
    (ops, changed)
}

/// Committed batches that wait for the dispatcher, and the keys they change.
type Under = (OpBatch, Vec<Outcome>, Vec<u8>);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_get_is_older_than_what_was_known() {
    for (seed, bytes) in [(1, 1 << 20), (2, 1_500), (3, 4_000), (4, 200_000)] {
        race(seed, limits(bytes, 1_000)).await;
    }
}

/// Two committers, a dispatcher, and readers that compare with what was known before they asked.
async fn race(seed: u64, limits: CacheLimits) {
    const BATCHES: usize = 2_000;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000)));
    let model = Arc::new(Model::new(clock.clone()));
    model.read_slowly(seed);
    let (keys, metrics) = keys_of(&model, &clock, limits);
    let known = Arc::new(Known::default());
    let (committed, mut to_dispatch) = mpsc::channel::<Under>(4);
    let dispatcher = tokio::spawn({
        let (keys, known) = (keys.clone(), known.clone());
        async move {
            while let Some((ops, outcomes, changed)) = to_dispatch.recv().await {
                keys.apply_committed(&ops, &outcomes, None).await;
                known.learn(&changed, &outcomes);
            }
        }
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let (keys, model, known, is_over) = (keys.clone(), model.clone(), known.clone(), is_over.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    known.check_a_get(&keys, &model).await;
                }
            })
        })
        .collect();
    let random = SeededRandom::new(seed);
    for _ in 0..BATCHES {
        let (ops, changed) = any_batch(&random);
        let outcomes = model.apply(&ops);
        committed.send((ops, outcomes, changed)).await.unwrap();
        for _ in 0..random.next_u64() % 20 {
            tokio::task::yield_now().await;
        }
    }
    drop(committed);
    is_over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
    dispatcher.await.unwrap();
    let (hits, misses) = (metrics.kv_hits.get(), metrics.kv_misses.get());
    assert!(hits > 100 && misses > 100, "{hits} hits, {misses} misses");
}
