//! Repeated ids: what is the same message, and what is refused.

use hubbub_core::{Change, MessageId, MessageType, Outcome, Refusal, RoomChange, Timestamp};

use super::Fixture;
use super::model::Post;
use super::steps::{Stage, apply, are_dense, change, everything, room_id, store, store_many, store_one};

/// The first of two equal ids is stored, the second is its duplicate, or refused when it differs.
pub async fn of_two_equal_ids_in_a_batch_the_second_is_the_repeat(fixture: &mut impl Fixture) {
    let first = Post::new("a", "m");
    let outcomes = apply(fixture, &[first.clone(), first.clone(), first.clone().text("other"), first]).await;
    let Outcome::Stored(receipt) = outcomes[0] else { panic!("the first is new: {outcomes:?}") };
    let refused = Outcome::Refused(Refusal::IdReused { seq: receipt.seq });
    assert_eq!(outcomes[1..], [Outcome::Duplicate(receipt), refused, Outcome::Duplicate(receipt)]);
    assert_eq!(everything(fixture, "a").await.len(), 1);
}

/// A repeat gets the first one's receipt, later as well as at once.
pub async fn a_repeat_is_known_wherever_the_first_one_is(fixture: &mut impl Fixture) {
    for stage in Stage::ALL {
        let posts: Vec<Post> = (0..20).map(|n| Post::new("a", &format!("{stage:?}-{n}"))).collect();
        let receipts = store(fixture, &posts).await;
        stage.reach(fixture).await;
        fixture.clock().advance_micros(5_000_000);
        let again = apply(fixture, &posts).await;
        assert!(
            again.iter().cloned().eq(receipts.into_iter().map(Outcome::Duplicate)),
            "{stage:?}: {again:?}"
        );
    }
    assert_eq!(everything(fixture, "a").await.len(), 80);
}

/// Another user, text or type under a used id is refused and told the number of the first.
pub async fn a_reused_id_is_refused_wherever_the_first_one_is(fixture: &mut impl Fixture) {
    for stage in Stage::ALL {
        let first = Post::new("a", &format!("{stage:?}"));
        let seq = store_one(fixture, &first).await.seq;
        stage.reach(fixture).await;
        let others = [
            first.clone().user("eve"),
            first.clone().text("something else"),
            first.clone().kind(MessageType::Join),
        ];
        for outcome in apply(fixture, &others).await {
            assert_eq!(outcome, Outcome::Refused(Refusal::IdReused { seq }), "{stage:?}");
        }
        let last = everything(fixture, "a").await.pop();
        assert_eq!(last.map(|kept| kept.post), Some(first), "{stage:?}");
    }
}

/// A message is found by its id wherever it is, and only there; not when it is gone, and not the one before it under an id
/// that was used again.
pub async fn an_id_leads_to_its_message(fixture: &mut impl Fixture) {
    let find = async |fixture: &mut _, room: &str, id: &str| {
        let store = Fixture::store(fixture);
        store.receipt(room_id(room), MessageId::new(id).unwrap()).await.unwrap()
    };
    let mut known = Vec::new();
    for stage in Stage::ALL {
        let (id, other) = (format!("{stage:?}"), format!("other-{stage:?}"));
        let of_eve = Post::new("a", "eve").user("eve");
        let posts = [Post::new("a", &id), Post::new("b", &other), Post::new("b", &id), of_eve];
        let receipts = store(fixture, &posts).await;
        let of_eve = receipts[3];
        known.push((id, receipts));
        stage.reach(fixture).await;
        for (id, receipts) in &known {
            assert_eq!(find(fixture, "a", id).await, Some(receipts[0]), "{stage:?}");
            assert_eq!(find(fixture, "b", id).await, Some(receipts[2]), "{stage:?}");
            assert_eq!(find(fixture, "a", &format!("other-{id}")).await, None, "{stage:?}");
            assert_eq!(find(fixture, "c", id).await, None, "{stage:?}");
        }
        assert_eq!(find(fixture, "a", "eve").await, Some(of_eve), "{stage:?}");
        let erase = Change { by: None, what: RoomChange::EraseUser { user: "eve" } };
        change(fixture, &[erase]).await;
        assert_eq!(find(fixture, "a", "eve").await, None, "{stage:?}");
    }
}

/// Display name and the sender's clock may differ between a message and its repeat; the first ones are kept.
pub async fn only_user_text_and_type_make_the_same_message(fixture: &mut impl Fixture) {
    let first = Post::new("a", "m").username("Ada");
    let receipt = store_one(fixture, &first).await;
    let renamed = first.clone().username("Lady Ada");
    let later = Post { timestamp: Timestamp::from_micros(1), username: None, ..first.clone() };
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let outcomes = apply(fixture, &[renamed.clone(), later.clone()]).await;
        assert!(
            outcomes.iter().all(|outcome| *outcome == Outcome::Duplicate(receipt)),
            "{stage:?}: {outcomes:?}"
        );
        assert_eq!(outcomes.len(), 2);
    }
    assert_eq!(everything(fixture, "a").await[0].post, first);
}

