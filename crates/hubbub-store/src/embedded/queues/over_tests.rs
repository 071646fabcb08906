//! Messages that have outlived their time, and queues that are full: what only this store does in bounded steps.

use std::sync::Arc;

use hubbub_core::queue::{Audience, QueueSend, QueueSettings, Take, TakeMode, WhenFull};
use hubbub_core::{Outcome, QueueOp, QueueOutcome, Refusal};

use super::tests::{TestDirectory, apply, get, make, message, one, take, texts_of_waiting, wanted};
use crate::embedded::Engine;

const SLOT_BYTES: u64 = 1 << 20;

/// Ends what has run out, and says which queues may have something new.
fn sweep(engine: &Engine) -> Vec<Arc<str>> {
    let mut all = Vec::new();
    loop {
        match one(engine, QueueOp::Sweep) {
            Outcome::Queue(QueueOutcome::Swept { more, ready }) => {
                all.extend(ready);
                if !more {
                    return all;
                }
            }
            other => panic!("a sweep was answered {other:?}"),
        }
    }
}

/// A live message behind so many that expire now.
fn behind_expired(directory: &TestDirectory, many: usize) -> Engine {
    let engine = directory.open();
    make(&engine, "q");
    let old = QueueOp::Send(QueueSend { ttl_ms: Some(1_000), ..message("q", "old") });
    (0..many / 500).for_each(|_| drop(apply(&engine, &[old; 500])));
    one(&engine, QueueOp::Send(message("q", "live")));
    directory.pass(1_000);
    engine
}

/// More than one take passes over: it comes back empty, and whoever waits is told to take again.
#[test]
fn who_waits_behind_very_many_expired_messages_is_woken() {
    let directory = TestDirectory::new(SLOT_BYTES);
    let engine = behind_expired(&directory, 12_000);
    assert_eq!(get(&engine, "q", "bob", 1), [""; 0]);
    assert_eq!(sweep(&engine), [Arc::from("q")]);
    assert_eq!(get(&engine, "q", "bob", 1), ["live"]);
    drop(engine);

    let directory = TestDirectory::new(SLOT_BYTES);
    let engine = behind_expired(&directory, 12_000);
    let bobs = wanted("q", "bob");
    assert_eq!(engine.shared.peek(&bobs, 1).unwrap(), Some(Vec::new()));
    assert_eq!(sweep(&engine), [Arc::from("q")]);
    assert_eq!(engine.shared.peek(&bobs, 1).unwrap().unwrap().len(), 1);
}

fn limit(engine: &Engine, deliveries_max: u32) {
    let settings = QueueSettings { deliveries_max: Some(deliveries_max), ..QueueSettings::default() };
    assert!(matches!(one(engine, QueueOp::Put { queue: "q", settings: &settings }), Outcome::Queue(_)));
}

/// However far the server was with what had run out when it was killed, a start comes to the same: also when the limit of
/// deliveries was changed meanwhile.
#[test]
fn a_start_gives_up_what_the_server_would_have() {
    // The limit at first, the one it is changed to once lease and life are over, and whether that makes a dead letter.
    for (before, after, is_dead) in
        [(1, None, true), (2, None, false), (2, Some(1), true), (1, Some(2), false)]
    {
        for is_killed in [false, true] {
            let directory = TestDirectory::new(SLOT_BYTES);
            let engine = directory.open();
            limit(&engine, before);
            one(&engine, QueueOp::Send(QueueSend { ttl_ms: Some(60_000), ..message("q", "text") }));
            directory.pass(50_000);
            let how = TakeMode::Lease { lease_ms: Some(30_000) };
            assert_eq!(take(&engine, wanted("q", "bob"), 1, how).len(), 1);
            directory.pass(30_000);
            after.iter().for_each(|limit_after| limit(&engine, *limit_after));
            let engine = if is_killed {
                drop(engine);
                directory.open()
            } else {
                engine
            };
            sweep(&engine);
            let dead = if is_dead { vec!["text"] } else { Vec::new() };
            let case = format!("{before} {after:?}, killed: {is_killed}");
            assert_eq!(texts_of_waiting(&engine, "q.dead"), dead, "{case}");
            assert_eq!(texts_of_waiting(&engine, "q"), [""; 0], "{case}");
            let told = engine.shared.queue("q").unwrap();
            assert_eq!((told.dead, told.dropped), (u64::from(is_dead), u64::from(!is_dead)), "{case}");
        }
    }
}

/// One operation drops so many messages at most; more copies than that are refused, and drop nothing.
#[test]
fn a_full_queue_does_not_grow_by_messages_to_everybody() {
    let directory = TestDirectory::new(SLOT_BYTES);
    let engine = directory.open();
    let settings = QueueSettings {
        messages_max: Some(2_000),
        when_full: Some(WhenFull::DropOldest),
        ..QueueSettings::default()
    };
    one(&engine, QueueOp::Put { queue: "q", settings: &settings });
    let names: Vec<String> = (0..1_100).map(|number| format!("client{number:04}")).collect();
    let registered: Vec<_> = names.iter().map(|client| QueueOp::Register { client }).collect();
    registered.chunks(100).for_each(|some| drop(apply(&engine, some)));
    let to_all = QueueOp::Send(QueueSend { audience: Audience::All, ..message("q", "news") });
    let is_sent =
        |outcome: &Outcome| matches!(outcome, Outcome::Queue(QueueOutcome::Sent { copies: 1_100, .. }));
    let held = || engine.shared.queue("q").map(|queue| (queue.ready, queue.dropped)).unwrap();
    assert!(is_sent(&one(&engine, to_all)));
    assert!(is_sent(&one(&engine, to_all)), "200 go for it");
    assert_eq!(held(), (2_000, 200));
    for _ in 0..3 {
        assert_eq!(one(&engine, to_all), Outcome::Refused(Refusal::QueueFull), "1,100 would have to go");
    }
    assert_eq!(held(), (2_000, 200));
    // There is room again.
    let take = Take { wanted: wanted("q", "client0001"), max: 9, how: TakeMode::Away, registers: false };
    one(&engine, QueueOp::Take(take));
    one(&engine, QueueOp::Send(message("q", "to anybody")));
    assert_eq!(held(), (2_000, 200));
}
