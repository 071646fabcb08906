//! A store of queues that is nothing but lists, for testing the rules alone.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::super::*;
use crate::Timestamp;
use crate::queue::{Audience, DeadReason, Delivery, LeaseReceipt, QueueSend, TAKE_BYTES_MAX, TakeFilter};
use crate::queue_rules::QueueRules;

/// By what a repeat is known: id and text.
pub(super) type Known<'a> = (&'a str, &'a str);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Leased(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Msg {
    pub(super) queue: u32,
    pub(super) sender: u32,
    /// 0 = anybody.
    pub(super) receiver: u32,
    pub(super) state: State,
    pub(super) is_copy: bool,
    pub(super) deliveries: u32,
    pub(super) leases: u64,
    pub(super) due: i64,
    pub(super) expires: i64,
    pub(super) group: Option<String>,
    pub(super) text: String,
    pub(super) origin: Option<(u32, DeadReason)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Queue {
    pub(super) name: Arc<str>,
    pub(super) is_dead_letter: bool,
    pub(super) rules: QueueRules,
}

/// Something must be loaded first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Missing;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Memory {
    pub(super) now: i64,
    pub(super) queues: BTreeMap<u32, Queue>,
    pub(super) next_queue: u32,
    /// Name, and whether registered; the place is the number, from 1.
    pub(super) clients: Vec<(String, bool)>,
    pub(super) messages: BTreeMap<u64, Msg>,
    pub(super) next_id: u64,
    /// Messages by queue and their senders' ids.
    known: BTreeMap<(u32, String), (u64, String)>,
    /// Messages whose payload cannot be read.
    pub(super) unreadable: Vec<u64>,
    /// After so many more reads something is missing, once; 0 = nothing is.
    pub(super) missing_in: Cell<u32>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { now: 1_000_000, next_queue: 1, next_id: 1, ..Self::default() }
    }

    fn check(&self) -> Result<(), Missing> {
        let left = self.missing_in.get();
        self.missing_in.set(left.saturating_sub(1));
        if left == 1 { Err(Missing) } else { Ok(()) }
    }

    fn loaded(&self) -> Result<(), Stop<Missing>> {
        self.check().map_err(Stop::LoadRequest)
    }

    /// Brings everything to where it is at a time.
    pub(super) fn advance(&mut self, to: i64) {
        self.now = to;
        for message in self.messages.values_mut() {
            if matches!(message.state, State::Leased(until) if until <= to) {
                message.state = State::Ready;
            }
        }
    }

    /// Number and settings of a queue that is there.
    pub(super) fn queue_named(&self, name: &str) -> (u32, &QueueRules) {
        let (number, queue) = self.queues.iter().find(|(_, queue)| *queue.name == *name).unwrap();
        (*number, &queue.rules)
    }

    fn candidate(&self, id: u64) -> Option<Candidate<u32, ()>> {
        let message = self.messages.get(&id)?;
        let Msg { queue, sender, deliveries, .. } = *message;
        Some(Candidate { id, queue, sender, deliveries, bytes: message.text.len() as u64, handle: () })
    }

    fn is_exhausted(&self, message: &Msg) -> bool {
        message.state == State::Ready && self.queues[&message.queue].rules.exhausts(message.deliveries)
    }

    fn is_over(&self, message: &Msg) -> bool {
        message.state == State::Ready && message.expires <= self.now && !self.is_exhausted(message)
    }

    /// Those of the message's group that hold it up: in front of it, or on lease.
    pub(super) fn in_front(&self, id: u64) -> impl Iterator<Item = u64> {
        let message = &self.messages[&id];
        let key = |message: &Msg| (message.queue, message.receiver, message.group.clone());
        let key_of = key(message);
        let is_front = move |(at, other): &(&u64, &Msg)| {
            (**at < id || **at > id && other.state != State::Ready)
                && other.group.is_some()
                && key(other) == key_of
                && !self.is_over(other)
        };
        self.messages.iter().filter(is_front).map(|(id, _)| *id)
    }

    fn is_open(&self, id: u64, message: &Msg) -> bool {
        message.state == State::Ready
            && message.due <= self.now
            && !self.is_exhausted(message)
            && self.in_front(id).next().is_none()
    }

    pub(super) fn apply(&mut self, effect: Effect<'_, u32, Known<'_>>) {
        match effect {
            Effect::Put { number, name, is_dead_letter, settings } => {
                self.next_queue = self.next_queue.max(number + 1);
                let queue = Queue { name, is_dead_letter: false, rules: QueueRules::default() };
                let queue = self.queues.entry(number).or_insert(queue);
                queue.is_dead_letter |= is_dead_letter;
                queue.rules = settings;
            }
            Effect::Delete { number } => {
                self.queues.remove(&number);
                self.messages.retain(|_, message| message.queue != number);
                self.known.retain(|(queue, _), _| *queue != number);
            }
            Effect::Client { number, name, registered, kept } => {
                let place = number as usize - 1;
                if place == self.clients.len() {
                    self.clients.push((name.to_owned(), registered));
                }
                self.clients[place].1 = registered;
                let goes = |id: &u64, message: &Msg| {
                    !registered && message.is_copy && message.receiver == number && !kept.contains(id)
                };
                self.messages.retain(|id, message| !goes(id, message));
            }
            Effect::Send(sent) => self.add(&sent),
            Effect::Taken { ids, .. } | Effect::Gone { ids, .. } => {
                ids.iter().for_each(|id| drop(self.messages.remove(id).unwrap()));
            }
            Effect::Leased { at, leases } => {
                for NewLease { id, delivery, lease } in leases {
                    let message = self.messages.get_mut(&id).unwrap();
                    message.state = State::Leased(at + i64::try_from(lease).unwrap());
                    (message.deliveries, message.leases) = (delivery, message.leases + 1);
                }
            }
            Effect::Returned { at, id, delay } => {
                let message = self.messages.get_mut(&id).unwrap();
                (message.state, message.due) = (State::Ready, at + i64::try_from(delay).unwrap());
            }
            Effect::Extended { at, id, lease } => {
                let until = at + i64::try_from(lease).unwrap();
                self.messages.get_mut(&id).unwrap().state = State::Leased(until);
            }
            Effect::Dead { id, to, reason } => {
                let message = self.messages.get_mut(&id).unwrap();
                message.origin = Some((message.queue, reason));
                self.move_to(id, to);
            }
            Effect::Redriven { to, ids } => {
                for id in ids {
                    self.messages.get_mut(&id).unwrap().origin = None;
                    self.move_to(id, to);
                }
            }
        }
    }

    fn move_to(&mut self, id: u64, to: u32) {
        let message = self.messages.get_mut(&id).unwrap();
        (message.queue, message.state, message.deliveries) = (to, State::Ready, 0);
        (message.due, message.expires) = (0, i64::MAX);
    }

    fn add(&mut self, sent: &NewMessage<'_, u32, Known<'_>>) {
        let receivers: Vec<u32> = match sent.to {
            Recipient::Anyone => vec![0],
            Recipient::One(client) => vec![client],
            Recipient::All => {
                let all = (1..).zip(&self.clients).filter(|(_, (_, is_registered))| *is_registered);
                all.map(|(number, _)| number).filter(|number| *number != sent.sender).collect()
            }
        };
        assert_eq!(receivers.len(), sent.copies as usize);
        for (receiver, id) in receivers.into_iter().zip(sent.id..) {
            let message = Msg {
                queue: sent.queue,
                sender: sent.sender,
                receiver,
                state: State::Ready,
                is_copy: sent.to == Recipient::All,
                deliveries: 0,
                leases: 0,
                due: sent.at + i64::try_from(sent.delay).unwrap(),
                expires: sent.ttl.map_or(i64::MAX, |ttl| sent.at + i64::try_from(ttl).unwrap()),
                group: sent.group.map(str::to_owned),
                text: sent.text.to_owned(),
                origin: None,
            };
            assert_eq!(self.messages.insert(id, message), None, "ids are never used twice");
        }
        self.next_id = sent.id + u64::from(sent.copies.max(1));
        if let Some((id, text)) = sent.known_as {
            self.known.insert((sent.queue, id.to_owned()), (sent.id, text.to_owned()));
        }
    }
}

