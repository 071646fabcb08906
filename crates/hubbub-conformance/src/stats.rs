//! Counts and users' histories, against a recount.

use std::time::Duration;

use hubbub_core::stats::{ActiveUsersQuery, Counted, HoursQuery, UserHistoryCursor, UserHistoryQuery};
use hubbub_core::store::Read;
use hubbub_core::{Change, Clock, MessageType, RoomChange, Timestamp, UserId};

use super::Fixture;
use super::model::{KeptMessage, Model, Post};
use super::recount::Recount;
use super::steps::{Stage, apply_to_both, change, room_id};

const MINUTE: i64 = 60_000_000;

/// Messages of `users` users over six rooms, a batch every `pause` microseconds.
async fn crowd(fixture: &impl Fixture, model: &mut Model, batches: u64, users: u64, pause: i64) {
    for batch in 0..batches {
        let post = |n: u64| {
            let n = batch * 10 + n;
            let kind = MessageType::from_u8(u8::try_from(n % 7 % 3).unwrap()).unwrap();
            let user = format!("user-{}", n * 37 % users * n % users);
            Post::new(&format!("room-{}", n * n % 6), &format!("stats-{n}")).user(&user).kind(kind)
        };
        let posts: Vec<Post> = (0..10).map(post).collect();
        apply_to_both(fixture, model, &posts).await;
        fixture.clock().advance_micros(pause);
    }
}

/// Everything counted is what a recount gives, wherever the messages are.
pub async fn counts_are_those_of_a_recount(fixture: &mut impl Fixture) {
    let mut model = Model::default();
    check(fixture, &model).await;
    for (stage, users) in Stage::ALL.into_iter().zip([3, 40, 200, 7]) {
        let mut more = model.clone();
        for post in 0..4 {
            let id = format!("{stage:?}-{post}");
            let user = format!("of-{stage:?}");
            apply_to_both(fixture, &mut more, &[Post::new("lobby", &id).user(&user)]).await;
        }
        model = more;
        if model.rooms.len() == 1 {
            crowd(fixture, &mut model, 25, users, 7 * MINUTE).await;
        }
        check(fixture, &model).await;
        stage.reach(fixture).await;
        check(fixture, &model).await;
    }
}

/// What was acknowledged is counted by the next question.
pub async fn what_was_acknowledged_is_counted_at_once(fixture: &mut impl Fixture) {
    let mut model = Model::default();
    for n in 1..=50_u64 {
        let post = Post::new("lobby", &format!("m{n}")).user(&format!("user-{}", n % 5));
        apply_to_both(fixture, &mut model, &[post]).await;
        let totals = value(fixture, fixture.store().totals()).await;
        assert_eq!(totals.messages.total(), n);
        let user = UserId::new(&format!("user-{}", n % 5)).unwrap();
        let page = fixture.store().user_history(user, newest(1)).await.unwrap();
        assert_eq!(page.messages.get(0).map(|message| message.seq), Some(model.head("lobby")));
    }
}

/// What is deleted or erased leaves every count and history, wherever it stood.
pub async fn what_is_deleted_or_erased_is_not_counted(fixture: &mut impl Fixture) {
    let mut model = Model::default();
    for stage in [Stage::Sealed, Stage::Restarted, Stage::JustStored] {
        crowd(fixture, &mut model, 15, 9, 13 * MINUTE).await;
        crowd_again(fixture, &mut model, &format!("{stage:?}")).await;
        stage.reach(fixture).await;
    }
    check(fixture, &model).await;
    for what in [
        RoomChange::EraseUser { user: "user-1" },
        RoomChange::DeleteRoom { room: "room-1" },
        RoomChange::EraseUser { user: "user-4" },
    ] {
        let made = Change { by: None, what };
        let expected = model.change(&made);
        assert_eq!(change(fixture, &[made]).await, [expected]);
        if let RoomChange::EraseUser { user } = what {
            let page = fixture.store().user_history(UserId::new(user).unwrap(), newest(10)).await.unwrap();
            assert!(page.messages.is_empty() && !page.more, "{user} is erased");
        }
        check(fixture, &model).await;
        crowd_again(fixture, &mut model, &format!("{what:?}").replace(|c: char| !c.is_alphanumeric(), "-"))
            .await;
        fixture.seal_all().await;
        check(fixture, &model).await;
    }
}

/// A message sent again is counted once.
pub async fn repeats_are_not_counted(fixture: &mut impl Fixture) {
    let mut model = Model::default();
    let posts: Vec<Post> = (0..20).map(|n| Post::new("lobby", &format!("m{}", n % 8))).collect();
    apply_to_both(fixture, &mut model, &posts).await;
    check(fixture, &model).await;
    fixture.seal_all().await;
    apply_to_both(fixture, &mut model, &posts).await;
    check(fixture, &model).await;
}

