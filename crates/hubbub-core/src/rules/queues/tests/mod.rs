//! The rules alone, without any store: random operations on plain lists.

mod memory;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Effect, Effects, Removal, Space, Stop, View, decide};
use crate::queue::{
    Delivery, Due, LeaseReceipt, QueueOp, QueueOutcome, QueueSend, QueueSettings, Settle, Take, TakeFilter,
    TakeMode, WhenFull,
};
use crate::{Refusal, Timestamp};
use memory::{Known, Memory, State, audience};

const QUEUES: [&str; 3] = ["q", "q.dead", "7"];
const CLIENTS: [&str; 4] = ["ada", "bob", "carl", "dora"];
const GROUPS: [Option<&str>; 3] = [None, Some("g"), Some("h")];
const IDS: [Option<&str>; 4] = [None, None, Some("m"), Some("n")];
const TEXTS: [&str; 2] = ["text", "another text"];

fn any_settings() -> impl Strategy<Value = QueueSettings> {
    let some = |numbers: std::ops::Range<u64>| proptest::option::of(numbers);
    let own_name = proptest::option::of(prop_oneof![Just(""), Just("q"), Just("7"), Just("grave")]);
    (some(0..3), some(0..6), some(0..40), some(0..5), any::<Option<bool>>(), own_name).prop_map(
        |(deliveries, messages, bytes, ttl, drops, dead_letter)| QueueSettings {
            deliveries_max: deliveries.map(|max| u32::try_from(max).unwrap()),
            messages_max: messages,
            bytes_max: bytes,
            ttl_ms: ttl,
            when_full: drops.map(|drops| if drops { WhenFull::DropOldest } else { WhenFull::Refuse }),
            dead_letter: dead_letter.map(Into::into),
            ..QueueSettings::default()
        },
    )
}

/// An operation as numbers; what it is about is looked up when its turn comes.
#[derive(Debug, Clone)]
struct Choice {
    kind: u8,
    numbers: [usize; 6],
    settings: QueueSettings,
    passed: i64,
    spare: usize,
    missing_in: u32,
}

fn any_choice() -> impl Strategy<Value = Choice> {
    let spare = prop_oneof![Just(0_usize), Just(60), Just(usize::MAX)];
    let passed = prop_oneof![Just(0_i64), 0..3_000_000_i64];
    (0..14_u8, any::<[u8; 6]>(), any_settings(), passed, spare, 0..6_u32).prop_map(
        |(kind, numbers, settings, passed, spare, missing_in)| Choice {
            kind,
            numbers: numbers.map(usize::from),
            settings,
            passed,
            spare,
            missing_in,
        },
    )
}

fn pick<T: Copy>(of: &[T], number: usize) -> T {
    of[number % of.len()]
}

impl Choice {
    fn op<'a>(&'a self, held: &[Delivery]) -> QueueOp<'a> {
        let [a, b, c, d, e, f] = self.numbers;
        let (queue, client) = (pick(&QUEUES, a), pick(&CLIENTS, b));
        let lease = held.get(c % held.len().max(1)).and_then(|held| Some((&held.queue, held.receipt?)));
        let stale = LeaseReceipt { id: c as u64, delivery: 1, epoch: 7 };
        let receipt = lease.map_or(stale, |(_, receipt)| receipt);
        let queue_held =
            lease.and_then(|(queue, _)| QUEUES.into_iter().find(|one| *one == &**queue)).unwrap_or(queue);
        match self.kind {
            0 | 1 => QueueOp::Put { queue, settings: &self.settings },
            2 => QueueOp::PutNumbered,
            3 if a % 4 == 0 => QueueOp::Delete { queue, force: b % 2 == 0 },
            3 => QueueOp::Register { client },
            4 => QueueOp::Unregister { client },
            5..8 => QueueOp::Send(QueueSend {
                queue,
                sender: client,
                audience: audience(u8::try_from(c % 3).unwrap(), pick(&CLIENTS, d)),
                text: pick(&TEXTS, e),
                message_id: pick(&IDS, f),
                due: pick(&[Due::Now, Due::Now, Due::In(1), Due::At(Timestamp::from_micros(5))], d),
                group: pick(&GROUPS, e + f),
                ttl_ms: pick(&[None, None, Some(2)], c + d),
                registers: a % 5 > 0,
            }),
            8 | 9 => QueueOp::Take(Take {
                wanted: TakeFilter {
                    queue: pick(&[Some(queue), None], c),
                    receiver: pick(&[Some(client), None], d),
                    sender: pick(&[None, None, Some(client)], e),
                    newest_first: f % 2 == 0,
                },
                max: f % 5,
                how: pick(
                    &[
                        TakeMode::Away,
                        TakeMode::Lease { lease_ms: None },
                        TakeMode::Lease { lease_ms: Some(1) },
                    ],
                    b,
                ),
                registers: a % 2 == 0,
            }),
            10 => QueueOp::Settle { queue: queue_held, receipt, how: Settle::Ack },
            11 if a % 2 == 0 => {
                QueueOp::Settle { queue: queue_held, receipt, how: Settle::Extend { lease_ms: Some(3) } }
            }
            11 => QueueOp::Settle {
                queue: queue_held,
                receipt,
                how: Settle::Nack { delay_ms: pick(&[None, Some(1)], b) },
            },
            12 if a % 2 == 0 => QueueOp::Remove { queue, id: c as u64 },
            12 => QueueOp::Redrive { queue, id: pick(&[None, None, Some(c as u64)], d) },
            _ => QueueOp::Sweep,
        }
    }
}

