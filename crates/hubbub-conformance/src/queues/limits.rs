//! Repeats, and queues that are full.

use hubbub_core::queue::{Audience, ID_KEPT_MS, QueueSend, QueueSettings, Settle, TAKE_MAX, WhenFull};
use hubbub_core::{QueueOp, QueueOutcome, Refusal};

use super::super::Fixture;
use super::super::steps::Stage;
use super::steps::*;

/// A repeated id is answered with the first message, while it waits and for ten minutes after.
pub async fn a_repeat_is_known_for_ten_minutes(fixture: &mut impl Fixture) {
    make_plain(fixture, "p").await;
    make_plain(fixture, "q").await;
    register(fixture, &["bob"]).await;
    let kept = i64::try_from(ID_KEPT_MS).unwrap();
    for stage in Stage::ALL {
        let with_id = |text| QueueSend { message_id: Some("m1"), ..message("q", text) };
        let start = now(fixture);
        let id = send(fixture, with_id("x")).await;
        let again = QueueOutcome::Sent { id, copies: 1, sent_at: start, duplicate: true };
        advance_ms(fixture, 2 * kept);
        stage.reach(fixture).await;
        assert_eq!(done(fixture, QueueOp::Send(with_id("x"))).await, again, "{stage:?}: while it waits");
        for other in [
            with_id("y"),
            QueueSend { sender: "eve", ..with_id("x") },
            QueueSend { audience: Audience::One("bob"), ..with_id("x") },
        ] {
            let reused = refused(fixture, QueueOp::Send(other)).await;
            assert_eq!(reused, Refusal::MessageIdReused { id }, "{stage:?}: {other:?}");
        }
        let elsewhere = send(fixture, QueueSend { queue: "p", ..with_id("x") }).await;
        assert_ne!(elsewhere, id, "{stage:?}: ids are the queue's own");
        assert_eq!(get(fixture, wanted("q", "bob"), 9).await.len(), 1, "{stage:?}");
        get(fixture, wanted("p", "bob"), 9).await;
        advance_ms(fixture, kept - 1);
        stage.reach(fixture).await;
        assert_eq!(done(fixture, QueueOp::Send(with_id("x"))).await, again, "{stage:?}: after it");
        assert_eq!(info(fixture, "q").await.messages(), 0, "{stage:?}");
        advance_ms(fixture, 2);
        stage.reach(fixture).await;
        sweep(fixture).await;
        let anew = send(fixture, with_id("y")).await;
        assert!(anew > id, "{stage:?}: forgotten by now");
        get(fixture, wanted("q", "bob"), 9).await;
        advance_ms(fixture, kept + 1);
        sweep(fixture).await;
    }
}

