//! What queues are, in the plainest way: every message in one list, looked through from the beginning each time.

use std::collections::{BTreeMap, BTreeSet};

use hubbub_core::queue::{
    Audience, BROADCAST_TTL_MS, DEAD_LETTER_SUFFIX, DeadReason, Due, LEASE_MS, LeaseReceipt, QueueSend,
    QueueSettings, Settle, Take, TakeFilter, TakeMode,
};
use hubbub_core::{Outcome, QueueOp, QueueOutcome, Refusal};

use super::known::KnownIds;

/// How a message stands; times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Delayed(i64),
    Leased(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Msg {
    pub(super) id: u64,
    pub(super) queue: String,
    pub(super) sender: String,
    pub(super) receiver: Option<String>,
    pub(super) text: String,
    pub(super) group: Option<String>,
    pub(super) state: State,
    pub(super) expires: Option<i64>,
    pub(super) deliveries: u32,
    /// Deliveries on lease in all queues it was in.
    pub(super) leases: u64,
    pub(super) dead: Option<(String, DeadReason, u32)>,
    is_copy: bool,
}

/// All queues.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub(super) queues: BTreeMap<String, QueueSettings>,
    pub(super) clients: BTreeSet<String>,
    /// Everybody who ever registered, in that order.
    numbered: Vec<String>,
    /// By id.
    pub(super) messages: Vec<Msg>,
    known: KnownIds,
    last_id: u64,
    /// The number of the store's epoch.
    pub epoch: u64,
}

fn micros(ms: u64) -> i64 {
    i64::try_from(ms).unwrap() * 1_000
}

impl Model {
    /// What an operation comes to. `told` is what the store said; where it said nothing, ids follow one another.
    pub fn apply(&mut self, op: &QueueOp<'_>, now: i64, told: Option<&Outcome>) -> Outcome {
        self.advance(now);
        self.known.forget(now);
        let outcome = match self.judge(op, now, told) {
            Ok(outcome) => Outcome::Queue(outcome),
            Err(refusal) => Outcome::Refused(refusal),
        };
        self.known.note_gone(&self.messages, now);
        outcome
    }

    /// Ends delays and leases that are over.
    pub(super) fn advance(&mut self, now: i64) {
        for message in &mut self.messages {
            if let State::Delayed(until) | State::Leased(until) = message.state
                && until <= now
            {
                message.state = State::Ready;
            }
        }
    }

    fn judge(&mut self, op: &QueueOp<'_>, now: i64, told: Option<&Outcome>) -> Result<QueueOutcome, Refusal> {
        if let Some(queue) = op.queue()
            && !matches!(op, QueueOp::Put { .. })
            && !self.queues.contains_key(queue)
        {
            return Err(Refusal::UnknownQueue);
        }
        Ok(match *op {
            QueueOp::Put { queue, settings } => {
                let created = self.put(queue, settings);
                QueueOutcome::Queue { queue: queue.into(), created }
            }
            QueueOp::Delete { queue, force } => {
                let messages = self.messages.iter().filter(|message| message.queue == queue).count() as u64;
                if messages > 0 && !force {
                    return Err(Refusal::QueueNotEmpty { messages });
                }
                self.messages.retain(|message| message.queue != queue);
                self.queues.remove(queue);
                self.known.drop_queue(queue);
                QueueOutcome::Deleted { messages, ready: Box::default() }
            }
            QueueOp::Register { client } => QueueOutcome::Client { changed: self.register(client) },
            QueueOp::Unregister { client } => {
                self.messages.retain(|message| {
                    !(message.is_copy
                        && message.receiver.as_deref() == Some(client)
                        && !matches!(message.state, State::Leased(_)))
                });
                QueueOutcome::Client { changed: self.clients.remove(client) }
            }
            QueueOp::Send(sent) => self.send(&sent, now, told)?,
            QueueOp::Take(take) => self.take(&take, now, told),
            QueueOp::Settle { queue, receipt, how } => {
                let until = self.settle(queue, receipt, how, now)?.map(time);
                QueueOutcome::Settled { until, ready: Box::default() }
            }
            QueueOp::Remove { queue, id } => {
                let index = self.position(queue, id).ok_or(Refusal::UnknownMessage)?;
                self.messages.remove(index);
                QueueOutcome::Deleted { messages: 1, ready: Box::default() }
            }
            QueueOp::Redrive { queue, id } => self.redrive(queue, id),
            QueueOp::PutNumbered | QueueOp::Sweep => unreachable!("not part of random runs"),
        })
    }

