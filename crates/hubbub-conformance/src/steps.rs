//! What cases are made of.

use hubbub_core::store::{Cursor, HistoryPage, HistoryQuery, LastMessages, Membership, ReadError, RoomInfo};
use hubbub_core::{Change, Op, OpBatch, Outcome, Receipt, RoomId, UserId};

use super::Fixture;
use super::model::{KeptMessage, Model, Post, without_gap};

/// More messages than any room of a case holds.
const UNLIMITED: usize = usize::MAX;

/// Seed and number of steps of a random run, as the environment has them or as they are otherwise.
pub(super) fn chosen_run() -> (u64, u64) {
    let from_environment = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    (from_environment("CONFORMANCE_SEED").unwrap_or(1), from_environment("CONFORMANCE_STEPS").unwrap_or(300))
}

/// Says which run it is; shown when it fails.
pub(super) fn announce(seed: u64, steps: u64) {
    eprintln!("CONFORMANCE_SEED={seed} CONFORMANCE_STEPS={steps}");
}

/// A window without any bounds.
pub(super) fn unbounded(cursor: Cursor) -> HistoryQuery {
    HistoryQuery { cursor, from: None, to: None, limit: UNLIMITED, bytes_max: usize::MAX }
}

pub(super) fn room_id(room: &str) -> RoomId {
    RoomId::new(room).unwrap()
}

/// Sends one batch.
pub(super) async fn apply(fixture: &impl Fixture, posts: &[Post]) -> Vec<Outcome> {
    let mut batch = OpBatch::default();
    for post in posts {
        fixture.push(&mut batch, &Op::Send(post.as_send()));
    }
    apply_batch(fixture, batch).await
}

/// Whether the numbers of a room have no gaps.
pub(super) fn are_dense(fixture: &impl Fixture) -> bool {
    let post = Post::new("dense", "dense");
    fixture.push(&mut OpBatch::default(), &Op::Send(post.as_send())).is_none()
}

/// Applies a batch.
pub(super) async fn apply_batch(fixture: &impl Fixture, batch: OpBatch) -> Vec<Outcome> {
    let (store, count) = (fixture.store(), batch.len());
    let outcomes = tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap();
    let outcomes = outcomes.unwrap_or_else(|error| panic!("a batch was not stored: {error}"));
    assert_eq!(outcomes.len(), count, "there must be one outcome for each operation");
    outcomes.into_iter().map(without_gap).collect()
}

