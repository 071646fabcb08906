//! What a batch must have loaded before it is decided: stores do not show what they ask for, nor in which order.

use std::sync::Arc;

use hubbub_core::queue::{
    Audience, Due, LeaseReceipt, QueueSend, Settle, Take, TakeFilter, TakeMode, WhenFull,
};
use hubbub_core::{QueueOp, QueueOutcome, QueueRules, Refusal};

use super::decide;
use crate::queues::working_set::{
    ANYBODY, Client, Counts, Frontier, GroupKey, LoadRequest, Message, Place, Queue, State, Stop, WorkingSet,
};

const NOW: i64 = 1_000_000;
const QUEUE: i32 = 1;
const ADA: i32 = 1;
const OLDEST: Place = Place { queue: QUEUE, receiver: ANYBODY, sender: None, newest_first: false };

/// A queue with messages that wait for anybody.
fn set(settings: QueueRules, ids: &[i64]) -> WorkingSet {
    let mut set = WorkingSet { now: NOW, proven: NOW, ids: 100..110, ..WorkingSet::default() };
    set.names.insert("q".into(), QUEUE);
    let queue = Queue {
        name: "q".into(),
        is_dead_letter: false,
        settings,
        seen_to: 0,
        is_current: true,
        held: Some((ids.len() as i64, ids.len() as i64)),
        added: Counts::default(),
        is_changed: false,
        is_new: false,
        is_deleted: false,
    };
    set.queues.insert(QUEUE, queue);
    set.clients.insert("ada".into(), Client { no: ADA, is_registered: true, is_changed: false });
    ids.iter().for_each(|id| set.insert(message(*id)));
    set
}

fn message(id: i64) -> Message {
    Message {
        id,
        queue: QUEUE,
        sender: ADA,
        receiver: ANYBODY,
        state: State::Ready,
        behind: false,
        is_copy: false,
        deliveries: 0,
        earlier_deliveries: 0,
        sent_at: 0,
        due_at: None,
        begun_at: None,
        expires_at: None,
        known_as: None,
        group: None,
        bytes: 1,
        text: Some("x".into()),
        copy_of: None,
        dead: None,
        stored_in: Some(QUEUE),
        is_changed: false,
        is_gone: false,
    }
}

const SEND: QueueSend<'_> = QueueSend {
    queue: "q",
    sender: "ada",
    audience: Audience::Anyone,
    text: "y",
    message_id: None,
    due: Due::Now,
    group: None,
    ttl_ms: None,
    registers: false,
};

fn take(max: usize) -> QueueOp<'static> {
    let wanted = TakeFilter { queue: Some("q"), receiver: None, sender: None, newest_first: false };
    QueueOp::Take(Take { wanted, max, how: TakeMode::Away, registers: false })
}

/// What an operation still needs; `None` = it was done. It must not have changed anything if it needs something.
fn need(set: &mut WorkingSet, op: &QueueOp<'_>) -> Option<LoadRequest> {
    match decide(set, op) {
        Ok(_) => None,
        Err(Stop::Refused(refusal)) => panic!("{op:?} was refused: {refusal:?}"),
        Err(Stop::LoadRequest(need)) => {
            assert!(
                set.messages.values().all(|one| !one.is_changed && !one.is_gone && one.stored_in.is_some())
            );
            assert!(set.queues.values().all(|queue| queue.added == Counts::default()));
            Some(need)
        }
    }
}

#[test]
fn a_take_needs_as_much_of_a_line_as_it_takes() {
    let at = |to, is_complete| Some(Frontier { to, is_complete });
    for (frontier, max, needed) in [
        (None, 1, true),
        (at(5, false), 2, false),
        (at(5, false), 3, true),
        (at(9, false), 3, false),
        (at(5, true), 9, false),
        // What is in memory behind the frontier may not be the next.
        (at(3, false), 2, true),
    ] {
        let mut set = set(QueueRules::default(), &[3, 5, 9]);
        set.frontiers.extend(frontier.map(|frontier| (OLDEST, frontier)));
        let expected = needed.then_some(LoadRequest::Place(OLDEST));
        assert_eq!(need(&mut set, &take(max)), expected, "{frontier:?}, {max}");
    }
}

#[test]
fn a_take_needs_the_texts_of_what_it_takes() {
    let mut set = set(QueueRules::default(), &[3, 5, 9]);
    set.frontiers.insert(OLDEST, Frontier { to: 9, is_complete: true });
    set.messages.values_mut().filter(|message| message.id > 3).for_each(|message| message.text = None);
    assert_eq!(need(&mut set, &take(2)), Some(LoadRequest::Texts(vec![5])));
    assert_eq!(need(&mut set, &take(1)), None);
    assert_eq!(set.messages[&3].text, None, "whoever took it has it");
}

