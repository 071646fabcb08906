//! Partitions are created before they are needed.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Database, connect, eventually};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::StoreHealth;
use hubbub_core::{Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};

const DAY: i64 = 86_400_000_000;

fn time(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

async fn open(database: &Database, clock: &Arc<ManualClock>) -> Postgres {
    let partition = Duration::from_secs(86_400);
    let options = PostgresOptions { partition, ..PostgresOptions::new(&database.url) };
    Postgres::open(options, clock.clone(), &SeededRandom::new(3)).await.unwrap()
}

/// Names of the attached partitions.
async fn attached(database: &Database) -> Vec<String> {
    let text =
        "select inhrelid::regclass::text from pg_inherits where inhparent = 'messages'::regclass order by 1";
    let rows = connect(&database.url).await.query(text, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partition_is_made_ahead() {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(time("2026-01-31T23:00:00Z")));
    let store = open(&database, &clock).await;
    let first = ["messages_20260131", "messages_20260201", "messages_20260202"];
    assert_eq!(attached(&database).await, first);

    clock.advance_micros(DAY / 12);
    eventually("no partition is made when a day begins", async || attached(&database).await.len() == 4).await;
    clock.advance_micros(100 * DAY);
    eventually("none is made when the clock jumps", async || attached(&database).await.len() == 7).await;
    assert!(attached(&database).await.contains(&"messages_20260512".to_owned()));
    assert_eq!((store.health(), store.figures().partitions_missing), (StoreHealth::Up, 0));
    store.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_together_make_one() {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(time("2026-01-31T23:00:00Z")));
    let servers = [(); 4].map(|()| open(&database, &clock));
    let servers = futures_util::future::join_all(servers).await;
    assert_eq!(attached(&database).await.len(), 3);
    for server in servers {
        assert_eq!((server.health(), server.figures().partitions_missing), (StoreHealth::Up, 0));
        server.close();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_cannot_be_made_is_an_alarm() {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(time("2026-01-31T12:00:00Z")));
    let store = open(&database, &clock).await;
    let client = connect(&database.url).await;
    client.batch_execute("create table messages_20260203 (taken int)").await.unwrap();
    clock.advance_micros(DAY);
    eventually("no alarm", async || matches!(store.health(), StoreHealth::Alarm(_))).await;
    let StoreHealth::Alarm(reason) = store.health() else { panic!("{:?}", store.health()) };
    assert!(reason.contains("2026-02-03") && reason.contains("already exists"), "{reason}");
    eventually("no figure", async || store.figures().partitions_missing == 1).await;

    client.batch_execute("drop table messages_20260203").await.unwrap();
    eventually("the alarm stays", async || store.health() == StoreHealth::Up).await;
    eventually("the figure stays", async || store.figures().partitions_missing == 0).await;
    store.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_length_fits_in_with_what_is_there() {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(time("2026-01-31T12:00:00Z")));
    open(&database, &clock).await.close();
    let options =
        PostgresOptions { partition: Duration::from_secs(7 * 86_400), ..PostgresOptions::new(&database.url) };
    let store = Postgres::open(options, clock.clone(), &SeededRandom::new(3)).await.unwrap();
    assert_eq!(store.health(), StoreHealth::Up);
    let text = "select name, ends::date::text from partitions order by begins";
    let rows = connect(&database.url).await.query(text, &[]).await.unwrap();
    let spans: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = [
        ("messages_20260131", "2026-02-01"),
        ("messages_20260201", "2026-02-02"),
        ("messages_20260202", "2026-02-03"),
        ("messages_20260205", "2026-02-12"),
        ("messages_20260212", "2026-02-19"),
    ];
    assert_eq!(spans, expected.map(|(name, ends)| (name.to_owned(), ends.to_owned())));
    store.close();
}