impl Order for Memory {
    type Number = u32;
    type Handle = ();
    type Source = (u32, u32, Option<u32>, bool);
    type LoadRequest = Missing;

    const EXPIRED_MAX: usize = 3;

    fn next(&self, source: &Self::Source, behind: Option<u64>) -> Result<Option<u64>, Missing> {
        self.check()?;
        let (queue, receiver, sender, newest_first) = *source;
        let is_meant = |(id, message): &(&u64, &Msg)| {
            (message.queue, message.receiver) == (queue, receiver)
                && sender.is_none_or(|sender| sender == message.sender)
                && !self.unreadable.contains(id)
                && self.is_open(**id, message)
        };
        let mut meant: Vec<u64> = self.messages.iter().filter(is_meant).map(|(id, _)| *id).collect();
        if newest_first {
            meant.reverse();
        }
        let is_behind =
            |id: &u64| behind.is_none_or(|behind| if newest_first { *id < behind } else { *id > behind });
        Ok(meant.into_iter().find(is_behind))
    }

    fn message(&self, id: u64) -> Option<(Candidate<u32, ()>, Availability)> {
        let is_over = self.is_over(&self.messages[&id]);
        let availability = if is_over { Availability::Expired } else { Availability::Available };
        Some((self.candidate(id)?, availability))
    }

