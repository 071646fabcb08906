//! A room that is deleted and made again before this server hears of either.

use super::*;

/// They miss nothing that others store from then on.
#[tokio::test]
async fn who_is_live_in_the_next_room_stays_so() {
    let (hub, store, [ada, bob]) = (shared(), OneRoom::new(1), [outbox(99), outbox(99)]);
    let attachment = joined(&hub, Some("ada"), &ada, 1);
    hub.poll_heads(&*store).await.unwrap();
    store.change(|room| room.is_deleted = true);
    let mut polling = Box::pin(hub.poll_heads(&*store));
    assert!((&mut polling).now_or_never().is_none(), "the store takes a while");
    store.change(|room| room.is_deleted = false);
    let late = joined(&hub, Some("bob"), &bob, 1);
    polling.await.unwrap();
    assert!(removed(&ada) && !removed(&bob));
    store.store(2);
    publish(&hub, "r", store.store(1));
    hub.poll_heads(&*store).await.unwrap();
    assert_eq!(drain(&bob), [2, 3, 4]);
    hub.detach(attachment);
    hub.detach(late);
}