    fn register(&mut self, client: &str) -> bool {
        if !self.numbered.iter().any(|known| known == client) {
            self.numbered.push(client.to_owned());
        }
        self.clients.insert(client.to_owned())
    }

    fn put(&mut self, queue: &str, settings: &QueueSettings) -> bool {
        let created = !self.queues.contains_key(queue);
        let kept = self.queues.entry(queue.to_owned()).or_default();
        kept.deliveries_max = settings.deliveries_max.or(kept.deliveries_max);
        kept.backoff_ms = settings.backoff_ms.or(kept.backoff_ms);
        kept.ttl_ms = settings.ttl_ms.or(kept.ttl_ms);
        kept.messages_max = settings.messages_max.or(kept.messages_max);
        if kept.deliveries_max.is_some_and(|max| max > 0) {
            self.queues.entry(format!("{queue}{DEAD_LETTER_SUFFIX}")).or_default();
        }
        created
    }

    fn send(
        &mut self,
        sent: &QueueSend<'_>,
        now: i64,
        told: Option<&Outcome>,
    ) -> Result<QueueOutcome, Refusal> {
        if let Audience::One(receiver) = sent.audience
            && !self.clients.contains(receiver)
        {
            return Err(Refusal::UnknownReceiver);
        }
        if let Some(answer) = self.known.answer(sent) {
            return answer;
        }
        let others = self.numbered.iter().filter(|client| *client != sent.sender);
        let others = others.filter(|client| self.clients.contains(*client));
        let receivers: Vec<Option<String>> = match sent.audience {
            Audience::Anyone => vec![None],
            Audience::One(receiver) => vec![Some(receiver.to_owned())],
            Audience::All => others.map(|client| Some(client.clone())).collect(),
        };
        let settings = &self.queues[sent.queue];
        let held = self.messages.iter().filter(|message| message.queue == sent.queue).count();
        let max = settings.messages_max.unwrap_or(0);
        if max > 0 && (held + receivers.len()) as u64 > max {
            return Err(Refusal::QueueFull);
        }
        let (id, sent_at) = match told {
            None => (self.last_id + 1, time(now)),
            Some(Outcome::Queue(QueueOutcome::Sent { id, sent_at, .. })) => (*id, *sent_at),
            Some(told) => panic!("{sent:?} was answered {told:?}"),
        };
        let is_copy = sent.audience == Audience::All;
        let ttl =
            sent.ttl_ms.or(settings.ttl_ms.filter(|ttl| *ttl > 0)).or(is_copy.then_some(BROADCAST_TTL_MS));
        let state = match sent.due {
            Due::In(ms) if ms > 0 => State::Delayed(now + micros(ms)),
            Due::At(time) if time.as_micros() > now => State::Delayed(time.as_micros()),
            _ => State::Ready,
        };
        assert!(id > self.last_id || receivers.is_empty(), "id {id} behind {}", self.last_id);
        self.register(sent.sender);
        let copies = u32::try_from(receivers.len()).unwrap();
        self.known.insert(sent, id..id + u64::from(copies), sent_at);
        // A message for nobody has an id, too.
        self.last_id = self.last_id.max(id);
        for (receiver, id) in receivers.into_iter().zip(id..) {
            self.last_id = id;
            self.messages.push(Msg {
                id,
                queue: sent.queue.to_owned(),
                sender: sent.sender.to_owned(),
                receiver,
                text: sent.text.to_owned(),
                group: sent.group.map(str::to_owned),
                state,
                expires: ttl.map(|ttl| now + micros(ttl)),
                deliveries: 0,
                leases: 0,
                dead: None,
                is_copy,
            });
        }
        Ok(QueueOutcome::Sent { id, copies, sent_at, duplicate: false })
    }

