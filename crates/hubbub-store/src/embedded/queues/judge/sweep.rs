//! Ending what has run out, and bringing dead letters back.

use std::collections::BTreeMap;
use std::sync::Arc;

use hubbub_core::queue::TAKE_MAX;
use hubbub_core::{QueueOutcome, Refusal};

use super::{Judged, Judging, LISTED_BYTES, PUT_BYTES, RECORD_BYTES};
use crate::embedded::queues::entry::State;
use crate::embedded::queues::{DeadReason, Queues, Telling};
use crate::embedded::record::{Queued, Why};

/// Messages that one sweep clears away or moves at most.
const SWEPT_MAX: usize = 500;

/// Bytes of the record that moves one message to a dead-letter queue, at most.
const DEAD_BYTES: usize = LISTED_BYTES;

impl Queues {
    pub(super) fn sweep(&mut self, judging: &mut Judging<'_>) -> QueueOutcome {
        self.make_some(self.limits.broadcasts.per_sweep.max(1));
        let mut left = SWEPT_MAX;
        let most = judging.listed(left.min(self.expired.len()));
        let ids: Vec<u64> = self.expired.iter().copied().take(most).collect();
        let (gone, strays): (Vec<u64>, Vec<u64>) = ids.into_iter().partition(|id| self.is_in_a_queue(*id));
        // Of deleted queues, which are cleared away by themselves.
        for id in strays {
            self.expired.remove(&id);
        }
        left -= gone.len();
        if !gone.is_empty() {
            let gone = Queued::Gone { at: judging.now.wall, why: Why::Expired, ids: gone };
            self.log(&gone, Telling::Sweep, judging);
        }
        self.bury(left, judging);
        let woken = std::mem::take(&mut self.woken);
        let named = woken.iter().filter_map(|number| Some(Arc::clone(&self.queues.get(number)?.name)));
        let ready = named.collect();
        let is_due = self.due_at().is_some_and(|due| due <= judging.now.at);
        QueueOutcome::Swept { more: is_due, ready }
    }

    /// Moves messages that were delivered too often to dead-letter queues.
    fn bury(&mut self, most: usize, judging: &mut Judging<'_>) {
        let ids: Vec<u64> = self.exhausted.iter().copied().take(most).collect();
        for (place, id) in (0..).zip(ids) {
            let found = self.find(id).and_then(|(_, entry)| {
                let queue = self.queues.get(&entry.queue)?;
                Some(queue.settings.dead_letter_of(&queue.name))
            });
            let Some(name) = found else {
                self.exhausted.remove(&id);
                continue;
            };
            let is_there = self.queue_named(&name).is_some_and(|queue| queue.is_dead_letter);
            let needed = if is_there { DEAD_BYTES } else { PUT_BYTES + DEAD_BYTES };
            // The first has its space for sure.
            if place > 0 {
                if judging.spare < needed {
                    return;
                }
                judging.spare -= needed;
            }
            let to = self.dead_letter_queue(&name, judging);
            self.log(&Queued::Dead { id, to, reason: DeadReason::LeaseExpired }, Telling::Sweep, judging);
        }
    }

    fn is_in_a_queue(&self, id: u64) -> bool {
        self.find(id).is_some_and(|(_, entry)| self.queues.contains_key(&entry.queue))
    }

    pub(super) fn redrive(&mut self, queue: &str, id: Option<u64>, judging: &mut Judging<'_>) -> Judged {
        let queue = self.queue_named(queue).ok_or(Refusal::UnknownQueue)?;
        if let Some(id) = id
            && self.entry_in(queue.number, id).is_none()
        {
            return Err(Refusal::UnknownMessage);
        }
        let most = TAKE_MAX.min(1 + judging.spare / (LISTED_BYTES + RECORD_BYTES));
        let mut moved: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let (mut messages, mut more) = (0, false);
        let mut ids = queue.all.iter();
        ids.advance_to(id.unwrap_or_default());
        for id in ids.take_while(|one| id.is_none_or(|id| id == *one)) {
            let Some((_, entry)) = self.find(id) else { continue };
            let origin = self.dead.get(&id).and_then(|dead| self.queue_named(&dead.origin));
            let Some(origin) = origin.filter(|_| !matches!(entry.state, State::Leased | State::Expired))
            else {
                continue;
            };
            if messages >= most {
                more = true;
                break;
            }
            messages += 1;
            moved.entry(origin.number).or_default().push(id);
        }
        judging.spare = judging.spare.saturating_sub(messages * (LISTED_BYTES + RECORD_BYTES));
        let mut ready = Vec::with_capacity(moved.len());
        for (to, ids) in moved {
            ready.extend(self.queues.get(&to).map(|queue| Arc::clone(&queue.name)));
            self.log(&Queued::Redriven { to, ids }, Telling::Sweep, judging);
        }
        let messages = messages as u64;
        Ok(QueueOutcome::Redriven { messages, more, ready: ready.into_boxed_slice() })
    }
}
