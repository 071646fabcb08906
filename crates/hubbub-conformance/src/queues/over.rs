//! What is over: lives, last deliveries, and the numbers of queues.

use hubbub_core::queue::{DeadReason, QueueSend, QueueSettings};
use hubbub_core::{QueueOp, QueueOutcome, Refusal};

use super::super::Fixture;
use super::super::steps::Stage;
use super::steps::*;

/// A message whose last delivery ended with its lease is a dead letter, though it outlived its time meanwhile. One that has
/// deliveries left is gone, like one that nobody took.
pub async fn the_last_lease_outlives_a_life(fixture: &mut impl Fixture) {
    let limited = |max| QueueSettings { deliveries_max: Some(max), ..QueueSettings::default() };
    make(fixture, "once", limited(1)).await;
    make(fixture, "twice", limited(2)).await;
    for (round, stage) in (1..).zip(Stage::ALL) {
        for queue in ["once", "twice"] {
            for text in ["taken", "never taken"] {
                let group = (round % 2 == 0).then_some("g");
                send(fixture, QueueSend { ttl_ms: Some(60_000), group, ..message(queue, text) }).await;
            }
        }
        advance_ms(fixture, 50_000);
        for queue in ["once", "twice"] {
            lease_one(fixture, wanted(queue, "bob"), 30_000).await;
        }
        advance_ms(fixture, 20_000);
        stage.reach(fixture).await;
        sweep(fixture).await;
        assert_eq!(info(fixture, "once").await.leased, 1, "{stage:?}: a lease goes on to its end");
        advance_ms(fixture, 10_000);
        stage.reach(fixture).await;
        for queue in ["once", "twice"] {
            assert_eq!(peek(fixture, wanted(queue, "bob"), 9).await, [], "{stage:?}");
        }
        sweep(fixture).await;
        let dead = get(fixture, wanted("once.dead", "bob"), 9).await;
        assert_eq!(texts(&dead), ["taken"], "{stage:?}");
        let why = dead[0].dead.as_ref().unwrap();
        assert_eq!((&*why.origin, why.reason, why.deliveries), ("once", DeadReason::LeaseExpired, 1));
        assert_eq!(waiting(fixture, "twice.dead").await, [], "{stage:?}");
        for (queue, dead, dropped) in [("once", round, round), ("twice", 0, 2 * round)] {
            let told = info(fixture, queue).await;
            assert_eq!((told.messages(), told.dead, told.dropped), (0, dead, dropped), "{stage:?}: {queue}");
        }
    }
}

/// However many messages are over that nobody has cleared away, what waits behind them is found.
pub async fn what_waits_behind_expired_messages_is_found(fixture: &mut impl Fixture) {
    const OVER: usize = 2_600;
    for queue in ["got", "seen"] {
        make_plain(fixture, queue).await;
        let over = QueueOp::Send(QueueSend { ttl_ms: Some(1_000), ..message(queue, "over") });
        for _ in 0..OVER / 200 {
            batch(fixture, &[over; 200]).await;
        }
        send(fixture, message(queue, "live")).await;
    }
    advance_ms(fixture, 1_000);
    assert_eq!(texts(&get(fixture, wanted("got", "bob"), 9).await), ["live"]);
    assert_eq!(texts(&peek(fixture, wanted("seen", "bob"), 9).await), ["live"]);
    sweep(fixture).await;
    for (queue, left) in [("got", 0), ("seen", 1)] {
        let told = info(fixture, queue).await;
        assert_eq!((told.messages(), told.dropped), (left, OVER as u64), "{queue}");
    }
}

/// Behind the highest number no further queue is given one, least of all one that is there.
pub async fn numbers_of_queues_end(fixture: &mut impl Fixture) {
    make_plain(fixture, "999999999999999998").await;
    let last = done(fixture, QueueOp::PutNumbered).await;
    assert_eq!(last, QueueOutcome::Queue { queue: "999999999999999999".into(), created: true });
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        assert_eq!(refused(fixture, QueueOp::PutNumbered).await, Refusal::NoQueueNumber, "{stage:?}");
    }
    done(fixture, QueueOp::Delete { queue: "999999999999999999", force: false }).await;
    assert_eq!(refused(fixture, QueueOp::PutNumbered).await, Refusal::NoQueueNumber);
}
