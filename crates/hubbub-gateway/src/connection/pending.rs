//! Operations on their way from one connection to the log, and its answers on the way back, in the order of the
//! requests.

use std::collections::VecDeque;
use std::sync::Arc;

use hubbub_core::{Op, OpBatch, Outcome};
use hubbub_pipeline::{SendLane, Ticket, Waiter};

use super::socket::{BACKLOG_BYTES_MAX, Socket};
use crate::Gateway;
use crate::problem::Problem;

/// Entries that an idle connection keeps memory for.
const KEPT_ENTRIES: usize = 8;

enum Entry<A> {
    /// Submitted operations, each of which answers one request.
    Submitted(Ticket),
    /// What answers so many requests without the log.
    Answer(A, usize),
}

pub(crate) trait Encoder<A> {
    /// Whether `answer` can be encoded now; everything before it is. After `true` it is encoded.
    fn is_ready(&mut self, answer: &mut A) -> bool;
    /// Appends an answer that needed no operation.
    fn answer(&mut self, answer: A, out: &mut Vec<u8>);
    /// The next outcomes are of this history of a shared store.
    fn committed_in(&mut self, _epoch: &Arc<str>) {}
    /// Appends the answer of the oldest operation.
    fn outcome(&mut self, outcome: &Outcome, out: &mut Vec<u8>);
    /// Appends the answers of the `count` oldest operations, which were not stored. The log refuses whatever this
    /// connection submitted to `lanes` behind them.
    fn failure(&mut self, problem: &Problem, count: usize, lanes: Vec<SendLane>, out: &mut Vec<u8>);
}

/// The answers one connection still gets; `A` = those that need no operation.
pub(crate) struct Pending<A> {
    waiter: Arc<Waiter>,
    entries: VecDeque<Entry<A>>,
    /// Operations of the current read that are not submitted yet.
    staged: usize,
    unanswered: usize,
}

impl<A> Pending<A> {
    pub(crate) fn new(waiter: Arc<Waiter>) -> Self {
        Self { waiter, entries: VecDeque::new(), staged: 0, unanswered: 0 }
    }

    /// Takes an operation that answers a request; it goes to the log with the others in `ops`.
    pub(crate) fn stage(&mut self, ops: &mut OpBatch, op: &Op<'_>) {
        ops.push(op);
        self.staged += 1;
        self.unanswered += 1;
    }

    pub(crate) fn staged(&self) -> usize {
        self.staged
    }

    /// Submits what is staged. Where the log takes nothing, `refuse` makes the answer of all of it, which it is shown.
    pub(crate) fn submit(
        &mut self,
        gateway: &Gateway,
        ops: &mut OpBatch,
        refuse: impl FnOnce(&OpBatch, Problem, usize) -> A,
    ) {
        if self.staged == 0 {
            return;
        }
        let count = std::mem::take(&mut self.staged);
        self.entries.push_back(match gateway.log.submit(ops, &self.waiter) {
            Ok(ticket) => Entry::Submitted(ticket),
            Err(error) => {
                let problem = Problem::from(error);
                gateway.metrics.reject(problem.code, count as u64);
                Entry::Answer(refuse(ops, problem, count), count)
            }
        });
        ops.clear();
    }

    /// Answers a request behind everything before it. What is staged must have been submitted.
    pub(crate) fn push(&mut self, answer: A) {
        self.unanswered += 1;
        self.entries.push_back(Entry::Answer(answer, 1));
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Bytes that entries take, beside what their answers hold.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry<A>>()
    }

    /// Forgets everything that is not answered, for a connection that ends at once.
    pub(crate) fn forget(&mut self) {
        (self.entries, self.staged, self.unanswered) = (VecDeque::new(), 0, 0);
    }

    pub(crate) fn may_be_ready(&self) -> bool {
        self.entries.front().is_some_and(|entry| match entry {
            Entry::Submitted(ticket) => ticket.outcomes().is_some(),
            Entry::Answer(..) => true,
        })
    }

    /// Appends the answers that are ready, in order, as many as the peer's backlog allows for. Whether there were any.
    pub(crate) fn encode(&mut self, encoder: &mut impl Encoder<A>, socket: &mut Socket) -> bool {
        let before = self.unanswered;
        while let Some(entry) = self.entries.front_mut() {
            if socket.backlog_bytes() >= BACKLOG_BYTES_MAX {
                socket.hold_back();
                break;
            }
            let is_ready = match entry {
                Entry::Submitted(ticket) => ticket.outcomes().is_some(),
                Entry::Answer(answer, _) => encoder.is_ready(answer),
            };
            if !is_ready {
                break;
            }
            match self.entries.pop_front() {
                Some(Entry::Submitted(ticket)) => {
                    self.unanswered -= ticket.count();
                    encode_ticket(&ticket, &self.waiter, encoder, socket.out());
                }
                Some(Entry::Answer(answer, requests)) => {
                    self.unanswered -= requests;
                    encoder.answer(answer, socket.out());
                }
                None => {}
            }
        }
        if self.entries.is_empty() && self.entries.capacity() > KEPT_ENTRIES {
            self.release();
        }
        self.unanswered < before
    }

    pub(crate) fn release(&mut self) {
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
    }
}

fn encode_ticket<A>(ticket: &Ticket, waiter: &Waiter, encoder: &mut impl Encoder<A>, out: &mut Vec<u8>) {
    match ticket.outcomes() {
        Some(Ok(outcomes)) if outcomes.len() == ticket.count() => {
            ticket.epoch().iter().for_each(|epoch| encoder.committed_in(epoch));
            outcomes.iter().for_each(|outcome| encoder.outcome(outcome, out));
        }
        Some(Err(error)) => {
            let lanes = waiter.acknowledge_failure(ticket);
            encoder.failure(&Problem::from(error), ticket.count(), lanes, out);
        }
        // Left out, they would shift all answers behind them.
        Some(Ok(_)) | None => {
            encoder.failure(&Problem::no_outcome(), ticket.count(), Vec::new(), out);
        }
    }
}
