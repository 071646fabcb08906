//! Anything, in any order, against the model.

use hubbub_core::clock::SeededRandom;
use hubbub_core::kv::Condition;
use hubbub_core::{Clock, KvOp, RandomSource, Store, Timestamp};

use super::super::Fixture;
use super::super::steps::{announce, chosen_run};
use super::model::Model;
use super::steps::*;

/// Batches of operations, time going by, restarts, settling and reads in between. `CONFORMANCE_SEED=n` and
/// `CONFORMANCE_STEPS=n` in the environment choose another run.
pub async fn any_operations_agree_with_the_model(fixture: &mut impl Fixture) {
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
            0..12 => {
                let choices: Vec<Choice> = (0..=dice.below(30)).map(|_| dice.choice(&model)).collect();
                let ops: Vec<KvOp<'_>> = choices.iter().map(Choice::op).collect();
                let outcomes = batch(fixture, &ops).await;
                let now = fixture.clock().now().as_micros();
                for (op, outcome) in ops.iter().zip(&outcomes) {
                    assert_eq!(*outcome, model.apply(op, now), "step {step}: {op:?}");
                }
            }
            12..15 => advance_ms(fixture, i64::try_from(dice.below(3_000)).unwrap()),
            15 | 16 => {
                let now = fixture.clock().now().as_micros();
                sweep(fixture).await;
                model.apply(&KvOp::Sweep, now);
            }
            17 | 18 => fixture.seal_all().await,
            _ => fixture.restart(true).await,
        }
        if step % 10 == 9 {
            check(fixture, &model, &dice, step).await;
        }
    }
    check(fixture, &model, &dice, steps).await;
}

/// Everything a store shows of keys, as text.
pub async fn seen(store: &dyn Store) -> Vec<String> {
    let mut all = Vec::new();
    for info in store.keys(b"", None, 9_999).await.unwrap().keys {
        let got = store.value(&info.key).await.unwrap();
        let value = got.filter(|got| got.revision == info.revision).map(|got| got.value);
        all.push(line(&info.key, info.revision, info.expires_at.map(Timestamp::as_micros), value.as_deref()));
    }
    all.push(format!("revision {}", store.revision()));
    all
}

fn line(key: &[u8], revision: u64, expires: Option<i64>, value: Option<&[u8]>) -> String {
    format!("{key:?} {revision} {expires:?} {value:?}")
}

impl Model {
    /// Everything that is to be seen at a time, as [`seen`] says it.
    pub fn described(&self, now: i64) -> Vec<String> {
        let keys = self.at(now).map(|(key, kept)| line(key, kept.revision, kept.expires, Some(&kept.value)));
        keys.chain([format!("revision {}", self.revision)]).collect()
    }
}

/// Compares everything there is to see.
async fn check(fixture: &impl Fixture, model: &Model, dice: &Dice, step: u64) {
    let now = fixture.clock().now().as_micros();
    let seen = seen(&*fixture.store()).await;
    let expected = model.described(now);
    for (seen, expected) in seen.iter().zip(&expected) {
        assert_eq!(seen, expected, "step {step}");
    }
    assert_eq!(seen.len(), expected.len(), "step {step}: {seen:#?}\n{expected:#?}");
    for info in fixture.store().keys(b"", None, 9_999).await.unwrap().keys {
        let bytes = model.get(&info.key, now).map(|kept| kept.value.len() as u64);
        assert_eq!(Some(info.bytes), bytes, "step {step}: {:?}", info.key);
    }
    for _ in 0..5 {
        let (prefix, after) = (dice.key(), dice.key());
        let prefix = &prefix[..usize::try_from(dice.below(3)).unwrap().min(prefix.len())];
        let page = fixture.store().keys(prefix.as_bytes(), Some(after.as_bytes()), 5).await.unwrap().keys;
        let fits = |key: &&Vec<u8>| key.starts_with(prefix.as_bytes()) && key.as_slice() > after.as_bytes();
        let expected: Vec<_> = model.at(now).map(|(key, _)| key).filter(fits).take(5).collect();
        assert!(page.iter().map(|info| &*info.key).eq(expected), "step {step}: {prefix} behind {after}");
        let key = dice.key();
        let there = model.get(key.as_bytes(), now).is_some();
        assert_eq!(entry(fixture, key.as_bytes()).await.is_some(), there, "step {step}: {key}");
    }
    let from = dice.below(model.revision + 1);
    let told = changes(fixture, "", from).await;
    let expected = model.changes.iter().filter(|(revision, ..)| *revision > from);
    assert!(
        told.iter()
            .map(|one| (one.revision, &*one.key, one.what))
            .eq(expected.map(|(revision, key, what)| (*revision, &**key, *what))),
        "step {step}: changes behind {from}: {told:?}"
    );
}

/// An operation with strings of its own.
#[derive(Debug)]
#[allow(missing_docs, reason = "the parts are those of the operation")]
pub enum Choice {
    Put { key: String, value: Vec<u8>, ttl_ms: Option<u64>, condition: Condition },
    Delete { key: String, condition: Condition },
}

impl Choice {
    /// The operation.
    pub fn op(&self) -> KvOp<'_> {
        match self {
            Self::Put { key, value, ttl_ms, condition } => {
                KvOp::Put { key: key.as_bytes(), value, ttl_ms: *ttl_ms, condition: *condition }
            }
            Self::Delete { key, condition } => KvOp::Delete { key: key.as_bytes(), condition: *condition },
        }
    }
}

/// What is chosen next.
pub struct Dice(pub SeededRandom);

impl Dice {
    fn below(&self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    /// A few hundred keys, some of them changed all the time.
    fn key(&self) -> String {
        let n = self.below(20) * self.below(20);
        format!("{}{n}", ["a", "ab", "b"][usize::try_from(n % 3).unwrap()])
    }

    /// An operation that makes some sense after what the model has.
    pub fn choice(&self, model: &Model) -> Choice {
        let key = self.key();
        let revision = model.revision.saturating_sub(self.below(20));
        let condition = match self.below(12) {
            0 => Condition::Present,
            1 => Condition::Absent,
            2 => Condition::Is(revision),
            3 => Condition::IsNot(revision),
            _ => Condition::Always,
        };
        if self.below(4) == 0 {
            return Choice::Delete { key, condition };
        }
        let bytes = if self.below(30) == 0 { self.below(9_000) } else { self.below(90) };
        let value = (0..bytes).map(|_| u8::try_from(self.below(256)).unwrap()).collect();
        let ttl_ms = (self.below(4) == 0).then(|| 1 + self.below(4_000));
        Choice::Put { key, value, ttl_ms, condition }
    }
}
