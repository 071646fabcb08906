//! Batches of puts keep their semantics with a single round trip.

use std::sync::Arc;

use crate::support::{Database, connect, eventually, wait_for_waiters};
use futures_util::FutureExt;
use futures_util::future::join_all;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::Condition;
use hubbub_core::store::{ApplyError, ReadError};
use hubbub_core::{KvOp, KvOutcome, KvStore, Op, OpBatch, Outcome, Store, Timestamp};
use hubbub_postgres::{PoolOptions, Postgres, PostgresOptions};

/// A server with few connections, so that an unusable one is noticed.
async fn open(database: &Database, seed: u64) -> Arc<Postgres> {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
    let pool = PoolOptions { min: 1, max: 2, ..PoolOptions::default() };
    let options = PostgresOptions { pool, ..PostgresOptions::new(&database.url) };
    Arc::new(Postgres::open(options, clock, &SeededRandom::new(seed)).await.unwrap())
}

/// Puts keys in one batch. Returns their revisions.
fn put(store: &dyn Store, keys: &[&str]) -> Result<Vec<u64>, ApplyError> {
    let mut batch = OpBatch::default();
    for key in keys {
        let (key, value) = (key.as_bytes(), b"value".as_slice());
        batch.push(&Op::Kv(KvOp::Put { key, value, ttl_ms: None, condition: Condition::Always }));
    }
    let revision = |outcome| match outcome {
        Outcome::Kv(KvOutcome::Put { revision, .. }) => revision,
        other => panic!("no put: {other:?}"),
    };
    Ok(store.apply(&batch)?.into_iter().map(revision).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_fails_leaves_nothing_and_the_next_is_committed() {
    let database = Database::fresh().await;
    let (store, others) = (open(&database, 1).await, connect(&database.url).await);
    assert_eq!(put(&*store, &["a"]), Ok(vec![1]));

    others.batch_execute("alter table kv_changes rename to away").await.unwrap();
    assert!(matches!(put(&*store, &["b"]), Err(ApplyError::Unavailable { .. })));
    others.batch_execute("alter table away rename to kv_changes").await.unwrap();

    assert_eq!(put(&*store, &["c"]), Ok(vec![2]));
    let keys = others.query("select key, revision from kv order by key", &[]).await.unwrap();
    let keys: Vec<(Vec<u8>, i64)> = keys.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(keys, [(b"a".to_vec(), 1), (b"c".to_vec(), 2)]);
}

/// Whoever was told of a change is told no older revision by another server: neither with a key in the list, nor without.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_as_new_as_what_another_server_acknowledged() {
    let database = Database::fresh().await;
    let (store, other) = (open(&database, 1).await, open(&database, 2).await);
    for round in 0..20 {
        let revision = put(&*store, &[&format!("a{round}")]).unwrap()[0];
        let prefix = if round % 2 == 0 { &b"a"[..] } else { b"b" };
        let page = other.keys(prefix, None, 99).await.unwrap();
        assert_eq!((page.revision, page.keys.len()), (revision, if round % 2 == 0 { round + 1 } else { 0 }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_put_at_the_same_time_share_one_row_of_revisions() {
    const SERVERS: u64 = 3;
    const BATCHES: u64 = 40;
    let database = Database::fresh().await;
    let mut putting = Vec::new();
    for server in 0..SERVERS {
        let (store, runtime) = (open(&database, server).await, tokio::runtime::Handle::current());
        putting.push(std::thread::spawn(move || {
            let _entered = runtime.enter();
            (0..BATCHES).flat_map(|_| put(&*store, &["a", "b"]).unwrap()).collect::<Vec<u64>>()
        }));
    }
    let given: Vec<Vec<u64>> = putting.into_iter().map(|putting| putting.join().unwrap()).collect();
    assert!(given.iter().all(|own| own.is_sorted()), "later puts have later revisions");
    let mut all = given.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=SERVERS * BATCHES * 2).collect::<Vec<u64>>());
}

/// Also in one query with others.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_the_database_cannot_read_fails_alone() {
    let database = Database::fresh().await;
    let (store, others) = (open(&database, 1).await, connect(&database.url).await);
    let names: Vec<String> = (0..50).map(|number| format!("key-{number}")).collect();
    put(&*store, &names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    // What the database says of a damaged page.
    let damage = "create function readable(key bytea, value bytea) returns bytea language plpgsql as $$ begin \
                  if key = 'key-7' then raise exception 'invalid page' using errcode = 'XX001'; end if; \
                  return value; end $$; alter table kv rename to away; \
                  create view kv as select key, readable(key, value) as value, revision, expires_at from away";
    others.batch_execute(damage).await.unwrap();
    let found = join_all(names.iter().map(|name| store.value(name.as_bytes()))).await;
    for (name, found) in names.iter().zip(found) {
        match found {
            Err(ReadError::Damaged { .. }) => assert_eq!(name, "key-7"),
            found => assert!(found.unwrap().is_some() && name != "key-7", "{name}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_planner_knows_of_a_table_that_has_grown() {
    let database = Database::fresh().await;
    let (store, others) = (open(&database, 1).await, connect(&database.url).await);
    // Only the server itself analyzes it.
    others.batch_execute("alter table kv set (autovacuum_enabled = false)").await.unwrap();
    let keys: Vec<String> = (0..20_000).map(|number| format!("key-{number}")).collect();
    for keys in keys.chunks(1_000) {
        put(&*store, &keys.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    }
    let known = "select relpages, pg_relation_size(oid) / 8192 from pg_class where oid = 'kv'::regclass";
    eventually("the planner knows how large the table is", async || {
        let row = others.query_one(known, &[]).await.unwrap();
        i64::from(row.get::<_, i32>(0)) * 3 >= row.get::<_, i64>(1)
    })
    .await;
}

/// A statement without a reader of its answer would cost its connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_caller_goes_away_costs_no_connection() {
    let database = Database::fresh().await;
    let (store, others) = (open(&database, 1).await, connect(&database.url).await);
    put(&*store, &["a"]).unwrap();
    // One that read a value last; others come and go, such as the database's own workers.
    let connections = async |which: &str| {
        let text = format!("select pid from pg_stat_activity where datname = current_database() and {which}");
        let rows = others.query(&text, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect::<std::collections::BTreeSet<i32>>()
    };
    let read = async || store.value(b"a").await.unwrap().unwrap().revision;
    let mut before = std::collections::BTreeSet::new();
    eventually("a connection shows that it read a value last", async || {
        assert_eq!(read().await, 1);
        before = connections("query like 'select value,%'").await;
        !before.is_empty()
    })
    .await;
    for _ in 0..20 {
        others.batch_execute("begin; lock table kv").await.unwrap();
        assert!(store.value(b"a").now_or_never().is_none(), "it asks the database, which waits");
        others.batch_execute("commit").await.unwrap();
        assert_eq!(read().await, 1);
    }
    let after = connections("true").await;
    assert!(before.is_subset(&after), "{before:?} {after:?}");
}

/// Whoever has the lock may have had it for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_is_decided_as_of_the_time_behind_the_lock() {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
    let options = PostgresOptions::new(&database.url);
    let store = Arc::new(Postgres::open(options, clock.clone(), &SeededRandom::new(1)).await.unwrap());
    let holder = connect(&database.url).await;
    let put = |ttl_ms, condition| {
        let store = store.clone();
        tokio::task::spawn_blocking(move || {
            let mut batch = OpBatch::default();
            batch.push(&Op::Kv(KvOp::Put { key: b"a", value: b"value", ttl_ms, condition }));
            store.apply(&batch).unwrap().remove(0)
        })
    };
    let put_now = put(Some(1_000), Condition::Always).await.unwrap();
    let Outcome::Kv(KvOutcome::Put { revision, .. }) = put_now else { panic!("{put_now:?}") };
    holder.batch_execute("select pg_advisory_lock(716161617, 3)").await.unwrap();
    let putting = put(None, Condition::Is(revision));
    wait_for_waiters(&holder, (716_161_617, 3), 1).await;
    clock.advance_micros(2_000_000);
    assert_eq!(store.value(b"a").await.unwrap(), None, "it has expired");
    holder.batch_execute("select pg_advisory_unlock(716161617, 3)").await.unwrap();
    let outcome = putting.await.unwrap();
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
}
