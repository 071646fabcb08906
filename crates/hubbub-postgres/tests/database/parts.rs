//! Where the database refuses one part of a batch, the others have their outcomes. Where it does not answer, health says so.

use std::sync::Arc;

use crate::support::queues::{make, take, taken};
use crate::support::{Database, connect, eventually};
use hubbub_conformance::model::Post;
use hubbub_conformance::queues::message;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::{Condition, KvOp, KvOutcome};
use hubbub_core::store::{ApplyError, StoreHealth};
use hubbub_core::{Op, OpBatch, Outcome, QueueOp, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};

async fn apply(store: &Arc<Postgres>, ops: &[Op<'_>]) -> Result<Vec<Outcome>, ApplyError> {
    let mut batch = OpBatch::default();
    ops.iter().for_each(|op| batch.push(op));
    let store = store.clone();
    tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap()
}

fn texts(outcome: &Outcome) -> Vec<String> {
    match outcome {
        Outcome::Queue(outcome) => taken(outcome.clone()).into_iter().map(|one| one.text).collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_part_fails_alone() {
    let database = Database::fresh().await;
    let mut locks = connect(&database.url).await;
    let (_, name) = database.url.rsplit_once('/').unwrap();
    locks.batch_execute(&format!("alter database {name} set lock_timeout = '300ms'")).await.unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let options = PostgresOptions::new(&database.url);
    let store = Arc::new(Postgres::open(options, clock, &SeededRandom::new(3)).await.unwrap());
    tokio::task::block_in_place(|| make(&store, "q"));
    let queued = ["one", "two"].map(|text| Op::Queue(QueueOp::Send(message("q", text))));
    apply(&store, &queued).await.unwrap();
    let post = Post::new("r", "m1");
    let put = KvOp::Put { key: b"k", value: b"v", ttl_ms: None, condition: Condition::default() };
    let mixed = [Op::Queue(take("q", "bob", 1, None)), Op::Send(post.as_send()), Op::Kv(put)];
    let is_unavailable =
        |outcome: &Outcome| matches!(outcome.failure(), Some(ApplyError::Unavailable { .. }));
    let is_put = |outcome: &Outcome| matches!(outcome, Outcome::Kv(KvOutcome::Put { .. }));
    let is_first = |outcome: &Outcome, repeats: bool| {
        outcome.receipt().is_some_and(|(receipt, repeated)| receipt.seq == 1 && repeated == repeats)
    };

    let lock = locks.transaction().await.unwrap();
    lock.batch_execute("lock table rooms in access exclusive mode").await.unwrap();
    let outcomes = apply(&store, &mixed).await.unwrap();
    assert_eq!(texts(&outcomes[0]), ["one"]);
    assert!(is_unavailable(&outcomes[1]) && is_put(&outcomes[2]), "{outcomes:?}");
    // A part that is alone in its batch is all of it.
    assert!(matches!(apply(&store, &mixed[1..2]).await, Err(ApplyError::Unavailable { .. })));
    lock.rollback().await.unwrap();

    let lock = locks.transaction().await.unwrap();
    lock.batch_execute("lock table kv_changes in access exclusive mode").await.unwrap();
    let outcomes = apply(&store, &mixed).await.unwrap();
    assert_eq!(texts(&outcomes[0]), ["two"]);
    assert!(is_first(&outcomes[1], false) && is_unavailable(&outcomes[2]), "{outcomes:?}");
    lock.rollback().await.unwrap();

    let outcomes = apply(&store, &mixed).await.unwrap();
    assert!(texts(&outcomes[0]).is_empty());
    assert!(is_first(&outcomes[1], true) && is_put(&outcomes[2]), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_hangs_is_told_of() {
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let options = PostgresOptions::new(&database.url);
    let store = Arc::new(Postgres::open(options, clock.clone(), &SeededRandom::new(3)).await.unwrap());
    let mut locks = connect(&database.url).await;
    let lock = locks.transaction().await.unwrap();
    lock.batch_execute("lock table kv_changes in access exclusive mode").await.unwrap();
    let (applying, watched) = (store.clone(), store.clone());
    let applying = tokio::spawn(async move {
        let put = KvOp::Put { key: b"k", value: b"v", ttl_ms: None, condition: Condition::default() };
        apply(&applying, &[Op::Kv(put)]).await
    });
    assert_eq!(watched.health(), StoreHealth::Up);
    eventually("it is not told", async || {
        // It may begin behind this.
        clock.advance_micros(6_000_000);
        matches!(watched.health(), StoreHealth::Unreachable(reason) if reason.contains("for 6 s"))
    })
    .await;
    lock.rollback().await.unwrap();
    assert!(applying.await.unwrap().is_ok());
    assert_eq!(watched.health(), StoreHealth::Up);
}