#[test]
fn what_is_taken_away_frees_the_next_of_its_group() {
    let mut set = set(QueueRules::default(), &[]);
    let group: Arc<str> = "g".into();
    for id in [3, 5, 9] {
        set.insert(Message { group: Some(Arc::clone(&group)), behind: id > 3, ..message(id) });
    }
    let whole = Some(Frontier { to: 9, is_complete: true });
    set.groups.get_mut(&GroupKey { queue: QUEUE, receiver: ANYBODY, group }).unwrap().frontier = whole;
    set.frontiers.extend(whole.map(|frontier| (OLDEST, frontier)));
    for (max, messages, freed) in [(2, 2, [9].as_slice()), (1, 1, &[])] {
        let Ok(QueueOutcome::Taken { messages: taken, ready }) = decide(&mut set, &take(max)) else {
            panic!()
        };
        let ready: Vec<u64> = ready.iter().map(|freed| freed.id).collect();
        assert_eq!((taken.len(), ready.as_slice()), (messages, freed));
    }
    assert!(set.woken.is_empty(), "nobody else is told");
}

#[test]
fn takes_of_one_batch_hold_so_many_bytes() {
    let ids: Vec<i64> = (1..=80).collect();
    let mut set = set(QueueRules::default(), &ids);
    set.messages.values_mut().for_each(|message| message.bytes = 1 << 20);
    set.frontiers.insert(OLDEST, Frontier { to: 80, is_complete: true });
    let taken = (0..18).map(|_| match decide(&mut set, &take(9)) {
        Ok(QueueOutcome::Taken { messages, .. }) => messages.len(),
        other => panic!("{other:?}"),
    });
    let taken: Vec<usize> = taken.collect();
    assert_eq!(taken, [[4; 16].as_slice(), &[1; 2]].concat(), "64 MiB, and then one message each");
}

#[test]
fn what_has_no_deliveries_left_does_not_expire() {
    let rules = QueueRules { deliveries_max: 2, ..QueueRules::default() };
    for (state, deliveries, expected) in [
        (State::Leased, 2, State::Exhausted),
        (State::Delayed, 2, State::Exhausted),
        (State::Ready, 2, State::Exhausted),
        (State::Exhausted, 2, State::Exhausted),
        (State::Leased, 1, State::Expired),
        (State::Delayed, 0, State::Expired),
        (State::Ready, 1, State::Expired),
    ] {
        let mut set = set(rules.clone(), &[]);
        let due_at = matches!(state, State::Leased | State::Delayed).then_some(NOW);
        set.insert(Message { state, deliveries, due_at, expires_at: Some(NOW), ..message(3) });
        for _ in 0..2 {
            set.advance().unwrap();
            assert_eq!(set.messages[&3].state, expected, "{state:?} after {deliveries} deliveries");
        }
    }
}

#[test]
fn a_full_queue_drops_no_more_than_is_known_to_be_oldest() {
    let rules = QueueRules { messages_max: 3, when_full: WhenFull::DropOldest, ..QueueRules::default() };
    for (frontier, leased, needed) in [
        (None, None, Some(LoadRequest::Oldest(QUEUE))),
        (Some(Frontier { to: 2, is_complete: false }), None, Some(LoadRequest::Oldest(QUEUE))),
        (Some(Frontier { to: 3, is_complete: false }), None, None),
        // One on lease is not dropped, so that the next must be known.
        (Some(Frontier { to: 3, is_complete: false }), Some(3), Some(LoadRequest::Oldest(QUEUE))),
        (Some(Frontier { to: 9, is_complete: true }), Some(3), None),
    ] {
        let mut set = set(rules.clone(), &[3, 5, 9]);
        if let Some(message) = leased.and_then(|id| set.messages.get_mut(&id)) {
            message.state = State::Leased;
        }
        set.oldest.extend(frontier.map(|frontier| (QUEUE, frontier)));
        assert_eq!(need(&mut set, &QueueOp::Send(SEND)), needed, "{frontier:?}, {leased:?}");
        let oldest = if leased.is_some() { 5 } else { 3 };
        assert_eq!(set.messages[&oldest].is_gone, needed.is_none());
    }
}

