//! Anything, in any order, against the model.

use hubbub_core::clock::SeededRandom;
use hubbub_core::queue::{
    Audience, DEAD_LETTER_SUFFIX, Due, LeaseReceipt, MessageState, QueueSend, QueueSettings, Settle, Take,
    TakeFilter, TakeMode, Waiting, epoch_number,
};
use hubbub_core::{Outcome, QueueOp, QueueOutcome, QueueRules, RandomSource, Store};

use super::super::Fixture;
use super::super::steps::{announce, chosen_run};
use super::model::{Model, Msg, State};
use super::steps::*;

const QUEUES: [&str; 4] = ["a", "b", "c", "d"];
const CLIENTS: [&str; 4] = ["ada", "bob", "carl", "dora"];
const GROUPS: [&str; 2] = ["g", "h"];

/// Batches of operations, time going by, restarts, settling and looks in between. `CONFORMANCE_SEED=n` and
/// `CONFORMANCE_STEPS=n` in the environment choose another run.
pub async fn any_operations_agree_with_the_model(fixture: &mut impl Fixture) {
    let (seed, steps) = chosen_run();
    run(fixture, seed, steps).await;
}

/// The run that belongs to `seed`.
pub async fn run(fixture: &mut impl Fixture, seed: u64, steps: u64) {
    announce(seed, steps);
    let dice = Dice(SeededRandom::new(seed));
    let epoch = epoch_number(&fixture.store().epoch());
    let mut model = Model::default();
    model.epoch = epoch;
    for step in 0..steps {
        match dice.below(20) {
            0..13 => {
                let choices: Vec<Choice> = (0..=dice.below(12)).map(|_| dice.choice(&model)).collect();
                let ops: Vec<QueueOp<'_>> = choices.iter().map(Choice::op).collect();
                let outcomes = batch(fixture, &ops).await;
                let at = now(fixture).as_micros();
                for (op, outcome) in ops.iter().zip(&outcomes) {
                    let expected = model.apply(op, at, Some(outcome));
                    assert!(
                        same(outcome, &expected),
                        "step {step}: {op:?}\n{outcome:?} instead of\n{expected:?}"
                    );
                }
            }
            13..17 => {
                let ms = if dice.below(2) == 0 { dice.below(50) } else { dice.below(5_000) };
                advance_ms(fixture, i64::try_from(ms).unwrap());
                sweep(fixture).await;
                model.sweep(now(fixture).as_micros());
            }
            17 | 18 => fixture.seal_all().await,
            _ => fixture.restart(true).await,
        }
        if step % 10 == 9 {
            check(fixture, &model, step).await;
        }
    }
    check(fixture, &model, steps).await;
}

/// Whether outcomes agree, but for the order in which queues are named, and what others may take now.
pub fn same(told: &Outcome, expected: &Outcome) -> bool {
    match (told, expected) {
        (
            Outcome::Queue(QueueOutcome::Redriven { messages, more, ready }),
            Outcome::Queue(QueueOutcome::Redriven { messages: moved, more: rest, ready: queues }),
        ) => {
            let mut ready = ready.to_vec();
            ready.sort();
            (messages, more, &*ready) == (moved, rest, queues)
        }
        (Outcome::Queue(told), Outcome::Queue(expected)) => without_freed(told.clone()) == *expected,
        _ => told == expected,
    }
}

/// Compares everything there is to see.
async fn check(fixture: &impl Fixture, model: &Model, step: u64) {
    let at = now(fixture).as_micros();
    let seen = seen(&*fixture.store(), at).await;
    let expected = model.described(at);
    for (seen, expected) in seen.iter().zip(&expected) {
        assert_eq!(seen, expected, "step {step}");
    }
    assert_eq!(seen.len(), expected.len(), "step {step}: {seen:#?}\n{expected:#?}");
}

/// Everything a store shows of queues at a time, as text.
pub async fn seen(store: &dyn Store, now: i64) -> Vec<String> {
    let mut all = Vec::new();
    for told in store.queues(None, 99).await.unwrap() {
        let queue = &*told.queue;
        let QueueRules { deliveries_max, backoff_ms, ttl_ms, messages_max, .. } = told.settings;
        let settings = [deliveries_max.into(), backoff_ms, ttl_ms, messages_max];
        all.push(line(queue, [told.ready, told.delayed, told.leased, told.bytes], settings));
        for one in store.waiting(queue_id(queue), 0, 99_999).await.unwrap().unwrap_or_default() {
            all.push(shown(&one, now));
        }
        for client in CLIENTS {
            for newest_first in [false, true] {
                let wanted = TakeFilter { newest_first, ..wanted(queue, client) };
                let first = store.peek(wanted, 1).await.unwrap().unwrap_or_default();
                all.push(format!("{queue} {client} {newest_first} {:?}", first.first().map(|one| one.id)));
            }
        }
    }
    for client in CLIENTS {
        let holding = store.queues_holding(client_id(client), None, 99).await.unwrap();
        all.push(format!("{client} {holding:?}"));
    }
    let clients = store.clients(None, 99).await.unwrap();
    all.push(format!("{:?}", clients.iter().map(|client| client.as_str()).collect::<Vec<_>>()));
    all
}

