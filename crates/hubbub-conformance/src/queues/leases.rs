//! Taking on lease, giving back, giving up.

use hubbub_core::queue::{
    DeadReason, Delivery, LeaseReceipt, QueueSettings, Settle, TakeFilter, epoch_number,
};
use hubbub_core::{QueueOp, QueueOutcome, Refusal};

use super::super::Fixture;
use super::super::steps::Stage;
use super::steps::*;

const ACK: Settle = Settle::Ack;

/// A lease hides a message from all others until it is settled.
pub async fn a_lease_is_one_takers(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    for stage in Stage::ALL {
        send(fixture, message("q", "1")).await;
        send(fixture, message("q", "2")).await;
        let start = now(fixture);
        let held = lease_one(fixture, wanted("q", "bob"), 10_000).await;
        assert_eq!((held.text.as_str(), held.deliveries), ("1", 1), "{stage:?}");
        assert_eq!(held.leased_until, Some(later(start, 10_000)), "{stage:?}");
        stage.reach(fixture).await;
        assert_eq!(texts(&peek(fixture, wanted("q", "eve"), 9).await), ["2"], "{stage:?}");
        assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), ["2"], "{stage:?}");
        let acked = done(fixture, settle(&held, ACK)).await;
        assert_eq!(acked, settled(None), "{stage:?}");
        assert_eq!(refused(fixture, settle(&held, ACK)).await, Refusal::StaleReceipt, "{stage:?}");
        stage.reach(fixture).await;
        advance_ms(fixture, 20_000);
        assert_eq!(waiting(fixture, "q").await, [], "{stage:?}");
    }
    let told = info(fixture, "q").await;
    assert_eq!((told.sent, told.done, told.leased), (8, 8, 0));
}

/// A lease that ran out returns the message, at its old position, and makes the receipt stale.
pub async fn a_lease_that_ran_out_returns_the_message(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    for stage in Stage::ALL {
        send(fixture, message("q", "1")).await;
        send(fixture, message("q", "2")).await;
        let held = lease_one(fixture, wanted("q", "bob"), 10_000).await;
        advance_ms(fixture, 4_000);
        stage.reach(fixture).await;
        advance_ms(fixture, 5_999);
        assert_eq!(texts(&peek(fixture, wanted("q", "eve"), 9).await), ["2"], "{stage:?}");
        let due = fixture.store().queue_due_in().unwrap();
        assert!(due.as_micros() <= 1_000, "{stage:?}: {due:?}");
        advance_ms(fixture, 1);
        assert_eq!(texts(&peek(fixture, wanted("q", "eve"), 9).await), ["1", "2"], "{stage:?}");
        assert!(sweep(fixture).await.iter().any(|queue| &**queue == "q"), "{stage:?}");
        for how in [ACK, Settle::Nack { delay_ms: None }, Settle::Extend { lease_ms: None }] {
            assert_eq!(
                refused(fixture, settle(&held, how)).await,
                Refusal::StaleReceipt,
                "{stage:?} {how:?}"
            );
        }
        let again = lease_one(fixture, wanted("q", "eve"), 10_000).await;
        assert_eq!((again.id, again.deliveries), (held.id, 2), "{stage:?}");
        assert_eq!(refused(fixture, settle(&held, ACK)).await, Refusal::StaleReceipt, "{stage:?}");
        stage.reach(fixture).await;
        assert_eq!(refused(fixture, settle(&held, ACK)).await, Refusal::StaleReceipt, "{stage:?}");
        done(fixture, settle(&again, ACK)).await;
        get(fixture, wanted("q", "bob"), 1).await;
    }
}

/// A lease is extended from now on, also over a restart.
pub async fn a_lease_is_extended(fixture: &mut impl Fixture) {
    let settings = QueueSettings { lease_ms: Some(3_000), ..QueueSettings::default() };
    make(fixture, "q", settings).await;
    for stage in Stage::ALL {
        send(fixture, message("q", "1")).await;
        let held = lease_one(fixture, wanted("q", "bob"), 10_000).await;
        advance_ms(fixture, 9_000);
        let start = now(fixture);
        let longer = done(fixture, settle(&held, Settle::Extend { lease_ms: Some(20_000) })).await;
        assert_eq!(longer, settled(Some(later(start, 20_000))), "{stage:?}");
        stage.reach(fixture).await;
        advance_ms(fixture, 19_999);
        assert_eq!(peek(fixture, wanted("q", "bob"), 9).await, [], "{stage:?}");
        let start = now(fixture);
        let default = done(fixture, settle(&held, Settle::Extend { lease_ms: None })).await;
        assert_eq!(default, settled(Some(later(start, 3_000))), "{stage:?}");
        stage.reach(fixture).await;
        advance_ms(fixture, 3_000);
        assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), ["1"], "{stage:?}");
    }
}

