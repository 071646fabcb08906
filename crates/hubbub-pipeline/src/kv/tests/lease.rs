//! The cache of a server that may be the only one that changes keys.

use std::num::NonZeroU64;

use hubbub_core::Timestamp;
use hubbub_core::kv::{KeyPage, KvChangesRead, KvEntry};
use hubbub_core::store::Read;

use super::*;

/// A server's view of the store that all share.
struct View {
    model: Arc<Model>,
    lease: AtomicU64,
}

impl KvStore for View {
    fn value(&self, key: &[u8]) -> Read<'_, Option<KvEntry>> {
        self.model.value(key)
    }

    fn keys(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Read<'_, KeyPage> {
        self.model.keys(prefix, after, limit)
    }

    fn changes(&self, prefix: &[u8], after: u64, limit: usize) -> Read<'_, KvChangesRead> {
        self.model.changes(prefix, after, limit)
    }

    fn revision(&self) -> u64 {
        self.model.revision()
    }

    fn kv_due_in(&self) -> Option<Duration> {
        self.model.kv_due_in()
    }

    fn kv_lease(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.lease.load(Ordering::SeqCst))
    }
}

#[derive(Clone)]
struct Server {
    view: Arc<View>,
    keys: Arc<Keys>,
    metrics: Arc<Metrics>,
}

fn epoch() -> Arc<str> {
    "one".into()
}

impl Server {
    fn new(model: &Arc<Model>, clock: &Arc<ManualClock>, limits: CacheLimits) -> Self {
        let view = Arc::new(View { model: model.clone(), lease: AtomicU64::new(0) });
        let metrics = Arc::new(Metrics::default());
        let keys = Keys::shared(view.clone(), Arc::new(epoch), clock.clone(), metrics.clone(), limits);
        Self { view, keys: Arc::new(keys), metrics }
    }

    fn lease(&self, number: u64) {
        self.view.lease.store(number, Ordering::SeqCst);
    }

    async fn enter(&self, ops: &OpBatch, outcomes: &[Outcome]) {
        self.keys.apply_committed(ops, outcomes, Some(&epoch())).await;
        self.keys.end_changes(ops);
    }

    async fn apply(&self, ops: &[KvOp<'_>]) {
        let ops = batch(ops);
        self.keys.begin_changes(&ops);
        let outcomes = self.view.model.apply(&ops);
        self.enter(&ops, &outcomes).await;
    }
}

/// A server and its clock.
struct Alone {
    clock: Arc<ManualClock>,
    server: Server,
}

impl Alone {
    /// Has the lease 1 and a key `a`.
    async fn new() -> Self {
        let Fixture { model, clock, .. } = Fixture::new();
        let it = Self { server: Server::new(&model, &clock, limits(1 << 20, 1_000)), clock };
        it.server.lease(1);
        it.server.apply(&[put(b"a", b"1"), put(b"b", b"1")]).await;
        assert_eq!(it.get(b"a").await, (Some(b"1".to_vec()), 1), "asked once with the lease");
        it
    }