/// Bytes of the lists of effects, as [`Space`] promises them to be counted.
fn list_bytes(effects: &Effects<'_, u32, Known<'_>>) -> usize {
    effects.iter().map(super::space::of_list).sum()
}

/// What must hold between a state, an operation, and what it comes to.
fn check(before: &Memory, op: &QueueOp<'_>, outcome: &QueueOutcome, after: &Memory) {
    for (id, message) in &after.messages {
        assert!(after.queues.contains_key(&message.queue), "{op:?}: {id} is in a queue that is not there");
    }
    let ids = |memory: &Memory| memory.messages.keys().copied().collect::<BTreeSet<u64>>();
    let gone: Vec<u64> = ids(before).difference(&ids(after)).copied().collect();
    match (op, outcome) {
        (QueueOp::Take(take), QueueOutcome::Taken { messages: taken, .. }) => {
            let mut taken: Vec<u64> = taken.iter().map(|delivery| delivery.id).collect();
            assert!(taken.len() <= take.max);
            if take.how != TakeMode::Away {
                let in_front = taken.iter().find(|id| before.in_front(**id).next().is_some());
                assert_eq!(in_front, None, "{op:?}: overtook one of its group");
            }
            let mut sorted = taken.clone();
            sorted.sort_unstable();
            if take.how == TakeMode::Away && take.wanted.newest_first {
                taken.sort_unstable();
            } else if take.wanted.newest_first {
                taken.reverse();
            }
            assert_eq!(taken, sorted, "{op:?}: in order, and none twice");
            assert_eq!(gone, if take.how == TakeMode::Away { taken } else { Vec::new() });
        }
        (QueueOp::Unregister { client }, _) => {
            for id in gone {
                let message = &before.messages[&id];
                assert!(
                    message.is_copy && message.state == State::Ready,
                    "{client} goes without what is leased"
                );
            }
        }
        (QueueOp::Send(send), QueueOutcome::Sent { duplicate, .. }) => {
            assert!(!duplicate || before.messages == after.messages);
            let is_leased = |id: &u64| before.messages[id].state != State::Ready;
            assert!(!gone.iter().any(is_leased), "{send:?}: nothing on lease is dropped");
            let (queue, rules) = before.queue_named(send.queue);
            let held = |memory: &Memory| memory.messages.values().filter(|one| one.queue == queue).count();
            let most = if rules.messages_max == 0 { usize::MAX } else { rules.messages_max as usize };
            assert!(held(after) <= most.max(held(before)), "{send:?}: a queue grows over its limit");
            let bytes = |memory: &Memory| memory.held(queue).unwrap().bytes;
            let most = if rules.bytes_max == 0 { u64::MAX } else { rules.bytes_max * 2 };
            assert!(bytes(after) <= most.max(bytes(before)), "{send:?}: a queue holds too many bytes");
        }
        (QueueOp::Sweep | QueueOp::Delete { .. } | QueueOp::Remove { .. }, _) => {}
        (QueueOp::Settle { receipt, how: Settle::Ack, .. }, _) => assert_eq!(gone, [receipt.id]),
        _ => assert_eq!(gone, Vec::<u64>::new(), "{op:?}"),
    }
}

