//! Numbers with holes, and what a bus brings.

use super::*;

/// Publishes messages with gaps between their numbers: each with the one before it.
fn publish_sparse(hub: &Hub, messages: &[(u64, u64)]) {
    publish_all(
        hub,
        messages.iter().map(|(prev, seq)| {
            let (op, outcome) = message("r", *seq);
            let Outcome::Stored(receipt) = outcome else { panic!() };
            (op, Outcome::Stored(Receipt { gap: seq - prev - 1, ..receipt }))
        }),
    );
}

#[tokio::test]
async fn numbers_with_gaps_are_published_without_the_store() {
    let (hub, outbox) = (shared(), outbox(99));
    let is_behind = || !hub.enable_remote().take().is_empty();
    let attachment = joined(&hub, None, &outbox, 7);
    publish_sparse(&hub, &[(7, 9), (9, 20)]);
    assert_eq!((drain(&outbox), is_behind()), (vec![9, 20], false));
    // Repeated, alone and together with a new one.
    publish_sparse(&hub, &[(9, 20)]);
    publish_sparse(&hub, &[(9, 20), (20, 31)]);
    assert_eq!((drain(&outbox), is_behind()), (vec![31], false));
    // 40 is lost; it and what follows come from the store.
    publish_sparse(&hub, &[(40, 50), (50, 60)]);
    assert_eq!((drain(&outbox), is_behind()), (vec![], true));
    // A batch that somebody else committed in between of.
    publish_sparse(&hub, &[(31, 40), (44, 50), (50, 60)]);
    assert_eq!((drain(&outbox), is_behind()), (vec![40], true));
    publish_sparse(&hub, &[(31, 40), (40, 44), (44, 50), (50, 60)]);
    assert_eq!((drain(&outbox), is_behind()), (vec![44, 50, 60], false));
    hub.detach(attachment);
}

#[cfg(feature = "kafka")]
#[tokio::test]
async fn a_bus_has_its_time_before_the_store_is_read() {
    let (hub, store, outbox) = (shared(), OneRoom::new(3), outbox(99));
    hub.expect_bus();
    let attachment = joined(&hub, None, &outbox, 3);
    let pages = || hub.metrics.live_read_backs.get();
    for _ in 0..9 {
        let mine = store.store(2);
        hub.poll_heads(&*store).await.unwrap();
        publish(&hub, "r", mine);
    }
    assert_eq!((drain(&outbox), pages()), ((4..=21).collect(), 0));
    store.store(1);
    let mut polls = 0;
    while drain(&outbox).is_empty() {
        hub.poll_heads(&*store).await.unwrap();
        polls += 1;
    }
    assert_eq!((polls, pages()), (4, 1), "what the bus lost comes from the store");
    hub.detach(attachment);
}
