//! Servers that share a database, and operations on their queues.

use std::sync::Arc;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::queue::{
    Delivery, QueueInfo, QueueOutcome, QueueSend, QueueSettings, Settle, Take, TakeFilter, TakeMode,
};
use hubbub_core::{Op, OpBatch, Outcome, QueueId, QueueOp, QueueStore, Store, Timestamp};
use hubbub_postgres::{BroadcastOptions, Postgres, PostgresOptions};

use super::Database;

pub const START: i64 = 1_700_000_000_000_000;

pub struct Servers {
    pub stores: Vec<Arc<Postgres>>,
    pub clocks: Vec<Arc<ManualClock>>,
    pub database: Database,
}

pub async fn servers(count: usize) -> Servers {
    servers_with(count, BroadcastOptions::default()).await
}

pub async fn servers_with(count: usize, broadcasts: BroadcastOptions) -> Servers {
    let database = Database::fresh().await;
    let (mut stores, mut clocks) = (Vec::new(), Vec::new());
    for number in 0..count {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START)));
        let random = SeededRandom::new(number as u64);
        let options = PostgresOptions { broadcasts, ..PostgresOptions::new(&database.url) };
        stores.push(Arc::new(Postgres::open(options, clock.clone(), &random).await.unwrap()));
        clocks.push(clock);
    }
    Servers { stores, clocks, database }
}

pub fn apply(store: &Postgres, ops: &[QueueOp<'_>]) -> Vec<Outcome> {
    let mut batch = OpBatch::default();
    ops.iter().for_each(|op| batch.push(&Op::Queue(*op)));
    store.apply(&batch).unwrap()
}

pub fn done(store: &Postgres, op: QueueOp<'_>) -> QueueOutcome {
    match apply(store, &[op]).remove(0) {
        Outcome::Queue(outcome) => outcome,
        other => panic!("{op:?} was answered {other:?}"),
    }
}

pub fn make(store: &Postgres, queue: &str) {
    done(store, QueueOp::Put { queue, settings: &QueueSettings::default() });
}

pub fn send(store: &Postgres, message: QueueSend<'_>) -> u64 {
    match done(store, QueueOp::Send(message)) {
        QueueOutcome::Sent { id, .. } => id,
        other => panic!("{other:?}"),
    }
}

pub fn take<'a>(queue: &'a str, receiver: &'a str, max: usize, lease_ms: Option<u64>) -> QueueOp<'a> {
    let how = if lease_ms.is_some() { TakeMode::Lease { lease_ms } } else { TakeMode::Away };
    let wanted =
        TakeFilter { queue: Some(queue), receiver: Some(receiver), sender: None, newest_first: false };
    QueueOp::Take(Take { wanted, max, how, registers: true })
}

pub fn taken(outcome: QueueOutcome) -> Vec<Delivery> {
    match outcome {
        QueueOutcome::Taken { messages, .. } => messages.into_vec(),
        other => panic!("{other:?}"),
    }
}

pub fn settle(delivery: &Delivery, how: Settle) -> QueueOp<'_> {
    let receipt = delivery.receipt.unwrap_or_else(|| panic!("{delivery:?} is on lease"));
    QueueOp::Settle { queue: &delivery.queue, receipt, how }
}

pub fn texts(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.text.as_str()).collect()
}

pub async fn info(store: &Postgres, queue: &str) -> QueueInfo {
    store.queue(QueueId::new(queue).unwrap()).await.unwrap().unwrap()
}
