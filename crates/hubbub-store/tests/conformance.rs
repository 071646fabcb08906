//! The embedded store does what every store must do.

#![allow(clippy::unwrap_used)]

use std::future::{Future, ready};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::{
    Access, ApplyError, BatchCap, HistoryPage, HistoryQuery, Member, Read, RoomInfo, StoreFigures,
    StoreHealth, UserRooms,
};
use hubbub_core::{OpBatch, Outcome, RoomId, RoomStore, Store, Timestamp, UserId};
use hubbub_store::conformance::{Fixture, random};
use hubbub_store::embedded::disk::FileDisk;
use hubbub_store::embedded::{Embedded, Engine, EngineOptions, MergeOptions};

const DAY_SECONDS: u64 = 24 * 3_600;

/// So long that nothing is dropped. A slot is sealed when it is an eighth of it old, which settling makes use of.
const RETENTION: Duration = Duration::from_secs(800 * 365 * DAY_SECONDS);
const RETENTION_PART_MICROS: i64 = 101 * 365 * 24 * 3_600 * 1_000_000;

/// The engine, its background work done after every batch instead of by threads, so that a run can be repeated.
struct Threadless(Engine);

impl Threadless {
    fn work(&self) {
        while self.0.seal_step().unwrap() || self.0.merge_step().unwrap() {}
    }
}

impl Store for Threadless {
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        let outcomes = self.0.apply(batch)?;
        self.work();
        Ok(outcomes)
    }

    fn batch_cap(&self) -> BatchCap {
        self.0.batch_cap()
    }

    fn health(&self) -> StoreHealth {
        self.0.health()
    }

    fn figures(&self) -> StoreFigures {
        self.0.figures()
    }

    fn close(&self) {
        self.0.close().unwrap();
    }
}

impl RoomStore for Threadless {
    fn epoch(&self) -> Arc<str> {
        self.0.epoch()
    }

    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(ready(self.0.history(room.as_str(), &query)))
    }

    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>> {
        Box::pin(ready(Ok(self.0.room(room.as_str()))))
    }

    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>> {
        Box::pin(ready(Ok(self.0.rooms(after.as_ref().map(RoomId::as_str), limit))))
    }

    fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        Box::pin(ready(Ok(self.0.access(room.as_str(), user.as_str()))))
    }

    fn members(&self, room: RoomId, after: Option<UserId>, limit: usize) -> Read<'_, Vec<Member>> {
        Box::pin(ready(Ok(self.0.members(room.as_str(), after.as_ref().map(UserId::as_str), limit))))
    }

    fn user_rooms(&self, user: UserId, after: Option<RoomId>, limit: usize) -> Read<'_, UserRooms> {
        Box::pin(ready(self.0.user_rooms(user.as_str(), after.as_ref().map(RoomId::as_str), limit)))
    }
}

fn options(slot_bytes: u64, autocreate: bool) -> EngineOptions {
    EngineOptions {
        slot_bytes,
        autocreate,
        retention: Some(RETENTION),
        reserve_bytes: 0,
        scrub_interval: Duration::ZERO,
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
    store: Arc<Threadless>,
}

impl Directory {
    fn fresh(slot_bytes: u64) -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
        let store = Self::open(dir.path(), options(slot_bytes, true), &clock);
        Self { dir, clock, slot_bytes, store }
    }

    fn open(dir: &Path, options: EngineOptions, clock: &Arc<ManualClock>) -> Arc<Threadless> {
        let disk = Arc::new(FileDisk::new(dir));
        let random = SeededRandom::new(3);
        let store = Threadless(Engine::open(options, disk, Arc::clone(clock) as _, &random).unwrap());
        store.work();
        Arc::new(store)
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

    fn settle(&mut self) -> impl Future<Output = ()> + Send {
        self.clock.advance_micros(RETENTION_PART_MICROS);
        self.store.work();
        self.clock.advance_micros(-RETENTION_PART_MICROS);
        let figures = self.store.figures();
        assert!(figures.messages == 0 || figures.segments > 0, "nothing was sealed: {figures:?}");
        ready(())
    }
}

/// The store as a server runs it, with its threads, which settle when they see fit.
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

    fn settle(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

/// Slots just large enough for the largest text.
const SLOT_BYTES: u64 = 24 << 20;

mod engine {
    use super::{Directory, SLOT_BYTES};

    hubbub_store::conformance_tests!(Directory::fresh(SLOT_BYTES));
}

mod served {
    use super::{SLOT_BYTES, Served};

    hubbub_store::conformance_tests!(Served::fresh(SLOT_BYTES));
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
