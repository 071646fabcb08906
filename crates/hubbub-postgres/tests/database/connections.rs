//! Connections that break or are abandoned.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Database, connect, eventually};
use futures_util::FutureExt;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{QueueId, QueueStore, RoomId, RoomStore, Store, Timestamp};
use hubbub_postgres::{PoolOptions, Pooler, Postgres, PostgresOptions};
use tokio_postgres::Client;

/// Sessions of this database that wait for a lock in a statement with this text.
async fn waiting(client: &Client, words: &str) -> Vec<i32> {
    let text = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' \
                and query like '%' || $1 || '%'";
    client.query(text, &[&words]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn open(options: PostgresOptions) -> Arc<Postgres> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    Arc::new(Postgres::open(options, clock, &SeededRandom::new(3)).await.unwrap())
}

/// Waits until `asking` waits for `table`, abandons it, and waits until its statement has ended, although the table stays locked.
async fn ends_when_given_up<F: Future>(
    options: impl FnOnce(&Database) -> PostgresOptions,
    (table, words): (&str, &str),
    asking: impl FnOnce(Arc<Postgres>) -> F,
) {
    let database = Database::fresh().await;
    let store = open(options(&database)).await;
    let (client, locking) = (connect(&database.url).await, connect(&database.url).await);
    locking.batch_execute(&format!("begin; lock table {table} in access exclusive mode")).await.unwrap();
    {
        let mut asked = std::pin::pin!(asking(store.clone()));
        eventually("it waits for the table", async || {
            assert!(asked.as_mut().now_or_never().is_none(), "{table} is locked");
            !waiting(&client, words).await.is_empty()
        })
        .await;
    }
    eventually("its statement ends", async || waiting(&client, words).await.is_empty()).await;
    locking.batch_execute("rollback").await.unwrap();
    eventually("its place is free", async || store.figures().pool.active == 0).await;
}

fn direct(database: &Database) -> PostgresOptions {
    PostgresOptions::new(&database.url)
}

fn pooled(database: &Database) -> PostgresOptions {
    PostgresOptions {
        pooler: Pooler::Transaction,
        migrate_url: Some(database.url.clone()),
        // Behind it, reads end a while after nobody can wait for them any more.
        apply_timeout: Duration::from_secs(1),
        ..PostgresOptions::new(database.pooled_url())
    }
}

const MEMBERS: (&str, &str) = ("members", "join members");

async fn read_members(store: Arc<Postgres>) {
    store.members(RoomId::new("room").unwrap(), None, 10).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_nobody_waits_for_ends() {
    ends_when_given_up(direct, MEMBERS, read_members).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_nobody_waits_for_ends_behind_a_pooler() {
    ends_when_given_up(pooled, MEMBERS, read_members).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_nobody_waits_for_ends() {
    ends_when_given_up(direct, ("queues", "select no from queues where id"), async |store| {
        store.waiting(QueueId::new("queue").unwrap(), 0, 10).await.unwrap();
    })
    .await;
}

/// However many clients hang up, the database runs no more of their reads than the pool has connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_nobody_waits_for_count_as_long_as_they_run() {
    let database = Database::fresh().await;
    let pool = PoolOptions { min: 1, max: 3, ..PoolOptions::default() };
    let store = open(PostgresOptions { pool, ..direct(&database) }).await;
    let (client, locking) = (connect(&database.url).await, connect(&database.url).await);
    locking.batch_execute("begin; lock table members in access exclusive mode").await.unwrap();
    let mut most = 0;
    for _ in 0..30 {
        let _ = tokio::time::timeout(Duration::from_millis(30), read_members(store.clone())).await;
        most = most.max(waiting(&client, MEMBERS.1).await.len());
    }
    assert!((1..=3).contains(&most), "{most} statements ran at once");
    locking.batch_execute("rollback").await.unwrap();
    read_members(store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_ends_soon_keeps_its_connection_though_nobody_waits() {
    let database = Database::fresh().await;
    let pool = PoolOptions { min: 1, max: 1, ..PoolOptions::default() };
    let store = open(PostgresOptions { pool, ..direct(&database) }).await;
    let client = connect(&database.url).await;
    let sessions = async || -> Vec<i32> {
        let text = "select pid from pg_stat_activity where datname = current_database() \
                    and application_name = 'hubbub' and query not like 'listen%' order by pid";
        client.query(text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    // Its statement is prepared from then on.
    read_members(store.clone()).await;
    let before = sessions().await;
    for _ in 0..20 {
        let _ = Box::pin(read_members(store.clone())).now_or_never();
        read_members(store.clone()).await;
    }
    assert_eq!(sessions().await, before);
}

/// Waits until nobody else is connected to the client's database.
async fn until_nobody_is_connected(client: &Client, why: &str) {
    let others = "select count(*) from pg_stat_activity where datname = current_database() \
                  and backend_type = 'client backend' and pid <> pg_backend_pid()";
    eventually(why, async || client.query_one(others, &[]).await.unwrap().get::<_, i64>(0) == 0).await;
}

/// A new history is opened again and again until that succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_opened_or_is_dropped_keeps_no_connection() {
    let database = Database::fresh().await;
    let client = connect(&database.url).await;
    let open = async || {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
        Postgres::open(PostgresOptions::new(&database.url), clock, &SeededRandom::new(3)).await
    };
    drop(open().await.unwrap());
    until_nobody_is_connected(&client, "a store that was dropped is not connected").await;
    // What different steps of an opening read.
    for table in ["attached_log", "kv_changes", "kv_servers"] {
        client.batch_execute(&format!("alter table {table} rename to away")).await.unwrap();
        assert!(open().await.is_err(), "{table} is not there");
        client.batch_execute(&format!("alter table away rename to {table}")).await.unwrap();
        until_nobody_is_connected(&client, table).await;
    }
}
