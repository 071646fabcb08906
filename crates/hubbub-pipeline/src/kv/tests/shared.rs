//! The cache in front of a store that other servers write to.

use futures_util::FutureExt;
use parking_lot::Mutex;

use super::*;

type Epoch = Arc<Mutex<Arc<str>>>;

/// One of the servers on a store.
struct Peer {
    keys: Arc<Keys>,
    metrics: Arc<Metrics>,
    epoch: Epoch,
}

impl Peer {
    fn new(model: &Arc<Model>, clock: &Arc<ManualClock>, limits: CacheLimits) -> Self {
        let (metrics, epoch) = (Arc::new(Metrics::default()), Arc::new(Mutex::new(Arc::from("one"))));
        let epoch_of = {
            let epoch: Epoch = epoch.clone();
            Arc::new(move || epoch.lock().clone())
        };
        let keys = Keys::shared(model.clone(), epoch_of, clock.clone(), metrics.clone(), limits);
        Self { keys: Arc::new(keys), metrics, epoch }
    }

    async fn committed(&self, ops: &OpBatch, outcomes: &[Outcome]) {
        let epoch = self.epoch.lock().clone();
        self.keys.apply_committed(ops, outcomes, Some(&epoch)).await;
    }

    /// The value, and whether it was in memory.
    async fn get(&self, key: &[u8]) -> (Option<Vec<u8>>, bool) {
        let found = self.keys.get(key).await.unwrap();
        (found.value.map(|value| value.bytes.to_vec()), found.is_hit)
    }
}

struct Shared {
    model: Arc<Model>,
    clock: Arc<ManualClock>,
    here: Peer,
    there: Peer,
}

impl Shared {
    fn new() -> Self {
        let Fixture { model, clock, .. } = Fixture::new();
        let peer = || Peer::new(&model, &clock, limits(1 << 20, 1_000));
        let (here, there) = (peer(), peer());
        Self { model, clock, here, there }
    }

