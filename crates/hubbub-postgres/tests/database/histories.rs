//! Revisions of keys where a history begins that may have lost changes of the one before.

use std::sync::Arc;

use crate::support::{Database, connect, eventually};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::{Condition, KvChangesRead};
use hubbub_core::store::ApplyError;
use hubbub_core::{KvOp, KvOutcome, KvStore, Op, OpBatch, Outcome, RoomStore, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions, ReopeningStore};

/// How far behind the last one the revisions of the next history begin at least.
const JUMP: u64 = 1 << 32;

async fn open(database: &Database, seed: u64) -> Arc<Postgres> {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
    let options = PostgresOptions::new(&database.url);
    Arc::new(Postgres::open(options, clock, &SeededRandom::new(seed)).await.unwrap())
}

/// Puts `k`. Returns its revision; `None` if the condition does not hold.
fn put(store: &dyn Store, condition: Condition) -> Option<u64> {
    let mut batch = OpBatch::default();
    batch.push(&Op::Kv(KvOp::Put { key: b"k", value: b"value", ttl_ms: None, condition }));
    match store.apply(&batch).unwrap().remove(0) {
        Outcome::Kv(KvOutcome::Put { revision, .. }) => Some(revision),
        Outcome::Refused(_) => None,
        other => panic!("no put: {other:?}"),
    }
}

/// A database that was restored to before its third change, and given a new history as the manual says.
async fn restored() -> Database {
    let database = Database::fresh().await;
    let store = open(&database, 1).await;
    let given = [(); 3].map(|()| put(&*store, Condition::Always));
    assert_eq!(given, [Some(1), Some(2), Some(3)], "the first history of a database follows none");
    store.close();
    let client = connect(&database.url).await;
    client
        .batch_execute(
            "delete from kv_changes where revision = 3; update kv set revision = 2; \
             update history set epoch = 'restored'",
        )
        .await
        .unwrap();
    database
}