/// Duplicates and refused messages leave no hole in the numbers.
pub async fn a_repeat_uses_no_number(fixture: &mut impl Fixture) {
    let first = Post::new("a", "m1");
    let refused = first.clone().text("other");
    let outcomes =
        apply(fixture, &[first.clone(), first.clone(), refused.clone(), Post::new("a", "m2")]).await;
    apply(fixture, &[first, refused]).await;
    let third = store_one(fixture, &Post::new("a", "m3")).await;
    let Outcome::Stored(second) = outcomes[3] else { panic!("m2 is new: {outcomes:?}") };
    assert!(second.seq < third.seq, "{second:?}, {third:?}");
    if are_dense(fixture) {
        assert_eq!((second.seq, third.seq), (2, 3));
    }
}

/// The caller may repeat a whole batch, also together with something new.
pub async fn a_repeated_batch_changes_nothing(fixture: &mut impl Fixture) {
    let mut posts: Vec<Post> = (0..50).map(|n| Post::new(["a", "b", "c"][n % 3], &format!("m{n}"))).collect();
    let receipts = store(fixture, &posts).await;
    let before = everything(fixture, "a").await;
    for _ in 0..3 {
        let again = apply(fixture, &posts).await;
        assert!(again.into_iter().eq(receipts.iter().copied().map(Outcome::Duplicate)));
        fixture.restart(true).await;
    }
    assert_eq!(everything(fixture, "a").await, before);
    posts.push(Post::new("a", "new"));
    let with_new = apply(fixture, &posts).await;
    assert!(matches!(with_new[50], Outcome::Stored(_)), "{:?}", with_new[50]);
    assert!(with_new[..50].iter().cloned().eq(receipts.into_iter().map(Outcome::Duplicate)));
}

/// Ids are the room's own.
pub async fn the_same_id_in_another_room_is_another_message(fixture: &mut impl Fixture) {
    for stage in Stage::ALL {
        let id = format!("{stage:?}");
        store_one(fixture, &Post::new("a", &id)).await;
        stage.reach(fixture).await;
        store(fixture, &[Post::new("b", &id).text("something else"), Post::new("ab", &id)]).await;
    }
    assert_eq!(everything(fixture, "b").await.len(), 4);
}

/// Operations of one batch stand or fall alone where the fault is their own.
pub async fn a_refused_message_leaves_the_rest_of_its_batch_alone(fixture: &mut impl Fixture) {
    let first = Post::new("a", "used");
    let (used, are_dense) = (store_one(fixture, &first).await, are_dense(fixture));
    let posts = [Post::new("a", "x"), first.clone().text("other"), first, Post::new("b", "y")];
    let outcomes = apply(fixture, &posts).await;
    let is_new = |seq: u64, dense: u64| if are_dense { seq == dense } else { seq != used.seq };
    assert!(matches!(outcomes[0], Outcome::Stored(receipt) if is_new(receipt.seq, 2)), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Refused(Refusal::IdReused { seq: used.seq }));
    assert_eq!(outcomes[2], Outcome::Duplicate(used));
    assert!(matches!(outcomes[3], Outcome::Stored(receipt) if is_new(receipt.seq, 1)), "{outcomes:?}");
}

/// Thousands of ids, of every form, are remembered, and those never sent are not.
pub async fn every_one_of_many_ids_is_remembered(fixture: &mut impl Fixture) {
    let post = |n: usize| match n % 3 {
        0 => Post::new("a", &format!("m{n}")),
        1 => Post::new("b", &format!("01980000-0000-7000-8000-{n:012x}")),
        _ => Post::new("a", &format!("{n:064}")),
    };
    let posts: Vec<Post> = (0..3_000).map(post).collect();
    let receipts = store_many(fixture, &posts[..1_000]).await;
    fixture.seal_all().await;
    let receipts = [receipts, store_many(fixture, &posts[1_000..2_000]).await].concat();
    fixture.seal_all().await;
    let receipts = [receipts, store_many(fixture, &posts[2_000..]).await].concat();
    fixture.restart(true).await;
    for (some, receipts) in posts.chunks(200).zip(receipts.chunks(200)) {
        let again = apply(fixture, some).await;
        assert!(again.into_iter().eq(receipts.iter().copied().map(Outcome::Duplicate)));
    }
    store_many(fixture, &(3_000..4_000).map(post).collect::<Vec<_>>()).await;
}
