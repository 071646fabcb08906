//! The right to be the only one that changes keys, among servers on one database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Database, connect};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::Condition;
use hubbub_core::store::{ApplyError, KvStore};
use hubbub_core::{KvOp, KvOutcome, Op, OpBatch, Outcome, Store, Timestamp};
use hubbub_postgres::{Exclusive, Pooler, Postgres, PostgresOptions};
use tokio_postgres::Client;

/// A server that the tests play, and a lock of theirs.
const OTHER: i64 = 4711;

async fn open_with(options: PostgresOptions, seed: u64) -> Arc<Postgres> {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
    Arc::new(Postgres::open(options, clock, &SeededRandom::new(seed)).await.unwrap())
}

async fn open(database: &Database, seed: u64) -> Arc<Postgres> {
    open_with(PostgresOptions::new(&database.url), seed).await
}

async fn pooled(database: &Database, seed: u64) -> Arc<Postgres> {
    let options = PostgresOptions {
        pooler: Pooler::Transaction,
        migrate_url: Some(database.url.clone()),
        ..PostgresOptions::new(database.pooled_url())
    };
    open_with(options, seed).await
}

fn put_when(store: &dyn Store, condition: Condition) -> Result<u64, ApplyError> {
    let mut batch = OpBatch::default();
    batch.push(&Op::Kv(KvOp::Put { key: b"k", value: b"value", ttl_ms: None, condition }));
    match store.apply(&batch)?.first() {
        Some(Outcome::Kv(KvOutcome::Put { revision, .. })) => Ok(*revision),
        other => panic!("no put: {other:?}"),
    }
}

/// Puts so many keys in one batch.
fn put_all(store: &dyn Store, count: u8) {
    let mut batch = OpBatch::default();
    for key in 0..count {
        let key = &[key];
        batch.push(&Op::Kv(KvOp::Put { key, value: b"value", ttl_ms: None, condition: Condition::Always }));
    }
    store.apply(&batch).unwrap();
}

/// The revision of a put in one round trip.
fn put(store: &dyn Store) -> u64 {
    put_when(store, Condition::Always).unwrap()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited in vain until {what}");
}