#[test]
fn a_message_leaves_its_group_when_the_next_is_known() {
    let key = GroupKey { queue: QUEUE, receiver: ANYBODY, group: "g".into() };
    for (frontier, needed) in
        [(None, true), (Some((3, false)), true), (Some((5, false)), false), (Some((3, true)), false)]
    {
        let mut set = set(QueueRules::default(), &[]);
        for id in [3, 5] {
            set.insert(Message { group: Some("g".into()), behind: id > 3, ..message(id) });
        }
        set.frontiers.insert(OLDEST, Frontier { to: 3, is_complete: true });
        let group = set.groups.entry(key.clone()).or_default();
        group.frontier = frontier.map(|(to, is_complete)| Frontier { to, is_complete });
        let expected = needed.then(|| LoadRequest::Group(key.clone()));
        assert_eq!(need(&mut set, &take(1)), expected, "{frontier:?}");
        assert_eq!(set.messages[&5].behind, needed, "the next one follows");
    }
}

#[test]
fn ids_are_asked_for_all_sends_that_are_left() {
    for (ids, left, needed) in [(0..0, 4, Some(4)), (0..0, 0, Some(1)), (7..8, 4, None)] {
        let mut set = WorkingSet { ids: ids.clone(), sends_left: left, ..set(QueueRules::default(), &[]) };
        assert_eq!(need(&mut set, &QueueOp::Send(SEND)), needed.map(LoadRequest::Ids), "{ids:?}, {left}");
        // One that is decided again still counts.
        assert_eq!(set.sends_left, left - i64::from(needed.is_none()));
    }
}

/// The clock of a server that is behind writes nothing that others have looked past.
#[test]
fn nothing_is_due_before_what_was_seen_to() {
    let lease = |set: &mut WorkingSet| {
        let wanted = TakeFilter { queue: Some("q"), receiver: None, sender: None, newest_first: false };
        let how = TakeMode::Lease { lease_ms: Some(1) };
        decide(set, &QueueOp::Take(Take { wanted, max: 1, how, registers: false }))
    };
    let extend = |set: &mut WorkingSet| {
        let receipt = LeaseReceipt { id: 3, delivery: 1, epoch: 0 };
        decide(set, &QueueOp::Settle { queue: "q", receipt, how: Settle::Extend { lease_ms: Some(1) } })
    };
    let delay = |set: &mut WorkingSet| decide(set, &QueueOp::Send(QueueSend { due: Due::In(1), ..SEND }));
    for (seen_to, due) in [(0, [NOW + 1_000; 2]), (NOW + 5_000, [NOW + 6_000, NOW + 5_001])] {
        let mut set = set(QueueRules::default(), &[3]);
        set.frontiers.insert(OLDEST, Frontier { to: 3, is_complete: true });
        set.queues.get_mut(&QUEUE).unwrap().seen_to = seen_to;
        for what in [lease, extend, delay] as [fn(&mut WorkingSet) -> _; 3] {
            let decided: Result<QueueOutcome, Stop> = what(&mut set);
            decided.unwrap();
        }
        let dues: Vec<_> = [3, 100].iter().map(|id| set.messages[id].due_at).collect();
        assert_eq!(dues, due.map(Some), "seen to {seen_to}");
    }
}

#[test]
fn an_id_of_a_sender_stands_for_all_that_makes_a_message() {
    let first = QueueSend { message_id: Some("m"), text: "ab", group: Some("c"), ..SEND };
    for (again, is_same) in [
        (first, true),
        (QueueSend { due: Due::In(5), ttl_ms: Some(9), ..first }, true),
        (QueueSend { text: "abc", group: None, ..first }, false),
        (QueueSend { text: "b", group: Some("ca"), ..first }, false),
        (QueueSend { group: None, ..first }, false),
        (QueueSend { audience: Audience::All, ..first }, false),
    ] {
        let mut set = set(QueueRules::default(), &[]);
        set.registered = Some(std::collections::BTreeMap::new());
        let key = GroupKey { queue: QUEUE, receiver: ANYBODY, group: "c".into() };
        set.groups.entry(key).or_default().frontier = Some(Frontier { to: 0, is_complete: true });
        decide(&mut set, &QueueOp::Send(first)).unwrap();
        let decided = decide(&mut set, &QueueOp::Send(again));
        let is_repeat = matches!(decided, Ok(QueueOutcome::Sent { duplicate: true, id: 100, .. }));
        let is_refused = matches!(decided, Err(Stop::Refused(Refusal::MessageIdReused { id: 100 })));
        assert_eq!((is_repeat, is_refused), (is_same, !is_same), "{again:?}");
    }
}
