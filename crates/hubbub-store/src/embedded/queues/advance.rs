//! What time does by itself: delays and leases end, messages outlive their time, ids are forgotten.

use hubbub_core::Clock;
use hubbub_core::queue::ID_KEPT_MS;

use super::entry::{Entry, NEVER, State};
use super::time::{Now, micros};
use super::{Queues, WakeTarget};

/// Messages looked at by one call at most, so that no batch waits long; the rest is for the next call.
const STEP_MAX: usize = 500;

/// Messages of deleted queues cleared away by one call at most.
const CLEAR_MAX: usize = 500;

/// Time out of service that is counted for messages that were there at the start.
#[derive(Debug)]
pub(super) struct TimeOut {
    micros: i64,
    /// Numbers of the entries that it is not counted for yet.
    left: Vec<u32>,
}

fn sooner(at: i64, micros: i64) -> i64 {
    if at == NEVER { NEVER } else { at.saturating_sub(micros) }
}

impl Queues {
    /// Brings everything to where it is by now, and says when that is.
    pub(super) fn time_has_come(&mut self, clock: &dyn Clock) -> Now {
        if let Some(micros) = self.times.time_out(clock) {
            self.begin_time_out(micros);
        }
        self.count_time_out();
        let now = self.times.now(clock);
        self.advance(now);
        now
    }

    /// What was there at the start has waited for so much longer: of messages to everybody at once, of others step by
    /// step. Whatever comes to one later is late, not early.
    fn begin_time_out(&mut self, micros: i64) {
        for pending in self.pending.iter_mut().filter(|pending| pending.template.id <= self.loaded) {
            pending.template.expires = sooner(pending.template.expires, micros);
            pending.template.at = sooner(pending.template.at, micros);
        }
        let runs_out = |entry: &Entry| entry.at != NEVER || entry.expires != NEVER;
        let was_there = |entry: &Entry| entry.is_alive() && entry.id <= self.loaded;
        let all = self.slab.iter().filter(|(_, entry)| was_there(entry) && runs_out(entry));
        let left = all.map(|(number, _)| number).collect();
        self.time_out = Some(TimeOut { micros, left });
    }

    /// Does a step of that. Leases are left alone: they end late, but never while their holders may rely on them. Nor do
    /// delays end sooner that began after the start.
    fn count_time_out(&mut self) {
        let Some(TimeOut { micros, mut left }) = self.time_out.take() else {
            if !self.times.is_unproven() && !self.returned.is_empty() {
                self.returned.clear();
            }
            return;
        };
        for number in left.split_off(left.len().saturating_sub(STEP_MAX)) {
            let entry = self.slab.get(number);
            // Another message may have its place by now.
            if !entry.is_alive() || entry.id > self.loaded {
                continue;
            }
            let begun_before = entry.state != State::Leased && !self.returned.contains(&entry.id);
            self.change(number, |entry| {
                entry.expires = sooner(entry.expires, micros);
                if begun_before {
                    entry.at = sooner(entry.at, micros);
                }
            });
        }
        if left.is_empty() {
            self.changes += 1;
            self.counted_at = self.changes;
        } else {
            self.time_out = Some(TimeOut { micros, left });
        }
    }

    /// Whether time out of service is to be counted that is proven by now.
    pub(super) fn may_count_time_out(&self, clock: &dyn Clock) -> bool {
        self.time_out.is_some() || self.times.is_proven_since(clock)
    }

    /// Whether time out of service was counted that the last checkpoint does not know of. Had it been written before that was
    /// proven, the next start would find everything as far from its end as if that time had not passed.
    pub(super) fn lacks_checkpoint(&self) -> bool {
        self.counted_at > self.kept_changes
    }

    /// Brings everything to where it is by now. Changes nothing that a start would not come to by itself.
    pub(super) fn advance(&mut self, now: Now) {
        let wake_target = std::mem::take(&mut self.wake_target);
        self.advance_pending(now);
        let mut left = STEP_MAX;
        while left > 0
            && let Some((at, id)) = self.timed.first().copied()
            && at <= now.at
        {
            left -= 1;
            match self.find(id) {
                Some((number, entry)) if self.queues.contains_key(&entry.queue) => {
                    let state = self.state_by(&entry, now);
                    self.change(number, |entry| (entry.state, entry.at) = (state, NEVER));
                }
                _ => {
                    self.timed.pop_first();
                }
            }
        }
        while left > 0
            && let Some((expires, id)) = self.expiring.first().copied()
            && expires <= now.at
        {
            left -= 1;
            match self.find(id) {
                // A lease goes on to its end.
                Some((number, entry))
                    if entry.state != State::Leased && self.queues.contains_key(&entry.queue) =>
                {
                    let state = self.state_by(&entry, now);
                    self.change(number, |entry| {
                        entry.state = state;
                        if state == State::Exhausted {
                            entry.at = NEVER;
                        }
                    });
                }
                _ => {
                    self.expiring.pop_first();
                }
            }
        }
        self.settled.forget(now.at);
        self.clear_deleted(now);
        self.wake_target = wake_target;
    }

    /// Whether a delay or lease is over by a time that [`Self::advance`] has not come to.
    pub(super) fn is_due_by(&self, at: i64) -> bool {
        self.timed.first().is_some_and(|(due, _)| *due <= at)
    }

    /// How a message stands whose delay, lease or life is over. Without deliveries left it is a dead letter, however old it
    /// is by now: so the order in which these ended does not count, which a start does not know.
    fn state_by(&self, entry: &Entry, now: Now) -> State {
        let queue = self.queues.get(&entry.queue);
        if queue.is_some_and(|queue| queue.settings.exhausts(entry.deliveries)) {
            State::Exhausted
        } else if entry.expires <= now.at {
            State::Expired
        } else {
            State::Ready
        }
    }

    /// Ends messages that outlived their time, which somebody met before [`Self::advance`] came to them: so nobody passes
    /// over them again.
    pub(super) fn expire(&mut self, over: &[u64]) {
        for id in over {
            if let Some((number, _)) = self.find(*id).filter(|(_, entry)| entry.state == State::Ready) {
                self.change(number, |entry| entry.state = State::Expired);
            }
        }
    }

    fn clear_deleted(&mut self, now: Now) {
        // Dead letters are known by the ids of the queue they came from, which may be there.
        let until = now.end_of(now.wall, micros(ID_KEPT_MS));
        self.wake_target = WakeTarget::Nobody;
        for _ in 0..CLEAR_MAX {
            let Some(queue) = self.deleted.last_mut() else { break };
            let Some(id) = queue.all.min() else {
                self.deleted.pop();
                continue;
            };
            queue.all.remove(id);
            if let Some((number, _)) = self.find(id) {
                self.remove(number, Some(until));
            }
        }
    }

    /// When time does something next; `None` = never. What is there to sweep is due at once.
    pub(super) fn due_at(&self) -> Option<i64> {
        let has_work = !self.woken.is_empty()
            || !self.exhausted.is_empty()
            || !self.expired.is_empty()
            || !self.deleted.is_empty()
            || !self.pending.is_empty()
            || self.time_out.is_some();
        if has_work {
            return Some(i64::MIN);
        }
        let first = |(at, _): &(i64, u64)| *at;
        self.timed.first().map(first).into_iter().chain(self.expiring.first().map(first)).min()
    }
}
