//! Taking messages away or on lease.

use std::sync::Arc;

use hubbub_core::queue::{DeadLetter, Delivery, TAKE_BYTES_MAX, TAKE_MAX, Take, TakeHow};
use hubbub_core::{QueueOutcome, Refusal, Timestamp};

use super::{Judged, Judging};
use crate::embedded::queues::entry::Entry;
use crate::embedded::queues::select::{Selected, Selection};
use crate::embedded::queues::time::micros;
use crate::embedded::queues::{Queues, Telling};
use crate::embedded::record::{Leased, Queued};

/// Messages that one take meets at most whose texts cannot be read; each may cost a read of a failing disk. Then it is
/// refused, and the next one goes on behind them.
const UNREADABLE_MAX: usize = 64;

impl Queues {
    pub(super) fn take(&mut self, take: &Take<'_>, judging: &mut Judging<'_>) -> Judged {
        let queue = take.wanted.queue.map(|queue| self.number_of(queue)).transpose()?;
        let max = judging.listed(take.max.min(TAKE_MAX));
        let is_away = take.how == TakeHow::Away;
        self.make_copies_for_name(take.wanted.receiver);
        let mut chosen = match self.selection(&take.wanted, queue) {
            Some(selection) => self.choose(&selection, max, is_away, judging)?,
            None => Vec::new(),
        };
        if let (Some(receiver), true) = (take.wanted.receiver, take.registers && judging.autoregister)
            && self.registered(receiver).is_none()
        {
            self.check_client_fits()?;
            self.enter_client(receiver, judging);
        }
        if chosen.is_empty() {
            return Ok(QueueOutcome::Taken(Box::default()));
        }
        let now = judging.now;
        match take.how {
            TakeHow::Away => {
                let ids = chosen.iter().map(|(entry, _)| entry.id).collect();
                self.log(&Queued::Taken { at: now.wall, ids }, Telling::Sweep, judging);
            }
            TakeHow::Lease { lease_ms } => {
                let mut leases = Vec::with_capacity(chosen.len());
                for (entry, delivery) in &mut chosen {
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
        Ok(QueueOutcome::Taken(chosen.into_iter().map(|(_, delivery)| delivery).collect()))
    }

    /// The messages that are taken. Those that cannot be read are set aside, so that they are in nobody's way.
    fn choose(
        &mut self,
        selection: &Selection,
        max: usize,
        is_away: bool,
        judging: &mut Judging<'_>,
    ) -> Result<Vec<(Entry, Delivery)>, Refusal> {
        let mut left = UNREADABLE_MAX;
        loop {
            let Selected { chosen, over } = self.select(selection, max, is_away, u64::MAX, judging.now.at);
            self.expire(&over);
            let (taken, unreadable) = self.read_chosen(&chosen, left, judging);
            self.set_aside(&unreadable);
            left = left.saturating_sub(unreadable.len());
            if !taken.is_empty() || unreadable.is_empty() {
                return Ok(taken);
            }
            if left == 0 {
                return Err(Refusal::Unreadable);
            }
        }
    }

    /// The messages with their texts, as many as may be at once, and those whose texts cannot be read, `most` at most.
    fn read_chosen(
        &self,
        chosen: &[(u32, Entry)],
        most: usize,
        judging: &mut Judging<'_>,
    ) -> (Vec<(Entry, Delivery)>, Vec<Entry>) {
        let (mut taken, mut unreadable) = (Vec::with_capacity(chosen.len()), Vec::new());
        let mut bytes = 0;
        for (_, entry) in chosen {
            if unreadable.iter().any(|before| entry.is_grouped_with(before)) {
                continue;
            }
            bytes += usize::try_from(entry.text_bytes()).unwrap_or(usize::MAX);
            if !taken.is_empty() && bytes > TAKE_BYTES_MAX.min(judging.texts) {
                break;
            }
            match self.text(entry, judging) {
                Some((group, text)) => taken.push((*entry, self.delivery(entry, group, text))),
                None => unreadable.push(*entry),
            }
            if unreadable.len() >= most {
                break;
            }
        }
        judging.texts = judging.texts.saturating_sub(bytes);
        (taken, unreadable)
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
