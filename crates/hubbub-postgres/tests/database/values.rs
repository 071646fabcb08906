//! Reads of single values leave connections to others, and each other alone.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Database, connect, eventually};
use futures_util::FutureExt;
use futures_util::future::join_all;
use hubbub_conformance::model::Post;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::KvEntry;
use hubbub_core::store::{Read, ReadError};
use hubbub_core::{KvStore, Op, OpBatch, Store, Timestamp};
use hubbub_postgres::{PoolOptions, Postgres, PostgresOptions};
use tokio_postgres::Client;

/// Each read takes a moment. That of one key waits for the lock of [`HOLD`], that of another fails as from a damaged page.
const VALUES: &str = "
    insert into kv (key, value, revision) values ('held', '', 1), ('b', '', 2), ('c', '', 3), ('damaged', '', 4);
    create function read_value(key bytea, value bytea) returns bytea stable language plpgsql as $$ begin
        if key = 'held' then perform pg_advisory_xact_lock(7); end if;
        if key = 'damaged' then raise exception 'invalid page' using errcode = 'XX001'; end if;
        perform pg_sleep(0.02);
        return value;
    end $$;
    alter table kv rename to away;
    create view kv as select key, read_value(key, value) as value, revision, expires_at from away";
const HOLD: &str = "select pg_advisory_lock(7)";
const RELEASE: &str = "select pg_advisory_unlock(7)";

type Reading<'a> = Read<'a, Option<KvEntry>>;

/// A server with so many connections, and another session, which holds the lock.
async fn open(database: &Database, pool: PoolOptions) -> (Arc<Postgres>, Client) {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
    let options = PostgresOptions { pool, ..PostgresOptions::new(&database.url) };
    let store = Postgres::open(options, clock, &SeededRandom::new(1)).await.unwrap();
    let others = connect(&database.url).await;
    others.batch_execute(VALUES).await.unwrap();
    others.batch_execute(HOLD).await.unwrap();
    (Arc::new(store), others)
}

fn pool(max: usize) -> PoolOptions {
    PoolOptions { min: 1, max, ..PoolOptions::default() }
}

