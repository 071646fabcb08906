//! Anything, in any order, against the model.

use hubbub_core::clock::SeededRandom;
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{MessageType, RandomSource, Timestamp};

use super::Fixture;
use super::model::{Model, Post};
use super::steps::{announce, apply_to_both, check_everything, check_page, chosen_run};

/// Batches with many repeats, a restless clock, restarts, settling and reads in between. `CONFORMANCE_SEED=n` and
/// `CONFORMANCE_STEPS=n` in the environment choose another run.
pub async fn any_history_agrees_with_the_model(fixture: &mut impl Fixture) {
    let (seed, steps) = chosen_run();
    run(fixture, seed, steps).await;
}

/// The run that belongs to `seed`.
pub async fn run(fixture: &mut impl Fixture, seed: u64, steps: u64) {
    announce(seed, steps);
    let dice = Dice(SeededRandom::new(seed));
    let mut model = Model::default();
    for step in 0..steps {
        match dice.below(20) {
            0..10 => {
                let posts: Vec<Post> = (0..dice.below(40)).map(|_| dice.post()).collect();
                apply_to_both(fixture, &mut model, &posts).await;
            }
            10..16 => {
                let room = dice.room();
                if model.rooms.contains_key(&room) {
                    check_page(fixture, &model, &room, &dice.query(&model, &room)).await;
                }
            }
            16 => fixture.clock().advance_micros(dice.signed(1_000_000)),
            17 => fixture.clock().advance_micros(dice.signed(7_200_000_000)),
            18 => fixture.seal_all().await,
            _ => fixture.restart(true).await,
        }
        if step % 50 == 49 {
            check_everything(fixture, &model).await;
        }
    }
    check_everything(fixture, &model).await;
}

struct Dice(SeededRandom);

impl Dice {
    fn below(&self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn signed(&self, end: u64) -> i64 {
        i64::try_from(self.below(2 * end)).unwrap() - i64::try_from(end).unwrap()
    }

    /// A few rooms take most of the messages.
    fn room(&self) -> String {
        format!("room-{}", self.below(8) * self.below(8) / 7)
    }

    /// Ids come again often, sometimes with other content.
    fn post(&self) -> Post {
        let n = self.below(2_000);
        let id =
            if n.is_multiple_of(2) { format!("m{n}") } else { format!("01980000-0000-7000-8000-{n:012x}") };
        let mut post = Post::new(&self.room(), &id);
        post.text = "text ".repeat(usize::try_from(1 + n % 60).unwrap());
        if n.is_multiple_of(3) {
            post = post.username("Ünal");
        }
        match self.below(30) {
            0 => post.text("another text"),
            1..7 => post.user(&format!("user-{}", n % 11)),
            7 => post.kind(MessageType::Leave),
            _ => post,
        }
    }

    fn query(&self, model: &Model, room: &str) -> HistoryQuery {
        let kept = model.room(room);
        let head = kept.last().map_or(0, |last| last.seq);
        let seq = if self.below(4) == 0 { u64::MAX * self.below(2) } else { self.below(head + 3) };
        let time = || {
            let some = kept.get(usize::try_from(self.below(kept.len() as u64 + 1)).unwrap())?;
            (self.below(2) == 0)
                .then(|| Timestamp::from_micros(some.received_at.as_micros() + self.signed(3)))
        };
        HistoryQuery {
            cursor: if self.below(2) == 0 { Cursor::After(seq) } else { Cursor::Before(seq) },
            from: time(),
            to: time(),
            limit: usize::try_from(1 + self.below(60)).unwrap(),
            bytes_max: if self.below(2) == 0 {
                usize::MAX
            } else {
                usize::try_from(self.below(5_000)).unwrap()
            },
        }
    }
}