/// What is given back waits again: at once, after a delay, or after a backoff that grows.
pub async fn what_is_given_back_waits_again(fixture: &mut impl Fixture) {
    make_plain(fixture, "plain").await;
    let backing_off =
        QueueSettings { backoff_ms: Some(1_000), backoff_max_ms: Some(3_000), ..QueueSettings::default() };
    make(fixture, "slow", backing_off).await;
    let nack = |delay_ms| Settle::Nack { delay_ms };
    for stage in Stage::ALL {
        send(fixture, message("plain", "1")).await;
        let held = lease_one(fixture, wanted("plain", "bob"), 10_000).await;
        done(fixture, settle(&held, nack(None))).await;
        stage.reach(fixture).await;
        assert_eq!(refused(fixture, settle(&held, ACK)).await, Refusal::StaleReceipt, "{stage:?}");
        let held = lease_one(fixture, wanted("plain", "bob"), 10_000).await;
        assert_eq!(held.deliveries, 2, "{stage:?}");
        let start = now(fixture);
        let told = done(fixture, settle(&held, nack(Some(5_000)))).await;
        assert_eq!(told, settled(Some(later(start, 5_000))), "{stage:?}");
        stage.reach(fixture).await;
        advance_ms(fixture, 4_999);
        assert_eq!(peek(fixture, wanted("plain", "bob"), 9).await, [], "{stage:?}");
        advance_ms(fixture, 1);
        assert_eq!(get(fixture, wanted("plain", "bob"), 9).await.len(), 1, "{stage:?}");

        send(fixture, message("slow", "1")).await;
        for wait in [1_000, 2_000, 3_000, 3_000] {
            let held = lease_one(fixture, wanted("slow", "bob"), 10_000).await;
            done(fixture, settle(&held, nack(None))).await;
            advance_ms(fixture, wait - 1);
            assert_eq!(peek(fixture, wanted("slow", "bob"), 9).await, [], "{stage:?}: {wait}");
            advance_ms(fixture, 1);
        }
        assert_eq!(get(fixture, wanted("slow", "bob"), 9).await.len(), 1, "{stage:?}");
    }
}

/// What is delivered too often goes to the dead-letter queue, which knows why and from where, and back when asked.
pub async fn poison_goes_to_the_dead_letter_queue(fixture: &mut impl Fixture) {
    let limited = QueueSettings { deliveries_max: Some(2), ..QueueSettings::default() };
    make(fixture, "q", limited).await;
    assert!(info(fixture, "q.dead").await.is_dead_letter && !info(fixture, "q").await.is_dead_letter);
    for stage in Stage::ALL {
        let poison = send(fixture, message("q", "poison")).await;
        send(fixture, message("q", "good")).await;
        for _ in 0..2 {
            let held = lease_one(fixture, wanted("q", "bob"), 10_000).await;
            assert_eq!(held.id, poison, "{stage:?}");
            done(fixture, settle(&held, Settle::Nack { delay_ms: None })).await;
        }
        stage.reach(fixture).await;
        assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), ["good"], "{stage:?}");
        send(fixture, message("q", "lost")).await;
        for _ in 0..2 {
            assert_eq!(lease_one(fixture, wanted("q", "bob"), 1_000).await.text, "lost", "{stage:?}");
            advance_ms(fixture, 1_000);
        }
        assert_eq!(get(fixture, wanted("q", "bob"), 9).await, [], "{stage:?}: a third delivery");
        stage.reach(fixture).await;
        sweep(fixture).await;
        stage.reach(fixture).await;
        let dead = peek(fixture, wanted("q.dead", "doctor"), 9).await;
        assert_eq!(texts(&dead), ["poison", "lost"], "{stage:?}");
        let why: Vec<_> = dead.iter().map(|one| one.dead.clone().unwrap()).collect();
        assert!(why.iter().all(|why| &*why.origin == "q" && why.deliveries == 2), "{stage:?}: {why:?}");
        let reasons: Vec<_> = why.iter().map(|why| why.reason).collect();
        assert_eq!(reasons, [DeadReason::Rejected, DeadReason::LeaseExpired], "{stage:?}");
        assert_eq!(info(fixture, "q").await.messages(), 0, "{stage:?}");

        let moved = done(fixture, QueueOp::Redrive { queue: "q.dead", id: Some(dead[1].id) }).await;
        let expected = QueueOutcome::Redriven { messages: 1, more: false, ready: Box::new(["q".into()]) };
        assert_eq!(moved, expected, "{stage:?}");
        stage.reach(fixture).await;
        let again = lease_one(fixture, wanted("q", "bob"), 1_000).await;
        assert_eq!((again.text.as_str(), again.deliveries, again.dead), ("lost", 1, None), "{stage:?}");
        done(fixture, QueueOp::Remove { queue: "q", id: again.id }).await;
        let moved = done(fixture, QueueOp::Redrive { queue: "q.dead", id: None }).await;
        assert!(
            matches!(moved, QueueOutcome::Redriven { messages: 1, more: false, .. }),
            "{stage:?}: {moved:?}"
        );
        assert_eq!(texts(&get(fixture, wanted("q", "bob"), 9).await), ["poison"], "{stage:?}");
        assert_eq!(info(fixture, "q.dead").await.messages(), 0, "{stage:?}");
    }
    assert_eq!(info(fixture, "q").await.dead, 8);
}

