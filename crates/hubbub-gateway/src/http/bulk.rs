//! `POST /v1/messages`: many messages as NDJSON in, their receipts as NDJSON out, in the same order, streamed.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hubbub_core::draft::{MessageDraft, Rules};
use hubbub_core::{ErrorCode, Op, OpBatch, Outcome};
use hubbub_pipeline::{Ticket, Waiter};
use hyper::body::{Body as _, Frame};

use super::endpoint::Call;
use super::request_body::too_slow;
use super::send::{refuse_idempotency_key, write_receipt};
use super::streamed::{Gone, Writer, streamed};
use super::{Answer, RequestBody, stream_response};
use crate::Gateway;
use crate::auth::caller::Caller;
use crate::auth::session::Session;
use crate::incoming_memory::{Full, Share};
use crate::json;
use crate::outgoing_memory::{self, Reader};
use crate::problem::{Problem, Sent, sent};
use crate::rates::{Charged, REFUSED_MAX};
use crate::server::Shutdown;
use crate::submit::Ingest;

/// Answers that may wait for a slow reader, in chunks.
const ANSWERS_MAX: usize = 4;
/// Most messages submitted at once: a share of the queue that leaves room for others.
const SUBMIT_MAX: usize = 1_000;
/// Bytes of messages that are taken before they are submitted.
const SUBMIT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A buffer of messages that is larger is not kept for the next ones: who sends nothing more may stay for long.
const OPS_KEPT_BYTES: usize = 64 * 1024;

pub(super) async fn send_bulk(call: Call) -> Answer {
    refuse_idempotency_key(&call)?;
    let gateway = call.gateway();
    let caller = call.caller()?;
    let charged = call.charged();
    let (writer, answers) = streamed(ANSWERS_MAX);
    let stream = Stream {
        gateway: gateway.clone(),
        reader: call.peer.reader.clone(),
        session: Session::open(&gateway.auth, &caller),
        caller,
        charged,
        share: Share::new(&gateway.incoming_memory),
        rest: BytesMut::new(),
        searched: 0,
        is_read: false,
        waiter: Arc::new(Waiter::default()),
        ops: OpBatch::default(),
        lines: Vec::new(),
        lines_bytes: 0,
        under_way_bytes: 0,
        out: Vec::new(),
        refused_by: None,
        refused: 0,
        shutdown: call.peer.shutdown.clone(),
    };
    let mut body = call.request.into_body();
    let (body_timeout, mut ahead) = (stream.gateway.server.body_timeout, None);
    if body.is_to_be_asked_for() {
        // Once the answer begins, it is not asked for any more.
        ahead = next_frame(&mut None, &mut body, body_timeout).await;
        if ahead.is_none() {
            body.give_up();
            return Err(too_slow(body_timeout));
        }
    }
    tokio::spawn(stream.serve(body, ahead, writer));
    Ok(stream_response("application/x-ndjson", answers))
}

/// What reading on in a body gave; `None` is its end.
type Read = Option<Result<Frame<Bytes>, hyper::Error>>;

/// The frame that was read `ahead`, or the next one; `None` if that does not come in time.
async fn next_frame(
    ahead: &mut Option<Read>,
    body: &mut RequestBody,
    body_timeout: Duration,
) -> Option<Read> {
    if ahead.is_some() {
        return ahead.take();
    }
    tokio::time::timeout(body_timeout, body.frame()).await.ok()
}

struct Stream {
    gateway: Arc<Gateway>,
    /// Who takes the answers.
    reader: Arc<Reader>,
    caller: Caller,
    charged: Charged,
    /// What was read and is not answered.
    share: Share,
    /// What was read behind the lines that were taken.
    rest: BytesMut,
    /// Bytes of it in which the end of a line was looked for.
    searched: usize,
    /// Whether nothing more is read: the body has ended, or what would come is of no use.
    is_read: bool,
    /// Ends with the caller's token, which a long stream may outlive.
    session: Session,
    waiter: Arc<Waiter>,
    /// Checked messages that are not submitted yet.
    ops: OpBatch,
    /// For each line that is not answered yet: the id of its message, or what is wrong with it.
    lines: Vec<Result<String, Problem>>,
    /// What they take, and those that are under way.
    lines_bytes: usize,
    under_way_bytes: usize,
    out: Vec<u8>,
    /// Once the queue was full, or a rate exceeded, the rest of the stream is refused too, so that a retry keeps the order.
    refused_by: Option<Problem>,
    /// Lines refused for a rate, or for a token that has ended.
    refused: u32,
    shutdown: Shutdown,
}

