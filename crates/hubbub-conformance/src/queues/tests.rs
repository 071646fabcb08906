//! The suite for queues itself: the model as a store passes the random run, and every kind of wrong one is found by it.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::queue::{
    DeadLetter, Delivery, MessageState, QueueInfo, Take, TakeFilter, TakeMode, Waiting, epoch_number,
};
use hubbub_core::store::Read;
use hubbub_core::{
    ClientId, Clock, Outcome, QueueId, QueueOp, QueueOutcome, QueueRules, QueueStore, RoomStore, Timestamp,
};

use super::super::tests::{Flaw, InMemory, Memory};
use super::model::{Model, Msg, State};
use super::random;

const FLAWS: [Flaw; 10] = [
    Flaw::QueueCopiesToSender,
    Flaw::QueueDelaysAreIgnored,
    Flaw::QueueDropsDeadLetters,
    Flaw::QueueForgetsLeases,
    Flaw::QueueGroupsRunAhead,
    Flaw::QueueLeasesEndLate,
    Flaw::QueueOrderIsLost,
    Flaw::QueueReceiptsComeBack,
    Flaw::QueueStaleReceiptsAck,
    Flaw::QueueTakenComesBack,
];

/// One operation, done as the flaw will have it.
pub(crate) fn apply(store: &InMemory, op: QueueOp<'_>) -> Outcome {
    let mut model = store.queues.lock();
    let now = store.clock.now().as_micros();
    model.epoch = epoch_number(&store.epoch());
    if op == QueueOp::Sweep {
        model.sweep(now);
        return Outcome::Queue(QueueOutcome::Swept { more: false, ready: Box::default() });
    }
    let before = model.clone();
    let outcome = match op {
        QueueOp::Send(sent) if store.flaw == Flaw::QueueCopiesToSender => {
            let other = hubbub_core::queue::QueueSend { sender: "nobody", ..sent };
            let outcome = model.apply(&QueueOp::Send(other), now, None);
            model.rename_sender("nobody", sent.sender);
            outcome
        }
        QueueOp::Send(sent) if store.flaw == Flaw::QueueDelaysAreIgnored => {
            let other = hubbub_core::queue::QueueSend { due: hubbub_core::queue::Due::Now, ..sent };
            model.apply(&QueueOp::Send(other), now, None)
        }
        QueueOp::Settle { queue, mut receipt, how } if store.flaw == Flaw::QueueStaleReceiptsAck => {
            let found = before.messages.iter().find(|one| one.id == receipt.id);
            receipt = found.map_or(receipt, |one| before.receipt(one));
            model.apply(&QueueOp::Settle { queue, receipt, how }, now, None)
        }
        QueueOp::Take(Take { wanted, max, how: TakeMode::Lease { lease_ms: Some(ms) }, registers })
            if store.flaw == Flaw::QueueLeasesEndLate =>
        {
            let how = TakeMode::Lease { lease_ms: Some(2 * ms) };
            model.apply(&QueueOp::Take(Take { wanted, max, how, registers }), now, None)
        }
        QueueOp::Redrive { .. } if store.flaw == Flaw::QueueReceiptsComeBack => {
            let outcome = model.apply(&op, now, None);
            model.messages.iter_mut().for_each(|message| message.leases = message.deliveries.into());
            outcome
        }
        op => model.apply(&op, now, None),
    };
    match outcome {
        Outcome::Queue(QueueOutcome::Taken { .. }) => {
            let QueueOp::Take(take) = op else { unreachable!("only takes take") };
            let messages = taken(store, &before, &mut model, &take, now);
            Outcome::Queue(QueueOutcome::Taken { messages, ready: Box::default() })
        }
        outcome => outcome,
    }
}

/// What a take gave, with the model as it was before.
fn taken(store: &InMemory, before: &Model, model: &mut Model, take: &Take<'_>, now: i64) -> Box<[Delivery]> {
    let mut ids = before.taken_by(take, now);
    if store.flaw == Flaw::QueueOrderIsLost {
        ids.reverse();
    }
    if store.flaw == Flaw::QueueTakenComesBack {
        model.messages.clone_from(&before.messages);
    }
    let is_lease = take.how != TakeMode::Away;
    let find = |model: &Model, id| {
        let message = model.messages.iter().find(|message| message.id == id)?;
        Some(Delivery { receipt: is_lease.then(|| model.receipt(message)), ..delivery(message) })
    };
    ids.into_iter().filter_map(|id| find(model, id).or_else(|| find(before, id))).collect()
}

/// The queues of a store that was started again.
pub(crate) fn restarted(flaw: Flaw, mut model: Model) -> Model {
    for message in &mut model.messages {
        if flaw == Flaw::QueueForgetsLeases && matches!(message.state, State::Leased(_)) {
            message.state = State::Ready;
        }
    }
    if flaw == Flaw::QueueDropsDeadLetters {
        model.messages.retain(|message| message.dead.is_none());
    }
    model
}

fn delivery(message: &Msg) -> Delivery {
    let leased_until = match message.state {
        State::Leased(until) => Some(Timestamp::from_micros(until)),
        _ => None,
    };
    let dead = message.dead.clone().map(|(origin, reason, deliveries)| DeadLetter {
        origin: origin.into(),
        reason,
        deliveries,
    });
    Delivery {
        id: message.id,
        queue: message.queue.as_str().into(),
        sender: message.sender.as_str().into(),
        receiver: message.receiver.as_deref().map(Into::into),
        text: message.text.clone(),
        group: message.group.as_deref().map(Into::into),
        sent_at: Timestamp::default(),
        deliveries: message.deliveries,
        receipt: None,
        leased_until,
        dead,
    }
}