    /// Whether a message was delivered as often as it may be.
    fn is_exhausted(&self, message: &Msg) -> bool {
        let max = self.queues[&message.queue].deliveries_max.unwrap_or(0);
        max > 0 && message.deliveries >= max
    }

    /// Whether a message has outlived its time. On lease none does, nor without deliveries left: that is a dead letter.
    fn is_over(&self, message: &Msg, now: i64) -> bool {
        message.expires.is_some_and(|expires| expires <= now)
            && !matches!(message.state, State::Leased(_))
            && !self.is_exhausted(message)
    }

    /// Whether a message could be delivered at all, whatever its group does.
    fn is_ready(&self, message: &Msg, now: i64) -> bool {
        message.state == State::Ready && !self.is_over(message, now) && !self.is_exhausted(message)
    }

    /// What outlived its time holds up nobody, whether it was cleared away or not.
    fn is_first_of_group(&self, message: &Msg, now: i64) -> bool {
        message.group.is_none()
            || !self.messages.iter().any(|other| {
                // A redrive may have brought it back before one that is on lease.
                (other.id < message.id || matches!(other.state, State::Leased(_)) && other.id != message.id)
                    && !self.is_over(other, now)
                    && (&other.queue, &other.receiver, &other.group)
                        == (&message.queue, &message.receiver, &message.group)
            })
    }

    /// Ids of what may be taken now, in the order asked for.
    pub(super) fn takeable(&self, wanted: &TakeFilter<'_>, now: i64) -> Vec<u64> {
        let matches = |message: &&Msg| {
            wanted.queue.is_none_or(|queue| message.queue == queue)
                && wanted.sender.is_none_or(|sender| message.sender == sender)
                && message.receiver.as_deref().is_none_or(|receiver| wanted.receiver == Some(receiver))
                && self.is_ready(message, now)
                && self.is_first_of_group(message, now)
        };
        let mut ids: Vec<u64> = self.messages.iter().filter(matches).map(|message| message.id).collect();
        if wanted.newest_first {
            ids.reverse();
        }
        ids
    }

    /// Ids of what a take would give.
    #[cfg(test)]
    pub(super) fn taken_by(&self, take: &Take<'_>, now: i64) -> Vec<u64> {
        let mut model = self.clone();
        model.advance(now);
        model.take_ids(take, now)
    }

    fn take(&mut self, take: &Take<'_>, now: i64, told: Option<&Outcome>) -> QueueOutcome {
        let taken = self.take_ids(take, now);
        let deliveries = match told {
            None => return QueueOutcome::Taken { messages: Box::default(), ready: Box::default() },
            Some(Outcome::Queue(QueueOutcome::Taken { messages, .. })) => messages,
            Some(told) => panic!("a take was answered {told:?}"),
        };
        let ids: Vec<u64> = deliveries.iter().map(|delivery| delivery.id).collect();
        assert_eq!(ids, taken, "{take:?}");
        for delivery in deliveries {
            let on_lease = (take.how != TakeMode::Away).then_some(delivery.id);
            let message = on_lease.and_then(|id| self.messages.iter().find(|message| message.id == id));
            assert_eq!(delivery.receipt, message.map(|message| self.receipt(message)), "{delivery:?}");
        }
        QueueOutcome::Taken { messages: deliveries.clone(), ready: Box::default() }
    }

    /// That of a message's newest delivery on lease.
    pub(super) fn receipt(&self, message: &Msg) -> LeaseReceipt {
        LeaseReceipt { id: message.id, delivery: message.leases, epoch: self.epoch }
    }

    fn take_ids(&mut self, take: &Take<'_>, now: i64) -> Vec<u64> {
        if let (true, Some(receiver)) = (take.registers, take.wanted.receiver) {
            self.register(receiver);
        }
        let mut taken = Vec::new();
        // What is taken away lets the next one of its group pass.
        while taken.len() < take.max
            && let Some(id) = self.takeable(&take.wanted, now).first().copied()
        {
            let Some(index) = self.messages.iter().position(|message| message.id == id) else { break };
            taken.push(id);
            match take.how {
                TakeMode::Away => drop(self.messages.remove(index)),
                TakeMode::Lease { lease_ms } => {
                    let message = &mut self.messages[index];
                    message.state = State::Leased(now + micros(lease_ms.unwrap_or(LEASE_MS)));
                    message.deliveries += 1;
                    message.leases += 1;
                }
            }
        }
        taken
    }

