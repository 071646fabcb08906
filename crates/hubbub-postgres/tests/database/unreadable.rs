//! Refused or damaged data of one room fails that room only. Other operations of the batch succeed.

use std::sync::Arc;

use crate::support::{Database, connect};
use hubbub_conformance::model::Post;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Op, OpBatch, Outcome, Refusal, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};

async fn send(store: &Arc<Postgres>, posts: &[Post]) -> Vec<Outcome> {
    let mut batch = OpBatch::default();
    posts.iter().for_each(|post| batch.push(&Op::Send(post.as_send())));
    let store = store.clone();
    tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_damaged_room_does_not_fail_the_batch() {
    const DAMAGED: &str = "r3";
    let database = Database::fresh().await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let options = PostgresOptions::new(&database.url);
    let store = Arc::new(Postgres::open(options, clock, &SeededRandom::new(3)).await.unwrap());
    let posts = |round: usize| -> Vec<Post> {
        (0..20).map(|n| Post::new(&format!("r{}", n % 10), &format!("m{round}-{n}"))).collect()
    };
    let stored = |outcomes: &[Outcome]| -> Vec<Option<u64>> {
        outcomes.iter().map(|outcome| outcome.receipt().map(|(receipt, _)| receipt.seq)).collect()
    };
    let first = send(&store, &posts(0)).await;
    assert!(stored(&first).into_iter().eq((0..20).map(|n| Some(1 + n / 10))));

    // The next number belongs to a message already.
    let damage = format!("update rooms set head = head - 1 where id = '{DAMAGED}'");
    let client = connect(&database.url).await;
    assert_eq!(client.execute(&damage, &[]).await.unwrap(), 1);
    for round in 1..3 {
        let outcomes = send(&store, &posts(round)).await;
        let seq = |n: u64| (n % 10 != 3).then_some(2 * round as u64 + 1 + n / 10);
        assert!(stored(&outcomes).into_iter().eq((0..20).map(seq)), "{outcomes:?}");
        for damaged in outcomes.iter().skip(3).step_by(10) {
            assert_eq!(*damaged, Outcome::Refused(Refusal::Unreadable));
        }
    }
    // However many of its messages there are.
    let many: Vec<Post> = (0..60).map(|n| Post::new(DAMAGED, &format!("many-{n}"))).collect();
    let healthy: Vec<Post> = (0..60).map(|n| Post::new(&format!("h{}", n % 20), &format!("m{n}"))).collect();
    let mixed: Vec<Post> = many.into_iter().zip(healthy).flat_map(|(one, other)| [one, other]).collect();
    let outcomes = send(&store, &mixed).await;
    for (place, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.receipt().is_some(), place % 2 == 1, "{place}: {outcome:?}");
    }
    // After the repair, the room works again.
    let mend = format!("update rooms set head = head + 1 where id = '{DAMAGED}'");
    client.execute(&mend, &[]).await.unwrap();
    assert_eq!(stored(&send(&store, &posts(9)[3..4]).await), [Some(3)]);
}
