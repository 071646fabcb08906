//! Rooms with several servers on one database, and over partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Database, connect};
use hubbub_conformance::model::Post;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{Op, OpBatch, Outcome, Refusal, RoomId, RoomStore, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio_postgres::Client;

const DAY: i64 = 86_400_000_000;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)))
}

async fn open(database: &Database, clock: &Arc<ManualClock>) -> Arc<Postgres> {
    let partition = Duration::from_secs(86_400);
    let options = PostgresOptions { partition, ..PostgresOptions::new(&database.url) };
    Arc::new(Postgres::open(options, clock.clone(), &SeededRandom::new(3)).await.unwrap())
}

async fn send(store: &Arc<Postgres>, posts: &[Post]) -> Vec<Outcome> {
    let mut batch = OpBatch::default();
    posts.iter().for_each(|post| batch.push(&Op::Send(post.as_send())));
    let store = store.clone();
    tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap().unwrap()
}

fn seqs(outcomes: &[Outcome]) -> Vec<u64> {
    outcomes.iter().map(|outcome| outcome.receipt().unwrap().0.seq).collect()
}

/// Numbers and ids after a number.
async fn behind(store: &Postgres, room: &str, after: u64) -> Vec<(u64, String)> {
    let (mut all, mut cursor) = (Vec::new(), after);
    loop {
        let query = HistoryQuery {
            cursor: Cursor::After(cursor),
            from: None,
            to: None,
            limit: 7,
            bytes_max: usize::MAX,
        };
        let page = store.history(RoomId::new(room).unwrap(), query).await.unwrap();
        all.extend(page.messages.iter().map(|message| (message.seq, message.sent.id.to_owned())));
        cursor = all.last().map_or(cursor, |(seq, _)| *seq);
        if !page.more {
            return all;
        }
    }
}

