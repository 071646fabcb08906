//! A keyspace for each test, in a real CQL server started by `scripts/services/cassandra.sh start`, and a log that gives
//! operations their positions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hubbub_conformance::Fixture;
use hubbub_conformance::log::LogFixture;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::log_position::Attached;
use hubbub_core::{
    Change, Clock, ExpiredRoom, LogIdentity, LogPosition, LogStore, Op, OpBatch, RoomChange, Store,
    Timestamp, log_partition,
};
use hubbub_scylla::{BucketLimits, Scylla, ScyllaOptions};
use parking_lot::Mutex;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::unprepared::Statement;

/// The server; `HUBBUB_TEST_CQL` names another one.
const HOST: &str = "127.0.0.1:19042";
pub const START: i64 = 1_700_000_000_000_000;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Keyspaces of tests that have ended, and since when. Making tables and dropping them takes the server seconds, emptying them
/// a part of one.
static USED: Mutex<VecDeque<(Instant, String)>> = Mutex::new(VecDeque::new());
/// Time after which nothing of a test that has ended writes any more.
const ENDED_FOR: Duration = Duration::from_secs(2);

pub fn host() -> String {
    std::env::var("HUBBUB_TEST_CQL").unwrap_or_else(|_| HOST.into())
}

/// A keyspace, dropped with this value, or left to another test.
pub struct Keyspace(pub String, OnDrop);

#[derive(PartialEq)]
enum OnDrop {
    Remove,
    Leave,
}

impl Keyspace {
    /// One that is not there yet.
    pub fn fresh() -> Self {
        Self(Self::unused_name(), OnDrop::Remove)
    }

    fn take_used() -> Option<String> {
        let mut used = USED.lock();
        let (since, _) = used.front()?;
        (since.elapsed() >= ENDED_FOR).then(|| used.pop_front())?.map(|(_, name)| name)
    }

    fn unused_name() -> String {
        format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// One that is not there yet, or the tables of an earlier test without any rows.
    pub async fn empty() -> Self {
        let Some(name) = Self::take_used() else { return Self(Self::unused_name(), OnDrop::Leave) };
        let keyspace = Self(name, OnDrop::Leave);
        let select = "select table_name from system_schema.tables where keyspace_name = ";
        let tables = keyspace.texts(&format!("{select}'{}'", keyspace.0)).await;
        // The schema stays, and what is known of it.
        let emptied = tables.iter().filter(|table| *table != "schema_versions");
        let session = SessionBuilder::new().known_node(host()).use_keyspace(&keyspace.0, false).build().await;
        let session = &session.unwrap();
        let emptying =
            emptied.map(async |table| session.query_unpaged(format!("truncate {table}"), &[]).await);
        futures_util::future::try_join_all(emptying).await.unwrap();
        keyspace
    }

    /// Options with small buckets, so that tests fill many.
    pub fn options(&self) -> ScyllaOptions {
        ScyllaOptions {
            replication: "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}".into(),
            bucket: BucketLimits { messages: 50, bytes: 64 << 10, first_ids: 30, ranks: 1 },
            ..ScyllaOptions::new(format!("scylla://{}/{}", host(), self.0))
        }
    }

    /// Executes a statement in it.
    pub async fn execute(&self, statement: &str) {
        let session = SessionBuilder::new().known_node(host()).use_keyspace(&self.0, false).build().await;
        session.unwrap().query_unpaged(statement, &[]).await.unwrap();
    }

    /// How many rows there are.
    pub async fn count(&self, rows: &str) -> i64 {
        let session = SessionBuilder::new().known_node(host()).use_keyspace(&self.0, false).build().await;
        let select = format!("select count(*) from {rows}");
        let found = session.unwrap().query_unpaged(select, &[]).await.unwrap().into_rows_result().unwrap();
        found.single_row::<(i64,)>().unwrap().0
    }

    /// The numbers that a statement selects.
    pub async fn numbers(&self, select: &str) -> Vec<Option<i32>> {
        let session = SessionBuilder::new().known_node(host()).use_keyspace(&self.0, false).build().await;
        let found = session.unwrap().query_unpaged(select, &[]).await.unwrap().into_rows_result().unwrap();
        found.rows::<(Option<i32>,)>().unwrap().map(|row| row.unwrap().0).collect()
    }

    /// The texts that a statement selects.
    pub async fn texts(&self, select: &str) -> Vec<String> {
        let session = SessionBuilder::new().known_node(host()).use_keyspace(&self.0, false).build().await;
        let found = session.unwrap().query_unpaged(select, &[]).await.unwrap().into_rows_result().unwrap();
        found.rows::<(String,)>().unwrap().map(|row| row.unwrap().0).collect()
    }

    /// How many marks of removed rows a statement reads past, as the server traces it.
    pub async fn tombstones(&self, select: &str) -> u64 {
        let session =
            SessionBuilder::new().known_node(host()).use_keyspace(&self.0, false).build().await.unwrap();
        let mut statement = Statement::new(select);
        statement.set_tracing(true);
        let id = session.query_unpaged(statement, &[]).await.unwrap().tracing_id().unwrap();
        // Traces are written after the answer.
        for _ in 0..100 {
            let events = session.get_tracing_info(&id).await.unwrap().events;
            let read = events.iter().filter_map(|event| event.activity.as_deref()?.strip_prefix("Read "));
            let marks = read.filter_map(|read| read.split(' ').nth(4)?.parse::<u64>().ok());
            if let Some(most) = marks.max() {
                return most;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{select} is not traced");
    }

    pub async fn open(&self, autocreate: bool, clock: &Arc<ManualClock>) -> Arc<Scylla> {
        let options = ScyllaOptions { autocreate, ..self.options() };
        let opened = Scylla::open(options, clock.clone(), &SeededRandom::new(3)).await;
        Arc::new(opened.unwrap_or_else(|error| panic!("{error}; scripts/services/cassandra.sh start")))
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.0);
        if self.1 == OnDrop::Leave {
            USED.lock().push_back((Instant::now(), name));
            return;
        }
        // A runtime of its own: the test's may be shutting down.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let Ok(session) = SessionBuilder::new().known_node(host()).build().await else { return };
                let _ = session.query_unpaged(format!("drop keyspace if exists {name}"), &[]).await;
            });
        });
        let _ = dropping.join();
    }
}

