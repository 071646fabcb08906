//! What becomes of connections.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{RoomId, RoomStore, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use support::{Database, connect};
use tokio_postgres::Client;

/// Sessions of this database that wait for a lock.
async fn waiting(client: &Client) -> Vec<i32> {
    let text = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    client.query(text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Whoever has the connection next would wait for an answer that nobody wants any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_nobody_waits_for_ends_its_connection() {
    let database = Database::fresh().await;
    let options = PostgresOptions::new(&database.url);
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let store = Postgres::open(options, clock, &SeededRandom::new(3)).await.unwrap();
    let client = connect(&database.url).await;
    client.batch_execute("begin; lock table members in access exclusive mode").await.unwrap();
    let asked = tokio::spawn(async move {
        let asking = store.members(RoomId::new("room").unwrap(), None, 10);
        let is_given_up = tokio::time::timeout(Duration::from_secs(1), asking).await.is_err();
        (store, is_given_up)
    });
    let mut found = Vec::new();
    while found.is_empty() {
        found = waiting(&client).await;
        assert!(!asked.is_finished(), "nobody was seen waiting");
    }
    let (_store, is_given_up) = asked.await.unwrap();
    assert!(is_given_up, "the table is locked");
    client.batch_execute("rollback").await.unwrap();

    let text = "select count(*) from pg_stat_activity where pid = any($1)";
    for _ in 0..200 {
        if client.query_one(text, &[&found]).await.unwrap().get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the connection is still there");
}
