//! Gaps: messages of other servers that must be read from the store, or that retention removed.

use super::*;

#[tokio::test]
async fn a_batch_that_the_store_divided_has_no_gap() {
    let (hub, store, outbox) = (shared(), OneRoom::new(3), outbox(99));
    let attachment = joined(&hub, None, &outbox, 3);
    // Another server commits between the parts of one batch.
    let (first, _, second, _, third) =
        (store.store(2), store.store(1), store.store(2), store.store(1), store.store(1));
    publish_all(&hub, first.chain(second).chain(third).map(|seq| message("r", seq)));
    assert_eq!(drain(&outbox), [4, 5], "6 is missing before 7");
    hub.catch_up(&*store, hub.enable_remote().take()).await.unwrap();
    assert_eq!(drain(&outbox), [6, 7, 8, 9, 10]);
    // The same if a poll found the first part and the messages between.
    let (first, between) = (store.store(1), store.store(1));
    hub.poll_heads(&*store).await.unwrap();
    let second = store.store(1);
    publish_all(&hub, first.chain(second).map(|seq| message("r", seq)));
    assert_eq!((drain(&outbox), *between.start()), (vec![11, 12, 13], 12));
    assert!(hub.enable_remote().take().is_empty());
    hub.detach(attachment);
}

#[tokio::test]
async fn whoever_goes_live_while_retention_leaves_a_gap_reads_it_from_the_store() {
    let (hub, store) = (shared(), OneRoom::new(3));
    for is_anything_left in [true, false] {
        let [live, late, idle] = [outbox(99), outbox(99), outbox(99)];
        let begin = store.room.lock().head;
        let attachment = joined(&hub, None, &live, begin);
        publish(&hub, "r", store.store(2));
        let follow = |outbox| hub.attach(RoomId::new("r").unwrap(), None, outbox);
        let (behind, other) = (follow(&late), follow(&idle));
        assert_eq!(hub.join(&behind, &late, begin), Joined::ReadOn);
        let cursor = begin + 2;
        // Another server stores messages that are removed before this one polls.
        store.store(3);
        store.room.lock().removed = cursor + if is_anything_left { 2 } else { 3 };
        hub.poll_heads(&*store).await.unwrap();
        assert!(live.is_cut(), "a live subscriber asks anew");
        for (attachment, outbox) in [(&behind, &late), (&other, &idle)] {
            assert_eq!(hub.join(attachment, outbox, cursor), Joined::ReadOn, "the store knows of the gap");
            assert_eq!(hub.join(attachment, outbox, cursor + 3), Joined::Live);
            assert!(drain(outbox).is_empty());
        }
        for attachment in [attachment, behind, other] {
            hub.detach(attachment);
        }
    }
}