/// The revisions of all changes behind `after`; the oldest that may be asked for, if that is a later one.
async fn changes(store: &Postgres, prefix: &[u8], mut after: u64) -> Result<Vec<u64>, u64> {
    let mut found = Vec::new();
    loop {
        match store.changes(prefix, after, 10).await.unwrap() {
            KvChangesRead::Changes(page) => {
                assert!(page.changes.iter().all(|change| *change.key == *b"k"), "{page:?}");
                found.extend(page.changes.iter().map(|change| change.revision));
                after = page.through;
                if !page.more {
                    return Ok(found);
                }
            }
            KvChangesRead::Compacted { oldest, .. } => return Err(oldest),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_was_lost_is_not_given_again() {
    let database = restored().await;
    // Both find the new history. One begins it.
    let (one, other) = tokio::join!(open(&database, 2), open(&database, 3));
    let begin = put(&*one, Condition::Always).unwrap() - 1;
    assert!(begin >= 2 + JUMP, "{begin}");
    assert_eq!(put(&*other, Condition::Is(3)), None, "the change that was lost");
    assert_eq!(put(&*other, Condition::Is(begin + 1)), Some(begin + 2));
    for prefix in [&b""[..], b"k"] {
        for lost in [2, 3] {
            let oldest = changes(&one, prefix, lost).await.unwrap_err();
            assert_eq!(changes(&one, prefix, oldest).await, Ok(vec![begin + 1, begin + 2]));
        }
        assert_eq!(changes(&one, prefix, begin).await, Ok(vec![begin + 1, begin + 2]));
    }
    let page = one.keys(b"", None, 10).await.unwrap();
    assert_eq!((page.keys.len(), page.revision), (1, begin + 2));
    one.close();
    other.close();
    let later = open(&database, 4).await;
    assert_eq!(put(&*later, Condition::Always), Some(begin + 3), "the same history");
}

/// As of a backup that is restored once more, because it was to be another moment.
#[tokio::test(flavor = "multi_thread")]
async fn histories_that_begin_at_the_same_change_share_no_revision() {
    let mut last = 0;
    for seed in [2, 3] {
        let database = restored().await;
        let store = open(&database, seed).await;
        for _ in 0..3 {
            let given = put(&*store, Condition::Always).unwrap();
            assert!(
                given > last,
                "{given} may have been given by the history before, which went up to {last}"
            );
            last = given;
        }
    }
}

/// There is nothing to forget in the revisions between, of which there are very many, and that takes no time.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_new_history_are_forgotten_as_before() {
    let database = restored().await;
    let (store, client) = (open(&database, 2).await, connect(&database.url).await);
    let begin = put(&*store, Condition::Always).unwrap();
    let many = "insert into kv_changes select head + n, 'k', 'P', true \
                from (select max(revision) as head from kv_changes) h, generate_series(1, 106000) n";
    client.batch_execute(many).await.unwrap();
    let (oldest, first) = ("select min(revision) from kv_changes", i64::try_from(begin).unwrap());
    eventually("the first changes of the history are forgotten", async || {
        client.query_one(oldest, &[]).await.unwrap().get::<_, i64>(0) > first
    })
    .await;
    let kept = "select count(*) from kv_changes";
    assert!(client.query_one(kept, &[]).await.unwrap().get::<_, i64>(0) >= 100_000);
}

/// Opens what follows each new history.
async fn open_for_ever(database: &Database) -> ReopeningStore {
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T00:00:00Z").unwrap()));
    let (options, random) = (PostgresOptions::new(&database.url), Arc::new(SeededRandom::new(5)));
    ReopeningStore::open(options, clock, random, Arc::new(|| {})).await.unwrap()
}

/// As where the same timeline begins twice, and another server found that first. What was to be committed in the old history
/// is committed in none.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_another_server_named_is_another_one() {
    let database = Database::fresh().await;
    let (store, client) = (open_for_ever(&database).await, connect(&database.url).await);
    put(&store, Condition::Always).unwrap();
    let old = store.epoch();
    // The connections of before go with the server that had them.
    client
        .batch_execute(
            "update history set epoch = 'restored'; \
             select pg_terminate_backend(pid) from pg_stat_activity \
             where datname = current_database() and pid <> pg_backend_pid()",
        )
        .await
        .unwrap();
    eventually("the new history is found", async || *store.epoch() == *"restored").await;
    let mut late = OpBatch::default();
    late.push(&Op::Kv(KvOp::Put {
        key: b"late",
        value: b"value",
        ttl_ms: None,
        condition: Condition::Always,
    }));
    let refused = store.apply_in(&old, &late);
    assert!(matches!(refused, Err(ApplyError::Unavailable { .. })), "{refused:?}");
    assert_eq!(store.value(b"late").await.unwrap(), None);
    assert!(store.apply_in("restored", &late).is_ok());
}

/// Nobody is told of such a restore, and nothing else of the database differs.
#[tokio::test(flavor = "multi_thread")]
async fn a_dump_that_is_restored_begins_a_new_history() {
    let database = Database::fresh().await;
    let store = open(&database, 1).await;
    let first = store.epoch();
    store.close();
    drop(store);
    let again = open(&database, 2).await;
    assert_eq!(again.epoch(), first, "nothing happened");
    again.close();
    drop(again);
    let client = connect(&database.url).await;
    // Into the same database.
    client
        .batch_execute(
            "alter table history rename to dumped; create table history (like dumped including all); \
             insert into history select * from dumped; drop table dumped",
        )
        .await
        .unwrap();
    let restored = open(&database, 3).await;
    let second = restored.epoch();
    assert_ne!(second, first);
    restored.close();
    drop(restored);
    // Copied to another one.
    drop(client);
    let copy = database.copy().await;
    let copied = open(&copy, 4).await;
    assert_ne!(copied.epoch(), second);
    copied.close();
}
