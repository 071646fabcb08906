//! Pages of history: cursors, limits, windows of time.

use hubbub_core::Timestamp;
use hubbub_core::store::{Cursor, HistoryQuery};

use super::Fixture;
use super::model::{KeptMessage, Model, Post};
use super::steps::{
    Stage, apply_to_both, check_page, everything, info, is_unknown, page, room_id, store, store_many,
    store_one, unbounded,
};

/// Rooms "a" (40 messages, some at equal times, the clock once stepping back) and "b" around it. Half of it is
/// settled, the other half not.
async fn prepare(fixture: &mut impl Fixture) -> Model {
    let mut model = Model::default();
    for n in 0..20 {
        if n == 10 {
            fixture.seal_all().await;
        }
        let step = if n == 14 { -25_000 } else { n % 3 * 10_000 };
        fixture.clock().advance_micros(step);
        let post = |room: &str, part: &str| {
            Post::new(room, &format!("m{n}-{part}")).text("x".repeat(50 * (n % 5 + 1) as usize))
        };
        apply_to_both(fixture, &mut model, &[post("a", "1"), post("b", "1"), post("a", "2")]).await;
    }
    model
}

/// Every cursor with several limits and windows.
pub async fn every_window_agrees_with_the_model(fixture: &mut impl Fixture) {
    let model = prepare(fixture).await;
    let times: Vec<Timestamp> = model.room("a").iter().map(|kept| kept.received_at).collect();
    let middle = times[times.len() / 2];
    let late = Timestamp::from_micros(middle.as_micros() + 25_001);
    let windows = [
        (None, None),
        (Some(middle), None),
        (None, Some(middle)),
        (Some(times[3]), Some(late)),
        (Some(late), Some(middle)),
        (Some(Timestamp::from_micros(i64::MAX)), None),
    ];
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        for seq in (0..=43).step_by(3).chain([u64::MAX - 1, u64::MAX]) {
            for cursor in [Cursor::After(seq), Cursor::Before(seq)] {
                for (from, to) in windows {
                    for limit in [1, 2, 7, 40, 1_000] {
                        let query = HistoryQuery { cursor, from, to, limit, bytes_max: usize::MAX };
                        check_page(fixture, &model, "a", &query).await;
                    }
                }
            }
        }
        check_page(fixture, &model, "b", &unbounded(Cursor::After(0))).await;
    }
}

/// Turning pages in either direction shows every message once.
pub async fn pages_join_without_gap_or_repeat(fixture: &mut impl Fixture) {
    let model = prepare(fixture).await;
    for limit in [1, 6, 13, 40] {
        let (mut seen, mut after, mut more): (Vec<KeptMessage>, _, _) = (Vec::new(), 0, true);
        while more {
            let query = HistoryQuery { limit, ..unbounded(Cursor::After(after)) };
            let (messages, page) = page(fixture, "a", &query).await;
            after = messages.last().map_or(u64::MAX, |last| last.seq);
            more = page.more;
            seen.extend(messages);
        }
        assert_eq!(seen, model.room("a"), "forward by {limit}");

        let (mut seen, mut before, mut more): (Vec<KeptMessage>, _, _) = (Vec::new(), u64::MAX, true);
        while more {
            let query = HistoryQuery { limit, ..unbounded(Cursor::Before(before)) };
            let (mut messages, page) = page(fixture, "a", &query).await;
            before = messages.first().map_or(0, |first| first.seq);
            more = page.more;
            messages.extend(seen);
            seen = messages;
        }
        assert_eq!(seen, model.room("a"), "backward by {limit}");
    }
}

/// Bytes bound a page, but never to nothing.
pub async fn a_page_ends_before_its_texts_grow_too_large(fixture: &mut impl Fixture) {
    let model = prepare(fixture).await;
    for stage in [Stage::JustStored, Stage::SealedAndRestarted] {
        stage.reach(fixture).await;
        for bytes_max in [0, 1, 49, 50, 120, 500, 1_500, 100_000] {
            for cursor in [Cursor::After(0), Cursor::After(17), Cursor::Before(17), Cursor::Before(u64::MAX)]
            {
                let query = HistoryQuery { bytes_max, ..unbounded(cursor) };
                check_page(fixture, &model, "a", &query).await;
                check_page(fixture, &model, "a", &HistoryQuery { limit: 5, ..query }).await;
            }
        }
    }
}

/// Before the first, behind the last and beyond the head there is nothing, and the page says where the room stands.
pub async fn edges_of_a_room_give_empty_pages(fixture: &mut impl Fixture) {
    let receipts = store(fixture, &[Post::new("a", "m1"), Post::new("a", "m2"), Post::new("a", "m3")]).await;
    let (first, head) = (receipts[0].seq, receipts[2].seq);
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let edges = [
            Cursor::After(head),
            Cursor::After(head + 5),
            Cursor::After(u64::MAX),
            Cursor::Before(first),
            Cursor::Before(0),
        ];
        for cursor in edges {
            let (messages, page) = page(fixture, "a", &HistoryQuery { limit: 10, ..unbounded(cursor) }).await;
            assert!(messages.is_empty(), "{stage:?}, {cursor:?}: {messages:?}");
            assert_eq!((page.head, page.oldest, page.more), (head, 1, false), "{stage:?}, {cursor:?}");
        }
        assert_eq!(page(fixture, "a", &unbounded(Cursor::After(first))).await.0.len(), 2);
        assert_eq!(page(fixture, "a", &unbounded(Cursor::Before(head))).await.0.len(), 2);
    }
}

/// A room nobody wrote to does not exist; one without messages in a window does.
pub async fn an_unknown_room_is_told_from_an_empty_window(fixture: &mut impl Fixture) {
    store_one(fixture, &Post::new("b", "m")).await;
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        for room in ["a", "c", "B", "b.", "bb"] {
            assert!(is_unknown(fixture, room).await, "{stage:?}: {room}");
            assert_eq!(info(fixture, room).await, None, "{stage:?}: {room}");
        }
        let nothing = HistoryQuery { to: Some(Timestamp::from_micros(0)), ..unbounded(Cursor::After(0)) };
        assert!(page(fixture, "b", &nothing).await.0.is_empty());
    }
}

/// A read that begins after an acknowledgement sees it, from any task, also while others write.
pub async fn what_was_acknowledged_is_seen_by_the_next_read(fixture: &mut impl Fixture) {
    for n in 1..=50 {
        let head = store_one(fixture, &Post::new("a", &format!("m{n}"))).await.seq;
        let store = fixture.store();
        let query = HistoryQuery { limit: 1, ..unbounded(Cursor::Before(u64::MAX)) };
        let page =
            tokio::spawn(async move { store.history(room_id("a"), query).await.unwrap() }).await.unwrap();
        let newest = page.messages.get(0).map(|message| message.sent.id.to_owned());
        assert_eq!((newest, page.head), (Some(format!("m{n}")), head));
    }
    let posts: Vec<Post> = (51..=300).map(|n| Post::new("a", &format!("m{n}"))).collect();
    store_many(fixture, &posts).await;
    assert_eq!(everything(fixture, "a").await.len(), 300);
}