    /// Puts another name to messages of a sender.
    #[cfg(test)]
    pub(super) fn rename_sender(&mut self, from: &str, to: &str) {
        self.clients.remove(from);
        self.register(to);
        self.messages
            .iter_mut()
            .filter(|one| one.sender == from)
            .for_each(|one| to.clone_into(&mut one.sender));
    }

    fn position(&self, queue: &str, id: u64) -> Option<usize> {
        self.messages.iter().position(|message| message.id == id && message.queue == queue)
    }

    fn settle(
        &mut self,
        queue: &str,
        receipt: LeaseReceipt,
        how: Settle,
        now: i64,
    ) -> Result<Option<i64>, Refusal> {
        let index = self.position(queue, receipt.id).ok_or(Refusal::StaleReceipt)?;
        let settings = self.queues[queue].clone();
        let is_its = self.receipt(&self.messages[index]) == receipt;
        let message = &mut self.messages[index];
        if !is_its || !matches!(message.state, State::Leased(_)) {
            return Err(Refusal::StaleReceipt);
        }
        match how {
            Settle::Ack => {
                self.messages.remove(index);
                Ok(None)
            }
            Settle::Extend { lease_ms } => {
                let until = now + micros(lease_ms.unwrap_or(LEASE_MS));
                message.state = State::Leased(until);
                Ok(Some(until))
            }
            Settle::Nack { .. }
                if settings.deliveries_max.is_some_and(|max| max > 0 && message.deliveries >= max) =>
            {
                self.dead_letter(index, DeadReason::Rejected);
                Ok(None)
            }
            Settle::Nack { delay_ms } => {
                let backoff = settings.backoff_ms.unwrap_or(0);
                let doubled = backoff.saturating_mul(1 << (message.deliveries - 1).min(40)).min(300_000);
                let until = now + micros(delay_ms.unwrap_or(doubled));
                message.state = if until > now { State::Delayed(until) } else { State::Ready };
                Ok(Some(until))
            }
        }
    }

    fn dead_letter(&mut self, index: usize, reason: DeadReason) {
        let message = &mut self.messages[index];
        message.dead = Some((message.queue.clone(), reason, message.deliveries));
        message.queue.push_str(DEAD_LETTER_SUFFIX);
        message.state = State::Ready;
        message.deliveries = 0;
        message.expires = None;
        if !self.queues.contains_key(&message.queue) {
            self.messages.remove(index);
        }
    }

    fn redrive(&mut self, queue: &str, id: Option<u64>) -> QueueOutcome {
        let mut ready = BTreeSet::new();
        let mut messages = 0;
        for message in &mut self.messages {
            let is_meant = message.queue == queue
                && id.is_none_or(|id| id == message.id)
                && !matches!(message.state, State::Leased(_));
            if let (true, Some((origin, ..))) = (is_meant, message.dead.clone())
                && self.queues.contains_key(&origin)
            {
                message.queue.clone_from(&origin);
                (message.dead, message.deliveries, message.state) = (None, 0, State::Ready);
                ready.insert(origin);
                messages += 1;
            }
        }
        let ready = ready.iter().map(|queue| queue.as_str().into()).collect();
        QueueOutcome::Redriven { messages, more: false, ready }
    }

    /// What sweeps come to, repeated until there is no more.
    pub fn sweep(&mut self, now: i64) {
        self.advance(now);
        let messages = std::mem::take(&mut self.messages);
        self.messages = messages.into_iter().filter(|message| !self.is_over(message, now)).collect();
        self.known.note_gone(&self.messages, now);
        while let Some(index) = self
            .messages
            .iter()
            .position(|message| message.state == State::Ready && self.is_exhausted(message))
        {
            self.dead_letter(index, DeadReason::LeaseExpired);
        }
    }
}

fn time(micros: i64) -> hubbub_core::Timestamp {
    hubbub_core::Timestamp::from_micros(micros)
}