/// Of two equal ids in a batch the second is the repeat; without ids nothing is one.
pub async fn only_ids_make_repeats(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    let same = QueueOp::Send(QueueSend { message_id: Some("m"), ..message("q", "x") });
    let plain = QueueOp::Send(message("q", "x"));
    let outcomes = batch(fixture, &[same, same, plain, plain]).await;
    let repeats: Vec<_> = outcomes
        .iter()
        .map(|outcome| match outcome {
            hubbub_core::Outcome::Queue(QueueOutcome::Sent { duplicate, .. }) => *duplicate,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(repeats, [false, true, false, false]);
    assert_eq!(info(fixture, "q").await.ready, 3);
}

/// Ids are remembered for their time, whatever goes through other queues meanwhile, and of dead letters, too.
pub async fn an_id_is_remembered_however_many_there_are(fixture: &mut impl Fixture) {
    const OTHERS: usize = 150;
    let limited = QueueSettings { deliveries_max: Some(1), ..QueueSettings::default() };
    for queue in ["q", "other"] {
        make_plain(fixture, queue).await;
    }
    let kept = i64::try_from(ID_KEPT_MS).unwrap();
    let with_id = |text| QueueSend { message_id: Some("m"), ..message("q", text) };
    let bad = QueueSend { message_id: Some("bad"), ..message("limited", "bad") };
    for stage in Stage::ALL {
        make(fixture, "limited", limited.clone()).await;
        let id = send(fixture, with_id("1")).await;
        let dead = send(fixture, bad).await;
        let held = lease_one(fixture, wanted("limited", "bob"), 1_000).await;
        done(fixture, settle(&held, Settle::Nack { delay_ms: None })).await;
        get(fixture, wanted("q", "bob"), 9).await;
        done(fixture, QueueOp::Delete { queue: "limited.dead", force: true }).await;
        for round in 0..8 {
            let ids: Vec<String> = (0..OTHERS).map(|at| format!("{round} {at}")).collect();
            let sends = ids.iter().map(|id| {
                QueueOp::Send(QueueSend { message_id: Some(id), ..message("other", "something else") })
            });
            batch(fixture, &sends.collect::<Vec<_>>()).await;
            assert_eq!(get(fixture, wanted("other", "bob"), OTHERS).await.len(), OTHERS, "{stage:?}");
            stage.reach(fixture).await;
            advance_ms(fixture, 1_000);
        }
        advance_ms(fixture, kept - 8_001);
        for (sent, id) in [(with_id("1"), id), (bad, dead)] {
            let again = done(fixture, QueueOp::Send(sent)).await;
            let is_known = matches!(again, QueueOutcome::Sent { id: told, duplicate: true, copies: 1, .. } if told == id);
            assert!(is_known, "{stage:?}: {again:?}");
        }
        let reused = refused(fixture, QueueOp::Send(with_id("2"))).await;
        assert_eq!(reused, Refusal::MessageIdReused { id }, "{stage:?}");
        advance_ms(fixture, 1);
        assert!(send(fixture, with_id("2")).await > id, "{stage:?}: it is forgotten");
        stage.reach(fixture).await;
        let again = done(fixture, QueueOp::Send(with_id("2"))).await;
        assert!(matches!(again, QueueOutcome::Sent { duplicate: true, .. }), "{stage:?}: {again:?}");
        get(fixture, wanted("q", "bob"), 9).await;
        // Nothing of this round is remembered in the next.
        advance_ms(fixture, kept + 60_000);
        done(fixture, QueueOp::Delete { queue: "limited", force: true }).await;
    }
}

/// A full queue refuses, or drops its oldest, as it was told.
pub async fn a_full_queue_does_as_it_was_told(fixture: &mut impl Fixture) {
    let by_count = QueueSettings { messages_max: Some(2), ..QueueSettings::default() };
    let by_bytes = QueueSettings { bytes_max: Some(10), ..QueueSettings::default() };
    let rolling = QueueSettings {
        messages_max: Some(2),
        when_full: Some(WhenFull::DropOldest),
        ..QueueSettings::default()
    };
    make(fixture, "count", by_count).await;
    make(fixture, "bytes", by_bytes).await;
    make(fixture, "roll", rolling).await;
    for stage in Stage::ALL {
        for queue in ["count", "bytes", "roll"] {
            send(fixture, message(queue, "12345")).await;
            send(fixture, message(queue, "67890")).await;
        }
        stage.reach(fixture).await;
        for queue in ["count", "bytes"] {
            let full = refused(fixture, QueueOp::Send(message(queue, "x"))).await;
            assert_eq!(full, Refusal::QueueFull, "{stage:?}");
            get(fixture, wanted(queue, "bob"), 1).await;
            send(fixture, message(queue, "x")).await;
            assert_eq!(texts(&get(fixture, wanted(queue, "bob"), 9).await), ["67890", "x"], "{stage:?}");
        }
        let held = lease_one(fixture, wanted("roll", "bob"), 60_000).await;
        send(fixture, message("roll", "x")).await;
        assert_eq!(
            texts(&peek(fixture, wanted("roll", "bob"), 9).await),
            ["x"],
            "{stage:?}: leases are kept"
        );
        done(fixture, QueueOp::Remove { queue: "roll", id: held.id }).await;
        send(fixture, message("roll", "y")).await;
        send(fixture, message("roll", "z")).await;
        stage.reach(fixture).await;
        assert_eq!(texts(&get(fixture, wanted("roll", "bob"), 9).await), ["y", "z"], "{stage:?}");
    }
    assert_eq!(info(fixture, "roll").await.dropped, 8);
}

/// Large texts and many messages come back whole, in takes of bounded size.
pub async fn many_messages_come_back(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    let large = "ü\n".repeat(100_000);
    send(fixture, message("q", &large)).await;
    let total = 2 * TAKE_MAX + 7;
    let numbers: Vec<String> = (0..total).map(|n| n.to_string()).collect();
    for some in numbers.chunks(500) {
        let ops: Vec<_> = some.iter().map(|text| QueueOp::Send(message("q", text))).collect();
        batch(fixture, &ops).await;
    }
    fixture.seal_all().await;
    fixture.restart(true).await;
    let first = get(fixture, wanted("q", "bob"), 1).await;
    assert!(first[0].text == large);
    let mut all = Vec::new();
    loop {
        let taken = get(fixture, wanted("q", "bob"), usize::MAX).await;
        assert!(taken.len() <= TAKE_MAX);
        if taken.is_empty() {
            break;
        }
        all.extend(taken.into_iter().map(|one| one.text));
    }
    assert_eq!(all, numbers);
}
