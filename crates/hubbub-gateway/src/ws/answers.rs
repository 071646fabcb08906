//! The messages and read marks of one WebSocket on their way to the log, and all its answers on the way back.

use std::sync::Arc;

use hubbub_core::{Op, OpBatch, Outcome, ReadMark, Refusal, RoomId};
use hubbub_pipeline::{SendLane, Waiter};

use super::refusing::RefusingRooms;
use super::request_queue::{Request, RequestQueue, Subject};
use crate::Gateway;
use crate::connection::pending::{Encoder, Pending};
use crate::connection::socket::Socket;
use crate::problem::{Problem, Sent, sent};
use crate::rates::Exceeded;

pub(super) trait Responses {
    /// The next messages are durable in this history of a shared store.
    fn committed_in(&mut self, _epoch: &Arc<str>) {}
    /// Appends the frame that says a message is durable.
    fn success(&self, id: &str, request: Request<'_>, sent: Sent<'_>, out: &mut Vec<u8>);
    /// Appends the frame, if one is wanted, that gives a room's read mark.
    fn marked(&self, room: &str, request: Request<'_>, mark: &ReadMark, out: &mut Vec<u8>);
    /// Appends the frame that says why a request was refused.
    fn failure(&self, request: Request<'_>, problem: &Problem, out: &mut Vec<u8>);
    /// Called when the answer that begins at `start` is whole.
    fn finish(&self, start: usize, out: &mut Vec<u8>);
}

pub(super) enum Answer {
    /// The refusal of operations of one room that were not submitted.
    Refused { problem: Problem, count: usize, room: Option<RoomId> },
    /// A frame that answers something else.
    Frame(Vec<u8>),
    /// A frame that must follow everything in the outbox before position `end`.
    BehindOutbox { frame: Vec<u8>, end: u64 },
}

impl Answer {
    /// Bytes that it holds, beside itself.
    fn held_bytes(&self) -> usize {
        match self {
            Self::Refused { problem, .. } => problem.held_bytes(),
            Self::Frame(frame) | Self::BehindOutbox { frame, .. } => frame.len(),
        }
    }
}

/// One socket's answers. What is staged at one time is of one room.
pub(super) struct Answers {
    pub(super) pending: Pending<Answer>,
    requests: RequestQueue,
    /// What the answers hold that needed no operation.
    answer_bytes: usize,
    behind_outbox: usize,
    staged_room: String,
    pub(super) refusing: RefusingRooms,
}

impl Answers {
    pub(super) fn new(waiter: Arc<Waiter>) -> Self {
        Self {
            pending: Pending::new(waiter),
            requests: RequestQueue::default(),
            answer_bytes: 0,
            behind_outbox: 0,
            staged_room: String::new(),
            refusing: RefusingRooms::default(),
        }
    }

    /// Takes a checked operation of one room; it goes to the log with the others of this read in `ops`.
    /// With `exceeded` it is refused, and so is what follows in this room until the client can know.
    pub(super) fn stage(
        &mut self,
        gateway: &Gateway,
        ops: &mut OpBatch,
        op: &Op<'_>,
        request: Request<'_>,
        exceeded: Option<Exceeded>,
    ) {
        let room = op.room().unwrap_or_default();
        // Read marks have no order with messages.
        if is_message(op) && self.refusing.contains(room) {
            return self.refuse(gateway, ops, room, request, Problem::refusal(Refusal::OutOfOrder));
        }
        if let Some(exceeded) = exceeded {
            if is_message(op) {
                RoomId::new(room).iter().for_each(|room| self.refusing.insert(room));
            }
            return self.refuse(gateway, ops, room, request, exceeded.into());
        }
        let goes_alone = gateway.log.parts_messages()
            && ops.get(0).is_some_and(|first| is_message(&first) != is_message(op));
        if self.pending.staged() > 0 && (self.staged_room != room || goes_alone) {
            self.submit(gateway, ops);
        }
        if self.pending.staged() == 0 {
            self.staged_room.clear();
            self.staged_room.push_str(room);
            self.requests.push_first(room, request);
        } else {
            self.requests.push(request);
        }
        self.pending.stage(ops, op);
    }

    fn refuse(
        &mut self,
        gateway: &Gateway,
        ops: &mut OpBatch,
        room: &str,
        request: Request<'_>,
        problem: Problem,
    ) {
        self.submit(gateway, ops);
        gateway.metrics.reject(problem.code, 1);
        self.requests.push(request);
        self.push(Answer::Refused { problem, count: 1, room: RoomId::new(room).ok() });
    }

    fn push(&mut self, answer: Answer) {
        self.answer_bytes += answer.held_bytes();
        self.pending.push(answer);
    }

    pub(super) fn submit(&mut self, gateway: &Gateway, ops: &mut OpBatch) {
        let Self { pending, refusing, staged_room, answer_bytes, .. } = self;
        pending.submit(gateway, ops, |refused, problem, count| {
            let room = RoomId::new(staged_room).ok();
            if refused.iter().any(|op| is_message(&op)) {
                room.iter().for_each(|room| refusing.insert(room));
            }
            let answer = Answer::Refused { problem, count, room };
            *answer_bytes += answer.held_bytes();
            answer
        });
    }

    pub(super) fn push_frame(&mut self, gateway: &Gateway, ops: &mut OpBatch, frame: Vec<u8>) {
        self.submit(gateway, ops);
        self.push(Answer::Frame(frame));
    }

    /// Answers with a frame, behind everything before it and everything in the outbox up to `end`.
    pub(super) fn push_behind_outbox(
        &mut self,
        gateway: &Gateway,
        ops: &mut OpBatch,
        frame: Vec<u8>,
        end: u64,
    ) {
        self.submit(gateway, ops);
        self.behind_outbox += 1;
        self.push(Answer::BehindOutbox { frame, end });
    }

    /// Whether an answer waits, now or behind others, for the outbox.
    pub(super) fn waits_for_outbox(&self) -> bool {
        self.behind_outbox > 0
    }

    /// Appends all answers that are ready, in order; `false` when there are none. `has_passed` says of a position in the
    /// outbox whether everything before it was appended.
    pub(super) fn encode(
        &mut self,
        responses: impl Responses,
        has_passed: impl Fn(u64) -> bool,
        socket: &mut Socket,
    ) -> bool {
        let Self { pending, requests, answer_bytes, behind_outbox, refusing, .. } = self;
        let mut encoder =
            FrameEncoder { responses, has_passed, requests, answer_bytes, behind_outbox, refusing };
        let has_answered = pending.encode(&mut encoder, socket);
        self.refusing.forget_answered(self.requests.oldest());
        has_answered
    }

    pub(super) fn on_pong(&mut self, payload: &[u8]) {
        self.refusing.on_pong(payload, self.requests.next());
    }

    /// Bytes that are held of requests until they are answered, and of answers until those before them are.
    pub(super) fn held_bytes(&self) -> usize {
        self.requests.bytes() + self.pending.entry_bytes() + self.answer_bytes
    }

    /// Forgets all of it, for a socket that ends at once.
    pub(super) fn forget(&mut self) {
        self.pending.forget();
        (self.requests, self.answer_bytes, self.behind_outbox) = (RequestQueue::default(), 0, 0);
    }

    pub(super) fn release(&mut self) {
        self.pending.release();
        self.requests.release();
    }
}

fn is_message(op: &Op<'_>) -> bool {
    matches!(op, Op::Send(_))
}

struct FrameEncoder<'a, R, F> {
    responses: R,
    has_passed: F,
    requests: &'a mut RequestQueue,
    answer_bytes: &'a mut usize,
    behind_outbox: &'a mut usize,
    refusing: &'a mut RefusingRooms,
}

impl<R: Responses, F: Fn(u64) -> bool> FrameEncoder<'_, R, F> {
    fn frame(&self, frame: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(frame);
        self.responses.finish(start, out);
    }