/// Waits until a session waits for a lock.
async fn somebody_waits(client: &Client) {
    let text = "select count(*) from pg_locks where not granted \
                and (database = (select oid from pg_database where datname = current_database()) \
                    or locktype in ('transactionid', 'tuple'))";
    for _ in 0..200 {
        if client.query_one(text, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("nobody waits for the transaction that holds the room");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_commit_is_not_skipped() {
    let database = Database::fresh().await;
    let store = open(&database, &clock()).await;
    assert_eq!(seqs(&send(&store, &[Post::new("r", "m1")]).await), [1]);

    // Another server has numbered a message, and its commit is slow.
    let (late, other) = (connect(&database.url).await, connect(&database.url).await);
    late.batch_execute(
        "begin; \
         select from rooms where id = 'r' for update; \
         insert into messages (room, sender, seq, received_at, sent_at, kind, message_id, body) \
             select room, sender, 2, received_at, sent_at, kind, 'late', 'late' from messages where seq = 1; \
         update rooms set head = 2, messages = 2 where id = 'r';",
    )
    .await
    .unwrap();
    let sending = tokio::spawn({
        let store = store.clone();
        async move { send(&store, &[Post::new("r", "m3")]).await }
    });
    somebody_waits(&other).await;
    let mut cursor = 1;
    assert_eq!(behind(&store, "r", cursor).await, [], "nothing behind an uncommitted number may be seen");
    late.batch_execute("commit").await.unwrap();
    assert_eq!(seqs(&sending.await.unwrap()), [3]);
    let seen = behind(&store, "r", cursor).await;
    assert_eq!(seen, [(2, "late".to_owned()), (3, "m3".to_owned())]);
    cursor = 3;
    assert_eq!(behind(&store, "r", cursor).await, []);
    store.close();
}

/// Two servers both send every message to the same rooms, in batches of different sizes, while a third one follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_number_the_same_rooms() {
    const MESSAGES: usize = 400;
    let rooms = ["a", "b", "c"];
    let database = Database::fresh().await;
    let clock = clock();
    let posts: Vec<Post> = (0..MESSAGES)
        .map(|n| Post::new(rooms[n % 3], &format!("m{n}")).user(&format!("u{}", n % 17)))
        .collect();
    let sending = [11, 30].map(async |size| {
        let store = open(&database, &clock).await;
        let mut receipts = BTreeMap::new();
        for some in posts.chunks(size) {
            let outcomes = send(&store, some).await;
            receipts.extend(some.iter().map(|post| post.id.clone()).zip(seqs(&outcomes)));
        }
        store.close();
        receipts
    });
    let reader = open(&database, &clock).await;
    send(&reader, &rooms.map(|room| Post::new(room, "first"))).await;
    let following = async {
        let mut seen: BTreeMap<&str, Vec<(u64, String)>> = BTreeMap::new();
        while seen.values().map(Vec::len).sum::<usize>() < MESSAGES + rooms.len() {
            for room in rooms {
                let seen = seen.entry(room).or_default();
                let after = seen.last().map_or(0, |(seq, _)| *seq);
                seen.extend(behind(&reader, room, after).await);
            }
        }
        seen
    };
    let sending = futures_util::future::join_all(sending);
    let both = async { tokio::join!(sending, following) };
    let (receipts, seen) =
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("messages are missing");
    assert_eq!(receipts[0], receipts[1], "both must be told the same numbers");
    for (room, seen) in seen {
        assert_eq!(
            seen,
            behind(&reader, room, 0).await,
            "whoever followed {room} saw all of it in its order"
        );
        let numbers: Vec<u64> = seen.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(numbers, (1..=seen.len() as u64).collect::<Vec<_>>());
        let ids: BTreeSet<&String> = seen.iter().map(|(_, id)| id).collect();
        assert_eq!(ids.len(), seen.len(), "an id came twice to {room}");
        assert!(seen.iter().skip(1).all(|(seq, id)| receipts[0].get(id) == Some(seq)));
    }
    reader.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_across_partitions_is_noop() {
    let database = Database::fresh().await;
    let clock = clock();
    let store = open(&database, &clock).await;
    let first = send(&store, &[Post::new("r", "m1")]).await;
    clock.advance_micros(40 * DAY);
    send(&store, &[Post::new("r", "m2")]).await;
    store.close();
    let store = open(&database, &clock).await;
    let again = [Post::new("r", "m1"), Post::new("r", "m1").text("other"), Post::new("r", "m3")];
    let outcomes = send(&store, &again).await;
    let receipt = *first[0].receipt().unwrap().0;
    assert_eq!(outcomes[..2], [Outcome::Duplicate(receipt), Outcome::Refused(Refusal::IdReused { seq: 1 })]);
    assert_eq!(seqs(&outcomes[2..]), [3]);
    let client = connect(&database.url).await;
    let text = "select count(*), count(distinct tableoid) from messages";
    let row = client.query_one(text, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (3, 2));
    store.close();
}

/// Pages, by number and by time, of a room whose history spans many partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_read_over_many_partitions() {
    let database = Database::fresh().await;
    let clock = clock();
    let store = open(&database, &clock).await;
    for n in 0..300 {
        send(&store, &[Post::new("r", &format!("m{n}"))]).await;
        clock.advance_micros(DAY / 10);
    }
    let all = behind(&store, "r", 0).await;
    assert_eq!(all.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), (1..=300).collect::<Vec<_>>());
    let page = async |cursor, from: i64, to: i64| {
        let time = |tenths: i64| Timestamp::from_micros(1_700_000_000_000_000 + tenths * (DAY / 10));
        let query = HistoryQuery {
            cursor,
            from: Some(time(from)),
            to: Some(time(to)),
            limit: 20,
            bytes_max: usize::MAX,
        };
        let page = store.history(RoomId::new("r").unwrap(), query).await.unwrap();
        (page.messages.iter().map(|message| message.seq).collect::<Vec<_>>(), page.more)
    };
    // Message n is received at n - 1.
    assert_eq!(page(Cursor::After(0), 100, 110).await, ((101..=110).collect(), false));
    assert_eq!(page(Cursor::After(0), 100, 250).await, ((101..=120).collect(), true));
    assert_eq!(page(Cursor::Before(u64::MAX), 100, 250).await, ((231..=250).collect(), true));
    assert_eq!(page(Cursor::Before(105), 100, 250).await, ((101..=104).collect(), false));
    assert_eq!(page(Cursor::Before(u64::MAX), 290, 500).await, ((291..=300).collect(), false));
    store.close();
}

/// A batch creates the partition it needs, also if somebody dropped it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_partition_loses_nothing() {
    let database = Database::fresh().await;
    let clock = clock();
    let store = open(&database, &clock).await;
    send(&store, &[Post::new("r", "m1")]).await;
    let client = connect(&database.url).await;
    client
        .batch_execute(
            "do $$ declare part text; begin \
                 for part in select name from partitions loop execute 'drop table ' || part; end loop; \
                 delete from partitions; \
             end $$",
        )
        .await
        .unwrap();
    assert_eq!(seqs(&send(&store, &[Post::new("r", "m2"), Post::new("other", "m1")]).await), [2, 1]);
    store.close();
}

/// Large enough for two lanes, which assign numbers to the same new users at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_is_answered_in_its_order() {
    let database = Database::fresh().await;
    let store = open(&database, &clock()).await;
    let post = |n: usize| Post {
        user: format!("user-{}", n / 40 % 50),
        ..Post::new(&format!("room-{}", n % 40), &format!("m-{n}"))
    };
    let mut posts: Vec<Post> = (0..1_000).map(post).collect();
    posts.push(Post { text: "another text".into(), ..post(7) });
    let outcomes = send(&store, &posts).await;
    assert!(
        matches!(outcomes.last(), Some(Outcome::Refused(Refusal::IdReused { seq: 1 }))),
        "{:?}",
        outcomes.last()
    );
    let numbers: Vec<u64> = (0..1_000).map(|n| n / 40 + 1).collect();
    assert_eq!(seqs(outcomes.get(..1_000).unwrap()), numbers);
    for room in 0..40 {
        let stored = behind(&store, &format!("room-{room}"), 0).await;
        let sent = (0..25).map(|n| (n + 1, format!("m-{}", n * 40 + room)));
        assert_eq!(stored, sent.collect::<Vec<_>>());
    }
    let count = "select count(*) from users";
    let users: i64 = connect(&database.url).await.query_one(count, &[]).await.unwrap().get(0);
    assert_eq!(users, 25);
}
