//! Messages and read marks on their way from one socket to the log, and their answers on the way back, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use hubbub_core::{ErrorCode, Op, OpBatch, Outcome, ReadMark, RoomId};
use hubbub_pipeline::{Log, Metrics, Ticket, Waiter};

use super::labels::{About, Label, Labels};
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
}

enum Entry {
    /// Submitted operations, each with a label.
    Submitted(Ticket),
    /// Operations refused without being submitted, each with a label.
    Refused(Problem, usize),
    /// A frame that answers something else.
    Frame(Vec<u8>),
}

/// One socket's messages and read marks.
pub(super) struct Sends {
    waiter: Arc<Waiter>,
    entries: VecDeque<Entry>,
    labels: Labels,
    /// Entries that are a [`Entry::Frame`].
    frames: usize,
    /// Operations of the current read, all of one room, that are not submitted yet.
    staged: usize,
    staged_room: String,
    /// Rooms whose later frames are refused too, because one was refused for overload: the sender cannot know yet,
    /// and a retry must not fall behind what it already sent after it.
    refusing: Vec<RoomId>,
}

impl Sends {
    pub(super) fn new(waiter: Arc<Waiter>) -> Self {
        Self {
            waiter,
            entries: VecDeque::new(),
            labels: Labels::default(),
            frames: 0,
            staged: 0,
            staged_room: String::new(),
            refusing: Vec::new(),
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
        if self.refusing.iter().any(|refusing| refusing.as_str() == room) {
            self.submit(log, metrics, ops);
            metrics.reject(ErrorCode::Overloaded, 1);
            self.labels.push(label);
            self.entries.push_back(Entry::Refused(hubbub_pipeline::SubmitError::Overloaded.into(), 1));
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
                self.refusing.extend(RoomId::new(&self.staged_room));
                Entry::Refused(problem, self.staged)
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

    /// The socket was read empty: what comes next was sent with the refusals known, or at its sender's own risk.
    pub(super) fn read_empty(&mut self) {
        self.refusing.clear();
    }

    /// Frames that are not answered yet.
    pub(super) fn unanswered(&self) -> usize {
        self.labels.len() + self.frames
    }

    /// Whether the oldest frame can be answered now.
    pub(super) fn has_answers(&self) -> bool {
        self.entries.front().is_some_and(|entry| match entry {
            Entry::Submitted(ticket) => ticket.outcomes().is_some(),
            Entry::Refused(..) | Entry::Frame(_) => true,
        })
    }

    /// Appends all answers that are ready, in order.
    pub(super) fn answer(&mut self, wording: &impl Wording, out: &mut Vec<u8>) {
        while let Some(entry) = self.entries.front() {
            match entry {
                Entry::Frame(frame) => {
                    out.extend_from_slice(frame);
                    self.frames -= 1;
                }
                Entry::Refused(problem, count) => {
                    for _ in 0..*count {
                        self.labels.pop(|label| wording.failure(label, problem, out));
                    }
                }
                Entry::Submitted(ticket) => match ticket.outcomes() {
                    None => return,
                    Some(Ok(outcomes)) => {
                        for outcome in outcomes {
                            self.labels.pop(|label| answer_one(wording, label, outcome, out));
                        }
                    }
                    Some(Err(error)) => {
                        let problem = Problem::from(error);
                        for _ in 0..ticket.count() {
                            self.labels.pop(|label| wording.failure(label, &problem, out));
                        }
                    }
                },
            }
            self.entries.pop_front();
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
