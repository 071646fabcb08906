//! Connections that break or are abandoned.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Database, connect, eventually};
use futures_util::FutureExt;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{QueueId, QueueStore, RoomId, RoomStore, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio_postgres::Client;

/// Sessions of this database that wait for a lock in a statement with this text.
async fn waiting(client: &Client, words: &str) -> Vec<i32> {
    let text = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' \
                and query like '%' || $1 || '%'";
    client.query(text, &[&words]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Waits until `asking` waits for `table`, abandons it, and waits until its connection is closed. The next user of that
/// connection would wait for an answer that nobody wants.
async fn is_closed_when_given_up<F: Future>(
    table: &str,
    words: &str,
    asking: impl FnOnce(Arc<Postgres>) -> F,
) {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let options = PostgresOptions::new(&database.url);
    let store = Arc::new(Postgres::open(options, clock, &SeededRandom::new(3)).await.unwrap());
    let (client, locking) = (connect(&database.url).await, connect(&database.url).await);
    locking.batch_execute(&format!("begin; lock table {table} in access exclusive mode")).await.unwrap();
    let mut found = Vec::new();
    {
        let mut asked = std::pin::pin!(asking(store.clone()));
        for _ in 0..500 {
            assert!(asked.as_mut().now_or_never().is_none(), "{table} is locked");
            tokio::time::sleep(Duration::from_millis(20)).await;
            found = waiting(&client, words).await;
            if !found.is_empty() {
                break;
            }
        }
    }
    assert!(!found.is_empty(), "nobody was seen waiting for {table}");
    locking.batch_execute("rollback").await.unwrap();

    let text = "select count(*) from pg_stat_activity where pid = any($1)";
    for _ in 0..200 {
        if client.query_one(text, &[&found]).await.unwrap().get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the connection that waited for {table} is still there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_nobody_waits_for_ends_its_connection() {
    is_closed_when_given_up("members", "join members", async |store| {
        store.members(RoomId::new("room").unwrap(), None, 10).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_nobody_waits_for_ends_its_connection() {
    is_closed_when_given_up("queues", "select no from queues where id", async |store| {
        store.waiting(QueueId::new("queue").unwrap(), 0, 10).await.unwrap();
    })
    .await;
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