/// The sessions that wait in a read of values, of one alone or of several at once.
async fn waiting(others: &Client) -> Vec<i32> {
    let text = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' \
                and (query like 'select value,%' or query like 'select k.%')";
    others.query(text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Reads the key that is held until the database waits. Returns also the session that does.
async fn read_held<'a>(store: &'a Postgres, others: &Client) -> (Reading<'a>, i32) {
    let mut reading = store.value(b"held");
    let mut pids = Vec::new();
    eventually("the database waits", async || {
        assert!((&mut reading).now_or_never().is_none(), "the key is held");
        pids = waiting(others).await;
        !pids.is_empty()
    })
    .await;
    let [pid] = pids.as_slice() else { panic!("one read takes {} connections", pids.len()) };
    (reading, *pid)
}

/// Reads a key again and again, until that fails.
async fn read_on(
    store: &Postgres,
    key: &[u8],
    mut reading: Reading<'_>,
) -> Result<Option<KvEntry>, ReadError> {
    loop {
        match reading.await {
            Ok(Some(_)) => reading = store.value(key),
            failed => return failed,
        }
    }
}

async fn exists(others: &Client, pid: i32) -> bool {
    let text = "select count(*) from pg_stat_activity where pid = $1";
    others.query_one(text, &[&pid]).await.unwrap().get::<_, i64>(0) > 0
}

async fn terminate(others: &Client, pid: i32) {
    others.execute("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
    eventually("the session has ended", async || !exists(others, pid).await).await;
}

fn revision(found: Result<Option<KvEntry>, ReadError>) -> u64 {
    found.unwrap().unwrap().revision
}

/// Its place in the pool is that of the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_on_the_only_connection_is_answered_though_it_breaks() {
    let database = Database::fresh().await;
    let (store, others) =
        open(&database, PoolOptions { acquire_timeout: Duration::from_secs(3), ..pool(1) }).await;
    let (reading, pid) = read_held(&store, &others).await;
    terminate(&others, pid).await;
    others.batch_execute(RELEASE).await.unwrap();
    assert_eq!(revision(reading.await), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_beside_one_that_waits_or_fails_are_answered() {
    let database = Database::fresh().await;
    let (store, others) = open(&database, pool(4)).await;
    let (held, pid) = read_held(&store, &others).await;
    // More than have statements of their own, so that some share one with the damaged value.
    let keys = ["b", "damaged", "c", "b", "damaged", "c", "b", "c"];
    let found = join_all(keys.map(|key| store.value(key.as_bytes()))).await;
    for (key, found) in keys.into_iter().zip(found) {
        match key {
            "damaged" => assert!(matches!(found, Err(ReadError::Damaged { .. })), "{found:?}"),
            _ => assert_eq!(revision(found), if key == "b" { 2 } else { 3 }),
        }
    }
    assert_eq!(waiting(&others).await, [pid]);
    others.batch_execute(RELEASE).await.unwrap();
    assert_eq!(revision(held.await), 1);
    assert!(exists(&others, pid).await, "its connection is kept");
}

/// Also if one read follows the other, and somebody always waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_always_read_on_is_closed_when_it_is_old() {
    for max in [1, 3] {
        let database = Database::fresh().await;
        let (store, others) =
            open(&database, PoolOptions { max_lifetime: Duration::from_secs(1), ..pool(max) }).await;
        let (held, pid) = read_held(&store, &others).await;
        let [mut b, mut c] = ["b", "c"].map(|key| store.value(key.as_bytes()));
        assert!((&mut b).now_or_never().is_none() && (&mut c).now_or_never().is_none());
        others.batch_execute(RELEASE).await.unwrap();
        tokio::select! {
            failed = read_on(&store, b"held", held) => panic!("{failed:?}"),
            failed = read_on(&store, b"b", b) => panic!("{failed:?}"),
            failed = read_on(&store, b"c", c) => panic!("{failed:?}"),
            () = eventually("it is closed", async || !exists(&others, pid).await) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_follow_each_other_leave_the_only_connection_to_a_write() {
    let database = Database::fresh().await;
    let (store, others) =
        open(&database, PoolOptions { acquire_timeout: Duration::from_secs(10), ..pool(1) }).await;
    let (held, _) = read_held(&store, &others).await;
    let [mut b, mut c] = ["b", "c"].map(|key| store.value(key.as_bytes()));
    assert!((&mut b).now_or_never().is_none() && (&mut c).now_or_never().is_none());
    others.batch_execute(RELEASE).await.unwrap();
    let writing = {
        let store = store.clone();
        tokio::task::spawn_blocking(move || {
            let mut batch = OpBatch::default();
            batch.push(&Op::Send(Post::new("room", "a").as_send()));
            store.apply(&batch).map(drop)
        })
    };
    tokio::select! {
        failed = read_on(&store, b"held", held) => panic!("{failed:?}"),
        failed = read_on(&store, b"b", b) => panic!("{failed:?}"),
        failed = read_on(&store, b"c", c) => panic!("{failed:?}"),
        written = writing => written.unwrap().unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_takes_its_turn_behind_those_who_wait_for_a_connection() {
    let database = Database::fresh().await;
    let (store, others) = open(&database, pool(1)).await;
    let (held, _) = read_held(&store, &others).await;
    eventually("somebody waits", async || store.figures().pool.waiting > 0).await;
    let before = store.figures().pool.statements;
    let mut b = store.value(b"b");
    assert!((&mut b).now_or_never().is_none());
    assert_eq!(store.figures().pool.statements, before, "it is not sent on the only connection");
    others.batch_execute(RELEASE).await.unwrap();
    let found = join_all([held, b]).await.into_iter().map(revision);
    assert_eq!(found.collect::<Vec<_>>(), [1, 2]);
}