impl Stream {
    /// Runs until the end, or until others need the memory.
    async fn serve(mut self, body: RequestBody, ahead: Option<Read>, writer: Writer) {
        let holder = self.share.holder();
        let broken = tokio::select! {
            biased;
            () = holder.given_up() => Some(ErrorKind::ConnectionAborted),
            ended = self.run(body, ahead, &writer) => ended.err().map(|Gone| ErrorKind::TimedOut),
        };
        // The client may still read what waits, and must not take that for all of it.
        if let Some(broken) = broken {
            writer.abort(broken.into());
        }
    }

    /// While a piece of the stream is on its way to the store the next one is read, so that a slow store gets large
    /// batches from few clients.
    async fn run(
        &mut self,
        mut body: RequestBody,
        mut ahead: Option<Read>,
        writer: &Writer,
    ) -> Result<(), Gone> {
        let mut under_way = None;
        let body_timeout = self.gateway.server.body_timeout;
        loop {
            let may_read = self.take_lines();
            if under_way.is_none() && !self.lines.is_empty() {
                under_way = Some(self.submit());
                // There is room for lines that were read already.
                continue;
            }
            tokio::select! {
                biased;
                () = arrival(&self.waiter, under_way.as_ref()), if under_way.is_some() => {
                    let Some(piece) = under_way.take() else { continue };
                    self.answer(piece, writer).await?;
                }
                () = self.shutdown.requested(), if may_read && ahead.is_none() && !body.is_end_stream() => self.stop(),
                frame = next_frame(&mut ahead, &mut body, body_timeout), if may_read => match frame {
                    Some(Some(Ok(frame))) => {
                        self.rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                    }
                    Some(None) => self.is_read = true,
                    // A client that went away or stalled. What was accepted is durable; a retry finds it by its id.
                    Some(Some(Err(_))) | None => return Err(Gone),
                },
                else => return Ok(()),
            }
        }
    }

    /// Takes the whole lines out of what was read, as many as there is room for. Whether more may be read.
    fn take_lines(&mut self) -> bool {
        while self.has_room() {
            let Some(end) = memchr::memchr(b'\n', self.rest.get(self.searched..).unwrap_or_default()) else {
                self.searched = self.rest.len();
                self.take_last_line();
                break;
            };
            let line = self.rest.split_to(self.searched + end);
            self.searched = 0;
            self.rest.advance(1);
            self.take_line(&line);
            if self.refused >= REFUSED_MAX {
                // The client does not seem to read the answers.
                self.rest.clear();
                self.is_read = true;
            }
            // A short line may be a long problem.
            if self.lines.last().is_some_and(Result::is_err) && !self.may_hold() {
                return false;
            }
        }
        self.may_hold() && self.has_room() && !self.is_read
    }

    /// Reads nothing more, and refuses the line that would be taken next: the server shuts down. Those behind it get no answer.
    fn stop(&mut self) {
        self.rest.clear();
        self.searched = 0;
        self.is_read = true;
        let detail =
            "the server is shutting down; send this line and those behind it again to another one, or later";
        self.push(Err(Problem::new(ErrorCode::ShuttingDown, detail)));
    }

    /// Takes the line that goes on, if it is the last one: nothing follows, or it is too long already.
    fn take_last_line(&mut self) {
        if self.is_read || self.rest.len() > self.gateway.limits.body_bytes {
            self.is_read = true;
            self.searched = 0;
            let line = std::mem::take(&mut self.rest);
            self.take_line(&line);
        }
    }

    fn has_room(&self) -> bool {
        self.lines.len() < SUBMIT_MAX && self.ops.bytes() < SUBMIT_BYTES_MAX
    }

    /// Counts what is held. If all connections hold too much, what is whole is answered first; a line that alone is too much
    /// is refused, and with it the rest of the stream.
    fn may_hold(&mut self) -> bool {
        let held_bytes = self.rest.len() + self.ops.bytes() + self.lines_bytes + self.under_way_bytes;
        if self.share.set(held_bytes).is_ok() {
            return true;
        }
        if self.lines.is_empty() && self.under_way_bytes == 0 {
            self.share.count_refusal();
            self.push(Err(Full.into()));
            self.rest.clear();
            self.is_read = true;
        }
        false
    }

    fn take_line(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if !line.is_empty() {
            let checked = self.check(line);
            if let Err(problem) = &checked
                && matches!(problem.code, ErrorCode::TooManyRequests | ErrorCode::Unauthorized)
            {
                self.refused += 1;
            }
            self.push(checked);
        }
    }

    fn push(&mut self, line: Result<String, Problem>) {
        self.lines_bytes += size_of_val(&line) + line.as_ref().map_or_else(Problem::held_bytes, String::len);
        self.lines.push(line);
    }

