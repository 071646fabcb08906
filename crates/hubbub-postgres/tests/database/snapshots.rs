//! Queues and rooms beside a session that holds a snapshot open: neither taken messages nor replaced versions of rooms can
//! be cleared away, and no statement may walk over them.

use std::sync::Arc;
use std::time::Duration;

use crate::support::Database;
use crate::support::queues::{START, apply, done, make, settle, taken};
use hubbub_conformance::queues::message;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::queue::{Delivery, Settle, Take, TakeFilter, TakeMode};
use hubbub_core::{MessageType, Op, OpBatch, Outcome, QueueOp, Send, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio_postgres::Client;

const BATCH: usize = 200;
/// Batches whose work is compared. They have many times the messages that takes may walk over.
const MEASURED: i64 = 30;
/// Batches between the first and the last measured ones.
const BETWEEN: i64 = 90;
/// Other registered clients: a plan that scans them for each message costs that many times more.
const CLIENTS: usize = 40;

/// Index entries scanned in this database, and rows updated.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Work {
    entries: i64,
    queues_written: i64,
}

/// The work of all ended sessions; PostgreSQL adds it up when they end.
async fn work(client: &Client) -> Work {
    let sessions = "select count(*) from pg_stat_activity where datname = current_database() \
                    and application_name = 'hubbub'";
    let sum = "select coalesce(sum(idx_tup_read), 0)::int8 from pg_stat_user_indexes";
    let written = "select n_tup_upd from pg_stat_user_tables where relname = 'queues'";
    let number = async |text: &str| client.query_one(text, &[]).await.unwrap().get::<_, i64>(0);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while number(sessions).await > 0 {
        assert!(tokio::time::Instant::now() < deadline, "the store's sessions do not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Work { entries: number(sum).await, queues_written: number(written).await }
}

/// What always waits in the queue, and the order of takes.
#[derive(Debug, Clone, Copy)]
struct Shape {
    waiting: usize,
    newest_first: bool,
}

/// Sends and takes batch by batch, every other batch by lease and ack, with a store of its own.
async fn rounds(database: &Database, clock: &Arc<ManualClock>, shape: Shape, batches: i64) {
    let random = SeededRandom::new(1);
    let store = Postgres::open(PostgresOptions::new(&database.url), clock.clone(), &random).await.unwrap();
    // If nothing always waits, one more take finds the queue empty.
    let takes = if shape.waiting == 0 { 5 } else { 4 };
    for batch in 0..batches {
        // Leases that were acknowledged long ago become due all the time.
        clock.advance_micros(200_000);
        apply(&store, &vec![QueueOp::Send(message("q", "x")); BATCH]);
        let how = if batch % 2 == 0 { TakeMode::Lease { lease_ms: Some(3_000) } } else { TakeMode::Away };
        let wanted = TakeFilter {
            queue: Some("q"),
            receiver: Some("bob"),
            sender: None,
            newest_first: shape.newest_first,
        };
        let take = QueueOp::Take(Take { wanted, max: BATCH / 4, how, registers: true });
        let mut got: Vec<Delivery> = Vec::new();
        for outcome in apply(&store, &vec![take; takes]) {
            let Outcome::Queue(outcome) = outcome else { panic!("{outcome:?}") };
            got.extend(taken(outcome));
        }
        assert_eq!(got.len(), BATCH);
        if batch % 2 == 0 {
            apply(&store, &got.iter().map(|one| settle(one, Settle::Ack)).collect::<Vec<_>>());
        }
    }
    store.close();
}

async fn each_batch_walks_over_as_much(shape: Shape) {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
    let random = SeededRandom::new(1);
    let store = Postgres::open(PostgresOptions::new(&database.url), clock.clone(), &random).await.unwrap();
    make(&store, "q");
    for number in 0..CLIENTS {
        done(&store, QueueOp::Register { client: &format!("client{number}") });
    }
    if shape.waiting > 0 {
        apply(&store, &vec![QueueOp::Send(message("q", "x")); shape.waiting]);
    }
    store.close();
    drop(store);
    let other = crate::support::connect(&database.url).await;
    other.batch_execute("begin isolation level repeatable read").await.unwrap();
    other.query("select count(*) from queue_messages", &[]).await.unwrap();
    let client = crate::support::connect(&database.url).await;

    let before = work(&client).await;
    rounds(&database, &clock, shape, MEASURED).await;
    let first = work(&client).await;
    // Statistics that the planner collects meanwhile must not matter.
    client.batch_execute("analyze").await.unwrap();
    rounds(&database, &clock, shape, BETWEEN).await;
    let between = work(&client).await;
    client.batch_execute("analyze").await.unwrap();
    rounds(&database, &clock, shape, MEASURED).await;
    let last = work(&client).await;

    let (early, late) = (first.entries - before.entries, last.entries - between.entries);
    assert!(late < 2 * early, "{early} index entries by {MEASURED} batches at first, {late} at last");
    let messages = MEASURED * i64::try_from(BATCH).unwrap();
    assert!(early < 100 * messages, "{early} index entries for {messages} messages");
    assert_eq!(last.queues_written, before.queues_written, "rows that every message refers to");
}

#[tokio::test(flavor = "multi_thread")]
async fn takes_of_the_oldest_do_not_walk_over_what_was_taken() {
    each_batch_walks_over_as_much(Shape { waiting: 2 * BATCH, newest_first: false }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn takes_of_the_newest_that_empty_a_queue_do_not_either() {
    each_batch_walks_over_as_much(Shape { waiting: 0, newest_first: true }).await;
}

/// Rooms that each batch writes to.
const ROOMS: usize = 40;

async fn write_to_rooms(database: &Database, clock: &Arc<ManualClock>, ids: std::ops::Range<i64>) {
    let random = SeededRandom::new(1);
    let store = Postgres::open(PostgresOptions::new(&database.url), clock.clone(), &random).await.unwrap();
    let store = Arc::new(store);
    for batch in ids {
        let mut ops = OpBatch::default();
        for room in 0..ROOMS {
            let (room, id) = (format!("r{room}"), format!("{room}.{batch}"));
            ops.push(&Op::Send(Send {
                room: &room,
                user: "u",
                id: &id,
                username: None,
                text: "x",
                kind: MessageType::Text,
                timestamp: Timestamp::from_micros(START),
            }));
        }
        let store = store.clone();
        tokio::task::spawn_blocking(move || store.apply(&ops)).await.unwrap().unwrap();
    }
    store.close();
}

/// Every batch makes another version of the rows of its rooms, and none can be cleared away. What could be before the
/// snapshot leaves places at the beginning of the table, where the newest versions are then before all others.
#[tokio::test(flavor = "multi_thread")]
async fn batches_of_messages_do_not_walk_over_versions_of_rooms() {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
    write_to_rooms(&database, &clock, 0..1).await;
    let (other, client) =
        (crate::support::connect(&database.url).await, crate::support::connect(&database.url).await);
    let open_snapshot = async || {
        other.batch_execute("begin isolation level repeatable read").await.unwrap();
        other.query("select count(*) from rooms", &[]).await.unwrap();
    };
    let entries = async || work(&client).await.entries;
    let spans: Vec<_> = (0..3).map(|span| 1 + span * 4 * MEASURED..1 + (span + 1) * 4 * MEASURED).collect();

    open_snapshot().await;
    write_to_rooms(&database, &clock, spans[0].clone()).await;
    other.batch_execute("commit").await.unwrap();
    open_snapshot().await;
    write_to_rooms(&database, &clock, spans[1].clone()).await;
    // Statistics that the planner collects meanwhile must not matter either.
    client.batch_execute("vacuum analyze rooms").await.unwrap();
    // A vacuum beside writers finds none that lives, because all of them go on to places behind those that it reads.
    client.batch_execute("update pg_class set reltuples = 0 where relname like 'rooms%'").await.unwrap();
    let before = entries().await;
    write_to_rooms(&database, &clock, spans[2].clone()).await;
    let late = entries().await - before;
    // At most 16 versions of the row for each message, and in fact two or three entries; without turns it was 50.
    let messages = 4 * MEASURED * ROOMS as i64;
    assert!(late < 16 * messages, "{late} index entries for {messages} messages");

    // Counting finds the newest versions, too.
    let random = SeededRandom::new(1);
    let store = Postgres::open(PostgresOptions::new(&database.url), clock.clone(), &random).await.unwrap();
    store.finish_maintenance().await.unwrap();
    store.close();
    drop(store);
    let counted = "select coalesce(sum(messages), 0)::int8 from room_counts";
    let counted: i64 = client.query_one(counted, &[]).await.unwrap().get(0);
    assert_eq!(counted, ROOMS as i64 * (1 + 12 * MEASURED));
}