    /// Appends the refusals of requests of one room, with its ping right before the first of a message that came since the room
    /// was opened. Whoever has read what is before the ping may send to this room without knowing of it.
    fn refuse(&mut self, problem: &Problem, count: usize, room: Option<&RoomId>, out: &mut Vec<u8>) {
        let Self { responses, requests, refusing, .. } = self;
        for _ in 0..count {
            let number = requests.oldest();
            requests.pop(|request| {
                if matches!(request.subject, Subject::Message(_)) {
                    room.iter().for_each(|room| refusing.before_refusal(room, number, out));
                }
                let start = out.len();
                responses.failure(request, problem, out);
                responses.finish(start, out);
            });
        }
    }
}

impl<R: Responses, F: Fn(u64) -> bool> Encoder<Answer> for FrameEncoder<'_, R, F> {
    fn is_ready(&mut self, answer: &mut Answer) -> bool {
        match answer {
            Answer::Refused { .. } | Answer::Frame(_) => true,
            Answer::BehindOutbox { end, .. } => (self.has_passed)(*end),
        }
    }

    fn answer(&mut self, answer: Answer, out: &mut Vec<u8>) {
        *self.answer_bytes -= answer.held_bytes();
        match answer {
            Answer::Frame(frame) => self.frame(&frame, out),
            Answer::BehindOutbox { frame, .. } => {
                *self.behind_outbox -= 1;
                self.frame(&frame, out);
            }
            Answer::Refused { problem, count, room } => self.refuse(&problem, count, room.as_ref(), out),
        }
    }

    fn committed_in(&mut self, epoch: &Arc<str>) {
        self.responses.committed_in(epoch);
    }

    fn outcome(&mut self, outcome: &Outcome, out: &mut Vec<u8>) {
        if *outcome == Outcome::Refused(Refusal::OutOfOrder) {
            let room = RoomId::new(self.requests.room()).ok();
            return self.refuse(&Problem::refusal(Refusal::OutOfOrder), 1, room.as_ref(), out);
        }
        let start = out.len();
        self.requests.pop(|request| encode_outcome(&self.responses, request, outcome, out));
        self.responses.finish(start, out);
    }

    fn failure(&mut self, problem: &Problem, count: usize, lanes: Vec<SendLane>, out: &mut Vec<u8>) {
        for lane in lanes {
            if let SendLane::Room(room) = lane
                && let Ok(room) = RoomId::new(&room)
            {
                self.refusing.insert(&room);
            }
        }
        let room = RoomId::new(self.requests.room()).ok();
        self.refuse(problem, count, room.as_ref(), out);
    }
}

