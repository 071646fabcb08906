//! Times of messages.

use hubbub_core::{Clock, Timestamp};

use super::Fixture;
use super::model::Post;
use super::steps::{Stage, everything, store, store_one};

/// While the clock goes forward, messages have its time, to the microsecond.
pub async fn received_at_is_the_clocks_time(fixture: &mut impl Fixture) {
    for n in 0..5 {
        fixture.clock().advance_micros(n * 7);
        let receipts =
            store(fixture, &[Post::new("a", &format!("a{n}")), Post::new("b", &format!("b{n}"))]).await;
        let now = fixture.clock().now();
        assert_eq!([receipts[0].received_at, receipts[1].received_at], [now; 2]);
    }
}

/// When the clock steps back, a room keeps its last time until the clock has caught up; other rooms do not mind.
pub async fn received_at_never_decreases(fixture: &mut impl Fixture) {
    fixture.clock().advance_micros(100_000_000);
    let high = store_one(fixture, &Post::new("a", "high")).await.received_at;
    fixture.clock().advance_micros(-60_000_000);
    for n in 0..3 {
        fixture.clock().advance_micros(1_000);
        let receipts =
            store(fixture, &[Post::new("a", &format!("low{n}")), Post::new("b", &format!("b{n}"))]).await;
        assert_eq!(receipts[0].received_at, high);
        assert_eq!(receipts[1].received_at, fixture.clock().now());
    }
    fixture.clock().advance_micros(60_000_000);
    let caught_up = store_one(fixture, &Post::new("a", "caught-up")).await.received_at;
    assert_eq!(caught_up, fixture.clock().now());
    let times: Vec<Timestamp> = everything(fixture, "a").await.iter().map(|kept| kept.received_at).collect();
    assert!(times.is_sorted(), "{times:?}");
}

/// The last time of a room is known wherever its messages are.
pub async fn a_room_keeps_its_last_time_over_restarts(fixture: &mut impl Fixture) {
    for stage in Stage::ALL {
        fixture.clock().advance_micros(100_000_000);
        let high = store_one(fixture, &Post::new("a", &format!("{stage:?}-high"))).await.received_at;
        fixture.clock().advance_micros(-10_000_000);
        stage.reach(fixture).await;
        let low = store_one(fixture, &Post::new("a", &format!("{stage:?}-low"))).await.received_at;
        assert_eq!(low, high, "{stage:?}");
    }
}

/// What the sender's clock says comes back as it was, from the year 1 to 9999, and orders nothing.
pub async fn the_senders_clock_is_kept_and_orders_nothing(fixture: &mut impl Fixture) {
    let senders = [0, i64::MAX, i64::MIN, -1, 1_700_000_000_123_456].map(Timestamp::from_micros);
    let posts: Vec<Post> = (0..)
        .zip(senders)
        .map(|(n, timestamp)| Post { timestamp, ..Post::new("a", &format!("m{n}")) })
        .collect();
    store(fixture, &posts).await;
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let shown = everything(fixture, "a").await;
        assert!(shown.iter().map(|kept| &kept.post).eq(&posts), "{stage:?}: {shown:#?}");
    }
}
