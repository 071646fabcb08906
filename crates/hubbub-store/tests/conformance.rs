//! The embedded store does what every store must do.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::future::{Future, ready};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hubbub_conformance::{CLIENTS_MAX, Fixture, keys, queues, random};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::{Cursor, HistoryQuery, RoomStore as _};
use hubbub_core::{Clock as _, Store, Timestamp};
use hubbub_store::embedded::disk::FileDisk;
use hubbub_store::embedded::{BroadcastOptions, Embedded, Engine, EngineOptions, MergeOptions};

fn options(slot_bytes: u64, autocreate: bool) -> EngineOptions {
    EngineOptions {
        slot_bytes,
        autocreate,
        reserve_bytes: 0,
        // So that ids go to files, which are merged.
        queue_ids_in_memory: 3,
        scrub_interval: Duration::ZERO,
        queues_clients_max: CLIENTS_MAX,
        broadcasts: BroadcastOptions { at_once: 0, per_sweep: 2, ..BroadcastOptions::default() },
        merge: MergeOptions { segments_max: 3, fan_in: 2, ..MergeOptions::default() },
        ..EngineOptions::default()
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)))
}

/// A data directory with the engine in it, without threads.
struct Directory {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    slot_bytes: u64,
    store: Arc<Embedded>,
}

impl Directory {
    fn fresh(slot_bytes: u64) -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
        let store = Self::open(dir.path(), options(slot_bytes, true), &clock);
        Self { dir, clock, slot_bytes, store }
    }

    fn open(dir: &Path, options: EngineOptions, clock: &Arc<ManualClock>) -> Arc<Embedded> {
        let disk = Arc::new(FileDisk::new(dir));
        let random = SeededRandom::new(3);
        Arc::new(Embedded::in_line(Engine::open(options, disk, Arc::clone(clock) as _, &random).unwrap()))
    }
}

impl Fixture for Directory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn restart(&mut self, autocreate: bool) -> impl Future<Output = ()> + Send {
        self.store.close();
        self.store = Self::open(self.dir.path(), options(self.slot_bytes, autocreate), &self.clock);
        ready(())
    }

    fn seal_all(&mut self) -> impl Future<Output = ()> + Send {
        // A snapshot seals everything before it.
        self.store.engine().begin_backup("seal").unwrap();
        assert!(self.store.engine().end_backup("seal"));
        self.store.work_in_line();
        let figures = self.store.figures();
        assert!(figures.messages == 0 || figures.segments > 0, "nothing was sealed: {figures:?}");
        ready(())
    }
}

/// The store as a server runs it, with its threads, which seal when they see fit.
struct Served {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    slot_bytes: u64,
    store: Arc<Embedded>,
}

impl Served {
    fn fresh(slot_bytes: u64) -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
        let store = Self::open(dir.path(), options(slot_bytes, true), &clock);
        Self { dir, clock, slot_bytes, store }
    }

    fn open(dir: &Path, options: EngineOptions, clock: &Arc<ManualClock>) -> Arc<Embedded> {
        Arc::new(Embedded::open(dir, options, Arc::clone(clock) as _, &SeededRandom::new(3)).unwrap())
    }
}

impl Fixture for Served {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn restart(&mut self, autocreate: bool) -> impl Future<Output = ()> + Send {
        self.store.close();
        self.store = Self::open(self.dir.path(), options(self.slot_bytes, autocreate), &self.clock);
        ready(())
    }

    fn seal_all(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Its threads do it.
    async fn expire(&mut self) {
        for _ in 0..EXPIRY_CHECKS_MAX {
            if !self.has_expired().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("messages that have outlived their retention are still there");
    }
}

impl Served {
    /// Whether a room has a message that has outlived its retention.
    async fn has_expired(&self) -> bool {
        let all =
            HistoryQuery { cursor: Cursor::After(0), from: None, to: None, limit: 1, bytes_max: usize::MAX };
        for info in self.store.rooms(None, usize::MAX).await.unwrap() {
            let Some(retention) = info.retention_s else { continue };
            let page = self.store.history(info.room, all).await.unwrap();
            let first = page.messages.iter().next().map(|first| first.received_at.as_micros());
            let before = self.clock.now().as_micros() - i64::try_from(retention).unwrap() * 1_000_000;
            if first.is_some_and(|first| first < before) {
                return true;
            }
        }
        false
    }
}

/// A minute.
const EXPIRY_CHECKS_MAX: usize = 6_000;

/// Slots just large enough for the largest text.
const SLOT_BYTES: u64 = 24 << 20;

mod engine {
    use super::{Directory, SLOT_BYTES};

    hubbub_conformance::conformance_tests!(Directory::fresh(SLOT_BYTES));

    mod queues {
        use super::super::{Directory, SLOT_BYTES};

        hubbub_conformance::queue_conformance_tests!(Directory::fresh(SLOT_BYTES));
    }

    mod keys {
        use super::super::{Directory, SLOT_BYTES};

        hubbub_conformance::key_conformance_tests!(Directory::fresh(SLOT_BYTES));
    }
}

mod served {
    use super::{SLOT_BYTES, Served};

    hubbub_conformance::conformance_tests!(Served::fresh(SLOT_BYTES));

    mod queues {
        use super::super::{SLOT_BYTES, Served};

        hubbub_conformance::queue_conformance_tests!(Served::fresh(SLOT_BYTES));
    }

    mod keys {
        use super::super::{SLOT_BYTES, Served};

        hubbub_conformance::key_conformance_tests!(Served::fresh(SLOT_BYTES));
    }
}

/// Slots so small that sealing and merging go on all the time.
const SMALL_SLOT_BYTES: u64 = 32 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_history_agrees_with_the_model_while_slots_are_sealed() {
    for seed in 10..20 {
        random::run(&mut Directory::fresh(SMALL_SLOT_BYTES), seed, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_history_agrees_with_the_model_while_threads_seal() {
    for seed in 20..25 {
        random::run(&mut Served::fresh(4 * SMALL_SLOT_BYTES), seed, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_agree_with_the_model_while_slots_are_sealed() {
    for seed in 10..30 {
        queues::random::run(&mut Directory::fresh(SMALL_SLOT_BYTES), seed, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_agree_with_the_model_while_threads_seal() {
    for seed in 30..35 {
        queues::random::run(&mut Served::fresh(4 * SMALL_SLOT_BYTES), seed, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_agree_with_the_model_while_slots_are_sealed() {
    for seed in 10..30 {
        keys::random::run(&mut Directory::fresh(2 * SMALL_SLOT_BYTES), seed, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_agree_with_the_model_while_threads_seal() {
    for seed in 30..35 {
        keys::random::run(&mut Served::fresh(4 * SMALL_SLOT_BYTES), seed, 200).await;
    }
}
