//! Ending and extending leases, removing single messages.

use hubbub_core::queue::{LeaseReceipt, Settle};
use hubbub_core::{QueueOutcome, Refusal, Timestamp};

use super::{Judged, Judging};
use crate::embedded::queues::entry::State;
use crate::embedded::queues::time::micros;
use crate::embedded::queues::{DeadReason, Queues, Telling};
use crate::embedded::record::{Queued, Why};

impl Queues {
    pub(super) fn settle(
        &mut self,
        queue: &str,
        receipt: LeaseReceipt,
        how: Settle,
        judging: &mut Judging<'_>,
    ) -> Judged {
        let number = self.number_of(queue)?;
        let now = judging.now;
        let (_, entry) = self.find_in(number, receipt.id).ok_or(Refusal::StaleReceipt)?;
        let is_its = entry.state == State::Leased
            && self.receipt(entry.id, entry.deliveries) == receipt
            && entry.at > now.at;
        let settings =
            self.queues.get(&number).filter(|_| is_its).ok_or(Refusal::StaleReceipt)?.settings.clone();
        let (id, at) = (entry.id, now.wall);
        // The next of its group may be one of them.
        self.make_copies_for(entry.receiver);
        let until = match how {
            Settle::Ack => {
                let gone = Queued::Gone { at, why: Why::Acknowledged, ids: vec![id] };
                self.log(&gone, Telling::Outcome, judging);
                None
            }
            Settle::Nack { .. } if settings.exhausts(entry.deliveries) => {
                let to = self.dead_letter_queue(&settings.dead_letter_of(queue), judging);
                let dead = Queued::Dead { id, to, reason: DeadReason::Rejected };
                self.log(&dead, Telling::Outcome, judging);
                None
            }
            Settle::Nack { delay_ms } => {
                let delay = micros(delay_ms.unwrap_or_else(|| settings.backoff(entry.deliveries)));
                self.log(&Queued::Returned { at, id, delay }, Telling::Outcome, judging);
                Some(delay)
            }
            Settle::Extend { lease_ms } => {
                let lease = micros(lease_ms.unwrap_or(settings.lease_ms));
                self.log(&Queued::Extended { at, id, lease }, Telling::Outcome, judging);
                Some(lease)
            }
        };
        let until = until.map(|lasts| Timestamp::from_micros(now.wall_of(now.end_of(at, lasts))));
        Ok(QueueOutcome::Settled { until, ready: self.take_freed() })
    }

    pub(super) fn remove_one(&mut self, queue: &str, id: u64, judging: &mut Judging<'_>) -> Judged {
        let number = self.number_of(queue)?;
        let entry = self.entry_in(number, id).ok_or(Refusal::UnknownMessage)?;
        self.make_copies_for(entry.receiver);
        let gone = Queued::Gone { at: judging.now.wall, why: Why::Removed, ids: vec![id] };
        self.log(&gone, Telling::Outcome, judging);
        Ok(QueueOutcome::Deleted { messages: 1, ready: self.take_freed() })
    }
}