/// Windows that begin and end anywhere in hours have exactly the users who wrote in them.
pub async fn active_users_are_exact_at_the_edges(fixture: &mut impl Fixture) {
    let mut model = Model::default();
    let start = fixture.clock().now().as_micros();
    for stage in [Stage::JustStored, Stage::Sealed] {
        crowd(fixture, &mut model, 30, 60, 11 * MINUTE).await;
        stage.reach(fixture).await;
    }
    let end = fixture.clock().now().as_micros();
    let recount = Recount::of(&model);
    let times: Vec<i64> = recount.rooms().iter().map(|room| room.received.last.as_micros()).collect();
    let mut edges: Vec<Option<i64>> = vec![None, Some(start), Some(start + 1), Some(end), Some(end - 1)];
    edges.extend((0..12).map(|n| Some(start + n * 53 * MINUTE)));
    edges.extend(times.iter().flat_map(|time| [Some(*time), Some(time + 1)]));
    for (n, from) in edges.iter().enumerate() {
        for to in edges.iter().skip(n % 3).step_by(3) {
            let query = ActiveUsersQuery {
                from: from.map(Timestamp::from_micros),
                to: to.map(Timestamp::from_micros),
                after: None,
                limit: 1_000,
            };
            let active = value(fixture, fixture.store().active_users(query.clone())).await;
            assert_eq!(active, recount.active_users(&query), "{query:?}");
        }
    }
}

/// Lists come in pages that join without gap or repeat.
pub async fn lists_come_in_pages(fixture: &mut impl Fixture) {
    let mut model = Model::default();
    crowd(fixture, &mut model, 30, 50, 31 * MINUTE).await;
    let (recount, store) = (Recount::of(&model), fixture.store());
    for limit in [0, 1, 7] {
        let mut after = None;
        loop {
            let query = ActiveUsersQuery { from: None, to: None, after: after.clone(), limit };
            let page = value(fixture, store.active_users(query.clone())).await;
            assert_eq!(page, recount.active_users(&query));
            after = page.users.last().cloned();
            if !page.more || limit == 0 {
                break;
            }
        }
        for user in recount.user_names() {
            let id = UserId::new(user).unwrap();
            let first = value(fixture, store.participation(id.clone(), None, limit)).await;
            assert_eq!(first, recount.participation(user, None, limit));
            let after = Some(room_id("room-3"));
            let rest = value(fixture, store.participation(id, after, limit)).await;
            assert_eq!(rest, recount.participation(user, Some("room-3"), limit));
        }
    }
    let start = model.room("room-0")[0].received_at.as_micros();
    for (from, to) in [(0, 5), (1, 1), (2, 40), (-3, 0), (7, 3), (12, 13)] {
        let at = |minutes: i64| Some(Timestamp::from_micros(start + minutes * 17 * MINUTE));
        for limit in [1, 3, 1_000] {
            let query = HoursQuery { from: at(from), to: at(to), limit };
            assert_eq!(value(fixture, store.hours(query)).await, recount.hours(&query), "{query:?}");
        }
    }
}

/// Page for page, a user's history is what the rooms hold of the user.
pub async fn pages_of_a_users_history_join(fixture: &mut impl Fixture) {
    let mut model = Model::default();
    for stage in [Stage::Sealed, Stage::Restarted, Stage::JustStored] {
        crowd(fixture, &mut model, 20, 9, 0).await;
        stage.reach(fixture).await;
        fixture.clock().advance_micros(-5);
        crowd_again(fixture, &mut model, &format!("{stage:?}")).await;
    }
    let recount = Recount::of(&model);
    for user in recount.user_names() {
        for (limit, bytes_max) in
            [(1, usize::MAX), (7, usize::MAX), (1_000, 300), (3, 0), (1_000, usize::MAX)]
        {
            let mut query = UserHistoryQuery { limit, bytes_max, ..newest(limit) };
            while let Some(first) = check_user_page(fixture, &recount, user, &query).await {
                query.before = Some(first);
            }
        }
    }
}

async fn crowd_again(fixture: &impl Fixture, model: &mut Model, prefix: &str) {
    for n in 0..60_u64 {
        let post = Post::new(&format!("room-{}", n % 4), &format!("{prefix}-{n}"));
        apply_to_both(fixture, model, &[post.user(&format!("user-{}", n % 3))]).await;
        fixture.clock().advance_micros(i64::try_from(n % 2).unwrap());
    }
}

/// A user's history keeps to its window.
pub async fn a_users_history_keeps_to_its_window(fixture: &mut impl Fixture) {
    let mut model = Model::default();
    let start = fixture.clock().now().as_micros();
    crowd(fixture, &mut model, 30, 5, MINUTE).await;
    fixture.seal_all().await;
    crowd_again(fixture, &mut model, "again").await;
    let recount = Recount::of(&model);
    for user in recount.user_names().into_iter().chain(["nobody"]) {
        for (from, to) in [(None, Some(9)), (Some(3), Some(3)), (Some(3), Some(20)), (Some(25), None)] {
            let at = |minutes: Option<i64>| minutes.map(|n| Timestamp::from_micros(start + n * MINUTE));
            let query = UserHistoryQuery { from: at(from), to: at(to), ..newest(8) };
            check_user_page(fixture, &recount, user, &query).await;
        }
    }
}