fn encode_outcome(responses: &impl Responses, request: Request<'_>, outcome: &Outcome, out: &mut Vec<u8>) {
    match (request.subject, outcome) {
        (Subject::Message(id), outcome) => match sent(outcome) {
            Ok(sent) => responses.success(id, request, sent, out),
            Err(problem) => responses.failure(request, &problem, out),
        },
        (Subject::Mark(room), Outcome::Read(mark)) => responses.marked(room, request, mark, out),
        (Subject::Mark(_), Outcome::Refused(refusal)) => {
            responses.failure(request, &Problem::refusal(*refusal), out);
        }
        (Subject::Mark(_), _) => responses.failure(request, &Problem::no_outcome(), out),
    }
}

#[cfg(test)]
mod tests {
    use hubbub_core::clock::ManualClock;
    use hubbub_core::{Change, ErrorCode, RoomChange, Timestamp};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::fixture;

    /// Each answer is the id of its message.
    struct Ids;

    impl Responses for Ids {
        fn success(&self, _: &str, _: Request<'_>, _: Sent<'_>, _: &mut Vec<u8>) {
            unreachable!("nothing succeeds");
        }

        fn marked(&self, _: &str, _: Request<'_>, _: &ReadMark, _: &mut Vec<u8>) {
            unreachable!("nothing succeeds");
        }

        fn failure(&self, request: Request<'_>, _: &Problem, out: &mut Vec<u8>) {
            let (Subject::Message(text) | Subject::Mark(text)) = request.subject;
            out.extend_from_slice(text.as_bytes());
        }

        fn finish(&self, _: usize, _: &mut Vec<u8>) {}
    }

