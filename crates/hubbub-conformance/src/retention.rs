//! Messages that outlive the retention of their room.

use std::time::Duration;

use hubbub_core::clock::SeededRandom;
use hubbub_core::store::Cursor;
use hubbub_core::{Change, Clock, RandomSource, RoomChange, RoomSettings, Timestamp};

use super::Fixture;
use super::model::{Model, Post};
use super::steps::{
    Stage, apply_to_both, change, check_everything, check_page, check_people, info, store_one, unbounded,
};

const SECOND: i64 = 1_000_000;
const ROOMS: [&str; 2] = ["short", "long"];
const USERS: [&str; 3] = ["ada", "bob", "eve"];

/// A store under test, and what it must be like.
struct Both<'f, F> {
    fixture: &'f mut F,
    model: Model,
    sent: usize,
}

impl<F: Fixture> Both<'_, F> {
    async fn change(&mut self, what: RoomChange<'static>) {
        let made = Change { by: None, what };
        let expected = self.model.change(&made);
        assert_eq!(change(self.fixture, &[made]).await, [expected], "{made:?}");
    }

    async fn keep_for(&mut self, room: &'static str, seconds: u64) {
        let settings = RoomSettings { retention_s: Some(seconds), ..RoomSettings::default() };
        self.change(RoomChange::PutRoom { room, settings }).await;
    }

    /// Messages of all users in turn, a millisecond apart: a store that removes by itself removes nothing earlier than the
    /// case says.
    async fn send(&mut self, room: &str, count: usize) {
        for _ in 0..count {
            let user = USERS[self.sent % USERS.len()];
            let post = Post::new(room, &format!("m{}", self.sent)).user(user);
            self.sent += 1;
            apply_to_both(self.fixture, &mut self.model, &[post]).await;
            self.fixture.clock().advance_micros(1_000);
        }
    }

    async fn pass(&mut self, seconds: i64) {
        self.fixture.clock().advance_micros(seconds * SECOND);
    }

    /// Has everything removed that is older.
    async fn expire(&mut self, room: &str, seconds: u64) {
        let before = self.fixture.clock().now().as_micros() - seconds as i64 * SECOND;
        self.model.expire(room, Timestamp::from_micros(before));
        self.fixture.expire().await;
    }

    async fn check(&self) {
        check_people(self.fixture, &self.model, &ROOMS, &USERS).await;
        check_everything(self.fixture, &self.model).await;
        for room in ROOMS.into_iter().filter(|room| self.model.rooms.contains_key(*room)) {
            for seq in [1, self.model.oldest(room), self.model.head(room)] {
                check_page(self.fixture, &self.model, room, &unbounded(Cursor::After(seq))).await;
                check_page(self.fixture, &self.model, room, &unbounded(Cursor::Before(seq))).await;
            }
        }
    }
}

/// An id of a message that expired may be that of somebody else's message when the first sender is erased.
pub async fn an_erased_user_takes_no_ids_of_others(fixture: &mut impl Fixture) {
    let mut both = Both { fixture, model: Model::default(), sent: 0 };
    both.keep_for("short", 400).await;
    for stage in Stage::ALL {
        let id = format!("twice-{stage:?}");
        apply_to_both(both.fixture, &mut both.model, &[Post::new("short", &id).user("gone")]).await;
        both.pass(500).await;
        // What expired may share its place with what stays.
        both.send("short", 3).await;
        both.expire("short", 400).await;
        stage.reach(both.fixture).await;
        let other = Post::new("short", &id).user("eve").text("again");
        apply_to_both(both.fixture, &mut both.model, std::slice::from_ref(&other)).await;
        both.change(RoomChange::EraseUser { user: "gone" }).await;
        // A repeat, which changes nothing.
        apply_to_both(both.fixture, &mut both.model, &[other]).await;
        both.check().await;
    }
}