    fn check(&mut self, line: &[u8]) -> Result<String, Problem> {
        let line_bytes_max = self.gateway.limits.body_bytes;
        if line.len() > line_bytes_max {
            let detail = format!("a line may have at most {line_bytes_max} bytes");
            return Err(Problem::new(ErrorCode::TooLarge, detail));
        }
        if !self.charged.is_nobody() && self.refused_by.is_none() {
            let charge = self.gateway.rates.charge(&self.charged, line.len(), self.gateway.clock.monotonic());
            self.refused_by = charge.err().map(Problem::from);
        }
        let draft: MessageDraft<'_> = json::object_of_bytes(line)?;
        let now = self.gateway.now();
        if let Some(ended) = self.session.ended_at(|| now) {
            return Err(ended.problem());
        }
        let ingest = Ingest { rules: Rules::Api, room: None, caller: &self.caller, key: None, now };
        let (ops, refused_by) = (&mut self.ops, &self.refused_by);
        self.gateway.check(&draft, &ingest, |sent| {
            let id = sent.id.to_owned();
            if let Some(problem) = refused_by {
                return Err(Problem { message_id: Some(id), ..problem.clone() });
            }
            ops.push(&Op::Send(*sent));
            Ok(id)
        })?
    }

    fn submit(&mut self) -> SubmittedLines {
        let lines = std::mem::take(&mut self.lines);
        self.under_way_bytes = std::mem::take(&mut self.lines_bytes);
        if self.ops.is_empty() {
            return SubmittedLines { lines, ticket: Ok(None) };
        }
        let submitted = self.gateway.log.submit(&self.ops, &self.waiter);
        let count = self.ops.len() as u64;
        if self.ops.bytes() > OPS_KEPT_BYTES {
            self.ops = OpBatch::default();
        } else {
            self.ops.clear();
        }
        let ticket = submitted.map(Some).map_err(|error| {
            let problem = Problem::from(error);
            self.gateway.metrics.reject(problem.code, count);
            problem
        });
        SubmittedLines { lines, ticket }
    }

    /// Refuses what was checked while another piece failed, and all that follows.
    fn refuse_rest(&mut self, problem: &Problem) {
        self.ops.clear();
        for line in &mut self.lines {
            if let Ok(id) = line {
                self.lines_bytes += problem.held_bytes();
                *line = Err(Problem { message_id: Some(std::mem::take(id)), ..problem.clone() });
            }
        }
        self.refused_by = Some(problem.clone());
    }

    async fn answer(&mut self, piece: SubmittedLines, writer: &Writer) -> Result<(), Gone> {
        let SubmittedLines { lines, ticket } = piece;
        let epoch = self.gateway.epoch_of(ticket.as_ref().ok().and_then(Option::as_ref));
        let result = ticket.and_then(|ticket| match ticket.as_ref().map(Ticket::outcomes) {
            None => Ok(Vec::new()),
            Some(Some(Ok(outcomes))) => Ok(outcomes.to_vec()),
            Some(Some(Err(error))) => Err(Problem::from(error)),
            Some(None) => Err(Problem::new(ErrorCode::Internal, "the store gave no outcome")),
        });
        if let Err(problem) = &result {
            self.refuse_rest(problem);
        }
        let mut outcomes = result.as_ref().map(|outcomes| outcomes.iter()).map_err(Clone::clone);
        for line in lines {
            if let Err(problem) = &line {
                self.gateway.metrics.reject(problem.code, 1);
            }
            self.out.push(b'{');
            match line.and_then(|id| Ok((next_sent(&id, &mut outcomes)?, id))) {
                Ok((sent, id)) => write_receipt(&id, sent, &epoch, &mut self.out),
                Err(problem) => problem.write_members(&mut self.out),
            }
            self.out.extend_from_slice(b"}\n");
        }
        self.under_way_bytes = 0;
        // Who does not read gives up what it holds, as who does not send.
        let answers = outgoing_memory::charge(&self.reader, std::mem::take(&mut self.out).into());
        writer.write_within(self.gateway.server.write_timeout, answers).await
    }
}

/// The outcome of the next message, whose id this is.
fn next_sent<'a>(
    id: &str,
    outcomes: &mut Result<impl Iterator<Item = &'a Outcome>, Problem>,
) -> Result<Sent<'a>, Problem> {
    let sent = match outcomes {
        Ok(outcomes) => sent(outcomes.next().ok_or_else(Problem::no_outcome)?),
        Err(problem) => Err(problem.clone()),
    };
    sent.map_err(|problem| Problem { message_id: Some(id.to_owned()), ..problem })
}

/// Lines that are on their way together, and the ticket of the messages among them.
struct SubmittedLines {
    lines: Vec<Result<String, Problem>>,
    ticket: Result<Option<Ticket>, Problem>,
}

async fn arrival(waiter: &Waiter, piece: Option<&SubmittedLines>) {
    if let Some(SubmittedLines { ticket: Ok(Some(ticket)), .. }) = piece {
        waiter.wait(ticket).await;
    }
}