proptest! {
    /// Refused or lacking something: no effects. Decided again: the same. Never more space than there is.
    #[test]
    fn a_decision_changes_nothing_until_it_is_applied(choices in proptest::collection::vec(any_choice(), 0..60)) {
        let mut memory = Memory::new();
        let mut held: Vec<Delivery> = Vec::new();
        for choice in &choices {
            memory.advance(memory.now + choice.passed);
            let (before, op) = (memory.clone(), choice.op(&held));
            let mut effects = Effects::new(choice.spare);
            memory.missing_in.set(choice.missing_in);
            let first = decide(&mut memory, &op, &mut effects);
            if let Err(Stop::LoadRequest(_)) = first {
                prop_assert!(effects.is_empty());
                prop_assert_eq!(effects.spare(), choice.spare);
            }
            memory.missing_in.set(0);
            let mut effects = Effects::new(choice.spare);
            let again = decide(&mut memory, &op, &mut effects);
            before.missing_in.set(0);
            prop_assert_eq!(&memory, &before, "{:?}", op);
            match again {
                Err(stop) => {
                    prop_assert!(effects.is_empty() && effects.spare() == choice.spare, "{:?}", op);
                    prop_assert_ne!(stop, Stop::LoadRequest(memory::Missing));
                }
                Ok(outcome) => {
                    prop_assert!(list_bytes(&effects) <= choice.spare, "{:?}: {:?}", op, effects);
                    let useful = Space::of(&op).useful;
                    let lists_more = matches!(op, QueueOp::Send(_) | QueueOp::Unregister { .. });
                    prop_assert!(lists_more || list_bytes(&effects) <= useful, "{:?}", op);
                    effects.drain().collect::<Vec<_>>().into_iter().for_each(|effect| memory.apply(effect));
                    check(&before, &op, &outcome, &memory);
                    if let QueueOutcome::Taken { messages: taken, .. } = outcome {
                        held.extend(taken.into_iter().filter(|delivery| delivery.receipt.is_some()));
                    }
                }
            }
        }
    }
}

fn done<'a>(memory: &mut Memory, op: &QueueOp<'a>) -> (QueueOutcome, Vec<Effect<'a, u32, Known<'a>>>) {
    let mut effects = Effects::new(usize::MAX);
    let outcome = decide(memory, op, &mut effects).unwrap();
    let effects: Vec<_> = effects.drain().collect();
    effects.iter().cloned().for_each(|effect| memory.apply(effect));
    (outcome, effects)
}

fn put(memory: &mut Memory, queue: &str, settings: &QueueSettings) -> QueueOutcome {
    done(memory, &QueueOp::Put { queue, settings }).0
}

fn send<'a>(sender: &'a str, kind: u8) -> QueueOp<'a> {
    QueueOp::Send(QueueSend {
        queue: "q",
        sender,
        audience: audience(kind, "bob"),
        text: "text",
        message_id: None,
        due: Due::Now,
        group: None,
        ttl_ms: None,
        registers: true,
    })
}

fn lease(receiver: &str, max: usize) -> QueueOp<'_> {
    let wanted = TakeFilter { queue: Some("q"), receiver: Some(receiver), sender: None, newest_first: false };
    QueueOp::Take(Take { wanted, max, how: TakeMode::Lease { lease_ms: Some(60_000) }, registers: true })
}

