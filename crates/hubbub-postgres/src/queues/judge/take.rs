//! Taking messages away or on lease.

use std::sync::Arc;

use hubbub_core::queue::{DeadLetter, Delivery, TAKE_MAX, Take, TakeHow, Wanted};
use hubbub_core::{QueueOutcome, Timestamp};

use super::{Judged, micros};
use crate::queues::image::{Image, Message, Need, State, Stop};

impl Image {
    pub(super) fn take(&mut self, take: &Take<'_>) -> Judged {
        let is_away = take.how == TakeHow::Away;
        let chosen = self.choose(&take.wanted, take.max, is_away)?;
        if is_away {
            for id in &chosen {
                self.can_leave(*id)?;
            }
        }
        if let (Some(receiver), true) = (take.wanted.receiver, take.registers && self.autoregister)
            && self.registered(receiver).is_none()
        {
            self.check_client_fits()?;
            self.enter_client(receiver);
        }
        let mut taken = Vec::with_capacity(chosen.len());
        for id in chosen {
            let Some(message) = self.messages.get(&id) else { continue };
            let (mut delivery, queue) = (self.delivery(message), message.queue);
            match take.how {
                TakeHow::Away => {
                    self.remove(id);
                    self.tally(queue, |counts| counts.done += 1);
                }
                TakeHow::Lease { lease_ms } => {
                    let of_queue = || self.queues.get(&queue).map(|queue| queue.settings.lease_ms);
                    let lasts = micros(lease_ms.or_else(of_queue).unwrap_or_default());
                    let (until, now) = (self.end_of_lease(queue, lasts), self.now);
                    delivery.deliveries = delivery.deliveries.saturating_add(1);
                    delivery.leased_until = Some(Timestamp::from_micros(until));
                    self.change(id, |message| {
                        message.state = State::Leased;
                        message.deliveries = delivery.deliveries;
                        (message.due_at, message.begun_at) = (Some(until), Some(now));
                    });
                    delivery.receipt = self.messages.get(&id).map(|message| message.receipt(self.epoch));
                }
            }
            taken.push(delivery);
        }
        Ok(QueueOutcome::Taken(taken.into_boxed_slice()))
    }

    /// What a look shows.
    pub(in crate::queues) fn look(&self, wanted: &Wanted<'_>, max: usize) -> Result<Vec<Delivery>, Stop> {
        let chosen = self.choose(wanted, max, true)?;
        let chosen = chosen.iter().filter_map(|id| self.messages.get(id));
        Ok(chosen.map(|message| self.delivery(message)).collect())
    }

    /// Ids of what is wanted, with their texts there.
    fn choose(&self, wanted: &Wanted<'_>, max: usize, through_groups: bool) -> Result<Vec<i64>, Stop> {
        let queue = wanted.queue.map(|queue| self.queue_named(queue).map(|(no, _)| no)).transpose()?;
        let chosen = match self.selection(wanted, queue) {
            Some(selection) => self.select(&selection, max.min(TAKE_MAX), through_groups)?,
            None => Vec::new(),
        };
        let lacks_text = |id: &&i64| self.messages.get(*id).is_some_and(|message| message.text.is_none());
        let textless: Vec<i64> = chosen.iter().filter(lacks_text).copied().collect();
        if textless.is_empty() { Ok(chosen) } else { Err(Need::Texts(textless).into()) }
    }

    /// A message as it is told, not on lease.
    fn delivery(&self, message: &Message) -> Delivery {
        Delivery {
            id: crate::queues::image::unsigned(message.id),
            queue: self
                .queues
                .get(&message.queue)
                .map_or_else(|| Arc::from(""), |queue| Arc::clone(&queue.name)),
            sender: self.client_name(message.sender),
            receiver: self.receiver_name(message.receiver),
            text: message.text.clone().unwrap_or_default(),
            group: message.group.clone(),
            sent_at: Timestamp::from_micros(message.sent_at),
            deliveries: message.deliveries,
            receipt: None,
            leased_until: None,
            dead: message.dead.as_ref().map(|dead| DeadLetter {
                origin: Arc::clone(&dead.origin),
                reason: dead.reason,
                deliveries: dead.deliveries,
            }),
        }
    }
}
