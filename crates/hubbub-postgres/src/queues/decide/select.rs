//! Chooses messages from the working set, and shows them as they are delivered.

use std::sync::Arc;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::{Delivery, PAYLOADS_MAX, TAKE_BYTES_MAX, TAKE_MAX, TakeFilter};
use hubbub_core::rules::queues::{Availability, Candidate, Order, Query, select};

use crate::queues::working_set::{LoadRequest, Message, Place, State, Stop, WorkingSet, signed, unsigned};

fn candidate(message: &Message) -> Candidate<i32, ()> {
    Candidate {
        id: unsigned(message.id),
        queue: message.queue,
        sender: message.sender,
        deliveries: message.deliveries,
        bytes: saturate(message.bytes),
        handle: (),
    }
}

impl Order for WorkingSet {
    type Number = i32;
    type Handle = ();
    type Source = Place;
    type LoadRequest = LoadRequest;

    /// What is loaded bounds it: of what may be taken, nothing that has expired is.
    const EXPIRED_MAX: usize = usize::MAX;

    fn next(&self, source: &Place, behind: Option<u64>) -> Result<Option<u64>, LoadRequest> {
        Ok(self.next_of(source, behind.map(signed))?.map(unsigned))
    }

    fn message(&self, id: u64) -> Option<(Candidate<i32, ()>, Availability)> {
        let message = self.messages.get(&signed(id))?;
        let queue = self.queues.get(&message.queue)?;
        let availability = if message.is_expired(self.now) {
            Availability::Expired
        } else if queue.settings.exhausts(message.deliveries) {
            Availability::Hidden
        } else {
            Availability::Available
        };
        Some((candidate(message), availability))
    }

    fn next_in_group(&self, message: &Candidate<i32, ()>) -> Result<Option<Candidate<i32, ()>>, LoadRequest> {
        let id = signed(message.id);
        let Some(key) = self.messages.get(&id).and_then(Message::group_key) else { return Ok(None) };
        let next = WorkingSet::next_in_group(self, &key, id)?.and_then(|next| self.messages.get(&next));
        Ok(next.filter(|next| next.state == State::Ready).map(candidate))
    }
}

impl WorkingSet {
    /// What a peek shows.
    pub(in crate::queues) fn peek(&self, wanted: &TakeFilter<'_>, max: usize) -> Result<Vec<Delivery>, Stop> {
        let queue = wanted.queue.map(|queue| self.queue_named(queue).map(|(no, _)| no)).transpose()?;
        self.deliveries(&self.choose(wanted, queue, max.min(TAKE_MAX), true)?)
    }

    pub(super) fn choose(
        &self,
        wanted: &TakeFilter<'_>,
        queue: Option<i32>,
        max: usize,
        through_groups: bool,
    ) -> Result<Vec<Candidate<i32, ()>>, Stop> {
        let query = Query {
            sender: wanted.sender.and_then(|sender| self.client(sender)),
            newest_first: wanted.newest_first,
            max,
            bytes_max: PAYLOADS_MAX.saturating_sub(self.taken_bytes).min(TAKE_BYTES_MAX as u64),
            through_groups,
        };
        Ok(select(self, &self.places_of(wanted, queue), &query)?.chosen)
    }

    /// Chosen messages as they are delivered, not on lease.
    pub(super) fn deliveries(&self, chosen: &[Candidate<i32, ()>]) -> Result<Vec<Delivery>, Stop> {
        let messages = || chosen.iter().filter_map(|message| self.messages.get(&signed(message.id)));
        let textless = messages().filter(|message| message.text.is_none());
        let textless: Vec<i64> = textless.map(|message| message.id).collect();
        if !textless.is_empty() {
            return Err(LoadRequest::Texts(textless).into());
        }
        Ok(messages().map(|message| self.delivery(message)).collect())
    }

    fn delivery(&self, message: &Message) -> Delivery {
        let queue = self.queues.get(&message.queue);
        let queue = queue.map_or_else(|| Arc::from(""), |queue| Arc::clone(&queue.name));
        let (sender, receiver) = (self.client_name(message.sender), self.receiver_name(message.receiver));
        message.clone().into_delivery(queue, sender, receiver)
    }
}
