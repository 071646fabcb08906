//! Messages and read marks on their way from one socket to the log, and their answers on the way back, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use hubbub_core::{ErrorCode, Op, OpBatch, Outcome, ReadMark, Refusal, RoomId};
use hubbub_pipeline::{Log, Metrics, SendLane, Ticket, Waiter};

use super::labels::{About, Label, Labels};
use super::refusing::RefusingRooms;
use crate::problem::{Problem, Sent, sent};

/// Unanswered frames after which the socket is not read any more.
pub(super) const UNANSWERED_MAX: usize = 1_024;

/// How a dialect words its answers.
pub(super) trait Wording {
    /// Appends the frame that says a message is durable.
    fn success(&self, id: &str, label: Label<'_>, sent: Sent<'_>, out: &mut Vec<u8>);
    /// Appends the frame, if one is wanted, that says where a room's read mark stands.
    fn marked(&self, room: &str, label: Label<'_>, mark: &ReadMark, out: &mut Vec<u8>);
    /// Appends the frame that says why it is not so.
    fn failure(&self, label: Label<'_>, problem: &Problem, out: &mut Vec<u8>);
    /// Called when the answer that begins at `start` is whole.
    fn finish(&self, start: usize, out: &mut Vec<u8>);
}

enum Entry {
    /// Submitted operations, each with a label.
    Submitted(Ticket),
    /// Operations of one room, refused without being submitted, each with a label.
    Refused { problem: Problem, count: usize, room: Option<RoomId> },
    /// A frame that answers something else.
    Frame(Vec<u8>),
    /// A frame that must follow everything that was in the outbox before this place.
    BehindOutbox { frame: Vec<u8>, end: u64 },
}

/// One socket's messages and read marks.
pub(super) struct Sends {
    waiter: Arc<Waiter>,
    entries: VecDeque<Entry>,
    labels: Labels,
    /// Entries that are a [`Entry::Frame`] or [`Entry::BehindOutbox`].
    frames: usize,
    /// Entries that are an [`Entry::BehindOutbox`].
    behind_outbox: usize,
    /// Operations of the current read, all of one room, that are not submitted yet.
    staged: usize,
    staged_room: String,
    refusing: RefusingRooms,
}

impl Sends {
    pub(super) fn new(waiter: Arc<Waiter>) -> Self {
        Self {
            waiter,
            entries: VecDeque::new(),
            labels: Labels::default(),
            frames: 0,
            behind_outbox: 0,
            staged: 0,
            staged_room: String::new(),
            refusing: RefusingRooms::default(),
        }
    }

    /// Takes something checked, of one room; it goes to the log with the others of this read. `ops` collects them.
    pub(super) fn stage(
        &mut self,
        log: &Log,
        metrics: &Metrics,
        ops: &mut OpBatch,
        op: &Op<'_>,
        label: Label<'_>,
    ) {
        let room = op.room().unwrap_or_default();
        if self.refusing.contains(room) {
            self.submit(log, metrics, ops);
            metrics.reject(ErrorCode::Overloaded, 1);
            self.labels.push(label);
            let problem = Problem::refusal(Refusal::OutOfOrder);
            self.entries.push_back(Entry::Refused { problem, count: 1, room: RoomId::new(room).ok() });
            return;
        }
        let goes_alone =
            log.parts_messages() && ops.get(0).is_some_and(|first| is_message(&first) != is_message(op));
        if self.staged > 0 && (self.staged_room != room || goes_alone) {
            self.submit(log, metrics, ops);
        }
        if self.staged == 0 {
            self.staged_room.clear();
            self.staged_room.push_str(room);
        }
        ops.push(op);
        self.labels.push(label);
        self.staged += 1;
    }

    /// Submits what is staged.
    pub(super) fn submit(&mut self, log: &Log, metrics: &Metrics, ops: &mut OpBatch) {
        if self.staged == 0 {
            return;
        }
        let entry = match log.submit(ops, &self.waiter) {
            Ok(ticket) => Entry::Submitted(ticket),
            Err(error) => {
                let problem = Problem::from(error);
                metrics.reject(problem.code, self.staged as u64);
                let room = RoomId::new(&self.staged_room).ok();
                room.iter().for_each(|room| self.refusing.insert(room));
                Entry::Refused { problem, count: self.staged, room }
            }
        };
        self.entries.push_back(entry);
        self.staged = 0;
        ops.clear();
    }

    /// Puts a frame in its place among the answers. What is staged must have been submitted.
    pub(super) fn push_frame(&mut self, frame: Vec<u8>) {
        self.frames += 1;
        self.entries.push_back(Entry::Frame(frame));
    }

    /// Puts a frame in its place among the answers, behind everything the outbox holds up to `end`. What is staged must
    /// have been submitted.
    pub(super) fn push_behind_outbox(&mut self, frame: Vec<u8>, end: u64) {
        self.frames += 1;
        self.behind_outbox += 1;
        self.entries.push_back(Entry::BehindOutbox { frame, end });
    }

    /// Whether an answer waits, now or behind others, for the outbox.
    pub(super) fn waits_for_outbox(&self) -> bool {
        self.behind_outbox > 0
    }

    /// The payload of a ping that is sent for another reason.
    pub(super) fn ping_payload(&self) -> Option<[u8; 8]> {
        self.refusing.ping_payload()
    }

    /// Takes a pong.
    pub(super) fn pong(&mut self, payload: &[u8]) {
        self.refusing.pong(payload);
    }

    /// Frames that are not answered yet.
    pub(super) fn unanswered(&self) -> usize {
        self.labels.len() + self.frames
    }

    /// Whether the oldest frame can be answered now. `has_passed` says of a place in the outbox whether everything before
    /// it is written.
    pub(super) fn has_answers(&self, has_passed: impl Fn(u64) -> bool) -> bool {
        self.entries.front().is_some_and(|entry| match entry {
            Entry::Submitted(ticket) => ticket.outcomes().is_some(),
            Entry::Refused { .. } | Entry::Frame(_) => true,
            Entry::BehindOutbox { end, .. } => has_passed(*end),
        })
    }

    /// Appends all answers that are ready, in order. `has_passed` as in [`Self::has_answers`].
    pub(super) fn answer(
        &mut self,
        wording: &impl Wording,
        has_passed: impl Fn(u64) -> bool,
        out: &mut Vec<u8>,
    ) {
        while self.has_answers(&has_passed) {
            match self.entries.pop_front() {
                Some(Entry::Frame(frame)) => self.answer_frame(wording, &frame, out),
                Some(Entry::BehindOutbox { frame, .. }) => {
                    self.behind_outbox -= 1;
                    self.answer_frame(wording, &frame, out);
                }
                Some(Entry::Refused { problem, count, room }) => {
                    room.iter().for_each(|room| self.refusing.write_ping(room, out));
                    self.fail(wording, &problem, count, out);
                }
                Some(Entry::Submitted(ticket)) => self.answer_ticket(wording, &ticket, out),
                None => {}
            }
        }
    }

    fn answer_frame(&mut self, wording: &impl Wording, frame: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(frame);
        wording.finish(start, out);
        self.frames -= 1;
    }

    fn answer_ticket(&mut self, wording: &impl Wording, ticket: &Ticket, out: &mut Vec<u8>) {
        match ticket.outcomes() {
            None => {}
            Some(Ok(outcomes)) => {
                for outcome in outcomes {
                    let start = out.len();
                    self.labels.pop(|label| answer_one(wording, label, outcome, out));
                    wording.finish(start, out);
                }
            }
            Some(Err(error)) => {
                for lane in self.waiter.acknowledge_failure(ticket) {
                    if let SendLane::Room(room) = lane
                        && let Ok(room) = RoomId::new(&room)
                    {
                        self.refusing.insert(&room);
                        self.refusing.write_ping(&room, out);
                    }
                }
                self.fail(wording, &Problem::from(error), ticket.count(), out);
            }
        }
    }

    fn fail(&mut self, wording: &impl Wording, problem: &Problem, count: usize, out: &mut Vec<u8>) {
        for _ in 0..count {
            let start = out.len();
            self.labels.pop(|label| wording.failure(label, problem, out));
            wording.finish(start, out);
        }
    }

    /// Gives memory back; for connections that fall idle.
    pub(super) fn release(&mut self) {
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
            self.labels.release();
        }
    }
}

fn is_message(op: &Op<'_>) -> bool {
    matches!(op, Op::Send(_))
}

fn answer_one(wording: &impl Wording, label: Label<'_>, outcome: &Outcome, out: &mut Vec<u8>) {
    match (label.about, outcome) {
        (About::Message(id), outcome) => match sent(outcome) {
            Ok(sent) => wording.success(id, label, sent, out),
            Err(problem) => wording.failure(label, &problem, out),
        },
        (About::Mark(room), Outcome::Read(mark)) => wording.marked(room, label, mark, out),
        (About::Mark(_), Outcome::Refused(refusal)) => {
            wording.failure(label, &Problem::refusal(*refusal), out);
        }
        (About::Mark(_), _) => wording.failure(label, &Problem::no_outcome(), out),
    }
}