/// A queue, with those of its settings that random runs change.
fn line(queue: &str, counts: [u64; 4], settings: [u64; 4]) -> String {
    format!(
        "{queue} [ready, delayed, leased, bytes] {counts:?} [deliveries, backoff, ttl, messages] {settings:?}"
    )
}

fn shown(waiting: &Waiting, now: i64) -> String {
    let one = &waiting.delivery;
    let state = match waiting.state {
        MessageState::Ready => State::Ready,
        MessageState::Delayed(until) => State::Delayed(until.as_micros()),
        MessageState::Leased(until) => State::Leased(until.as_micros()),
    };
    let dead = one.dead.as_ref().map(|dead| (dead.origin.to_string(), dead.reason, dead.deliveries));
    let names = (&*one.sender, one.receiver.as_deref(), one.group.as_deref());
    // Since when something is over is nobody's promise.
    let expires = waiting.expires_at.map(|time| time.as_micros().max(now));
    format!("{} {names:?} {state:?} {expires:?} {} {dead:?} {:?}", one.id, one.deliveries, one.text)
}

impl Model {
    /// Everything that is to be seen at a time, as [`seen`] says it.
    pub fn described(&self, now: i64) -> Vec<String> {
        let mut model = self.clone();
        model.advance(now);
        let mut all = Vec::new();
        for (queue, settings) in &model.queues {
            let held: Vec<_> = model.messages.iter().filter(|message| message.queue == *queue).collect();
            let count =
                |is: fn(&State) -> bool| held.iter().filter(|message| is(&message.state)).count() as u64;
            let counts = [
                count(|state| matches!(state, State::Ready)),
                count(|state| matches!(state, State::Delayed(_))),
                count(|state| matches!(state, State::Leased(_))),
                held.iter().map(|message| message.text.len() as u64).sum(),
            ];
            let QueueSettings { deliveries_max, backoff_ms, ttl_ms, messages_max, .. } = settings;
            let settings = [deliveries_max.map(u64::from), *backoff_ms, *ttl_ms, *messages_max];
            all.push(line(queue, counts, settings.map(|set| set.unwrap_or(0))));
            all.extend(held.iter().map(|message| {
                let Msg { id, sender, receiver, group, state, expires, deliveries, dead, text, .. } = message;
                let names = (sender.as_str(), receiver.as_deref(), group.as_deref());
                let expires = expires.map(|time| time.max(now));
                format!("{id} {names:?} {state:?} {expires:?} {deliveries} {dead:?} {text:?}")
            }));
            for client in CLIENTS {
                for newest_first in [false, true] {
                    let wanted = TakeFilter { newest_first, ..wanted(queue, client) };
                    let first = model.takeable(&wanted, now).first().copied();
                    all.push(format!("{queue} {client} {newest_first} {first:?}"));
                }
            }
        }
        for client in CLIENTS {
            let mut holding: Vec<&str> = model.queues.keys().map(String::as_str).collect();
            holding.retain(|queue| !model.takeable(&wanted(queue, client), now).is_empty());
            all.push(format!("{client} {holding:?}"));
        }
        all.push(format!("{:?}", model.clients.iter().collect::<Vec<_>>()));
        all
    }
}