#[test]
fn a_queue_with_a_limit_of_deliveries_has_a_dead_letter_queue() {
    let limited = |dead_letter: &str| QueueSettings {
        deliveries_max: Some(1),
        dead_letter: Some(dead_letter.into()),
        ..QueueSettings::default()
    };
    for (dead_letter, expected) in [("", "q.dead"), ("grave", "grave"), ("q", "q")] {
        let mut memory = Memory::new();
        put(&mut memory, "q", &limited(dead_letter));
        let names: Vec<_> = memory.queues.values().filter(|queue| queue.is_dead_letter).collect();
        assert_eq!(names.iter().map(|queue| &*queue.name).collect::<Vec<_>>(), [expected]);
        let settings = limited(dead_letter);
        let (_, effects) = done(&mut memory, &QueueOp::Put { queue: "q", settings: &settings });
        assert_eq!(effects, [], "nothing changes when it is put again");
        // It was deleted meanwhile; whoever gives a message up makes it again.
        if expected != "q" {
            done(&mut memory, &QueueOp::Delete { queue: expected, force: true });
        }
        done(&mut memory, &send("ada", 0));
        let QueueOutcome::Taken { messages: taken, .. } = done(&mut memory, &lease("bob", 1)).0 else {
            panic!()
        };
        let (queue, receipt) = ("q", taken[0].receipt.unwrap());
        done(&mut memory, &QueueOp::Settle { queue, receipt, how: Settle::Nack { delay_ms: None } });
        let message = &memory.messages[&receipt.id];
        assert_eq!(&*memory.queues[&message.queue].name, expected);
        assert!(memory.queues[&message.queue].is_dead_letter);
    }
}

#[test]
fn one_sweep_makes_each_dead_letter_queue_once() {
    let mut memory = Memory::new();
    for (queue, dead_letter) in [("q", "grave"), ("7", "other")] {
        let dead_letter = Some(dead_letter.into());
        put(
            &mut memory,
            queue,
            &QueueSettings { deliveries_max: Some(1), dead_letter, ..QueueSettings::default() },
        );
        for _ in 0..2 {
            let QueueOp::Send(sent) = send("ada", 0) else { panic!() };
            done(&mut memory, &QueueOp::Send(QueueSend { queue, ..sent }));
        }
    }
    for queue in ["grave", "other"] {
        done(&mut memory, &QueueOp::Delete { queue, force: true });
    }
    memory.messages.values_mut().for_each(|message| message.deliveries = 1);
    let (_, effects) = done(&mut memory, &QueueOp::Sweep);
    let made = effects.iter().filter(|effect| matches!(effect, Effect::Put { .. }));
    assert_eq!((made.count(), memory.queues.len()), (2, 4));
    assert!(memory.messages.values().all(|message| memory.queues[&message.queue].is_dead_letter));
}

#[test]
fn leased_copies_stay_or_their_receiver_does() {
    let mut memory = Memory::new();
    put(&mut memory, "q", &QueueSettings::default());
    done(&mut memory, &QueueOp::Register { client: "bob" });
    for _ in 0..90 {
        done(&mut memory, &send("ada", 2));
    }
    done(&mut memory, &lease("bob", 80));
    let op = QueueOp::Unregister { client: "bob" };
    for (spare, is_refused) in [(0, true), (79, true), (81, false), (usize::MAX, false)] {
        let mut effects = Effects::new(spare);
        let decided = decide(&mut memory, &op, &mut effects);
        assert_eq!(
            decided == Err(Stop::Refused(Refusal::TooManyBroadcasts)),
            is_refused,
            "{spare}: {decided:?}"
        );
        assert_eq!(effects.is_empty(), is_refused);
        assert_eq!(effects.missing(), if is_refused { 80 } else { 0 });
    }
    done(&mut memory, &op);
    assert_eq!(memory.messages.len(), 80);
    assert!(memory.messages.values().all(|message| message.state != State::Ready));
}

#[test]
fn a_full_queue_drops_its_oldest_but_those_on_lease() {
    let mut memory = Memory::new();
    let full = QueueSettings {
        messages_max: Some(3),
        when_full: Some(WhenFull::DropOldest),
        ..QueueSettings::default()
    };
    put(&mut memory, "q", &full);
    for _ in 0..3 {
        done(&mut memory, &send("ada", 0));
    }
    done(&mut memory, &lease("bob", 1));
    let (_, effects) = done(&mut memory, &send("ada", 0));
    assert!(
        matches!(&effects[0], Effect::Gone { why: Removal::Dropped, ids, .. } if ids == &[2]),
        "{effects:?}"
    );
    done(&mut memory, &lease("bob", 9));
    let mut effects = Effects::new(usize::MAX);
    assert_eq!(decide(&mut memory, &send("ada", 0), &mut effects), Err(Stop::Refused(Refusal::QueueFull)));
}