    async fn apply(&self, at: &Peer, ops: &[KvOp<'_>]) {
        // Times that are compared differ.
        self.clock.advance_micros(1);
        let ops = batch(ops);
        let outcomes = self.model.apply(&ops);
        at.committed(&ops, &outcomes).await;
    }
}

fn some(value: &[u8]) -> Option<Vec<u8>> {
    Some(value.to_vec())
}

#[tokio::test]
async fn what_others_change_is_seen_at_once() {
    let it = Shared::new();
    let (here, there) = (&it.here, &it.there);
    it.apply(there, &[put(b"a", b"1"), put(b"b", b"1")]).await;
    assert_eq!(here.get(b"a").await, (some(b"1"), false));
    assert_eq!(here.get(b"a").await, (some(b"1"), true));
    it.apply(there, &[put(b"b", b"2")]).await;
    assert_eq!(here.get(b"a").await, (some(b"1"), true), "another key changed");
    it.apply(there, &[put(b"a", b"2")]).await;
    assert_eq!(here.get(b"a").await, (some(b"2"), false));
    it.apply(there, &[delete(b"a")]).await;
    assert_eq!(here.get(b"a").await, (None, false));
    assert_eq!(here.get(b"a").await, (None, true));
    it.apply(there, &[put(b"a", b"3")]).await;
    assert_eq!(here.get(b"a").await, (some(b"3"), false));
    // Own changes are in memory, also where those of others precede them.
    it.apply(here, &[put(b"a", b"4")]).await;
    assert_eq!(here.get(b"a").await, (some(b"4"), true));
    it.apply(there, &[put(b"b", b"5")]).await;
    it.apply(here, &[put(b"a", b"6")]).await;
    assert_eq!(here.get(b"a").await, (some(b"6"), true));
    assert_eq!(here.get(b"b").await, (some(b"5"), false));
    assert_eq!(there.get(b"a").await, (some(b"6"), false));
}

#[tokio::test]
async fn own_changes_that_come_late_bring_nothing_old() {
    let it = Shared::new();
    let (here, mine) = (&it.here, batch(&[put(b"a", b"mine"), put(b"b", b"mine")]));
    let outcomes = it.model.apply(&mine);
    it.apply(&it.there, &[put(b"a", b"theirs")]).await;
    for key in [b"a", b"c"] {
        here.get(key).await;
        here.get(key).await;
    }
    here.committed(&mine, &outcomes).await;
    assert_eq!(here.get(b"a").await, (some(b"theirs"), true));
    assert_eq!(here.get(b"b").await, (some(b"mine"), false), "it was passed already");
    // Before anybody asked: what was read is newer than what is told now.
    let mine = batch(&[put(b"d", b"mine")]);
    let outcomes = it.model.apply(&mine);
    it.apply(&it.there, &[put(b"d", b"theirs")]).await;
    assert_eq!(here.get(b"d").await.0, some(b"theirs"));
    here.committed(&mine, &outcomes).await;
    assert_eq!(here.get(b"d").await, (some(b"theirs"), true));
}

#[tokio::test]
async fn one_question_serves_all_who_wait() {
    let it = Shared::new();
    it.apply(&it.here, &[put(b"a", b"1")]).await;
    it.model.read_slowly(3);
    let keys = it.here.keys.clone();
    let gets = (0..50).map(|_| keys.get(b"a"));
    let found = futures_util::future::join_all(gets).await;
    assert!(found.into_iter().all(|found| found.unwrap().is_hit));
    assert!((1..=2).contains(&it.model.asked()), "{} questions", it.model.asked());
    assert_eq!(it.here.metrics.kv_validations.get(), it.model.asked());
}

#[tokio::test]
async fn an_older_state_is_asked_for() {
    let it = Shared::new();
    it.apply(&it.here, &[put(b"a", b"1")]).await;
    let long_ago = it.clock.monotonic();
    it.clock.advance_micros(1);
    it.here.get(b"a").await;
    it.apply(&it.there, &[put(b"a", b"2")]).await;
    let found = it.here.keys.get_as_of(b"a", long_ago).await.unwrap();
    assert_eq!((found.value.unwrap().revision, found.is_hit), (1, true), "asked since then");
    assert_eq!(it.model.asked(), 1);
    let now = it.clock.monotonic();
    assert_eq!(it.here.keys.get_as_of(b"a", now).await.unwrap().value.unwrap().revision, 2);
}

#[tokio::test]
async fn who_fell_far_behind_forgets() {
    let it = Shared::new();
    for behind in [5_000_u32, 20_000] {
        it.apply(&it.here, &[put(b"a", b"1"), put(b"b", b"1")]).await;
        assert_eq!(it.here.get(b"b").await, (some(b"1"), true));
        it.apply(&it.there, &[put(b"a", b"2")]).await;
        for number in 0..behind {
            it.model.apply(&batch(&[put(&number.to_le_bytes(), b"x")]));
        }
        assert_eq!(it.here.get(b"a").await, (some(b"2"), false));
        assert_eq!(it.here.get(b"b").await, (some(b"1"), behind == 5_000));
    }
    // Changes that are not kept.
    it.here.get(b"a").await;
    it.apply(&it.there, &[put(b"a", b"3"), put(b"c", b"1"), put(b"c", b"2")]).await;
    it.model.keep(1);
    assert_eq!(it.here.get(b"a").await, (some(b"3"), false));
}

#[tokio::test]
async fn nothing_of_another_history_is_left() {
    let it = Shared::new();
    it.apply(&it.here, &[put(b"a", b"kept")]).await;
    it.apply(&it.here, &[put(b"a", b"lost"), put(b"b", b"lost")]).await;
    let lost = batch(&[put(b"c", b"lost")]);
    let outcomes = it.model.apply(&lost);
    let old: Arc<str> = it.here.epoch.lock().clone();
    assert_eq!(it.here.get(b"a").await, (some(b"lost"), true));
    it.model.restore(1);
    *it.here.epoch.lock() = "two".into();
    assert_eq!(it.here.get(b"a").await, (some(b"kept"), false));
    // It was committed before, and is told now.
    it.here.keys.apply_committed(&lost, &outcomes, Some(&old)).await;
    assert_eq!(it.here.get(b"c").await, (None, false));
    assert_eq!(it.here.get(b"b").await, (None, false));
    it.apply(&it.here, &[put(b"c", b"new")]).await;
    assert_eq!(it.here.get(b"c").await, (some(b"new"), true));
}

#[tokio::test]
async fn the_revision_follows_other_servers() {
    let it = Shared::new();
    let following = tokio::spawn(it.here.keys.clone().poll_revision());
    let mut published = it.here.keys.published.subscribe();
    it.apply(&it.here, &[put(b"a", b"1")]).await;
    assert_eq!(it.here.keys.revision(), 1);
    it.apply(&it.there, &[put(b"a", b"2"), put(b"b", b"3")]).await;
    let is_published =
        tokio::time::timeout(Duration::from_secs(10), published.wait_for(|now| now.revision == 3));
    assert!(is_published.await.is_ok());
    following.abort();
    let mine = batch(&[put(b"a", b"4")]);
    it.model.apply(&mine);
    assert!(it.here.keys.caught_up().await);
    assert_eq!(it.here.keys.revision(), 4, "known from a read, and not waited for");
    // Its own commit is processed late, and does not lower the revision.
    let late = [Outcome::Kv(KvOutcome::Put { revision: 2, expires_at: None, created: false })];
    it.here.committed(&mine, &late).await;
    assert_eq!(it.here.keys.revision(), 4);
}

#[tokio::test]
async fn questions_that_panic_leave_nobody_waiting() {
    let it = Shared::new();
    it.apply(&it.here, &[put(b"a", b"1")]).await;
    it.clock.advance_micros(1);
    it.model.panic_at_questions(3);
    let get = async || {
        let get = it.here.keys.get(b"a");
        tokio::time::timeout(Duration::from_secs(20), get).await.expect("it waits for an answer")
    };
    for _ in 0..3 {
        assert!(matches!(get().await, Err(ReadError::Unavailable { .. })));
    }
    assert!(get().await.unwrap().is_hit);
}

/// The database of before may be gone without a word.
#[tokio::test]
async fn a_question_to_an_old_history_is_asked_anew() {
    let it = Shared::new();
    it.apply(&it.here, &[put(b"a", b"kept")]).await;
    it.apply(&it.here, &[put(b"a", b"lost")]).await;
    it.clock.advance_micros(1);
    it.model.lose_questions(2);
    let mut gets = Vec::new();
    for asked in [1, 2, 2] {
        let keys = it.here.keys.clone();
        gets.push(tokio::spawn(async move { keys.get(b"a").await }));
        eventually(|| it.model.asked() == asked).await;
    }
    it.model.restore(1);
    *it.here.epoch.lock() = "two".into();
    for get in gets {
        let found = tokio::time::timeout(Duration::from_secs(20), get).await.expect("it waits for an answer");
        assert_eq!(&*found.unwrap().unwrap().value.unwrap().bytes, b"kept");
    }
}

/// A store that lost its last changes was known to be further.
#[tokio::test]
async fn who_follows_a_store_that_has_less_does_not_read_again_at_once() {
    let it = Shared::new();
    it.apply(&it.there, &[put(b"a", b"1")]).await;
    let keys = &it.here.keys;
    keys.publish(1_000);
    let mut following = keys.following();
    assert!(following.more(1).now_or_never().is_none());
    following.begin_read();
    assert!(following.more(1).now_or_never().is_none());
    // It looks again at times, and at once for what is published after a read began.
    assert!(tokio::time::timeout(Duration::from_secs(20), following.more(1)).await.is_ok());
    following.begin_read();
    keys.publish(1_001);
    assert!(following.more(1).now_or_never().is_some());
    following.begin_read();
    assert!(following.more(1_001).now_or_never().is_none(), "it has read everything");
}

/// What a read has seen is published by it, and is no reason for another one.
#[tokio::test]
async fn who_follows_changes_reads_each_once() {
    let it = Shared::new();
    let keys = &it.here.keys;
    let mut following = keys.following();
    following.begin_read();
    it.apply(&it.there, &[put(b"a", b"1")]).await;
    assert!(keys.caught_up().await);
    assert!(following.more(1).now_or_never().is_none());
    assert!(following.more(0).now_or_never().is_some());
}

#[tokio::test]
async fn another_history_wakes_those_who_follow_the_last_one() {
    let it = Shared::new();
    let polling = tokio::spawn(it.here.keys.clone().poll_revision());
    let mut following = it.here.keys.following();
    it.apply(&it.there, &[put(b"a", b"1")]).await;
    for (epoch, through) in [("one", 0), ("two", 1), ("three", 1)] {
        *it.here.epoch.lock() = epoch.into();
        let woken = tokio::time::timeout(Duration::from_secs(20), following.more(through));
        assert!(woken.await.is_ok(), "{epoch}");
        following.begin_read();
    }
    assert!(following.more(1).now_or_never().is_none());
    polling.abort();
}

#[tokio::test]
async fn what_is_kept_is_told_of_the_history_that_has_it() {
    let it = Shared::new();
    it.apply(&it.there, &[put(b"a", b"1"), put(b"b", b"1"), put(b"c", b"1")]).await;
    // Of a history that was longer.
    it.here.keys.publish(1_000);
    let kept = |oldest, epoch: &str| ChangeRange { epoch: epoch.into(), oldest, head: 3 };
    let epoch = || it.here.epoch.lock().clone();
    assert_eq!(it.here.keys.change_range(epoch).await.unwrap(), kept(0, "one"));
    it.model.keep(1);
    assert_eq!(it.here.keys.change_range(epoch).await.unwrap(), kept(2, "one"));
    // Another one begins during the read.
    let (asked, before) = (AtomicU64::new(0), it.model.asked());
    let epoch = || if asked.fetch_add(1, Ordering::SeqCst) == 0 { "one".into() } else { "two".into() };
    assert_eq!(it.here.keys.change_range(epoch).await.unwrap(), kept(2, "two"));
    assert_eq!(it.model.asked() - before, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_get_is_older_than_what_was_known_anywhere() {
    for (seed, bytes) in [(1, 1 << 20), (2, 1_500), (3, 4_000), (4, 200_000)] {
        race(seed, limits(bytes, 1_000)).await;
    }
}

/// Two servers that commit, each with a dispatcher that comes late, and readers of both that compare with what was
/// durable before they asked.
async fn race(seed: u64, limits: CacheLimits) {
    const BATCHES: usize = 3_000;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000)));
    let model = Arc::new(Model::new(clock.clone()));
    model.read_slowly(seed);
    let peers = [(); 2].map(|()| Arc::new(Peer::new(&model, &clock, limits)));
    let known = Arc::new(Known::default());
    let (mut senders, mut dispatchers) = (Vec::new(), Vec::new());
    for peer in &peers {
        let (committed, mut to_dispatch) = mpsc::channel::<(OpBatch, Vec<Outcome>)>(4);
        let (peer, model) = (peer.clone(), model.clone());
        senders.push(committed);
        dispatchers.push(tokio::spawn(async move {
            while let Some((ops, outcomes)) = to_dispatch.recv().await {
                for _ in 0..model.random() % 12 {
                    tokio::task::yield_now().await;
                }
                peer.committed(&ops, &outcomes).await;
            }
        }));
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..8)
        .map(|reader| {
            let (peer, model, known) = (peers[reader % 2].clone(), model.clone(), known.clone());
            let is_over = is_over.clone();
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    known.check_a_get(&peer.keys, &model).await;
                }
            })
        })
        .collect();
    let random = SeededRandom::new(seed);
    for _ in 0..BATCHES {
        clock.advance_micros(1);
        let (ops, changed) = any_batch(&random);
        let outcomes = model.apply(&ops);
        // Durable: somebody may know of it.
        known.learn(&changed, &outcomes);
        // The third writes without a cache.
        if let Some(committed) = senders.get((random.next_u64() % 3) as usize) {
            committed.send((ops, outcomes)).await.unwrap();
        }
        for _ in 0..random.next_u64() % 20 {
            tokio::task::yield_now().await;
        }
    }
    drop(senders);
    is_over.store(true, Ordering::SeqCst);
    for task in readers.into_iter().chain(dispatchers) {
        task.await.unwrap();
    }
    for peer in peers {
        let (hits, misses) = (peer.metrics.kv_hits.get(), peer.metrics.kv_misses.get());
        assert!(hits > 100 && misses > 100, "{hits} hits, {misses} misses");
    }
}
