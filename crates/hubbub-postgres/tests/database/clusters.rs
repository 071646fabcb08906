//! Several clusters in one database, each in a schema of its own.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Database, connect};
use hubbub_conformance::model::Post;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Op, OpBatch, RoomStore, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio::time::timeout;

async fn open(database: &Database, schema: &str, seed: u64) -> Arc<Postgres> {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
    let url = format!("{}?options=-csearch_path%3D{schema}", database.url);
    Arc::new(Postgres::open(PostgresOptions::new(url), clock, &SeededRandom::new(seed)).await.unwrap())
}

/// What a server hears from others within this time.
async fn hears(store: &Postgres, patience: Duration) -> Option<String> {
    timeout(patience, store.peers().unwrap().receive()).await.ok()
}

/// Whether the second server hears the first one, which says hello; it may not listen yet.
async fn is_heard(teller: &Postgres, peer: &Postgres) -> bool {
    for _ in 0..100 {
        teller.peers().unwrap().broadcast("hello".into());
        if let Some(text) = hears(peer, Duration::from_millis(100)).await {
            assert_eq!(text, "hello");
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_do_not_hear_each_other() {
    let database = Database::fresh().await;
    connect(&database.url).await.batch_execute("create schema one; create schema two").await.unwrap();
    for (here, there) in [("one", "two"), ("public", "one")] {
        let stores =
            [open(&database, here, 1).await, open(&database, here, 2).await, open(&database, there, 3).await];
        let [teller, peer, stranger] = &stores;
        assert!(is_heard(teller, peer).await, "{here}");
        // What it says itself comes after all that was told before.
        stranger.peers().unwrap().broadcast("from elsewhere".into());
        assert_eq!(hears(stranger, Duration::from_millis(500)).await, None, "{here} and {there}");
        while hears(peer, Duration::from_millis(200))
            .await
            .inspect(|text| assert_eq!(text, "hello"))
            .is_some()
        {}

        // That everything may have changed is heard when the connection begins.
        while timeout(Duration::from_millis(500), stranger.remote_changes()).await.is_ok() {}
        let mut batch = OpBatch::default();
        batch.push(&Op::Send(Post::new("room", here).as_send()));
        teller.apply(&batch).unwrap();
        assert!(timeout(Duration::from_secs(10), peer.remote_changes()).await.is_ok(), "{here}");
        assert!(timeout(Duration::from_millis(500), stranger.remote_changes()).await.is_err(), "{there}");
        stores.iter().for_each(|store| store.close());
    }
}

/// The first schema that exists is then another one for the servers that start later.
#[tokio::test(flavor = "multi_thread")]
async fn servers_of_the_same_tables_hear_each_other() {
    let database = Database::fresh().await;
    let path = "later,public";
    let before = open(&database, path, 1).await;
    connect(&database.url).await.batch_execute("create schema later").await.unwrap();
    let behind = open(&database, path, 2).await;
    assert!(is_heard(&before, &behind).await && is_heard(&behind, &before).await);
    [before, behind].iter().for_each(|store| store.close());
}