    /// The value, and how many questions it took.
    async fn get(&self, key: &[u8]) -> (Option<Vec<u8>>, u64) {
        self.clock.advance_micros(1);
        let before = self.server.metrics.kv_validations.get();
        let found = self.server.keys.get(key).await.unwrap();
        let asked = self.server.metrics.kv_validations.get() - before;
        (found.value.map(|value| value.bytes.to_vec()), asked)
    }
}

fn some(value: &[u8]) -> Option<Vec<u8>> {
    Some(value.to_vec())
}

#[tokio::test]
async fn with_the_lease_nothing_is_asked() {
    let it = Alone::new().await;
    assert_eq!(it.get(b"a").await, (some(b"1"), 0));
    it.server.apply(&[put(b"a", b"2"), delete(b"b")]).await;
    assert_eq!(it.get(b"a").await, (some(b"2"), 0));
    assert_eq!(it.get(b"b").await, (None, 0));
    assert_eq!(it.get(b"none").await, (None, 0));
    it.server.keys.measure();
    assert_eq!(it.server.metrics.kv_exclusive.get(), 1);

    it.server.lease(0);
    for _ in 0..2 {
        assert_eq!(it.get(b"a").await, (some(b"2"), 1));
    }
    // Another one: others may have changed keys in between.
    it.server.view.model.apply(&batch(&[put(b"a", b"theirs")]));
    it.server.lease(2);
    assert_eq!(it.get(b"a").await, (some(b"theirs"), 1));
    assert_eq!(it.get(b"a").await, (some(b"theirs"), 0));
}

#[tokio::test]
async fn a_key_that_is_being_changed_is_asked_for() {
    let it = Alone::new().await;
    let ops = batch(&[put(b"a", b"2")]);
    it.server.keys.begin_changes(&ops);
    assert_eq!(it.get(b"a").await, (some(b"1"), 1));
    // Committed, and read by another server.
    let outcomes = it.server.view.model.apply(&ops);
    assert_eq!(it.get(b"a").await, (some(b"2"), 1));
    it.server.enter(&ops, &outcomes).await;
    assert_eq!(it.get(b"a").await, (some(b"2"), 0));
}

/// The history was replaced around the commit: it is not known in which one it was.
#[tokio::test]
async fn what_may_be_of_another_history_is_not_kept() {
    let it = Alone::new().await;
    let ops = batch(&[put(b"a", b"2")]);
    it.server.keys.begin_changes(&ops);
    let outcomes = it.server.view.model.apply(&ops);
    it.server.keys.apply_committed(&ops, &outcomes, None).await;
    it.server.keys.end_changes(&ops);
    assert_eq!(it.get(b"a").await, (some(b"2"), 0));
}

#[tokio::test]
async fn what_a_sweep_removed_is_asked_for() {
    let it = Alone::new().await;
    let brief = KvOp::Put { key: b"c", value: b"x", ttl_ms: Some(1), condition: Condition::Always };
    for is_known in [true, false] {
        it.server.apply(&[brief]).await;
        it.clock.advance_micros(1_000);
        let ops = batch(&[KvOp::Sweep]);
        it.server.keys.begin_changes(&ops);
        let outcomes = it.server.view.model.apply(&ops);
        if is_known {
            it.server.enter(&ops, &outcomes).await;
        } else {
            // Another part of the batch failed.
            it.server.keys.invalidate(ops.iter());
            it.server.keys.end_changes(&ops);
        }
        assert_eq!(it.get(b"a").await, (some(b"1"), 1));
        assert_eq!(it.get(b"c").await, (None, 0));
        assert_eq!(it.get(b"a").await, (some(b"1"), 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_get_is_older_than_what_was_known_while_the_lease_moves() {
    for (seed, bytes) in [(1, 1 << 20), (2, 1_500), (3, 4_000), (4, 200_000)] {
        race(seed, limits(bytes, 1_000)).await;
    }
}

/// Servers that take turns with the lease, or have none, each with a dispatcher that comes late. What was committed is known
/// to somebody at once.
async fn race(seed: u64, limits: CacheLimits) {
    const TURNS: u64 = 150;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000)));
    let model = Arc::new(Model::new(clock.clone()));
    model.read_slowly(seed);
    let servers = [(); 2].map(|()| Server::new(&model, &clock, limits));
    let known = Arc::new(Known::default());
    let (mut senders, mut dispatchers) = (Vec::new(), Vec::new());
    for server in servers.clone() {
        let (committed, mut to_dispatch) = mpsc::channel::<(OpBatch, Vec<Outcome>)>(4);
        senders.push(committed);
        dispatchers.push(tokio::spawn(async move {
            while let Some((ops, outcomes)) = to_dispatch.recv().await {
                for _ in 0..server.view.model.random() % 12 {
                    tokio::task::yield_now().await;
                }
                server.enter(&ops, &outcomes).await;
            }
        }));
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..8)
        .map(|reader: usize| {
            let (server, known, is_over) = (servers[reader % 2].clone(), known.clone(), is_over.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    known.check_a_get(&server.keys, &server.view.model).await;
                }
            })
        })
        .collect();
    let random = SeededRandom::new(seed);
    for turn in 1..=TURNS {
        let holder = (random.next_u64() % 3) as usize;
        servers.get(holder).inspect(|holder| holder.lease(turn));
        for _ in 0..20 {
            clock.advance_micros(1);
            let (ops, changed) = any_batch(&random);
            let writer = if holder < 2 { holder } else { (random.next_u64() % 2) as usize };
            servers[writer].keys.begin_changes(&ops);
            let outcomes = model.apply(&ops);
            known.learn(&changed, &outcomes);
            senders[writer].send((ops, outcomes)).await.unwrap();
            for _ in 0..random.next_u64() % 20 {
                tokio::task::yield_now().await;
            }
        }
        servers.iter().for_each(|server| server.lease(0));
    }
    drop(senders);
    is_over.store(true, Ordering::SeqCst);
    for task in readers.into_iter().chain(dispatchers) {
        task.await.unwrap();
    }
    for Server { metrics, .. } in servers {
        let (hits, misses, questions) =
            (metrics.kv_hits.get(), metrics.kv_misses.get(), metrics.kv_validations.get());
        assert!(hits > 100 && misses > 100, "{hits} hits, {misses} misses, {questions} questions");
    }
}
