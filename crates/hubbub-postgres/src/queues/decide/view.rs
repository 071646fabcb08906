//! Shows the rules the working set, and names what must be loaded first.

use std::ops::ControlFlow;

use hubbub_core::invariant::{cast, saturate};
use hubbub_core::queue::{LeaseReceipt, QueueSend, TakeFilter};
use hubbub_core::rules::queues::{
    Candidate, ClientRef, Found, Held, Lease, QueueRef, ReadMessages, Remembered, View,
};
use sha2::{Digest, Sha256};

use super::Fingerprint;
use super::apply::duration;
use crate::queues::working_set::{
    Frontier, LoadRequest, Message, Queue, State, WorkingSet, signed, unsigned,
};

/// Bytes of copies that one batch makes at most of messages to everybody: each is held and written with its payload.
const COPIED_BYTES_MAX: i64 = 256 << 20;

/// What a copy takes besides its payload, in bytes, roughly.
const COPY_BYTES: i64 = 400;

/// Bytes of a payload.
pub(super) fn bytes_of(text: &str) -> i64 {
    saturate(text.len())
}

/// What so many copies take that are made at once.
pub(super) fn copied_bytes(copies: i64, bytes: i64) -> i64 {
    copies.saturating_mul(bytes.saturating_add(COPY_BYTES))
}

fn queue_ref(number: i32, queue: &Queue) -> QueueRef<'_, i32> {
    QueueRef {
        number,
        name: &queue.name,
        is_dead_letter: queue.is_dead_letter,
        is_new: queue.is_new,
        rules: &queue.settings,
    }
}

impl View for WorkingSet {
    type Number = i32;
    type Fingerprint<'a> = Fingerprint<'a>;
    type Handle = ();
    type LoadRequest = LoadRequest;

    fn now(&self) -> i64 {
        self.now
    }

    fn autoregisters(&self) -> bool {
        self.autoregister
    }