/// The newest messages, without any bounds but the number.
fn newest(limit: usize) -> UserHistoryQuery {
    UserHistoryQuery { before: None, from: None, to: None, limit, bytes_max: usize::MAX }
}

/// Compares one page with the recount; answers where the next one begins, if there is more.
async fn check_user_page(
    fixture: &impl Fixture,
    recount: &Recount<'_>,
    user: &str,
    query: &UserHistoryQuery,
) -> Option<UserHistoryCursor> {
    let page = fixture.store().user_history(UserId::new(user).unwrap(), query.clone()).await;
    let page = page.unwrap_or_else(|error| panic!("reading {user} with {query:?} failed: {error}"));
    let got: Vec<KeptMessage> = page.messages.iter().map(|message| KeptMessage::of(&message)).collect();
    let window = recount.user_window(user, query);
    let what = format!("{user} with {query:?}");

    let rest = window.len().checked_sub(got.len()).unwrap_or_else(|| panic!("too many messages of {what}"));
    assert!(got.iter().eq(window[rest..].iter().copied()), "{what}: of {window:#?}, got {got:#?}");
    assert_eq!(page.more, rest > 0, "`more` of {what}: {rest} are left");
    assert!(got.len() <= query.limit, "{} messages of {what}", got.len());
    let texts: usize = got.iter().map(|kept| kept.post.text.len()).sum();
    assert!(texts <= query.bytes_max || got.len() == 1, "{texts} bytes of texts in {what}");
    if rest > 0 && got.len() < query.limit {
        let with_next = texts + window[rest - 1].post.text.len();
        assert!(!got.is_empty() && with_next > query.bytes_max, "{what} ends too early");
    }
    let first = got.first().filter(|_| page.more)?;
    let (received_at, room, seq) = (first.received_at, room_id(&first.post.room), first.seq);
    Some(UserHistoryCursor { received_at, room, seq })
}

/// An answer that is of now, where messages were deleted. The first ones may be of before: what was deleted is counted still,
/// or the store counts anew after background work.
async fn settled<'a, T>(fixture: &impl Fixture, read: impl Fn() -> Read<'a, Counted<T>>) -> T {
    for _ in 0..1_000 {
        let now = fixture.clock().now();
        let counted = read().await.unwrap_or_else(|error| panic!("counting failed: {error}"));
        if counted.as_of == now {
            return counted.value;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("what was deleted is counted still");
}

/// An answer, and that it is of now.
async fn value<T>(fixture: &impl Fixture, read: Read<'_, Counted<T>>) -> T {
    let now = fixture.clock().now();
    let counted = read.await.unwrap_or_else(|error| panic!("counting failed: {error}"));
    assert_eq!(counted.as_of, now, "nothing was deleted, so the answer is of now");
    counted.value
}

/// Compares everything that is counted with a recount, and lets the store audit itself.
pub(super) async fn check(fixture: &impl Fixture, model: &Model) {
    let (recount, store) = (Recount::of(model), fixture.store());
    assert_eq!(settled(fixture, || store.totals()).await, recount.totals());
    let (rooms, users, pairs) = (recount.rooms(), recount.users(), recount.pairs());
    for limit in [0, 1, 3, usize::MAX] {
        let some = limit.min(rooms.len());
        assert_eq!(settled(fixture, || store.top_rooms(limit)).await, rooms[..some]);
        let some = limit.min(users.len());
        assert_eq!(settled(fixture, || store.top_users(limit)).await, users[..some]);
        let some = limit.min(pairs.len());
        assert_eq!(settled(fixture, || store.top_pairs(limit)).await, pairs[..some]);
    }
    for room in &rooms {
        assert_eq!(settled(fixture, || store.room_stats(room.room.clone())).await.as_ref(), Some(room));
    }
    for user in &users {
        let id = user.user.clone();
        assert_eq!(settled(fixture, || store.user_stats(id.clone())).await.as_ref(), Some(user));
        let rooms = settled(fixture, || store.participation(id.clone(), None, usize::MAX)).await;
        assert_eq!(rooms, recount.participation(id.as_str(), None, usize::MAX));
        check_user_page(fixture, &recount, id.as_str(), &newest(1_000_000)).await;
    }
    assert_eq!(settled(fixture, || store.room_stats(room_id("nowhere"))).await, None);
    assert_eq!(settled(fixture, || store.user_stats(UserId::new("nobody").unwrap())).await, None);
    let all = HoursQuery { from: None, to: None, limit: usize::MAX };
    assert_eq!(settled(fixture, || store.hours(all)).await, recount.hours(&all));
    let all = ActiveUsersQuery { from: None, to: None, after: None, limit: 3 };
    assert_eq!(settled(fixture, || store.active_users(all.clone())).await, recount.active_users(&all));
    let audit = settled(fixture, || store.audit()).await;
    assert_eq!((audit.messages, audit.differences), (recount.totals().messages.total(), Vec::new()));
}