/// What has expired is gone, and told; everything else is there. Whoever was behind learns of the gap.
pub async fn a_room_keeps_messages_as_long_as_it_says(fixture: &mut impl Fixture) {
    let mut both = Both { fixture, model: Model::default(), sent: 0 };
    both.keep_for("short", 400).await;
    both.keep_for("long", 100_000).await;
    for stage in Stage::ALL {
        both.send("long", 6).await;
        both.send("short", 70).await;
        both.pass(500).await;
        both.send("short", 20).await;
        stage.reach(both.fixture).await;
        both.expire("short", 400).await;
        both.check().await;
        let told = info(both.fixture, "short").await.unwrap();
        assert_eq!((told.messages, told.head), (20, both.model.head("short")), "{stage:?}");
        // An id of a message that expired is free.
        let again = Post::new("short", &format!("m{}", both.sent - 90)).user("eve").text("again");
        apply_to_both(both.fixture, &mut both.model, &[again]).await;
        both.pass(1_000).await;
        both.expire("short", 400).await;
        both.check().await;
        let told = info(both.fixture, "short").await.unwrap();
        assert_eq!((told.messages, told.oldest), (0, told.head + 1), "{stage:?}");
    }
    // The setting can be taken back.
    both.keep_for("short", 0).await;
    both.send("short", 5).await;
    both.pass(200_000).await;
    both.expire("long", 100_000).await;
    both.check().await;
    assert_eq!(info(both.fixture, "short").await.unwrap().messages, 5);
    store_one(both.fixture, &Post::new("long", "last")).await;
}

/// Marks, members, senders and hours agree with what is left, whatever happens in between.
pub async fn messages_that_expired_are_counted_nowhere(fixture: &mut impl Fixture) {
    let random = SeededRandom::new(7);
    let below = |end: u64| random.next_u64() % end;
    let mut both = Both { fixture, model: Model::default(), sent: 0 };
    both.keep_for("short", 8_000).await;
    both.keep_for("long", 100_000_000).await;
    for step in 0..60_u64 {
        let user = USERS[below(3) as usize];
        let room = ROOMS[below(2) as usize];
        match below(12) {
            0 => both.change(RoomChange::EraseUser { user }).await,
            1 => both.change(RoomChange::RemoveMember { room, user }).await,
            2..4 => both.change(RoomChange::AddMember { room, user }).await,
            4 if step % 20 == 0 => {
                both.change(RoomChange::DeleteRoom { room: "short" }).await;
                both.keep_for("short", 8_000).await;
            }
            4..7 => {
                let (head, oldest) = (both.model.head(room), both.model.oldest(room));
                let seq = oldest.saturating_sub(2) + below(head.saturating_sub(oldest) + 4);
                let made = Change { by: None, what: RoomChange::MarkRead { room, user, seq } };
                let expected = both.model.change(&made);
                assert_eq!(change(both.fixture, &[made]).await, [expected], "{step}: {made:?}");
            }
            7 => {
                // Some of it is of the hour that goes on, some of hours before.
                both.pass(i64::try_from(below(9_000)).unwrap()).await;
                expire_half(&mut both).await;
            }
            _ => {
                let count = 1 + below(12) as usize;
                both.send(room, count).await;
            }
        }
        if step % 10 == 9 {
            both.check().await;
        }
    }
    both.check().await;
}

/// Lets time pass until the oldest message of the room is due, and none is about to be.
async fn expire_half(both: &mut Both<'_, impl Fixture>) {
    let Some(first) = both.model.room("short").first().map(|first| first.received_at) else { return };
    let due = first.as_micros() + Duration::from_secs(9_001).as_micros() as i64;
    let missing = due - both.fixture.clock().now().as_micros();
    both.fixture.clock().advance_micros(missing.max(0));
    loop {
        let now = both.fixture.clock().now().as_micros();
        let mut ages =
            both.model.room("short").iter().map(|kept| (now - kept.received_at.as_micros()) / SECOND);
        if !ages.any(|age| (7_900..8_001).contains(&age)) {
            break;
        }
        both.pass(60).await;
    }
    both.expire("short", 8_000).await;
}
