//! Operations from a log, beyond what every store must do: several transactions of a batch, damaged data, and servers that
//! know nothing of the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{Database, connect};
use hubbub_conformance::model::Post;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::{Condition, KvOp};
use hubbub_core::log_position::Attached;
use hubbub_core::store::{ApplyError, Cursor, HistoryQuery};
use hubbub_core::{
    LogIdentity, LogPosition, LogStore, Op, OpBatch, Outcome, Refusal, RoomId, RoomStore, Store, Timestamp,
};
use hubbub_postgres::{Postgres, PostgresOptions};

const PARTITIONS: u32 = 8;

async fn open(database: &Database) -> Arc<Postgres> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let options = PostgresOptions::new(&database.url);
    Arc::new(Postgres::open(options, clock, &SeededRandom::new(3)).await.unwrap())
}

async fn attach(store: &Postgres) -> Attached {
    store.attach(LogIdentity { id: "topic".to_owned(), partitions: PARTITIONS }).await.unwrap()
}

/// Messages with offsets from `from` on, each in its room's partition.
fn batch(from: u64, posts: &[Post]) -> OpBatch {
    let mut batch = OpBatch::default();
    for (offset, post) in (from..).zip(posts) {
        let number: u32 = post.room.trim_start_matches('r').parse().unwrap();
        // A day apart for each 100, so that partitions of messages are missing.
        let appended_at = Timestamp::from_micros(1_690_000_000_000_000 + offset as i64 * 864_000_000);
        let position = LogPosition { partition: number % PARTITIONS, offset, appended_at };
        batch.push_at(&Op::Send(post.as_send()), position);
    }
    batch
}

async fn apply(store: &Arc<Postgres>, batch: OpBatch) -> Result<Vec<Outcome>, ApplyError> {
    let store = store.clone();
    tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap()
}

async fn ids(store: &Postgres, room: &str) -> Vec<String> {
    let query = HistoryQuery {
        cursor: Cursor::After(0),
        from: None,
        to: None,
        limit: usize::MAX,
        bytes_max: usize::MAX,
    };
    let page = store.history(RoomId::new(room).unwrap(), query).await.unwrap();
    page.messages.iter().map(|message| message.sent.id.to_owned()).collect()
}

/// Two servers execute large batches, each in several transactions, at the same time. Each record is executed by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_is_executed_by_one_of_two_owners() {
    let database = Database::fresh().await;
    let (one, other) = (open(&database).await, open(&database).await);
    assert_eq!((attach(&one).await, attach(&other).await), (Attached::New, Attached::Same));
    let posts: Vec<Post> =
        (0..3_000).map(|n| Post::new(&format!("r{}", n * 7 % 20), &format!("m{n}"))).collect();
    let run = |store: Arc<Postgres>, size: usize| {
        let posts = posts.clone();
        tokio::spawn(async move {
            let mut outcomes = Vec::new();
            for some in posts.chunks(size) {
                outcomes.extend(apply(&store, batch(outcomes.len() as u64, some)).await.unwrap());
            }
            outcomes
        })
    };
    let (first, second) = (run(one.clone(), 700), run(other, 450));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    for (n, pair) in first.iter().zip(&second).enumerate() {
        let is_once =
            matches!(pair, (Outcome::Stored(_), Outcome::Accepted) | (Outcome::Accepted, Outcome::Stored(_)));
        assert!(is_once, "{n}: {pair:?}");
    }
    for room in 0..20 {
        let room = format!("r{room}");
        let wanted: Vec<_> =
            posts.iter().filter(|post| post.room == room).map(|post| post.id.clone()).collect();
        assert_eq!(ids(&one, &room).await, wanted, "{room}");
    }
}

/// What is refused for damaged data does not stop its partition, wherever it stands in the batch, and is not executed
/// later, when the data is repaired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_for_damage_is_passed_over() {
    let database = Database::fresh().await;
    let store = open(&database).await;
    attach(&store).await;
    let posts = |round: usize, count: usize| -> Vec<Post> {
        (0..count).map(|n| Post::new(&format!("r{}", [1, 9, 17][n % 3]), &format!("m{round}-{n}"))).collect()
    };
    apply(&store, batch(0, &posts(0, 9))).await.unwrap();
    // The next number of r17 belongs to a message already.
    let client = connect(&database.url).await;
    client.execute("update rooms set head = head - 1 where id = 'r17'", &[]).await.unwrap();
    let (damaged, mut from) = (posts(1, 60), 9);
    // The last of the batch is a damaged one.
    for some in damaged.chunks(15) {
        let outcomes = apply(&store, batch(from, some)).await.unwrap();
        for (n, outcome) in outcomes.iter().enumerate() {
            match n % 3 {
                2 => assert_eq!(*outcome, Outcome::Refused(Refusal::Unreadable), "{n}"),
                _ => assert!(matches!(outcome, Outcome::Stored(_)), "{n}: {outcome:?}"),
            }
        }
        from += 15;
        assert_eq!(store.next_offsets().await.unwrap()[1], Ok(from));
    }
    client.execute("update rooms set head = head + 1 where id = 'r17'", &[]).await.unwrap();
    let again = apply(&store, batch(9, &damaged)).await.unwrap();
    assert!(again.iter().all(|outcome| *outcome == Outcome::Accepted), "{again:?}");
    assert_eq!(ids(&store, "r17").await, ["m0-2", "m0-5", "m0-8"]);
    let of = |room: usize| damaged.iter().skip(room).step_by(3).map(|post| post.id.clone());
    for (room, name) in ["r1", "r9"].iter().enumerate() {
        let wanted: Vec<String> = (0..3).map(|n| format!("m0-{}", room + 3 * n)).chain(of(room)).collect();
        assert_eq!(ids(&store, name).await, wanted);
    }
}