    /// They wait behind others for as long as the client likes.
    #[tokio::test]
    async fn answers_that_wait_are_counted() {
        let gateway = fixture::gateway(Arc::new(ManualClock::at(fixture::now()))).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut socket = Socket::new(listener.accept().await.unwrap().0);
        let (mut answers, mut ops) = (Answers::new(Arc::new(Waiter::ordered())), OpBatch::default());
        answers.push_behind_outbox(&gateway, &mut ops, vec![b'a'; 10_000], 1);
        answers.push_frame(&gateway, &mut ops, vec![b'a'; 10_000]);
        let problem = Problem::new(ErrorCode::Overloaded, "a".repeat(10_000));
        answers.refuse(
            &gateway,
            &mut ops,
            "r",
            Request { subject: Subject::Message("id"), extra: "", received_at: Timestamp::default() },
            problem,
        );
        assert!(!answers.encode(Ids, |_| false, &mut socket));
        assert!(answers.held_bytes() > 30_000, "{}", answers.held_bytes());
        assert!(answers.encode(Ids, |_| true, &mut socket));
        assert_eq!(answers.held_bytes(), 0);
    }

    /// Marks have no order with messages, and no ping goes before their refusals.
    #[tokio::test]
    async fn a_refused_mark_closes_no_room() {
        let gateway = fixture::gateway(Arc::new(ManualClock::at(fixture::now()))).await;
        let (mut answers, mut ops) = (Answers::new(Arc::new(Waiter::ordered())), OpBatch::default());
        let what = RoomChange::MarkRead { room: "r", user: "ada", seq: 1 };
        let mark = Op::Change(Change { by: None, what });
        let request = Request { subject: Subject::Mark("r"), extra: "", received_at: Timestamp::default() };
        let exceeded = Exceeded { retry_after: std::time::Duration::ZERO };
        answers.stage(&gateway, &mut ops, &mark, request, Some(exceeded));
        assert!(!answers.refusing.contains("r"));
        answers.refusing.insert(&RoomId::new("r").unwrap());
        answers.stage(&gateway, &mut ops, &mark, request, None);
        assert_eq!(answers.pending.staged(), 1);
    }

    /// Several rooms of a batch fail. Whoever has read the refusal in one of them does not know of those in the others.
    #[test]
    fn the_ping_of_a_room_is_right_before_its_first_refusal() {
        let (mut requests, mut answer_bytes, mut behind_outbox) = (RequestQueue::default(), 0, 0);
        let mut refusing = RefusingRooms::default();
        let request = |subject| Request { subject, extra: "", received_at: Timestamp::default() };
        requests.push_first("a", request(Subject::Message("a1")));
        requests.push(request(Subject::Message("a2")));
        requests.push_first("b", request(Subject::Mark("b")));
        requests.push(request(Subject::Message("b1")));
        let lanes = ["a", "b"].map(|room| SendLane::Room(room.to_owned())).to_vec();
        let problem = Problem::new(ErrorCode::Unavailable, "away");
        let mut encode = |lanes, refusing: &mut RefusingRooms| {
            let mut encoder = FrameEncoder {
                responses: Ids,
                has_passed: |_| true,
                requests: &mut requests,
                answer_bytes: &mut answer_bytes,
                behind_outbox: &mut behind_outbox,
                refusing,
            };
            let mut out = Vec::new();
            encoder.failure(&problem, 2, lanes, &mut out);
            out
        };
        let ping = |number: u8| [0x89, 8, 0, 0, 0, 0, 0, 0, 0, number];
        assert_eq!(encode(lanes, &mut refusing), [&ping(1)[..], b"a1a2"].concat());
        refusing.on_pong(&1_u64.to_be_bytes(), 4);
        assert!(!refusing.contains("a") && refusing.contains("b"));
        assert_eq!(encode(Vec::new(), &mut refusing), [b"b", &ping(2)[..], b"b1"].concat());
        refusing.on_pong(&2_u64.to_be_bytes(), 4);
        assert!(!refusing.contains("b"));
    }
}