/// Makes changes, those that take no company each in a batch of its own, and says what became of them. Erasing goes
/// on until nothing is left.
pub(super) async fn change(fixture: &impl Fixture, changes: &[Change<'_>]) -> Vec<Outcome> {
    let mut all = Vec::new();
    for change in changes {
        let mut erased = 0;
        loop {
            let mut batch = OpBatch::default();
            fixture.push(&mut batch, &Op::Change(*change));
            let mut goes_on = false;
            let mut others = Vec::new();
            // An erasure may be several operations, for some of the rooms each.
            for outcome in apply_batch(fixture, batch).await {
                match outcome {
                    Outcome::Erased { messages, more } => {
                        erased += messages;
                        goes_on |= more;
                    }
                    other => others.push(other),
                }
            }
            if goes_on {
                continue;
            }
            let ended = Outcome::Erased { messages: erased, more: false };
            assert!(others.len() <= 1, "{change:?} was answered {others:?}");
            all.push(others.pop().unwrap_or(ended));
            break;
        }
    }
    all
}

/// Compares what everybody is told of rooms, members and what is unread with the model.
pub(super) async fn check_people(fixture: &impl Fixture, model: &Model, rooms: &[&str], users: &[&str]) {
    let store = fixture.store();
    let user_id = |user: &str| UserId::new(user).unwrap();
    for room in rooms {
        assert_eq!(store.room(room_id(room)).await.unwrap(), model.info(room), "{room}");
        assert_eq!(store.members(room_id(room), None, 99).await.unwrap(), model.members(room), "{room}");
        for user in users {
            let access = store.access(room_id(room), user_id(user)).await.unwrap();
            assert_eq!(access, model.access(room, user), "{user} in {room}");
        }
    }
    for user in users {
        let (rooms, last) = model.user_rooms(user);
        let got = store.user_rooms(user_id(user), None, 99, LastMessages::Read).await.unwrap();
        let without = store.user_rooms(user_id(user), None, 99, LastMessages::Leave).await.unwrap();
        assert_eq!((&without.rooms, without.last.len()), (&got.rooms, 0), "rooms of {user} alone");
        assert_eq!(got.rooms, rooms, "rooms of {user}");
        for most in [1, 99] {
            let count = store.user_room_count(user_id(user), most).await.unwrap();
            assert_eq!(count, rooms.len().min(most), "number of rooms of {user}");
        }
        assert!(
            got.last.iter().map(|message| KeptMessage::of(&message)).eq(last),
            "last messages for {user}"
        );
        if store.is_shared() {
            let listed = store.memberships(vec![user_id(user)]).await.unwrap();
            let mut listed = listed.into_iter().flatten().flatten().collect::<Vec<_>>();
            listed.sort_unstable_by(|one, next| one.room.cmp(&next.room));
            let is_member = |listed: &Membership| rooms.iter().any(|joined| joined.info.room == listed.room);
            listed.retain(|listed| listed.version.is_none() || is_member(listed));
            let listed = listed.into_iter().map(|listed| listed.room);
            assert!(listed.eq(rooms.iter().map(|joined| joined.info.room.clone())), "memberships of {user}");
        }
    }
}

/// Sends one batch of messages that are all new.
pub(super) async fn store(fixture: &impl Fixture, posts: &[Post]) -> Vec<Receipt> {
    let stored = |(outcome, post): (Outcome, &Post)| match outcome {
        Outcome::Stored(receipt) => receipt,
        other => panic!("{post:?} is new, but was answered {other:?}"),
    };
    apply(fixture, posts).await.into_iter().zip(posts).map(stored).collect()
}

/// Sends a message that is new.
pub(super) async fn store_one(fixture: &impl Fixture, post: &Post) -> Receipt {
    store(fixture, std::slice::from_ref(post)).await[0]
}

/// Sends any number of messages, in batches the store takes.
pub(super) async fn store_many(fixture: &impl Fixture, posts: &[Post]) -> Vec<Receipt> {
    let mut receipts = Vec::with_capacity(posts.len());
    for some in posts.chunks(fixture.store().batch_cap().ops.clamp(1, 250)) {
        receipts.extend(store(fixture, some).await);
    }
    receipts
}

/// Sends one batch to store and model, which must answer alike.
pub(super) async fn apply_to_both(fixture: &impl Fixture, model: &mut Model, posts: &[Post]) {
    use hubbub_core::Clock;
    let mut batch = OpBatch::default();
    let mut expected = Vec::new();
    for post in posts {
        let number = fixture.push(&mut batch, &Op::Send(post.as_send()));
        expected.push(model.apply_one(post, number, fixture.clock().now(), true));
    }
    assert_eq!(apply_batch(fixture, batch).await, expected);
}

/// A page, and that what it says of itself is sound.
pub(super) async fn page(
    fixture: &impl Fixture,
    room: &str,
    query: &HistoryQuery,
) -> (Vec<KeptMessage>, HistoryPage) {
    let page = fixture.store().history(room_id(room), *query).await;
    let page = page.unwrap_or_else(|error| panic!("reading {room} with {query:?} failed: {error}"));
    let messages = page.messages.iter().map(|message| KeptMessage::of(&message)).collect();
    (messages, page)
}

/// Everything a room holds.
pub(super) async fn everything(fixture: &impl Fixture, room: &str) -> Vec<KeptMessage> {
    page(fixture, room, &unbounded(Cursor::After(0))).await.0
}

pub(super) async fn info(fixture: &impl Fixture, room: &str) -> Option<RoomInfo> {
    fixture.store().room(room_id(room)).await.unwrap()
}

pub(super) async fn is_unknown(fixture: &impl Fixture, room: &str) -> bool {
    let page = fixture.store().history(room_id(room), unbounded(Cursor::After(0))).await;
    matches!(page, Err(ReadError::UnknownRoom))
}

/// Compares one page with the model's.
pub(super) async fn check_page(fixture: &impl Fixture, model: &Model, room: &str, query: &HistoryQuery) {
    let (got, page) = page(fixture, room, query).await;
    let window = model.window(room, query);
    let what = format!("{room} with {query:?}");

    let head = model.head(room);
    assert_eq!(page.head, head, "head of {what}");
    assert_eq!(page.oldest, model.oldest(room), "oldest of {what}");
    assert!(got.len() <= query.limit, "{} messages of {what}", got.len());

    let rest = window.len().checked_sub(got.len()).unwrap_or_else(|| panic!("too many messages of {what}"));
    let (expected, next) = match query.cursor {
        Cursor::After(_) => (&window[..got.len()], window.get(got.len())),
        Cursor::Before(_) => (&window[rest..], rest.checked_sub(1).map(|next| &window[next])),
    };
    assert!(got.iter().eq(expected.iter().copied()), "{what}: expected {expected:#?}, got {got:#?}");
    assert_eq!(page.more, rest > 0, "`more` of {what}: {rest} are left");

    let texts: usize = got.iter().map(|kept| kept.post.text.len()).sum();
    assert!(texts <= query.bytes_max || got.len() == 1, "{texts} bytes of texts in {what}");
    if let Some(next) = next.filter(|_| got.len() < query.limit) {
        assert!(
            !got.is_empty() && texts + next.post.text.len() > query.bytes_max,
            "{what} ends too early, with {} messages",
            got.len()
        );
    }
}

/// Compares everything with the model.
pub(super) async fn check_everything(fixture: &impl Fixture, model: &Model) {
    for room in model.rooms.keys() {
        check_page(fixture, model, room, &unbounded(Cursor::After(0))).await;
        check_page(fixture, model, room, &unbounded(Cursor::Before(u64::MAX))).await;
    }
    let listed = fixture.store().rooms(None, usize::MAX).await.unwrap();
    assert!(
        listed.iter().map(|info| info.room.as_str()).eq(model.rooms.keys().map(String::as_str)),
        "{listed:#?}"
    );
    for info in listed {
        assert_eq!(model.info(info.room.as_str()), Some(info));
    }
    super::stats::check(fixture, model).await;
}

/// How far the store has brought what was stored.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    JustStored,
    Restarted,
    Sealed,
    SealedAndRestarted,
}

impl Stage {
    pub(super) const ALL: [Self; 4] =
        [Self::JustStored, Self::Restarted, Self::Sealed, Self::SealedAndRestarted];

    /// Brings what was stored so far to this stage.
    pub(super) async fn reach(self, fixture: &mut impl Fixture) {
        if matches!(self, Self::Sealed | Self::SealedAndRestarted) {
            fixture.seal_all().await;
        }
        if matches!(self, Self::Restarted | Self::SealedAndRestarted) {
            fixture.restart(true).await;
        }
    }
}