async fn until_alone(store: &Postgres) {
    until("it has the lease", async || store.kv_lease().is_some()).await;
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_alone_has_it_and_lets_go_for_others() {
    let database = Database::fresh().await;
    for second_is_pooled in [false, true] {
        let first = open(&database, 1).await;
        until_alone(&first).await;
        let lease = first.kv_lease();
        let begin = put(&*first);
        assert_eq!(first.kv_lease(), lease, "an own change does not end it");

        let second = if second_is_pooled { pooled(&database, 2).await } else { open(&database, 2).await };
        assert_eq!(put(&*second), begin + 1);
        assert_eq!((first.kv_lease(), second.kv_lease()), (None, None));
        assert_eq!(put(&*first), begin + 2, "with the generation of before: it is told");
        first.close();
        until_alone(&second).await;
        assert_eq!(put_when(&*second, Condition::Is(begin + 2)), Ok(begin + 3));
        second.close();
        let left = "select count(*) from kv_servers";
        assert_eq!(number(&connect(&database.url).await, left).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_want_it_makes_others_let_go() {
    let database = Database::fresh().await;
    let first = open(&database, 1).await;
    until_alone(&first).await;
    let options = PostgresOptions { exclusive: Exclusive::Off, ..PostgresOptions::new(&database.url) };
    let second = open_with(options, 2).await;
    until("the first lets go", async || first.kv_lease().is_none()).await;
    first.close();
    put(&*second);
    assert_eq!(second.kv_lease(), None);
}

/// Cut off or paused: its beat stands still, and what it still sends comes too late.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_who_is_gone_is_ended() {
    let database = Database::fresh().await;
    open(&database, 1).await.close();
    let client = connect(&database.url).await;
    client
        .batch_execute(
            "insert into kv_servers values (4711, 7); update kv_lease set generation = generation + 1, holder = 4711",
        )
        .await
        .unwrap();
    let before = number(&client, "select generation from kv_lease").await;

    let store = open(&database, 2).await;
    assert_eq!(store.kv_lease(), None);
    // It waits.
    put(&*store);
    assert!(number(&client, "select generation from kv_lease").await > before);
    let its = "select count(*) from kv_servers where id = 4711";
    assert_eq!(number(&client, its).await, 0, "a beat of it would find no row");
    until_alone(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_ended_is_not_used_and_nothing_is_written_past_it() {
    let database = Database::fresh().await;
    let (store, client) = (open(&database, 1).await, connect(&database.url).await);
    until_alone(&store).await;
    let lease = store.kv_lease();
    // What another server does that has waited for long enough.
    client
        .batch_execute(
            "begin; delete from kv_servers; update kv_lease set generation = generation + 1, holder = null; \
             insert into kv_servers values (4711, 1); commit",
        )
        .await
        .unwrap();
    put(&*store);
    until("it knows", async || store.kv_lease().is_none()).await;
    // The other one never beats.
    until_alone(&store).await;
    assert!(store.kv_lease() > lease, "others may have changed keys in between");
}

/// A server of before this schema writes as the statement here.
#[tokio::test(flavor = "multi_thread")]
async fn older_servers_cannot_write_past_it() {
    const WRITE: &str = "insert into kv_changes (revision, key, what) \
                         select coalesce(max(revision), 0) + 1, 'old', 'P' from kv_changes";
    let database = Database::fresh().await;
    let (store, older) = (open(&database, 1).await, connect(&database.url).await);
    until_alone(&store).await;
    let refused = older.batch_execute(WRITE).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("update this one"), "{refused:?}");
    store.close();
    older.batch_execute(WRITE).await.unwrap();
}

/// Nobody knows whether such a change will be committed, so memory says nothing of it any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_ends_it() {
    let database = Database::fresh().await;
    let (store, client) = (open(&database, 1).await, connect(&database.url).await);
    until_alone(&store).await;
    let lease = store.kv_lease();
    // The commit finds its session ended.
    client
        .batch_execute(
            "create function die() returns trigger language plpgsql as $$ \
             begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$; \
             create constraint trigger dying after insert on kv_changes deferrable initially deferred \
             for each row execute function die()",
        )
        .await
        .unwrap();
    let result = put_when(&*store, Condition::Always);
    assert!(matches!(result, Err(ApplyError::Unconfirmed { .. })), "{result:?}");
    assert!(store.kv_lease().is_none_or(|now| Some(now) > lease), "{:?}", store.kv_lease());
    client.batch_execute("drop trigger dying on kv_changes").await.unwrap();
    put(&*store);
    until("it has another one", async || store.kv_lease() > lease).await;
}

/// An end of its lease may be on its way that saw the row gone: no beat afterwards may count for what it ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_row_was_removed_comes_back_as_another() {
    let database = Database::fresh().await;
    let (store, client) = (open(&database, 1).await, connect(&database.url).await);
    until_alone(&store).await;
    let lease = store.kv_lease();
    client.batch_execute("delete from kv_servers").await.unwrap();
    let ending = connect(&database.url).await;
    let end = "begin; update kv_lease set generation = generation + 1, holder = null";
    ending.batch_execute(end).await.unwrap();
    let beating = "select count(*) from kv_servers where beat > 0";
    until("it is back", async || number(&client, beating).await > 0).await;
    assert_eq!(store.kv_lease(), None, "others change keys from now on");
    ending.batch_execute("commit").await.unwrap();
    put(&*store);
    until_alone(&store).await;
    assert!(store.kv_lease() > lease);
}

/// It was sent, and may be committed whenever the network lets it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_being_given_back_is_not_used() {
    let database = Database::fresh().await;
    let patience = Duration::from_secs(2);
    let options = PostgresOptions { apply_timeout: patience, ..PostgresOptions::new(&database.url) };
    let (store, client) = (open_with(options, 1).await, connect(&database.url).await);
    until_alone(&store).await;
    let lease = store.kv_lease();
    let beat = format!("select beat from kv_servers where id <> {OTHER}");
    let before = number(&client, &beat).await;
    client
        .batch_execute(&format!(
            "create function hang() returns trigger language plpgsql as $$ \
             begin perform pg_advisory_xact_lock({OTHER}); return null; end $$; \
             create constraint trigger hanging after update on kv_lease deferrable initially deferred \
             for each row execute function hang(); select pg_advisory_lock({OTHER}); \
             insert into kv_servers values ({OTHER}, 1)"
        ))
        .await
        .unwrap();
    until("it lets go", async || store.kv_lease().is_none()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let watching = {
        let (store, is_over) = (store.clone(), is_over.clone());
        std::thread::spawn(move || {
            let mut is_used = false;
            while !is_over.load(Ordering::SeqCst) {
                is_used |= store.kv_lease().is_some();
                std::thread::yield_now();
            }
            is_used
        })
    };
    until("it has beaten without an answer", async || number(&client, &beat).await > before + 2).await;
    is_over.store(true, Ordering::SeqCst);
    assert!(!watching.join().unwrap(), "it was used once more");
    let end = format!("select pg_advisory_unlock({OTHER}); delete from kv_servers where id = {OTHER}");
    client.batch_execute(&end).await.unwrap();
    until("it has another one", async || store.kv_lease() > lease).await;
}

/// As after a crash with `synchronous_commit = off`. A question then tells the cache.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_lost_changes_ends_it() {
    const LOSE: &str = "delete from kv_changes where revision > 1";
    let database = Database::fresh().await;
    let (store, client) = (open(&database, 1).await, connect(&database.url).await);
    until_alone(&store).await;
    for is_read in [true, false] {
        put_all(&*store, 3);
        until_alone(&store).await;
        let lease = store.kv_lease();
        client.batch_execute(LOSE).await.unwrap();
        if !is_read {
            // As far as before at once: only whoever writes can notice.
            put_all(&*store, 40);
        }
        until("it has another one", async || store.kv_lease() > lease).await;
        put_all(&*store, 20);
    }
}

/// Otherwise keys that it has not any more would stay due for ever, and be swept again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_lost_changes_is_known_as_it_is() {
    let database = Database::fresh().await;
    let (store, client) = (open(&database, 1).await, connect(&database.url).await);
    assert_eq!(put(&*store), 1);
    let mut batch = OpBatch::default();
    let condition = Condition::Always;
    batch.push(&Op::Kv(KvOp::Put { key: b"t", value: b"value", ttl_ms: Some(1_000), condition }));
    store.apply(&batch).unwrap();
    assert!(store.revision() == 2 && store.kv_due_in().is_some());
    let lose = "begin; delete from kv where key = 't'; delete from kv_changes where revision > 1; commit";
    client.batch_execute(lose).await.unwrap();
    until("it is known", async || store.revision() == 1 && store.kv_due_in().is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_row_of_the_lease_is_put_back() {
    let database = Database::fresh().await;
    let (store, client) = (open(&database, 1).await, connect(&database.url).await);
    until_alone(&store).await;
    let lease = store.kv_lease();
    client.batch_execute("delete from kv_lease").await.unwrap();
    assert!(put(&*store) > 1 << 32, "the row may have been of a history that lost changes");
    until("it has another one", async || store.kv_lease() > lease).await;
    assert_eq!(number(&client, "select count(*) from kv_servers").await, 1);
}
