//! Taking messages away or on lease.

use std::sync::Arc;

use hubbub_core::queue::{DeadLetter, Delivery, TAKE_BYTES_MAX, TAKE_MAX, Take, TakeHow};
use hubbub_core::{QueueOutcome, Refusal, Timestamp};

use super::{Judged, Judging};
use crate::embedded::queues::entry::Entry;
use crate::embedded::queues::select::Selected;
use crate::embedded::queues::time::micros;
use crate::embedded::queues::{Queues, Telling};
use crate::embedded::record::{Leased, Queued};

impl Queues {
    pub(super) fn take(&mut self, take: &Take<'_>, judging: &mut Judging<'_>) -> Judged {
        let queue = take.wanted.queue.map(|queue| self.number_of(queue)).transpose()?;
        let max = judging.listed(take.max.min(TAKE_MAX));
        let is_away = take.how == TakeHow::Away;
        self.make_copies_for_name(take.wanted.receiver);
        let selected = match self.selection(&take.wanted, queue) {
            Some(selection) => self.select(&selection, max, is_away, u64::MAX, judging.now.at),
            None => Selected::default(),
        };
        let Selected { chosen, over } = selected;
        self.expire(&over);
        let mut taken = self.read_chosen(&chosen, judging)?;
        if let (Some(receiver), true) = (take.wanted.receiver, take.registers && judging.autoregister)
            && self.registered(receiver).is_none()
        {
            self.check_client_fits()?;
            self.enter_client(receiver, judging);
        }
        if taken.is_empty() {
            return Ok(QueueOutcome::Taken(Box::default()));
        }
        let now = judging.now;
        match take.how {
            TakeHow::Away => {
                let ids = taken.iter().map(|delivery| delivery.id).collect();
                self.log(&Queued::Taken { at: now.wall, ids }, Telling::Sweep, judging);
            }
            TakeHow::Lease { lease_ms } => {
                let mut leases = Vec::with_capacity(taken.len());
                for (delivery, (_, entry)) in taken.iter_mut().zip(&chosen) {
                    let of_queue = || self.queues.get(&entry.queue).map(|queue| queue.settings.lease_ms);
                    let lease = micros(lease_ms.or_else(of_queue).unwrap_or_default());
                    delivery.deliveries = entry.deliveries.saturating_add(1);
                    let until = now.wall_of(now.end_of(now.wall, lease));
                    delivery.leased_until = Some(Timestamp::from_micros(until));
                    delivery.receipt = Some(self.receipt(delivery.id, delivery.deliveries));
                    leases.push(Leased { id: delivery.id, delivery: delivery.deliveries, lease });
                }
                self.log(&Queued::Leased { at: now.wall, leases }, Telling::Sweep, judging);
            }
        }
        Ok(QueueOutcome::Taken(taken.into_boxed_slice()))
    }

    /// The messages with their texts, as many as may be at once.
    fn read_chosen(
        &self,
        chosen: &[(u32, Entry)],
        judging: &mut Judging<'_>,
    ) -> Result<Vec<Delivery>, Refusal> {
        let mut taken = Vec::with_capacity(chosen.len());
        let mut bytes = 0;
        for (_, entry) in chosen {
            bytes += usize::try_from(entry.text_bytes()).unwrap_or(usize::MAX);
            if !taken.is_empty() && bytes > TAKE_BYTES_MAX.min(judging.texts) {
                break;
            }
            match self.text(entry, judging) {
                Some((group, text)) => taken.push(self.delivery(entry, group, text)),
                // What can be read is delivered first.
                None if taken.is_empty() => return Err(Refusal::Unreadable),
                None => break,
            }
        }
        judging.texts = judging.texts.saturating_sub(bytes);
        Ok(taken)
    }

    /// A message as it is told, not on lease.
    pub(in crate::embedded::queues) fn delivery(
        &self,
        entry: &Entry,
        group: Option<Arc<str>>,
        text: String,
    ) -> Delivery {
        let dead = self.dead.get(&entry.id).map(|dead| DeadLetter {
            origin: Arc::clone(&dead.origin),
            reason: dead.reason,
            deliveries: dead.deliveries,
        });
        Delivery {
            id: entry.id,
            queue: self
                .queues
                .get(&entry.queue)
                .map_or_else(|| Arc::from(""), |queue| Arc::clone(&queue.name)),
            sender: self.client_name(entry.sender),
            receiver: (entry.receiver != 0).then(|| self.client_name(entry.receiver)),
            text,
            group,
            sent_at: Timestamp::from_micros(entry.sent_at),
            deliveries: entry.deliveries,
            receipt: None,
            leased_until: None,
            dead,
        }
    }
}
