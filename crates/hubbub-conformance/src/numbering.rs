//! Numbers of messages, and receipts.

use super::Fixture;
use super::model::{KeptMessage, Post};
use super::steps::{apply, are_dense, everything, store, store_many, store_one};

/// Two rooms in one batch count independently, each in the order of the batch.
pub async fn a_room_counts_from_one_in_batch_order(fixture: &mut impl Fixture) {
    let posts = ["a", "b", "a", "a", "b"].map(|room| room.to_owned());
    let posts: Vec<Post> =
        posts.iter().enumerate().map(|(n, room)| Post::new(room, &format!("m{n}"))).collect();
    let seqs: Vec<u64> = store(fixture, &posts).await.iter().map(|receipt| receipt.seq).collect();
    if are_dense(fixture) {
        assert_eq!((seqs[0], seqs[1]), (1, 1), "the first message of a room has number 1");
    }
    assert!(
        seqs[0] < seqs[2] && seqs[2] < seqs[3] && seqs[1] < seqs[4],
        "numbers follow the batch: {seqs:?}"
    );
    let later = store_one(fixture, &Post::new("a", "later")).await;
    assert!(later.seq > seqs[3], "numbers go on from batch to batch");
}

/// Receipt and history agree on number and time.
pub async fn receipts_say_what_history_shows(fixture: &mut impl Fixture) {
    let posts: Vec<Post> = (0..40).map(|n| Post::new("a", &format!("m{n}"))).collect();
    for batch in posts.chunks(7) {
        fixture.clock().advance_micros(1_234);
        let receipts = store(fixture, batch).await;
        let shown = everything(fixture, "a").await;
        let shown = &shown[shown.len() - batch.len()..];
        assert!(shown.iter().map(KeptMessage::receipt).eq(receipts), "{shown:#?}");
        assert!(shown.iter().map(|kept| &kept.post).eq(batch), "{shown:#?}");
    }
}

/// Neither a restart nor settling lets a number come twice.
pub async fn numbers_go_on_after_a_restart(fixture: &mut impl Fixture) {
    let mut last = 0;
    for round in 0..6 {
        let posts: Vec<Post> = (0..5).map(|n| Post::new("a", &format!("m{round}-{n}"))).collect();
        for receipt in store_many(fixture, &posts).await {
            assert!(receipt.seq > last, "{} after {last} in round {round}", receipt.seq);
            last = receipt.seq;
        }
        if round % 3 == 1 {
            fixture.seal_all().await;
        }
        fixture.restart(true).await;
    }
    assert_eq!(everything(fixture, "a").await.len(), 30);
}

/// A batch without operations is fine.
pub async fn an_empty_batch_is_answered_by_nothing(fixture: &mut impl Fixture) {
    assert!(apply(fixture, &[]).await.is_empty());
    let cap = fixture.store().batch_cap();
    assert!(cap.ops >= 1 && cap.bytes >= 1, "{cap:?}");
}