/// An operation with strings of its own.
#[derive(Debug)]
#[allow(missing_docs, reason = "the parts are those of the operation")]
pub enum Choice {
    Put(&'static str, QueueSettings),
    Delete(&'static str, bool),
    Register(&'static str),
    Unregister(&'static str),
    Send {
        queue: &'static str,
        sender: &'static str,
        to: u64,
        text: String,
        due: Due,
        group: Option<&'static str>,
        ttl_ms: Option<u64>,
        message_id: Option<String>,
    },
    Take(Take<'static>),
    Settle(String, LeaseReceipt, Settle),
    Remove(String, u64),
    Redrive(String),
}

impl Choice {
    /// The operation.
    pub fn op(&self) -> QueueOp<'_> {
        match self {
            Self::Put(queue, settings) => QueueOp::Put { queue, settings },
            Self::Delete(queue, force) => QueueOp::Delete { queue, force: *force },
            Self::Register(client) => QueueOp::Register { client },
            Self::Unregister(client) => QueueOp::Unregister { client },
            Self::Send { queue, sender, to, text, due, group, ttl_ms, message_id } => {
                QueueOp::Send(QueueSend {
                    queue,
                    sender,
                    audience: match to {
                        0 => Audience::All,
                        1..4 => Audience::Anyone,
                        n => Audience::One(CLIENTS[usize::try_from(*n).unwrap() % CLIENTS.len()]),
                    },
                    text,
                    message_id: message_id.as_deref(),
                    due: *due,
                    group: *group,
                    ttl_ms: *ttl_ms,
                    registers: true,
                })
            }
            Self::Take(take) => QueueOp::Take(*take),
            Self::Settle(queue, receipt, how) => QueueOp::Settle { queue, receipt: *receipt, how: *how },
            Self::Remove(queue, id) => QueueOp::Remove { queue, id: *id },
            Self::Redrive(queue) => QueueOp::Redrive { queue, id: None },
        }
    }
}

/// What is chosen next.
pub struct Dice(pub SeededRandom);

impl Dice {
    fn below(&self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn pick<T: Copy>(&self, some: &[T]) -> T {
        some[usize::try_from(self.below(some.len() as u64)).unwrap()]
    }

    fn maybe<T>(&self, one_in: u64, what: impl FnOnce() -> T) -> Option<T> {
        (self.below(one_in) == 0).then(what)
    }

    /// Limited deliveries in `a` and `b`, times to live in `c` alone: what a change of the limit does to what has outlived its time
    /// already is nobody's promise.
    fn settings(&self, queue: &str) -> QueueSettings {
        let deliveries_max = matches!(queue, "a" | "b").then(|| u32::try_from(self.below(3)).unwrap());
        QueueSettings {
            deliveries_max,
            ttl_ms: (queue == "c").then(|| self.below(3) * 1_000),
            messages_max: self.maybe(3, || self.below(40)),
            backoff_ms: self.maybe(3, || self.below(300)),
            ..QueueSettings::default()
        }
    }

    /// An operation that makes some sense after what the model has.
    pub fn choice(&self, model: &Model) -> Choice {
        let queue = self.pick(&QUEUES);
        match self.below(44) {
            0 | 1 => Choice::Put(queue, self.settings(queue)),
            2 => Choice::Delete(queue, self.below(3) == 0),
            3 => Choice::Register(self.pick(&CLIENTS)),
            4 => Choice::Unregister(self.pick(&CLIENTS)),
            5 | 40.. => Choice::Redrive(format!("{}{DEAD_LETTER_SUFFIX}", self.pick(&["a", "b"]))),
            6..21 => Choice::Send {
                queue,
                sender: self.pick(&CLIENTS),
                to: self.below(8),
                text: "text ".repeat(usize::try_from(self.below(60)).unwrap()),
                due: match self.below(6) {
                    0 => Due::In(self.below(3_000)),
                    _ => Due::Now,
                },
                // Where there are dead letters, more of them, so that they come back before others.
                group: self.maybe(if matches!(queue, "a" | "b") { 2 } else { 3 }, || self.pick(&GROUPS)),
                ttl_ms: (queue == "c").then(|| self.maybe(3, || 1 + self.below(3_000))).flatten(),
                // Not where there are dead letters: when the ids of those are forgotten is promised for no moment.
                message_id: matches!(queue, "c" | "d")
                    .then(|| self.maybe(2, || format!("m{}", self.below(60))))
                    .flatten(),
            },
            21..31 => Choice::Take(Take {
                wanted: self.wanted(queue),
                max: usize::try_from(1 + self.below(4)).unwrap(),
                how: if self.below(3) == 0 {
                    TakeMode::Away
                } else {
                    TakeMode::Lease { lease_ms: Some(1 + self.below(2_000)) }
                },
                registers: true,
            }),
            n => self.with_message(model, n),
        }
    }

    fn wanted(&self, queue: &'static str) -> TakeFilter<'static> {
        let receiver = self.maybe(8, || ()).is_none().then(|| self.pick(&CLIENTS));
        let sender = self.maybe(4, || self.pick(&CLIENTS));
        let everywhere = sender.is_some() && self.below(2) == 0;
        TakeFilter {
            queue: (!everywhere).then_some(queue),
            receiver,
            sender,
            newest_first: self.below(3) == 0,
        }
    }

    /// Something about a message that is there, mostly with the right receipt.
    fn with_message(&self, model: &Model, n: u64) -> Choice {
        let leased: Vec<_> =
            model.messages.iter().filter(|message| matches!(message.state, State::Leased(_))).collect();
        let some: Vec<_> =
            if leased.is_empty() || n == 39 { model.messages.iter().collect() } else { leased };
        if some.is_empty() {
            return Choice::Register("ada");
        }
        let message = self.pick(&some);
        if n == 31 {
            return Choice::Remove(message.queue.clone(), message.id);
        }
        let mut receipt = model.receipt(message);
        match self.below(16) {
            0 | 1 => receipt.delivery = receipt.delivery.saturating_sub(1),
            2 => receipt.delivery = message.deliveries.into(),
            3 => receipt.epoch ^= 1,
            _ => {}
        }
        let how = match self.below(3) {
            0 => Settle::Ack,
            1 => Settle::Nack { delay_ms: self.maybe(2, || self.below(1_000)) },
            _ => Settle::Extend { lease_ms: Some(self.below(2_000) + 1) },
        };
        Choice::Settle(message.queue.clone(), receipt, how)
    }
}
