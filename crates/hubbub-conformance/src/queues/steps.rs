//! What cases are made of.

use std::sync::Arc;

use hubbub_core::queue::{
    Audience, Delivery, Due, LeaseReceipt, QueueInfo, QueueSend, QueueSettings, Settle, Take, TakeFilter,
    TakeMode, Waiting,
};
use hubbub_core::{ClientId, Op, OpBatch, Outcome, QueueId, QueueOp, QueueOutcome, Refusal, Timestamp};

use super::super::Fixture;

pub(super) const SECOND: i64 = 1_000_000;

pub(super) fn queue_id(queue: &str) -> QueueId {
    QueueId::new(queue).unwrap()
}

pub(super) fn client_id(client: &str) -> ClientId {
    ClientId::new(client).unwrap()
}

/// Applies one batch.
pub(super) async fn batch(fixture: &impl Fixture, ops: &[QueueOp<'_>]) -> Vec<Outcome> {
    let mut batch = OpBatch::default();
    ops.iter().for_each(|op| batch.push(&Op::Queue(*op)));
    let store = fixture.store();
    let outcomes = tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap();
    let outcomes = outcomes.unwrap_or_else(|error| panic!("{ops:?} was not applied: {error}"));
    assert_eq!(outcomes.len(), ops.len(), "there must be one outcome for each operation");
    outcomes
}

pub(super) async fn one(fixture: &impl Fixture, op: QueueOp<'_>) -> Outcome {
    batch(fixture, &[op]).await.remove(0)
}

/// What an operation comes to that must not be refused.
pub(super) async fn done(fixture: &impl Fixture, op: QueueOp<'_>) -> QueueOutcome {
    match one(fixture, op).await {
        Outcome::Queue(outcome) => without_freed(outcome),
        other => panic!("{op:?} was answered {other:?}"),
    }
}

/// The same without what may be taken by others now, of which takes tell more.
pub(super) fn without_freed(mut outcome: QueueOutcome) -> QueueOutcome {
    if let Some(freed) = outcome.freed_mut() {
        *freed = Box::default();
    }
    outcome
}

pub(super) fn settled(until: Option<Timestamp>) -> QueueOutcome {
    QueueOutcome::Settled { until, ready: Box::default() }
}

pub(super) fn deleted(messages: u64) -> QueueOutcome {
    QueueOutcome::Deleted { messages, ready: Box::default() }
}

pub(super) async fn refused(fixture: &impl Fixture, op: QueueOp<'_>) -> Refusal {
    match one(fixture, op).await {
        Outcome::Refused(refusal) => refusal,
        other => panic!("{op:?} must be refused, but was answered {other:?}"),
    }
}

/// Makes a queue with settings.
pub(super) async fn make(fixture: &impl Fixture, queue: &str, settings: QueueSettings) {
    let made = done(fixture, QueueOp::Put { queue, settings: &settings }).await;
    assert!(matches!(made, QueueOutcome::Queue { .. }), "{made:?}");
}

pub(super) async fn make_plain(fixture: &impl Fixture, queue: &str) {
    make(fixture, queue, QueueSettings::default()).await;
}

pub(super) async fn register(fixture: &impl Fixture, clients: &[&str]) {
    for client in clients {
        done(fixture, QueueOp::Register { client }).await;
    }
}

/// A message for anybody, from a sender that registers with it.
pub fn message<'a>(queue: &'a str, text: &'a str) -> QueueSend<'a> {
    QueueSend {
        queue,
        sender: "ada",
        audience: Audience::Anyone,
        text,
        message_id: None,
        due: Due::Now,
        group: None,
        ttl_ms: None,
        registers: true,
    }
}

pub(super) fn message_for<'a>(queue: &'a str, receiver: &'a str, text: &'a str) -> QueueSend<'a> {
    QueueSend { audience: Audience::One(receiver), ..message(queue, text) }
}