impl InMemory {
    /// The queues as they are now.
    fn queues_now(&self) -> (Model, i64) {
        let now = self.clock.now().as_micros();
        let mut model = self.queues.lock().clone();
        model.advance(now);
        if self.flaw == Flaw::QueueGroupsRunAhead {
            model.messages.iter_mut().for_each(|message| message.group = None);
        }
        (model, now)
    }

    fn queue_info(model: &Model, queue: &str) -> QueueInfo {
        let held = || model.messages.iter().filter(|message| message.queue == queue);
        let count = |is: fn(&State) -> bool| held().filter(|message| is(&message.state)).count() as u64;
        QueueInfo {
            queue: queue.into(),
            settings: QueueRules::default().changed(&model.queues[queue]),
            ready: count(|state| matches!(state, State::Ready)),
            delayed: count(|state| matches!(state, State::Delayed(_))),
            leased: count(|state| matches!(state, State::Leased(_))),
            bytes: held().map(|message| message.text.len() as u64).sum(),
            oldest_sent_at: None,
            sent: 0,
            done: 0,
            dropped: 0,
            dead: 0,
            is_dead_letter: false,
        }
    }
}

impl QueueStore for InMemory {
    fn queue(&self, queue: QueueId) -> Read<'_, Option<QueueInfo>> {
        let (model, _) = self.queues_now();
        let known = model.queues.contains_key(queue.as_str());
        Box::pin(ready(Ok(known.then(|| Self::queue_info(&model, queue.as_str())))))
    }

    fn queues(&self, after: Option<QueueId>, limit: usize) -> Read<'_, Vec<QueueInfo>> {
        let (model, _) = self.queues_now();
        let behind = model
            .queues
            .keys()
            .filter(|name| after.as_ref().is_none_or(|after| name.as_str() > after.as_str()));
        let infos = behind.take(limit).map(|name| Self::queue_info(&model, name)).collect();
        Box::pin(ready(Ok(infos)))
    }

    fn queues_holding(
        &self,
        receiver: ClientId,
        after: Option<QueueId>,
        limit: usize,
    ) -> Read<'_, Vec<Arc<str>>> {
        let (model, now) = self.queues_now();
        let holds = |queue: &&String| {
            let receiver = Some(receiver.as_str());
            let wanted = TakeFilter { queue: Some(queue), receiver, sender: None, newest_first: false };
            after.as_ref().is_none_or(|after| queue.as_str() > after.as_str())
                && !model.takeable(&wanted, now).is_empty()
        };
        let names = model.queues.keys().filter(holds).take(limit).map(|name| name.as_str().into()).collect();
        Box::pin(ready(Ok(names)))
    }

    fn clients(&self, after: Option<ClientId>, limit: usize) -> Read<'_, Vec<ClientId>> {
        let (model, _) = self.queues_now();
        let behind = model
            .clients
            .iter()
            .filter(|name| after.as_ref().is_none_or(|after| name.as_str() > after.as_str()));
        let clients = behind.take(limit).map(|name| ClientId::new(name).unwrap()).collect();
        Box::pin(ready(Ok(clients)))
    }

    fn is_client(&self, client: &str) -> bool {
        self.queues.lock().clients.contains(client)
    }

    fn peek(&self, wanted: TakeFilter<'_>, max: usize) -> Read<'_, Option<Vec<Delivery>>> {
        let (model, now) = self.queues_now();
        let ids = model.takeable(&wanted, now).into_iter().take(max);
        let found = ids.filter_map(|id| model.messages.iter().find(|message| message.id == id).map(delivery));
        Box::pin(ready(Ok(Some(found.collect()))))
    }

    fn waiting(&self, queue: QueueId, after: u64, limit: usize) -> Read<'_, Option<Vec<Waiting>>> {
        let (model, _) = self.queues_now();
        let held = model.messages.iter().filter(|one| one.queue == queue.as_str() && one.id > after);
        let all = held.take(limit).map(|message| Waiting {
            delivery: delivery(message),
            state: match message.state {
                State::Ready => MessageState::Ready,
                State::Delayed(until) => MessageState::Delayed(Timestamp::from_micros(until)),
                State::Leased(until) => MessageState::Leased(Timestamp::from_micros(until)),
            },
            expires_at: message.expires.map(Timestamp::from_micros),
        });
        Box::pin(ready(Ok(Some(all.collect()))))
    }

    fn queue_due_in(&self) -> Option<Duration> {
        None
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_agrees_with_itself() {
    for seed in 0..5 {
        random::run(&mut Memory::fresh(Flaw::None), seed, 300).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_flaw_is_found() {
    let mut missed = Vec::new();
    for flaw in FLAWS {
        let mut found = false;
        for seed in 0..5 {
            let run = async move { random::run(&mut Memory::fresh(flaw), seed, 300).await };
            found |= tokio::spawn(run).await.is_err();
        }
        if !found {
            missed.push(flaw);
        }
    }
    assert!(missed.is_empty(), "no run minds {missed:?}");
}