#[test]
fn a_full_queue_takes_no_more_copies_than_it_drops() {
    let mut memory = Memory::new();
    let limited = |messages_max| QueueSettings {
        messages_max: Some(messages_max),
        when_full: Some(WhenFull::DropOldest),
        ..QueueSettings::default()
    };
    put(&mut memory, "q", &limited(5));
    for client in ["ada", "bob", "carl"] {
        done(&mut memory, &QueueOp::Register { client });
    }
    for _ in 0..5 {
        done(&mut memory, &send("ada", 0));
    }
    // There is space to list one alone.
    let mut effects = Effects::new(0);
    let decided = decide(&mut memory, &send("ada", 2), &mut effects);
    assert_eq!(decided, Err(Stop::Refused(Refusal::QueueFull)));
    assert!(effects.is_empty(), "nothing is dropped for what does not come");
    done(&mut memory, &send("ada", 2));
    assert_eq!(memory.messages.keys().copied().collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    // A limit that was lowered is come to bit by bit.
    put(&mut memory, "q", &limited(2));
    let mut effects = Effects::new(0);
    decide(&mut memory, &send("ada", 0), &mut effects).unwrap();
    assert!(
        matches!(&effects.drain().collect::<Vec<_>>()[..], [Effect::Gone { ids, .. }, Effect::Send(_)] if ids == &[3])
    );
}

#[test]
fn a_full_queue_holds_twice_its_bytes_at_most() {
    let mut memory = Memory::new();
    let settings = QueueSettings {
        bytes_max: Some(4_000),
        when_full: Some(WhenFull::DropOldest),
        ..QueueSettings::default()
    };
    put(&mut memory, "q", &settings);
    done(&mut memory, &QueueOp::Register { client: "ada" });
    let QueueOp::Send(small) = send("ada", 0) else { panic!() };
    for _ in 0..2_000 {
        done(&mut memory, &QueueOp::Send(QueueSend { text: "ab", ..small }));
    }
    let large = "x".repeat(3_000);
    let mut decided = Vec::new();
    for _ in 0..3 {
        let mut effects = Effects::new(usize::MAX);
        let sent = decide(&mut memory, &QueueOp::Send(QueueSend { text: &large, ..small }), &mut effects);
        decided.push(sent.is_ok());
        if sent.is_ok() {
            done(&mut memory, &QueueOp::Send(QueueSend { text: &large, ..small }));
        }
    }
    assert_eq!(decided, [true, true, true], "those that went first made space");
    let held = memory.held(memory.queue_named("q").0).unwrap();
    assert!(held.bytes <= 8_000, "{held:?}");
}

#[test]
fn there_is_no_queue_behind_the_last_number() {
    let mut memory = Memory::new();
    put(&mut memory, "999999999999999998", &QueueSettings::default());
    let made = done(&mut memory, &QueueOp::PutNumbered).0;
    assert_eq!(made, QueueOutcome::Queue { queue: "999999999999999999".into(), created: true });
    for _ in 0..2 {
        let mut effects = Effects::new(usize::MAX);
        let decided = decide(&mut memory, &QueueOp::PutNumbered, &mut effects);
        assert_eq!(decided, Err(Stop::Refused(Refusal::NoQueueNumber)));
        assert!(effects.is_empty());
    }
}

#[test]
fn who_is_not_registered_gets_what_waits_for_anybody() {
    let mut memory = Memory::new();
    put(&mut memory, "q", &QueueSettings::default());
    done(&mut memory, &QueueOp::Register { client: "bob" });
    done(&mut memory, &send("ada", 0));
    done(&mut memory, &send("ada", 1));
    let QueueOp::Take(take) = lease("stranger", 9) else { panic!() };
    let (outcome, _) = done(&mut memory, &QueueOp::Take(Take { registers: false, ..take }));
    let QueueOutcome::Taken { messages: taken, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(taken.iter().map(|one| (one.id, one.receiver.is_some())).collect::<Vec<_>>(), [(1, false)]);
    assert_eq!(memory.clients.iter().filter(|(name, _)| name == "stranger").count(), 0);
}