    fn next_in_group(&self, message: &Candidate<u32, ()>) -> Result<Option<Candidate<u32, ()>>, Missing> {
        self.check()?;
        let is_next = |(id, other): &(&u64, &Msg)| {
            other.group.is_some()
                && other.state == State::Ready
                && other.due <= self.now
                && self.in_front(**id).last() == Some(message.id)
        };
        let next = self.messages.range(message.id + 1..).find(is_next);
        Ok(next.filter(|(_, next)| !self.is_exhausted(next)).and_then(|(id, _)| self.candidate(*id)))
    }
}

impl View for Memory {
    type Number = u32;
    type Fingerprint<'a> = Known<'a>;
    type Handle = ();
    type LoadRequest = Missing;

    fn now(&self) -> i64 {
        self.now
    }

    fn autoregisters(&self) -> bool {
        true
    }

    fn queue(&self, name: &str) -> Found<Option<QueueRef<'_, u32>>, Self> {
        self.loaded()?;
        let found = self.queues.iter().find(|(_, queue)| *queue.name == *name);
        Ok(found.and_then(|(number, _)| self.queue_of(*number)))
    }

    fn queue_of(&self, number: u32) -> Option<QueueRef<'_, u32>> {
        let Queue { name, is_dead_letter, rules } = self.queues.get(&number)?;
        Some(QueueRef { number, name, is_dead_letter: *is_dead_letter, is_new: false, rules })
    }

    fn new_queue(&self, _name: &str, made: u32) -> Found<u32, Self> {
        self.loaded()?;
        Ok(self.next_queue + made)
    }

    fn highest_named(&self) -> Found<u64, Self> {
        self.loaded()?;
        Ok(self.queues.values().filter_map(|queue| number_named(&queue.name)).max().unwrap_or(0))
    }

    fn held(&self, queue: u32) -> Found<Held, Self> {
        self.loaded()?;
        let held = || self.messages.values().filter(|message| message.queue == queue);
        let bytes = held().map(|message| message.text.len() as u64).sum();
        Ok(Held { messages: held().count() as u64, bytes })
    }

    fn client(&self, name: &str) -> Option<ClientRef<u32>> {
        let found = (1..).zip(&self.clients).find(|(_, (known, _))| known == name);
        found.map(|(number, (_, is_registered))| ClientRef { number, is_registered: *is_registered })
    }

    fn new_client(&self) -> Found<u32, Self> {
        Ok(u32::try_from(self.clients.len()).unwrap() + 1)
    }

    fn has_room_for_client(&self) -> Found<bool, Self> {
        self.loaded()?;
        Ok(self.clients.len() < 5)
    }

    fn receivers_but(&self, sender: &str) -> Found<u32, Self> {
        self.loaded()?;
        let others = self.clients.iter().filter(|(name, is_registered)| *is_registered && name != sender);
        Ok(u32::try_from(others.count()).unwrap())
    }

    fn has_room_for_broadcast(&self, _send: &QueueSend<'_>, copies: u32) -> Found<bool, Self> {
        self.loaded()?;
        Ok(copies < 4)
    }

    fn fingerprint<'a>(&self, _queue: u32, send: &QueueSend<'a>) -> Option<Known<'a>> {
        Some((send.message_id?, send.text))
    }

    fn remembered(&self, queue: u32, known_as: &Known<'_>) -> Found<Option<Remembered>, Self> {
        self.loaded()?;
        let known = self.known.get(&(queue, known_as.0.to_owned()));
        let is_same = |text: &str| text == known_as.1;
        Ok(known.map(|(id, text)| Remembered { id: *id, copies: 1, sent_at: 0, is_same: is_same(text) }))
    }

    fn new_ids(&self, _count: u32) -> Found<u64, Self> {
        self.loaded()?;
        Ok(self.next_id)
    }

    fn visit_oldest(
        &self,
        queue: u32,
        mut visit: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Found<(), Self> {
        let held = self.messages.iter().filter(|(_, message)| message.queue == queue);
        for (id, message) in held.filter(|(_, message)| message.state == State::Ready) {
            self.loaded()?;
            if visit(*id, message.text.len() as u64).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn select(
        &mut self,
        wanted: &TakeFilter<'_>,
        queue: Option<u32>,
        max: usize,
        through_groups: bool,
    ) -> Found<Vec<Candidate<u32, ()>>, Self> {
        let number = |name: Option<&str>| name.and_then(|name| self.client(name)).map(|client| client.number);
        let (sender, newest_first) = (number(wanted.sender), wanted.newest_first);
        if wanted.sender.is_some() && sender.is_none() {
            return Ok(Vec::new());
        }
        let queues = self.queues.keys().filter(|one| queue.is_none_or(|queue| queue == **one));
        let receivers = [Some(0), number(wanted.receiver)];
        let sources: Vec<_> = queues
            .flat_map(|queue| {
                receivers.into_iter().flatten().map(|receiver| (*queue, receiver, sender, newest_first))
            })
            .collect();
        let query = Query { sender, newest_first, max, bytes_max: TAKE_BYTES_MAX as u64, through_groups };
        Ok(select(self, &sources, &query).map_err(Stop::LoadRequest)?.chosen)
    }

    fn read(
        &mut self,
        chosen: Vec<Candidate<u32, ()>>,
        _unreadable_max: usize,
    ) -> Found<ReadMessages<u32, ()>, Self> {
        self.loaded()?;
        let delivery = |message: Candidate<u32, ()>| {
            let Msg { text, sender, receiver, .. } = &self.messages[&message.id];
            let delivery = Delivery {
                id: message.id,
                queue: Arc::clone(&self.queues[&message.queue].name),
                sender: sender.to_string().into(),
                receiver: (*receiver > 0).then(|| receiver.to_string().into()),
                text: text.clone(),
                group: None,
                sent_at: Timestamp::from_micros(0),
                deliveries: message.deliveries,
                receipt: None,
                leased_until: None,
                dead: None,
            };
            (message, delivery)
        };
        Ok(ReadMessages { read: chosen.into_iter().map(delivery).collect(), unreadable: 0 })
    }

    fn receipt(&self, message: &Candidate<u32, ()>, _deliveries: u32) -> Found<LeaseReceipt, Self> {
        Ok(LeaseReceipt { id: message.id, delivery: self.messages[&message.id].leases + 1, epoch: 7 })
    }

    fn lease_end(&self, _queue: u32, lease: u64) -> i64 {
        self.now + i64::try_from(lease).unwrap()
    }

    fn delay_end(&self, queue: u32, delay: u64) -> i64 {
        self.lease_end(queue, delay)
    }

    fn lease(&self, queue: u32, id: u64) -> Option<Lease> {
        let message = self.messages.get(&id).filter(|message| message.queue == queue)?;
        let receipt = LeaseReceipt { id, delivery: message.leases, epoch: 7 };
        let is_running = matches!(message.state, State::Leased(until) if until > self.now);
        is_running.then_some(Lease { receipt, deliveries: message.deliveries })
    }

    fn holds(&self, queue: u32, id: u64) -> bool {
        self.messages.get(&id).is_some_and(|message| message.queue == queue)
    }

    fn copies_for(&mut self, client: u32) -> Found<Vec<(u64, bool)>, Self> {
        self.loaded()?;
        let copies =
            self.messages.iter().filter(|(_, message)| message.is_copy && message.receiver == client);
        Ok(copies.map(|(id, message)| (*id, message.state != State::Ready)).collect())
    }

    fn visit_dead_letters(
        &self,
        queue: u32,
        id: Option<u64>,
        mut visit: impl FnMut(u64, u32) -> ControlFlow<()>,
    ) -> Found<(), Self> {
        self.loaded()?;
        let meant = self.messages.iter().filter(|(one, message)| {
            message.queue == queue && id.is_none_or(|id| id == **one) && message.state == State::Ready
        });
        for (id, message) in meant {
            if let Some((origin, _)) = message.origin.filter(|(origin, _)| self.queues.contains_key(origin))
                && visit(*id, origin).is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn expired(&mut self, max: usize) -> Vec<u64> {
        let over = self.messages.iter().filter(|(_, message)| self.is_over(message));
        over.map(|(id, _)| *id).take(max).collect()
    }

    fn exhausted(&mut self, max: usize) -> Vec<(u64, u32)> {
        let exhausted = self.messages.iter().filter(|(_, message)| self.is_exhausted(message));
        exhausted.map(|(id, message)| (*id, message.queue)).take(max).collect()
    }
}

/// What an audience is called in a test.
pub(super) fn audience(kind: u8, name: &str) -> Audience<'_> {
    match kind {
        0 => Audience::Anyone,
        1 => Audience::One(name),
        _ => Audience::All,
    }
}
