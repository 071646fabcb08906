//! More than one answer holds.

use hubbub_core::queue::{
    Audience, Due, MessageState, QueueInfo, QueueSend, QueueSettings, Settle, TAKE_MAX,
};
use hubbub_core::{Outcome, QueueOp, QueueOutcome};

use super::super::Fixture;
use super::steps::*;

/// Makes so many dead letters of a queue.
async fn die(fixture: &impl Fixture, queue: &str, count: usize) {
    let texts: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    for some in texts.chunks(500) {
        let sends: Vec<_> = some.iter().map(|text| QueueOp::Send(message(queue, text))).collect();
        batch(fixture, &sends).await;
        let held = lease(fixture, wanted(queue, "bob"), some.len(), 60_000).await;
        let nack = |delivery| settle(delivery, Settle::Nack { delay_ms: None });
        let nacks: Vec<_> = held.iter().map(nack).collect();
        batch(fixture, &nacks).await;
    }
}

/// Dead letters whose queue is gone stay, however many there are, and all others go back.
pub async fn letters_that_stay_are_in_nobodys_way(fixture: &mut impl Fixture) {
    const STAY: usize = TAKE_MAX + 1;
    const GO: usize = 2 * TAKE_MAX + 5;
    for (queue, count) in [("gone", STAY), ("q", GO)] {
        let (deliveries_max, dead_letter) = (Some(1), Some("bad".into()));
        make(fixture, queue, QueueSettings { deliveries_max, dead_letter, ..QueueSettings::default() }).await;
        die(fixture, queue, count).await;
    }
    assert_eq!(info(fixture, "bad").await.messages(), (STAY + GO) as u64);
    let mut ops = vec![QueueOp::Delete { queue: "gone", force: false }];
    ops.extend([QueueOp::Redrive { queue: "bad", id: None }; 2]);
    let (mut moved, mut goes_on) = (0, true);
    while goes_on {
        for outcome in batch(fixture, &ops).await {
            match outcome {
                Outcome::Queue(QueueOutcome::Redriven { messages, more, .. }) => {
                    assert!(messages > 0 || !more, "it comes to an end");
                    (moved, goes_on) = (moved + messages, more);
                }
                Outcome::Queue(QueueOutcome::Deleted { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        ops.retain(|op| matches!(op, QueueOp::Redrive { .. }));
    }
    assert_eq!(moved, GO as u64);
    assert_eq!(info(fixture, "q").await.ready, GO as u64);
    let stuck = waiting(fixture, "bad").await;
    assert_eq!(stuck.len(), STAY);
    let alone = QueueOp::Redrive { queue: "bad", id: Some(stuck[0].delivery.id) };
    let moved = done(fixture, alone).await;
    assert!(matches!(moved, QueueOutcome::Redriven { messages: 0, more: false, .. }), "{moved:?}");
    // Another queue of that name is where they came from.
    make_plain(fixture, "gone").await;
    let moved = done(fixture, alone).await;
    assert!(matches!(moved, QueueOutcome::Redriven { messages: 1, more: false, .. }), "{moved:?}");
}

/// A page ends before its texts grow too large, whether copies of a message to everybody are among them or not, and the
/// next one goes on behind it.
pub async fn pages_skip_nothing(fixture: &mut impl Fixture) {
    const COUNT: u64 = 20;
    make_plain(fixture, "q").await;
    let names: Vec<String> = (0..COUNT).map(|number| format!("client{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    register(fixture, &names).await;
    let large = "x".repeat(300_000);
    let mut ids: Vec<u64> = Vec::new();
    for texts in [[large.as_str(), "small"], ["small", large.as_str()], [large.as_str(), "small"]] {
        for _ in 0..COUNT {
            ids.push(send(fixture, message("q", texts[0])).await);
        }
        let to_all = QueueSend { audience: Audience::All, ..message("q", texts[1]) };
        let first = send(fixture, to_all).await;
        ids.extend(first..first + COUNT);
    }
    for limit in [7, 100] {
        let (mut listed, mut after) = (Vec::new(), 0);
        loop {
            let page = fixture.store().waiting(queue_id("q"), after, limit).await.unwrap().unwrap();
            let Some(last) = page.last() else { break };
            after = last.delivery.id;
            listed.extend(page.iter().map(|one| one.delivery.id));
        }
        assert_eq!(listed, ids, "{limit} to a page");
    }
}

/// What comes due at once is told of as ready at once, in lists and counts.
pub async fn what_comes_due_at_once_is_ready_at_once(fixture: &mut impl Fixture) {
    const MANY: usize = 1_300;
    make_plain(fixture, "q").await;
    let sends: Vec<QueueOp<'_>> = (0..MANY)
        .map(|_| QueueOp::Send(QueueSend { due: Due::In(1_000), ..message("q", "later") }))
        .collect();
    for some in sends.chunks(500) {
        batch(fixture, some).await;
    }
    let counts = |told: &QueueInfo| (told.ready, told.delayed, told.leased);
    assert_eq!(counts(&info(fixture, "q").await), (0, MANY as u64, 0));
    advance_ms(fixture, 1_000);
    let first = fixture.store().waiting(queue_id("q"), 0, MANY).await.unwrap().unwrap_or_default();
    assert!(first.iter().all(|one| one.state == MessageState::Ready));
    assert_eq!(counts(&info(fixture, "q").await), (MANY as u64, 0, 0));
    let mut held = Vec::new();
    for most in [500, 500, 300] {
        held.extend(lease(fixture, wanted("q", "bob"), most, 1_000).await);
    }
    assert_eq!(held.len(), MANY);
    assert_eq!(counts(&info(fixture, "q").await), (0, 0, MANY as u64));
    advance_ms(fixture, 1_000);
    let all = fixture.store().queues(None, 9).await.unwrap();
    assert_eq!(all.iter().map(counts).collect::<Vec<_>>(), [(MANY as u64, 0, 0)]);
    assert!(waiting(fixture, "q").await.iter().all(|one| one.state == MessageState::Ready));
}
