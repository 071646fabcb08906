//! Operations on their way from one connection to the log, and all answers on the way back, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use hubbub_core::{ErrorCode, Op, OpBatch, Outcome, QueueOp, QueueOutcome};
use hubbub_pipeline::{Log, Metrics, SendLane, Ticket, Waiter};

use super::wording;
use crate::problem::Problem;

/// Unanswered commands after which the connection is not read any more.
pub(super) const UNANSWERED_MAX: usize = 256;
/// Places for answers that an idle connection keeps.
const PLACES_KEPT: usize = 8;

enum Entry {
    /// Submitted operations.
    Submitted(Ticket),
    /// So many times the same words.
    Words(&'static [u8], usize),
}

/// One connection's answers.
pub(super) struct Answers {
    waiter: Arc<Waiter>,
    entries: VecDeque<Entry>,
    /// Operations of the current read that are not submitted yet.
    staged: usize,
    /// Queues of the staged messages.
    staged_queues: Vec<String>,
    unanswered: usize,
    /// Queues whose messages are refused until the connection is quiet: an earlier one was not stored, and its sender
    /// cannot know that yet.
    refusing: Vec<String>,
}

impl Answers {
    pub(super) fn new(waiter: Arc<Waiter>) -> Self {
        Self {
            waiter,
            entries: VecDeque::new(),
            staged: 0,
            staged_queues: Vec::new(),
            unanswered: 0,
            refusing: Vec::new(),
        }
    }

    /// Takes an operation; it goes to the log with the others of this read. `ops` collects them.
    pub(super) fn stage(&mut self, ops: &mut OpBatch, op: QueueOp<'_>) {
        if let QueueOp::Send(send) = &op
            && self.staged_queues.last().is_none_or(|last| last != send.queue)
        {
            self.staged_queues.push(send.queue.to_owned());
        }
        ops.push(&Op::Queue(op));
        self.staged += 1;
        self.unanswered += 1;
    }

    /// Submits what is staged. What the log does not take is answered `Error`; nothing of it was stored.
    pub(super) fn submit(&mut self, log: &Log, metrics: &Metrics, ops: &mut OpBatch) {
        if self.staged == 0 {
            return;
        }
        let entry = match log.submit(ops, &self.waiter) {
            Ok(ticket) => Entry::Submitted(ticket),
            Err(error) => {
                metrics.reject(Problem::from(error).code, self.staged as u64);
                self.refusing.append(&mut self.staged_queues);
                Entry::Words(wording::ERROR, self.staged)
            }
        };
        self.staged_queues.clear();
        self.entries.push_back(entry);
        self.staged = 0;
        ops.clear();
    }

    /// Whether a message to this queue must be refused.
    pub(super) fn refuses(&self, queue: &str) -> bool {
        self.refusing.iter().any(|refusing| refusing == queue)
    }

    /// Answers a message that [`Self::refuses`] is true for. What is staged must have been submitted.
    pub(super) fn refuse(&mut self, metrics: &Metrics) {
        metrics.reject(ErrorCode::Overloaded, 1);
        self.push(wording::ERROR);
    }

    /// Everything is answered and nothing more has come: what comes next is sent by somebody who can know the answers.
    pub(super) fn quiet(&mut self) {
        self.refusing = Vec::new();
    }

    /// Puts an answer in its place. What is staged must have been submitted.
    pub(super) fn push(&mut self, words: &'static [u8]) {
        self.unanswered += 1;
        match self.entries.back_mut() {
            Some(Entry::Words(last, count)) if *last == words => *count += 1,
            _ => self.entries.push_back(Entry::Words(words, 1)),
        }
    }

    /// Whether as much is unanswered as may be.
    pub(super) fn is_full(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unanswered == 0
    }

    /// Whether the oldest command can be answered now.
    pub(super) fn is_ready(&self) -> bool {
        self.entries.front().is_some_and(|entry| match entry {
            Entry::Submitted(ticket) => ticket.outcomes().is_some(),
            Entry::Words(..) => true,
        })
    }

    /// Appends the answers that are ready, in order, until `out` has `bytes_max`. `client` is whom a registration was
    /// for; whether one went through is answered.
    pub(super) fn write(&mut self, client: u64, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        let mut has_registered = false;
        while let Some(entry) = self.entries.front() {
            let count = match entry {
                Entry::Words(words, count) => {
                    (0..*count).for_each(|_| out.extend_from_slice(words));
                    *count
                }
                Entry::Submitted(ticket) => match ticket.outcomes() {
                    None => break,
                    Some(Ok(outcomes)) => {
                        for outcome in outcomes {
                            has_registered |= matches!(outcome, Outcome::Queue(QueueOutcome::Client { .. }));
                            wording::write_outcome(outcome, client, out);
                        }
                        ticket.count()
                    }
                    Some(Err(_)) => {
                        self.refusing
                            .extend(self.waiter.acknowledge_failure(ticket).into_iter().filter_map(queue_of));
                        (0..ticket.count()).for_each(|_| out.extend_from_slice(wording::ERROR));
                        ticket.count()
                    }
                },
            };
            self.unanswered -= count;
            self.entries.pop_front();
            if out.len() >= bytes_max {
                break;
            }
        }
        if self.entries.is_empty() && self.entries.capacity() > PLACES_KEPT {
            self.entries = VecDeque::new();
        }
        has_registered
    }
}

fn queue_of(lane: SendLane) -> Option<String> {
    match lane {
        SendLane::Queue(queue) => Some(queue),
        SendLane::Room(_) => None,
    }
}
