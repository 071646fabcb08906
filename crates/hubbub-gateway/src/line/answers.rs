//! The operations of one connection of the line protocol on their way to the log, and all its answers on the way back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hubbub_core::invariant::broken;
use hubbub_core::{ErrorCode, Op, OpBatch, Outcome, QueueOp, QueueOutcome};
use hubbub_pipeline::{SendLane, Waiter};

use super::queries::{self, Query};
use super::responses::{self, ERROR, OK};
use crate::Gateway;
use crate::auth::caller::Caller;
use crate::connection::pending::{Encoder, Pending};
use crate::connection::socket::Socket;
use crate::problem::Problem;

/// With so many queues, the messages of all queues are refused.
const QUEUES_MAX: usize = 1_024;

enum Answer {
    Line(&'static [u8], usize),
    /// The answer of a query, which begins once everything before it is answered.
    Query(Query, Option<Caller>),
    Running(Pin<Box<dyn Future<Output = Vec<u8>> + Send>>),
    Found(Vec<u8>),
    Leave,
}

/// What became of the requests behind which nothing is decoded.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Encoded {
    /// The connection is the client now that it asked to be.
    pub(super) has_registered: bool,
    pub(super) has_left: bool,
}

pub(super) struct Answers {
    pending: Pending<Answer>,
    staged_queues: Vec<String>,
    /// Queues whose messages are refused until the connection is quiet: an earlier one was not stored, and its sender
    /// cannot know that yet.
    refusing: Vec<String>,
    /// Whether the last request must be answered before anything behind it is decoded.
    is_barred: bool,
}

impl Answers {
    pub(super) fn new(waiter: Arc<Waiter>) -> Self {
        let (staged_queues, refusing) = (Vec::new(), Vec::new());
        Self { pending: Pending::new(waiter), staged_queues, refusing, is_barred: false }
    }

    /// Takes an operation; it goes to the log with the others of this read in `ops`. A message to a queue in which an
    /// earlier one was refused is refused.
    pub(super) fn stage(&mut self, gateway: &Gateway, ops: &mut OpBatch, op: QueueOp<'_>) {
        if let QueueOp::Send(send) = &op {
            if self.refusing.len() >= QUEUES_MAX || self.refusing.iter().any(|queue| queue == send.queue) {
                gateway.metrics.reject(ErrorCode::Overloaded, 1);
                return self.push_line(gateway, ops, ERROR);
            }
            if self.staged_queues.last().is_none_or(|last| last != send.queue) {
                self.staged_queues.push(send.queue.to_owned());
            }
        }
        self.pending.stage(ops, &Op::Queue(op));
    }

    /// Answers a message that was not taken; those that follow it in its queue are not, either.
    pub(super) fn refuse_send(&mut self, gateway: &Gateway, ops: &mut OpBatch, queue: &str) {
        self.push_line(gateway, ops, ERROR);
        if self.refusing.len() < QUEUES_MAX && self.refusing.iter().all(|refusing| refusing != queue) {
            self.refusing.push(queue.to_owned());
        }
    }

    /// Submits what is staged. What the log does not take is answered `Error`; nothing of it was stored.
    pub(super) fn submit(&mut self, gateway: &Gateway, ops: &mut OpBatch) {
        let Self { pending, staged_queues, refusing, .. } = self;
        pending.submit(gateway, ops, |_, _, count| {
            refusing.append(staged_queues);
            Answer::Line(ERROR, count)
        });
        staged_queues.clear();
    }

    /// Answers with a line, behind everything before it.
    pub(super) fn push_line(&mut self, gateway: &Gateway, ops: &mut OpBatch, line: &'static [u8]) {
        self.submit(gateway, ops);
        self.pending.push(Answer::Line(line, 1));
    }

    /// Answers a query, which sees everything before it. Nothing behind it is decoded before.
    pub(super) fn push_query(
        &mut self,
        gateway: &Gateway,
        ops: &mut OpBatch,
        (query, caller): (Query, Option<Caller>),
    ) {
        self.submit(gateway, ops);
        self.pending.push(Answer::Query(query, caller));
        self.is_barred = true;
    }

    /// Ends the connection behind everything before.
    pub(super) fn push_leave(&mut self, gateway: &Gateway, ops: &mut OpBatch) {
        self.submit(gateway, ops);
        self.pending.push(Answer::Leave);
        self.is_barred = true;
    }

    /// Has nothing decoded before everything so far is answered.
    pub(super) fn bar(&mut self) {
        self.is_barred = true;
    }

    pub(super) fn is_barred(&self) -> bool {
        self.is_barred && self.unanswered() > 0
    }

    /// Everything is answered and nothing more has come: what comes next is sent by somebody who can know the answers.
    pub(super) fn on_quiet(&mut self) {
        self.refusing = Vec::new();
    }

    pub(super) fn unanswered(&self) -> usize {
        self.pending.unanswered()
    }

    /// Appends the answers that are ready, in order. `client` is whom a registration was for.
    pub(super) fn encode(
        &mut self,
        gateway: &Arc<Gateway>,
        context: &mut Context<'_>,
        client: u64,
        socket: &mut Socket,
    ) -> Encoded {
        let Self { pending, refusing, .. } = self;
        let encoded = Encoded::default();
        let mut encoder = LineEncoder { gateway, context, client, refusing, encoded };
        pending.encode(&mut encoder, socket);
        let encoded = encoder.encoded;
        self.is_barred &= self.unanswered() > 0;
        encoded
    }
}

struct LineEncoder<'a, 'c> {
    gateway: &'a Arc<Gateway>,
    context: &'a mut Context<'c>,
    client: u64,
    refusing: &'a mut Vec<String>,
    encoded: Encoded,
}

impl Encoder<Answer> for LineEncoder<'_, '_> {
    fn is_ready(&mut self, answer: &mut Answer) -> bool {
        if let Answer::Query(query, caller) = answer {
            let answering = queries::answer(self.gateway.clone(), *query, caller.take());
            *answer = Answer::Running(Box::pin(answering));
        }
        let Answer::Running(running) = answer else { return true };
        match running.as_mut().poll(self.context) {
            Poll::Ready(found) => *answer = Answer::Found(found),
            Poll::Pending => return false,
        }
        true
    }

    fn answer(&mut self, answer: Answer, out: &mut Vec<u8>) {
        match answer {
            Answer::Line(line, count) => (0..count).for_each(|_| out.extend_from_slice(line)),
            Answer::Found(found) => out.extend_from_slice(&found),
            Answer::Leave => {
                out.extend_from_slice(OK);
                self.encoded.has_left = true;
            }
            Answer::Query(..) | Answer::Running(_) => {
                broken("a query is answered once it has ended");
                out.extend_from_slice(ERROR);
            }
        }
    }

    fn outcome(&mut self, outcome: &Outcome, out: &mut Vec<u8>) {
        self.encoded.has_registered |= matches!(outcome, Outcome::Queue(QueueOutcome::Client { .. }));
        responses::write_outcome(outcome, self.client, out);
    }

    fn failure(&mut self, _: &Problem, count: usize, lanes: Vec<SendLane>, out: &mut Vec<u8>) {
        self.refusing.extend(lanes.into_iter().filter_map(queue_of));
        (0..count).for_each(|_| out.extend_from_slice(ERROR));
    }
}

fn queue_of(lane: SendLane) -> Option<String> {
    match lane {
        SendLane::Queue(queue) => Some(queue),
        SendLane::Room(_) => None,
    }
}