/// The log of a fixture: where the next record of each partition goes.
pub struct Positions {
    pub next: Vec<u64>,
}

impl Positions {
    pub fn of(partitions: u32) -> Self {
        Self { next: vec![0; partitions as usize] }
    }

    /// Adds an operation as the next record of its room's partition; an erasure as one of each. Returns the last number.
    pub fn push(&mut self, batch: &mut OpBatch, op: &Op<'_>, appended_at: Timestamp) -> u64 {
        let erases = matches!(op, Op::Change(change) if matches!(change.what, RoomChange::EraseUser { .. }));
        let partitions = self.next.len();
        let place = log_partition::of_room(op.room().unwrap_or_default(), u32::try_from(partitions).unwrap())
            as usize;
        let mut last = 0;
        for (partition, next) in self.next.iter_mut().enumerate() {
            if erases || partition == place {
                let partition = u32::try_from(partition).unwrap();
                batch.push_at(op, LogPosition { partition, offset: *next, appended_at });
                *next += 1;
                last = *next;
            }
        }
        last
    }
}

/// A store in a keyspace of its own.
pub struct Opened {
    pub store: Arc<Scylla>,
    pub clock: Arc<ManualClock>,
    pub keyspace: Keyspace,
    positions: Mutex<Positions>,
    attaches: bool,
}

impl Opened {
    /// Behind a log with so many partitions.
    pub async fn behind(partitions: u32) -> Self {
        Self::unattached(partitions).await.attached().await
    }

    /// The same, where others may write even when the test has ended.
    pub async fn alone_behind(partitions: u32) -> Self {
        Self::within(Keyspace::fresh(), partitions).await.attached().await
    }

    async fn attached(mut self) -> Self {
        self.attaches = true;
        assert_eq!(self.attach().await, Attached::New);
        self
    }

    pub async fn unattached(partitions: u32) -> Self {
        Self::within(Keyspace::empty().await, partitions).await
    }

    async fn within(keyspace: Keyspace, partitions: u32) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
        let store = keyspace.open(true, &clock).await;
        let positions = Mutex::new(Positions::of(partitions));
        Self { store, clock, keyspace, positions, attaches: false }
    }

    async fn attach(&self) -> Attached {
        let partitions = u32::try_from(self.positions.lock().next.len()).unwrap();
        self.store.attach(LogIdentity { id: "cluster/topic".into(), partitions }).await.unwrap()
    }
}

impl Fixture for Opened {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn push(&self, batch: &mut OpBatch, op: &Op<'_>) -> Option<u64> {
        Some(self.positions.lock().push(batch, op, self.clock.now()))
    }

    async fn restart(&mut self, autocreate: bool) {
        self.store.close();
        self.store = self.keyspace.open(autocreate, &self.clock).await;
        if self.attaches {
            assert_eq!(self.attach().await, Attached::Same);
        }
    }

    async fn seal_all(&mut self) {
        self.store.finish_cleanup().await.unwrap();
    }

    /// As the log does.
    async fn expire(&mut self) {
        let partitions: Vec<u32> = (0_u32..).take(self.positions.lock().next.len()).collect();
        let expired = self.store.expired(&partitions).await.unwrap();
        for ExpiredRoom { room, before, retention_s, is_own } in expired {
            let what = RoomChange::ExpireMessages { room: room.as_str(), before, retention_s, is_own };
            let mut batch = OpBatch::default();
            self.push(&mut batch, &Op::Change(Change { by: None, what }));
            let store = self.store.clone();
            tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap().unwrap();
        }
        self.seal_all().await;
    }
}

impl LogFixture for Opened {
    async fn open_second(&mut self) -> Arc<dyn Store> {
        self.keyspace.open(true, &self.clock).await
    }
}