    fn queue(&self, name: &str) -> Found<Option<QueueRef<'_, i32>>, Self> {
        let Some(no) = self.find_queue(name)? else { return Ok(None) };
        Ok(self.queues.get(&no).map(|queue| queue_ref(no, queue)))
    }

    fn queue_of(&self, number: i32) -> Option<QueueRef<'_, i32>> {
        let queue = self.queues.get(&number).filter(|queue| !queue.is_deleted)?;
        Some(queue_ref(number, queue))
    }

    fn new_queue(&self, name: &str, _made: u32) -> Found<i32, Self> {
        // The database gives the number.
        Err(LoadRequest::NewQueue(name.into()).into())
    }

    fn highest_named(&self) -> Found<u64, Self> {
        Ok(self.highest_named.map(unsigned).ok_or(LoadRequest::HighestNamed)?)
    }

    fn held(&self, queue: i32) -> Found<Held, Self> {
        let (messages, bytes) = WorkingSet::held(self, queue)?;
        Ok(Held { messages: saturate(messages), bytes: saturate(bytes) })
    }

    fn client(&self, name: &str) -> Option<ClientRef<i32>> {
        let client = self.clients.get(name)?;
        Some(ClientRef { number: client.no, is_registered: client.is_registered })
    }

    fn new_client(&self) -> Found<i32, Self> {
        Ok(self.next_client())
    }

    fn has_room_for_client(&self) -> Found<bool, Self> {
        let before = self.client_count.ok_or(LoadRequest::ClientCount)?;
        Ok(before.saturating_add(self.clients_added) < self.clients_max)
    }

    fn receivers_but(&self, sender: &str) -> Found<u32, Self> {
        let recipients = self.recipients(self.client(sender))?;
        Ok(cast(recipients.count(), "fewer than 2^32 clients are registered")?)
    }

    fn has_room_for_broadcast(&self, send: &QueueSend<'_>, copies: u32) -> Found<bool, Self> {
        let copies = i64::from(copies);
        if self.is_made_later(send.group, copies) {
            return Ok(self.has_room_for_pending(copies));
        }
        let made = copied_bytes(copies, bytes_of(send.text));
        Ok(self.copied_bytes.saturating_add(made) <= COPIED_BYTES_MAX)
    }

    fn fingerprint<'a>(&self, _queue: i32, send: &QueueSend<'a>) -> Option<Fingerprint<'a>> {
        Some(Fingerprint { id: send.message_id?, content: content(send) })
    }

    fn remembered(&self, queue: i32, known_as: &Fingerprint<'_>) -> Found<Option<Remembered>, Self> {
        let known = self.known.get(&(queue, known_as.id.to_owned()));
        Ok(known.map(|known| Remembered {
            id: unsigned(known.first),
            copies: known.copies,
            sent_at: known.sent_at,
            is_same: known.content == known_as.content,
        }))
    }

    fn new_ids(&self, count: u32) -> Found<u64, Self> {
        // A message for nobody has an id, too.
        let count = i64::from(count.max(1));
        if self.ids.end - self.ids.start < count {
            return Err(LoadRequest::Ids(count + self.sends_left.max(1) - 1).into());
        }
        Ok(unsigned(self.ids.start))
    }

    fn visit_oldest(
        &self,
        queue: i32,
        mut visit: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Found<(), Self> {
        let frontier = self.oldest.get(&queue).ok_or(LoadRequest::Oldest(queue))?;
        for message in self.held_by(|message| message.queue == queue && message.state != State::Leased) {
            if !frontier.is_complete && message.id > frontier.to {
                break;
            }
            if visit(unsigned(message.id), saturate(message.bytes)).is_break() {
                return Ok(());
            }
        }
        if frontier.is_complete { Ok(()) } else { Err(LoadRequest::Oldest(queue).into()) }
    }

    fn select(
        &mut self,
        wanted: &TakeFilter<'_>,
        queue: Option<i32>,
        max: usize,
        through_groups: bool,
    ) -> Found<Vec<Candidate<i32, ()>>, Self> {
        self.choose(wanted, queue, max, through_groups)
    }

    fn read(
        &mut self,
        chosen: Vec<Candidate<i32, ()>>,
        _unreadable_max: usize,
    ) -> Found<ReadMessages<i32, ()>, Self> {
        let deliveries = self.deliveries(&chosen)?;
        Ok(ReadMessages { read: chosen.into_iter().zip(deliveries).collect(), unreadable: 0 })
    }

    fn receipt(&self, message: &Candidate<i32, ()>, deliveries: u32) -> Found<LeaseReceipt, Self> {
        let earlier = self.messages.get(&signed(message.id)).map_or(0, |message| message.earlier_deliveries);
        let delivery = earlier.saturating_add(deliveries.into());
        Ok(LeaseReceipt { id: message.id, delivery, epoch: self.epoch })
    }

    fn lease_end(&self, queue: i32, lease: u64) -> i64 {
        self.end_of_lease(queue, duration(lease))
    }

    fn delay_end(&self, queue: i32, delay: u64) -> i64 {
        if delay == 0 { self.now } else { self.end_of(queue, duration(delay)) }
    }

    fn lease(&self, queue: i32, id: u64) -> Option<Lease> {
        let message = self.message_in(queue, id)?;
        let is_running =
            message.state == State::Leased && message.due_at.is_some_and(|until| until > self.now);
        let receipt = message.receipt(self.epoch);
        is_running.then_some(Lease { receipt, deliveries: message.deliveries })
    }

    fn holds(&self, queue: i32, id: u64) -> bool {
        self.message_in(queue, id).is_some()
    }

    fn copies_for(&mut self, client: i32) -> Found<Vec<(u64, bool)>, Self> {
        if !self.loaded.contains(&LoadRequest::Copies(client)) {
            return Err(LoadRequest::Copies(client).into());
        }
        let copies = self.held_by(|message| message.receiver == client && message.is_copy);
        Ok(copies.iter().map(|copy| (unsigned(copy.id), copy.state == State::Leased)).collect())
    }

    fn visit_dead_letters(
        &self,
        queue: i32,
        id: Option<u64>,
        mut visit: impl FnMut(u64, i32) -> ControlFlow<()>,
    ) -> Found<(), Self> {
        // An id beyond those of the database is nobody's.
        let need = LoadRequest::DeadLetters(queue, id.map(signed));
        let frontier = match id {
            Some(id) => self.loaded.contains(&need).then_some(Frontier { to: signed(id), is_complete: true }),
            None => self.dead_letters.get(&queue).copied(),
        };
        let Some(Frontier { to, is_complete }) = frontier else { return Err(need.into()) };
        let letters = self.held_by(|message| {
            let is_meant = message.queue == queue && id.is_none_or(|id| id == unsigned(message.id));
            is_meant && !matches!(message.state, State::Leased | State::Expired)
        });
        for letter in letters {
            if !is_complete && letter.id > to {
                break;
            }
            if let Some(dead) = &letter.dead
                && let Some(origin) = self.find_queue(&dead.origin)?
                && visit(unsigned(letter.id), origin).is_break()
            {
                return Ok(());
            }
        }
        if is_complete { Ok(()) } else { Err(need.into()) }
    }

    fn expired(&mut self, max: usize) -> Vec<u64> {
        let expired = self.held_by(|message| message.state == State::Expired && self.is_swept(message));
        expired.iter().take(max).map(|message| unsigned(message.id)).collect()
    }

    fn exhausted(&mut self, max: usize) -> Vec<(u64, i32)> {
        let exhausted = self.held_by(|message| message.state == State::Exhausted && self.is_swept(message));
        exhausted.iter().take(max).map(|message| (unsigned(message.id), message.queue)).collect()
    }
}

impl WorkingSet {
    /// Messages that are there, in the order of their ids.
    pub(super) fn held_by(&self, is_meant: impl Fn(&Message) -> bool) -> Vec<&Message> {
        let is_held = |message: &&Message| !message.is_gone && is_meant(message);
        let mut held: Vec<&Message> = self.messages.values().filter(is_held).collect();
        held.sort_unstable_by_key(|message| message.id);
        held
    }

    /// Whether a sweep clears a message away or moves it.
    pub(super) fn is_swept(&self, message: &Message) -> bool {
        let is_over = !message.is_gone && matches!(message.state, State::Expired | State::Exhausted);
        is_over && self.queues.get(&message.queue).is_some_and(|queue| !queue.is_deleted)
    }

    /// When something ends in this queue that begins now: never before what was seen to already, which the clock of
    /// another server may be ahead with.
    pub(super) fn end_of(&self, queue: i32, lasts: i64) -> i64 {
        let seen_to = self.queues.get(&queue).map_or(i64::MIN, |queue| queue.seen_to);
        self.now.saturating_add(lasts).max(seen_to.saturating_add(1))
    }

    /// When a lease ends that begins now: servers whose clocks are ahead must not take it for over before that.
    pub(super) fn end_of_lease(&self, queue: i32, lasts: i64) -> i64 {
        let seen_to = self.queues.get(&queue).map_or(i64::MIN, |queue| queue.seen_to);
        self.now.max(seen_to).saturating_add(lasts)
    }
}

/// A hash of all that makes two messages the same.
fn content(send: &QueueSend<'_>) -> i64 {
    let mut hasher = Sha256::new();
    for part in send.identity() {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let hash = hasher.finalize();
    hash.first_chunk().copied().map_or(0, i64::from_le_bytes)
}
