//! The mark that a user joined with is where other servers start.

use std::sync::atomic::AtomicUsize;

use super::*;

#[tokio::test]
async fn who_reads_or_speaks_before_another_server_hears_of_the_join_misses_nothing_there() {
    let (store, mut here, there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    let outbox = there.socket(&store).await;
    store.set("r", true, None);
    let records = here.publish(&[add("r")]);
    store.read_later.store(2, Ordering::SeqCst);
    there.hear(&store, &records).await;
    assert_eq!(shown(&outbox), ["joined r at 7, read to 9"]);
}

/// Publishes that ada joined these rooms, and returns what the others are told. The store answers after `time`, or not at all.
async fn publish_slowly(
    here: &mut Node,
    rooms: [&'static str; 2],
    time: Option<Duration>,
) -> (usize, Vec<(u32, String)>) {
    let (asked, clock) = (Arc::new(AtomicUsize::new(0)), here.clock.clone());
    let counted = asked.clone();
    let access = move |room: RoomId, _: UserId| -> Read<'static, Access> {
        counted.fetch_add(1, Ordering::SeqCst);
        if let Some(time) = time {
            clock.advance_micros(i64::try_from(time.as_micros()).unwrap());
        } else if room.as_str() == "slow" {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(Ok(Access::Member { read_seq: 7 })))
    };
    let mut ops = OpBatch::default();
    let changes = rooms.map(|room| change(add(room)));
    changes.iter().for_each(|(op, _)| ops.push(op));
    here.hub.publish(&ops, &changes.map(|(_, outcome)| outcome), &access, here.hub.epoch_number()).await;
    (asked.load(Ordering::SeqCst), here.tick())
}

#[tokio::test]
async fn a_slow_store_delays_few_answers_and_the_mark_is_left_out() {
    let (store, mut here, there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    let outbox = there.socket(&store).await;
    ["r", "slow", "s", "t"].into_iter().for_each(|room| store.set(room, true, None));
    store.read_later.store(2, Ordering::SeqCst);
    let shown_sorted = || {
        let mut texts = shown(&outbox);
        texts.sort_unstable();
        texts
    };
    let (asked, records) = publish_slowly(&mut here, ["slow", "r"], None).await;
    there.hear(&store, &records).await;
    assert_eq!(asked, 2);
    assert_eq!(
        shown_sorted(),
        ["joined r at 7, read to 9", "joined slow at 9"],
        "what was told in time is used"
    );
    // It is not asked again for ten seconds.
    here.pass(SECOND * 9);
    let (asked, records) = publish_slowly(&mut here, ["s", "t"], None).await;
    there.hear(&store, &records).await;
    assert_eq!((asked, shown_sorted()), (0, vec!["joined s at 9".to_owned(), "joined t at 9".to_owned()]));
    here.pass(SECOND);
    // Slow, but in time: it is asked again after some times as long.
    let slowly = Some(Duration::from_millis(40));
    assert_eq!(publish_slowly(&mut here, ["r", "s"], slowly).await.0, 2);
    here.pass(SECOND * 3);
    assert_eq!(publish_slowly(&mut here, ["r", "s"], slowly).await.0, 0);
    here.pass(Duration::from_millis(200));
    let quickly = Some(Duration::from_millis(20));
    for _ in 0..2 {
        assert_eq!(publish_slowly(&mut here, ["r", "s"], quickly).await.0, 2);
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_is_asked_again() {
    let (store, mut here, there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    let outbox = there.socket(&store).await;
    ["r", "s"].into_iter().for_each(|room| store.set(room, true, None));
    let records = here.publish(&[add("r")]);
    store.read_later.store(2, Ordering::SeqCst);
    store.is_mute.store(true, Ordering::SeqCst);
    there.hear(&store, &records).await;
    there.hub.compare_rooms(&store, vec![ada()], there.now()).await.unwrap_err();
    store.is_mute.store(false, Ordering::SeqCst);
    there.compare_again(&store).await;
    assert_eq!(shown(&outbox), ["joined r at 7, read to 9"], "the mark is not lost");
    // For long: it is compared.
    let records = here.publish(&[add("s")]);
    store.is_mute.store(true, Ordering::SeqCst);
    there.hear(&store, &records).await;
    for _ in 0..9 {
        there.pass(SECOND * 5);
        there.hub.recall_joins(there.now());
        there.hub.look_up_hints(&store).await;
    }
    assert_eq!(shown(&outbox), [""; 0]);
    store.is_mute.store(false, Ordering::SeqCst);
    assert_eq!((there.compare(&store).await, there.compare_again(&store).await), (1, 1));
    assert_eq!(shown(&outbox), ["joined s at 9"]);
    assert!(!outbox.is_cut());
}

/// What the store lists shows the join first: the hint has the mark.
#[tokio::test]
async fn a_comparison_before_the_hint_leaves_its_mark() {
    let (store, mut here, there) = (RoomsOfAda::default(), Node::new(1), Node::new(2));
    let outbox = there.socket(&store).await;
    ["r", "s"].into_iter().for_each(|room| store.set(room, true, None));
    let records = here.publish(&[add("r")]);
    store.read_later.store(2, Ordering::SeqCst);
    there.compare_ada(&store).await;
    assert_eq!(shown(&outbox), [""; 0], "a hint may be under way");
    there.hear(&store, &records).await;
    assert_eq!(shown(&outbox), ["joined r at 7, read to 9"]);
    // The one that was seen first, if there is no hint.
    store.set("t", true, None);
    there.compare_ada(&store).await;
    store.read_later.store(4, Ordering::SeqCst);
    there.hub.hint_join(&RoomId::new("t").unwrap(), "ada", None);
    there.hub.look_up_hints(&store).await;
    assert_eq!(shown(&outbox), ["joined t at 9, read to 11"]);
    store.set("u", true, None);
    there.compare_ada(&store).await;
    store.read_later.store(6, Ordering::SeqCst);
    there.compare_again(&store).await;
    assert_eq!(shown(&outbox), ["joined s at 9, read to 13", "joined u at 11, read to 13"]);
    let later = here.publish(&[add("v")]);
    store.set("v", true, None);
    there.compare_ada(&store).await;
    // A hint that waits while the store is asked.
    later
        .iter()
        .for_each(|(partition, record)| there.hub.apply_record(*partition, record.as_bytes(), there.now()));
    there.pass(SECOND);
    there.compare_ada(&store).await;
    assert_eq!(shown(&outbox), ["joined v at 7, read to 13"]);
    there.hub.look_up_hints(&store).await;
    assert_eq!(shown(&outbox), [""; 0]);
}

/// A known mark is not overwritten by a hint without one, and there is an end to hints.
#[tokio::test]
async fn the_mark_of_a_hint_stays_known() {
    let (store, there) = (RoomsOfAda::default(), Node::new(2));
    let outbox = there.socket(&store).await;
    let room = RoomId::new("r").unwrap();
    store.set("r", true, None);
    for mark in [Some(2), Some(3), None] {
        there.hub.hint_join(&room, "ada", mark);
    }
    there.hub.look_up_hints(&store).await;
    assert_eq!(shown(&outbox), ["joined r at 3, read to 7"]);
}