/// Receipts count on wherever a message goes, over restarts, too: each is good for its own delivery and for no other.
pub async fn a_receipt_names_one_delivery(fixture: &mut impl Fixture) {
    let epoch = epoch_number(&fixture.store().epoch());
    for stage in Stage::ALL {
        let settings = || QueueSettings { deliveries_max: Some(2), ..QueueSettings::default() };
        make(fixture, "q", settings()).await;
        let id = send(fixture, message("q", "1")).await;
        let mut held: Vec<Delivery> = Vec::new();
        for queue in ["q", "q", "q.dead", "q", "q", "q.dead", "q"] {
            let from_dead_letters = queue == "q" && held.last().is_some_and(|last| &*last.queue == "q.dead");
            if from_dead_letters {
                done(fixture, QueueOp::Redrive { queue: "q.dead", id: None }).await;
                stage.reach(fixture).await;
            }
            let next = lease_one(fixture, wanted(queue, "bob"), 10_000).await;
            let delivery = held.len() as u64 + 1;
            assert_eq!(next.receipt, Some(LeaseReceipt { id, delivery, epoch }), "{stage:?}");
            for old in &held {
                for queue in ["q", "q.dead"] {
                    let ack = QueueOp::Settle { queue, receipt: old.receipt.unwrap(), how: ACK };
                    assert_eq!(refused(fixture, ack).await, Refusal::StaleReceipt, "{stage:?}: {old:?}");
                }
            }
            stage.reach(fixture).await;
            if delivery < 7 {
                done(fixture, settle(&next, Settle::Nack { delay_ms: Some(0) })).await;
            }
            held.push(next);
        }
        let last = held.pop().unwrap();
        let LeaseReceipt { delivery, .. } = last.receipt.unwrap();
        for receipt in [
            LeaseReceipt { id, delivery, epoch: epoch ^ 1 },
            LeaseReceipt { id, delivery: last.deliveries.into(), epoch },
            LeaseReceipt { id, delivery: delivery + 1, epoch },
        ] {
            let ack = QueueOp::Settle { queue: "q", receipt, how: ACK };
            assert_eq!(refused(fixture, ack).await, Refusal::StaleReceipt, "{stage:?}: {receipt:?}");
        }
        let shown = waiting(fixture, "q").await;
        assert_eq!(shown[0].delivery.receipt, None, "{stage:?}: it belongs to the taker alone");
        done(fixture, settle(&last, ACK)).await;
        for queue in ["q", "q.dead"] {
            done(fixture, QueueOp::Delete { queue, force: true }).await;
        }
    }
}

/// Dead letters go where they are told to; those whose queue is gone stay.
pub async fn dead_letters_can_share_a_queue(fixture: &mut impl Fixture) {
    let limited = || QueueSettings {
        deliveries_max: Some(1),
        dead_letter: Some("morgue".into()),
        ..QueueSettings::default()
    };
    make(fixture, "a", limited()).await;
    make(fixture, "b", limited()).await;
    register(fixture, &["bob", "eve"]).await;
    for (queue, receiver) in [("a", "bob"), ("b", "eve")] {
        send(fixture, message_for(queue, receiver, queue)).await;
        let held = lease_one(fixture, wanted(queue, receiver), 1_000).await;
        let gone = done(fixture, settle(&held, Settle::Nack { delay_ms: Some(1) })).await;
        assert_eq!(gone, settled(None));
    }
    done(fixture, QueueOp::Delete { queue: "a", force: false }).await;
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let all = waiting(fixture, "morgue").await;
        let origins: Vec<_> =
            all.iter().map(|one| one.delivery.dead.as_ref().unwrap().origin.to_string()).collect();
        assert_eq!(origins, ["a", "b"], "{stage:?}");
        assert_eq!(texts(&peek(fixture, wanted("morgue", "eve"), 9).await), ["b"], "{stage:?}: still eve's");
        let anybody = TakeFilter { receiver: None, ..wanted("morgue", "eve") };
        assert_eq!(peek(fixture, anybody, 9).await, [], "{stage:?}");
    }
    let moved = done(fixture, QueueOp::Redrive { queue: "morgue", id: None }).await;
    assert!(matches!(moved, QueueOutcome::Redriven { messages: 1, more: false, .. }), "{moved:?}");
    assert_eq!(texts(&peek(fixture, wanted("b", "eve"), 9).await), ["b"]);
    assert_eq!(waiting(fixture, "morgue").await.len(), 1);
}

/// Leases count down by what was asked for, or by the wall clock, whichever ends sooner.
pub async fn a_restart_does_not_prolong_a_lease(fixture: &mut impl Fixture) {
    make_plain(fixture, "q").await;
    send(fixture, message("q", "1")).await;
    lease_one(fixture, wanted("q", "bob"), 10_000).await;
    // The clock steps back an hour while the server is down.
    fixture.clock().advance_micros(-3_600 * SECOND);
    fixture.restart(true).await;
    advance_ms(fixture, 9_999);
    assert_eq!(peek(fixture, wanted("q", "bob"), 9).await, []);
    advance_ms(fixture, 1);
    assert_eq!(peek(fixture, wanted("q", "bob"), 9).await.len(), 1);
}