/// A server that was started without the log writes while another attaches it. From then on nothing of its comes through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_past_a_log_that_is_being_attached() {
    let database = Database::fresh().await;
    let (ignorant, store) = (open(&database).await, open(&database).await);
    let is_attached = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (ignorant, is_attached, written) = (ignorant.clone(), is_attached.clone(), written.clone());
            tokio::spawn(async move {
                for n in 0.. {
                    let was_attached = is_attached.load(Ordering::SeqCst);
                    let post = Post::new(&format!("r{}", (writer + n) % 3), &format!("m{writer}-{n}"));
                    let mut batch = OpBatch::default();
                    batch.push(&Op::Send(post.as_send()));
                    match apply(&ignorant, batch).await {
                        Ok(outcomes) => {
                            assert!(!was_attached, "{outcomes:?} past the log");
                            written.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(ApplyError::Unavailable { .. }) if was_attached => break,
                        Err(ApplyError::Unavailable { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    while written.load(Ordering::SeqCst) < 50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(attach(&store).await, Attached::New);
    let mut heads = Vec::new();
    for room in ["r0", "r1", "r2"] {
        heads.push(ids(&store, room).await);
    }
    is_attached.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    for (room, before) in ["r0", "r1", "r2"].iter().zip(heads) {
        assert_eq!(ids(&store, room).await, before, "{room}");
    }
    // Keys take no part in it.
    let mut batch = OpBatch::default();
    let put = KvOp::Put { key: b"k", value: b"v", ttl_ms: None, condition: Condition::Always };
    batch.push(&Op::Kv(put));
    assert!(matches!(apply(&ignorant, batch).await.unwrap()[..], [Outcome::Kv(_)]));
}

/// Who began before the log is attached may finish: attaching waits for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attaching_waits_for_writers() {
    const WAITS: &str = "select from pg_locks where not granted and relation = 'rooms'::regclass";
    let database = Database::fresh().await;
    let store = open(&database).await;
    let (mut writer, watch) = (connect(&database.url).await, connect(&database.url).await);
    let transaction = writer.transaction().await.unwrap();
    transaction.execute("select from rooms for update", &[]).await.unwrap();
    let attaching = tokio::spawn(async move { attach(&store).await });
    while watch.query(WAITS, &[]).await.unwrap().is_empty() {
        assert!(!attaching.is_finished(), "it waits for nobody");
        tokio::task::yield_now().await;
    }
    transaction.commit().await.unwrap();
    assert_eq!(attaching.await.unwrap(), Attached::New);
}

/// Positions mean nothing before the log is attached, nor those of a partition that it does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_of_another_log_are_refused() {
    let database = Database::fresh().await;
    let (store, later) = (open(&database).await, open(&database).await);
    let refused = |answer: Result<Vec<Outcome>, ApplyError>, words: &str| match answer {
        Err(ApplyError::Unavailable { reason }) => assert!(reason.contains(words), "{reason}"),
        other => panic!("{other:?}"),
    };
    let posts = [Post::new("r1", "m1")];
    let is_unattached = async |store: &Arc<Postgres>| {
        let answer = apply(store, batch(0, &posts)).await;
        assert!(matches!(answer, Err(ApplyError::Unattached { .. })), "{answer:?}");
    };
    is_unattached(&store).await;
    attach(&store).await;
    is_unattached(&later).await;
    let mut outside = OpBatch::default();
    let position = LogPosition { partition: PARTITIONS, offset: 0, appended_at: Timestamp::default() };
    outside.push_at(&Op::Send(posts[0].as_send()), position);
    refused(apply(&store, outside).await, "no partition 8");
    assert!(matches!(apply(&store, batch(0, &posts)).await.unwrap()[..], [Outcome::Stored(_)]));
    for partitions in [0, u32::MAX] {
        let nonsense = LogIdentity { id: "topic".to_owned(), partitions };
        assert!(store.attach(nonsense).await.is_err(), "{partitions} partitions");
    }
}
