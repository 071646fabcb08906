//! Who reads many rooms, or too many to be compared.

use super::*;

/// A store may list all rooms that somebody has ever left.
#[tokio::test]
async fn rooms_that_no_page_had_wait_behind_what_is_missing() {
    let (store, there) = (RoomsOfAda::default(), Node::new(2));
    let (outbox, eve, room) =
        (there.socket(&store).await, UserId::new("eve").unwrap(), RoomId::new("r").unwrap());
    there.hub.forget_unread(&ada(), &outbox, [&room]);
    there.hub.open_socket(&eve, &outbox);
    there.hub.follow_all(&eve, &outbox, true);
    there.hub.expect_joins(&eve, &outbox, Some(Vec::new()));
    there.hub.forget_rooms(&eve, &outbox, [&room]);
    assert_eq!(there.hub.take_urgent(1), [eve]);
    assert_eq!(there.hub.take_urgent(1), [ada()]);
}

/// Its rooms were not listed when it read them.
#[tokio::test]
async fn a_socket_with_too_many_rooms_is_told_by_hints_only() {
    let (store, mut here, there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    let outbox = outbox(99);
    there.hub.open_socket(&ada(), &outbox);
    there.hub.follow_all(&ada(), &outbox, true);
    ["r", "s"].into_iter().for_each(|room| store.set(room, true, None));
    there.hear(&store, &here.publish(&[add("r")])).await;
    assert_eq!(shown(&outbox), ["joined r at 7"]);
    there.hub.may_have_missed_joins(|_| true);
    assert_eq!(there.compare(&store).await, 0);
    there.compare_ada(&store).await;
    assert_eq!(shown(&outbox), [""; 0]);
    // It would never hear of a join that cannot be looked up.
    there.hub.expect_joins(&ada(), &outbox, None);
    let (listed, listing) = (there.socket(&store).await, super::outbox(99));
    there.hub.open_socket(&ada(), &listing);
    there.hub.follow_all(&ada(), &listing, true);
    store.is_mute.store(true, Ordering::SeqCst);
    there.hub.hint_join(&RoomId::new("s").unwrap(), "ada", None);
    for _ in 0..9 {
        there.hub.look_up_hints(&store).await;
        there.pass(SECOND * 5);
        there.hub.recall_joins(there.now());
    }
    assert!(outbox.is_cut() && !listed.is_cut() && !listing.is_cut());
}