/// Sends one message and says its id, or that of its first copy.
pub(super) async fn send(fixture: &impl Fixture, sent: QueueSend<'_>) -> u64 {
    match done(fixture, QueueOp::Send(sent)).await {
        QueueOutcome::Sent { id, duplicate: false, .. } => id,
        other => panic!("{sent:?} is new, but was answered {other:?}"),
    }
}

/// Whatever `receiver` may have of a queue, oldest first.
pub(super) fn wanted<'a>(queue: &'a str, receiver: &'a str) -> TakeFilter<'a> {
    TakeFilter { queue: Some(queue), receiver: Some(receiver), sender: None, newest_first: false }
}

async fn take(fixture: &impl Fixture, wanted: TakeFilter<'_>, max: usize, how: TakeMode) -> Vec<Delivery> {
    match done(fixture, QueueOp::Take(Take { wanted, max, how, registers: true })).await {
        QueueOutcome::Taken { messages, .. } => messages.into_vec(),
        other => panic!("a take was answered {other:?}"),
    }
}

/// Takes away up to `max`.
pub(super) async fn get(fixture: &impl Fixture, wanted: TakeFilter<'_>, max: usize) -> Vec<Delivery> {
    take(fixture, wanted, max, TakeMode::Away).await
}

/// Takes up to `max` on lease.
pub(super) async fn lease(
    fixture: &impl Fixture,
    wanted: TakeFilter<'_>,
    max: usize,
    lease_ms: u64,
) -> Vec<Delivery> {
    take(fixture, wanted, max, TakeMode::Lease { lease_ms: Some(lease_ms) }).await
}

/// Takes one on lease that must be there.
pub(super) async fn lease_one(fixture: &impl Fixture, wanted: TakeFilter<'_>, lease_ms: u64) -> Delivery {
    let mut taken = lease(fixture, wanted, 1, lease_ms).await;
    assert_eq!(taken.len(), 1, "there must be one to take of {wanted:?}");
    taken.remove(0)
}

pub(super) fn receipt(delivery: &Delivery) -> LeaseReceipt {
    delivery.receipt.unwrap_or_else(|| panic!("{delivery:?} must have a receipt"))
}

pub(super) fn settle<'a>(delivery: &'a Delivery, how: Settle) -> QueueOp<'a> {
    QueueOp::Settle { queue: &delivery.queue, receipt: receipt(delivery), how }
}

pub(super) fn texts(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.text.as_str()).collect()
}

pub(super) async fn peek(fixture: &impl Fixture, wanted: TakeFilter<'_>, max: usize) -> Vec<Delivery> {
    fixture.store().peek(wanted, max).await.unwrap().unwrap()
}

pub(super) async fn info(fixture: &impl Fixture, queue: &str) -> QueueInfo {
    fixture.store().queue(queue_id(queue)).await.unwrap().unwrap_or_else(|| panic!("there is no {queue}"))
}

/// Everything in a queue.
pub(super) async fn waiting(fixture: &impl Fixture, queue: &str) -> Vec<Waiting> {
    fixture.store().waiting(queue_id(queue), 0, 100_000).await.unwrap().unwrap()
}

/// Ends what has run out, and says which queues may have something new.
pub(super) async fn sweep(fixture: &impl Fixture) -> Vec<Arc<str>> {
    let mut all = Vec::new();
    loop {
        match done(fixture, QueueOp::Sweep).await {
            QueueOutcome::Swept { more, ready } => {
                all.extend(ready);
                if !more {
                    return all;
                }
            }
            other => panic!("a sweep was answered {other:?}"),
        }
    }
}

pub(super) fn advance_ms(fixture: &impl Fixture, ms: i64) {
    fixture.clock().advance_micros(ms * 1_000);
}

pub(super) fn now(fixture: &impl Fixture) -> Timestamp {
    use hubbub_core::Clock;
    fixture.clock().now()
}

pub(super) fn later(time: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_micros(time.as_micros() + ms * 1_000)
}
