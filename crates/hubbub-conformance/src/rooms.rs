//! Rooms: how they come to be, how they are described and listed.

use hubbub_core::store::{RoomInfo, StoreHealth};
use hubbub_core::{Clock, Outcome, Refusal};

use super::Fixture;
use super::model::Post;
use super::steps::{Stage, apply, are_dense, everything, info, is_unknown, room_id, store, store_one};

/// Head, oldest, count and time of a room.
pub async fn a_room_is_described(fixture: &mut impl Fixture) {
    store(fixture, &[Post::new("a", "m1"), Post::new("b", "m1")]).await;
    for (count, stage) in (2..).zip(Stage::ALL) {
        fixture.clock().advance_micros(1_000);
        let time = fixture.clock().now();
        let receipt = store_one(fixture, &Post::new("a", &format!("m{count}"))).await;
        stage.reach(fixture).await;
        let expected = RoomInfo {
            room: room_id("a"),
            head: receipt.seq,
            oldest: 1,
            messages: count,
            last_received_at: Some(time),
            title: None,
            members_only: false,
            retention_s: None,
            members: 0,
        };
        assert_eq!(info(fixture, "a").await, Some(expected), "{stage:?}");
    }
}

/// In the order of their names' bytes, from behind any name, also one that is no room.
pub async fn rooms_are_listed_in_pages_by_name(fixture: &mut impl Fixture) {
    let mut names: Vec<String> =
        ["a", "A", "a-1", "a.", "b", "Z", "_", "9", "10", "a_"].map(String::from).to_vec();
    assert!(fixture.store().rooms(None, 10).await.unwrap().is_empty());
    for (n, name) in names.iter().enumerate() {
        store_one(fixture, &Post::new(name, "m")).await;
        if n == 5 {
            fixture.seal_all().await;
        }
    }
    names.sort();
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        for limit in [1, 3, 10, 1_000] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let page = fixture.store().rooms(after.clone(), limit).await.unwrap();
                assert!(page.len() <= limit, "{} rooms of {limit}", page.len());
                let Some(last) = page.last() else { break };
                after = Some(last.room.clone());
                seen.extend(page.into_iter().map(|info| info.room.to_string()));
            }
            assert_eq!(seen, names, "{stage:?} by {limit}");
        }
        let behind = fixture.store().rooms(Some(room_id("a0")), 1).await.unwrap();
        assert_eq!(behind.first().map(|info| info.room.as_str()), Some("a_"), "{stage:?}");
    }
}

/// With `autocreate` off, rooms that are there take messages, others do not come to be.
pub async fn without_autocreate_unknown_rooms_are_refused(fixture: &mut impl Fixture) {
    let old = Post::new("old", "m1");
    store_one(fixture, &old).await;
    fixture.restart(false).await;
    let outcomes =
        apply(fixture, &[Post::new("new", "m1"), Post::new("old", "m2"), Post::new("new", "m1"), old]).await;
    let unknown = Outcome::Refused(Refusal::UnknownRoom);
    assert!(outcomes[0] == unknown && outcomes[2] == unknown, "{outcomes:?}");
    assert!(
        matches!((&outcomes[1], &outcomes[3]), (Outcome::Stored(_), Outcome::Duplicate(_))),
        "{outcomes:?}"
    );
    assert!(is_unknown(fixture, "new").await);
    assert_eq!(fixture.store().rooms(None, 10).await.unwrap().len(), 1);
    assert_eq!(everything(fixture, "old").await.len(), 2);
    fixture.restart(true).await;
    assert!(is_unknown(fixture, "new").await, "a refused message must not make a room");
    let receipt = store_one(fixture, &Post::new("new", "m1")).await;
    if are_dense(fixture) {
        assert_eq!(receipt.seq, 1, "a refused message must not use a number");
    }
}

/// Figures count what is kept; the epoch stays over a restart.
pub async fn figures_and_health_are_told(fixture: &mut impl Fixture) {
    let epoch = fixture.store().epoch();
    assert!(!epoch.is_empty());
    store(fixture, &[Post::new("a", "m1"), Post::new("a", "m2"), Post::new("b", "m1")]).await;
    apply(fixture, &[Post::new("a", "m1")]).await;
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let figures = fixture.store().figures();
        assert_eq!((figures.messages, figures.rooms), (3, 2), "{stage:?}");
        assert_eq!(fixture.store().health(), StoreHealth::Up, "{stage:?}");
        assert_eq!(fixture.store().epoch(), epoch, "{stage:?}");
    }
}
